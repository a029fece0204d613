"""Variants: scripts with a few lines replaced, in benchmark/variants."""

import copy
import csv
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from script_runs import ROOT, tiny

from benchmark import import_script, open_run
from benchmark.values import predict
from benchmark.variants import variant

FOLDER = ROOT / "benchmark" / "variants"
VARIANTS = sorted(path.stem for path in FOLDER.glob("*-*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_learns_and_its_run_bears_its_name(name, tmp_path):
    argv = tiny(variant.script_of(name), "--hidden-dims", 6, 5, "--buffer-size", 400)
    command = [sys.executable, FOLDER / f"{name}.py", *argv]
    path = {"PYTHONPATH": str(ROOT / "tests")}
    ended = subprocess.run(
        command, cwd=tmp_path, env=os.environ | path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith(f"toy_envs_Toy-v0__{name}__0__")
    rows = list(csv.DictReader((folder / "progress.csv").read_text().splitlines()))
    assert int(rows[-1]["num_updates"]) > 0
    agent, envs = open_run(folder, env_id="toy_envs:Toy-v0")  # as film and readout do
    obs, _ = envs.reset(seed=0)
    assert agent.act(obs, deterministic=True)[0].shape == (envs.num_envs, 2)


def test_a_variant_of_a_text_that_is_not_there_once_is_refused():
    for old in ("no such line", "\n"):
        with pytest.raises(ValueError, match="not once"):
            variant.changed_source("sac-new.py", (old, ""))


def test_a_variant_differs_from_its_script_in_its_name_and_the_lines_it_replaces():
    script = (ROOT / "sac.py").read_text().splitlines()
    source = variant.changed_source("sac-new.py", ("log_std.clamp(-20, 2)", "log_std"))
    changed = [b for a, b in zip(script, source.splitlines(), strict=True) if a != b]
    assert changed == ["        return mean, log_std", 'SCRIPT = "sac-new"']


def test_the_paper_s_networks_have_two_layers_and_a_memory_for_each_critic():
    module = import_script("rsac-paper")
    args = module.parse_args(["--rnn-dim", "8", "--hidden-dims", "64"])
    assert (args.lr, args.tau, args.batch_size, args.memory_input) == (3e-4, 0.005, 10, "obs")
    agent = module.Agent(3, 1, args)
    shapes = [tuple(x.shape) for x in agent.actor.rnn.parameters()]
    biases = [(32,), (32,)]
    assert shapes == [(32, 3), (32, 8), *biases, (32, 8), (32, 8), *biases]  # four gates of 8
    feat, _ = agent.critics.rnn(torch.randn(2, 5, 3))
    action = torch.zeros(2, 5, 1)
    q1, q2 = agent.critics(feat, action)
    feat[..., 11:] += 1  # the feature of the second memory
    new_q1, new_q2 = agent.critics(feat, action)
    assert torch.equal(q1, new_q1)
    assert not torch.equal(q2, new_q2)
    assert not any(isinstance(x, torch.nn.LayerNorm) for x in agent.modules())


def test_resel_s_recipe_has_eight_critics_and_a_slow_memory():
    module = import_script("rsac-resel")
    args = module.parse_args(["--rnn-dim", "8", "--hidden-dims", "6", "5"])
    args.target_entropy = -2.0
    torch.manual_seed(0)
    agent = module.Agent(3, 2, args)
    assert len(agent.critics.qfs) == 8
    optimizers = module.make_optimizers(agent, args)
    rates = {name: [g["lr"] for g in x.param_groups] for name, x in optimizers.items()}
    assert rates == {"critics": [1e-3, 1e-5], "actor": [pytest.approx(3e-4), 1e-5], "alpha": [1e-4]}

    obs = torch.randn(4, 6, 3)
    steps = torch.arange(4) * 6 + 2
    batch = obs, torch.rand(4, 2), torch.randn(4, 1), torch.zeros(4, 1), steps
    for actor_learns in (False, True):
        before = copy.deepcopy(agent.state_dict())
        module.update(agent, optimizers, batch, args, actor_learns)
        after = agent.state_dict()
        changed = {name for name, x in after.items() if not torch.equal(x, before[name])}
        parts = {name.split(".")[0] for name in changed}
        actor = {"actor", "actor_average", "log_alpha"} if actor_learns else set()
        assert parts == {"critics", "critics_target"} | actor
        assert all(f"critics.qfs.{i}.0.weight" in changed for i in range(8))
        if not actor_learns:  # Adam's first step is as long as the learning rate
            moved = (after["critics.rnn.weight_hh_l0"] - before["critics.rnn.weight_hh_l0"]).abs()
            assert moved.max() == pytest.approx(1e-5, rel=0.1)

    obs, action = np.zeros((5, 4, 3), np.float32), np.zeros((5, 4, 2), np.float32)
    feat, _ = agent.critics.rnn(torch.zeros(4, 5, 3))
    q = torch.stack(agent.critics(feat, torch.zeros(4, 5, 2))).mean(dim=0)
    assert np.allclose(predict(agent, obs, action), q[..., 0].T.detach(), atol=1e-6)


def test_without_memory_the_past_changes_nothing():
    module = import_script("rsac-no-memory")
    args = module.parse_args(["--rnn-dim", "4", "--hidden-dims", "6"])
    args.target_entropy = -2.0
    torch.manual_seed(0)
    agent = module.Agent(3, 2, args)
    first, obs = torch.randn(2, 5, 3)
    _, hidden = agent.act(first)
    assert np.array_equal(
        agent.act(obs, hidden, deterministic=True)[0], agent.act(obs, deterministic=True)[0]
    )
    before = copy.deepcopy(agent.state_dict())
    steps = torch.arange(4) * 6 + 2
    batch = torch.randn(4, 6, 3), torch.rand(4, 2), torch.randn(4, 1), torch.zeros(4, 1), steps
    module.update(agent, module.make_optimizers(agent, args), batch, args)
    after = agent.state_dict()
    same = {name for name, x in after.items() if torch.equal(x, before[name])}
    assert same == {x for x in after if ".rnn." in x or "_scale" in x}  # all else learns


def test_pink_noise_is_as_wide_as_before_and_close_to_1_over_f():
    module = import_script("rsac-pink")
    args = module.parse_args(["--num-envs", "50", "--rnn-dim", "2", "--hidden-dims", "2"])
    torch.manual_seed(0)
    agent = module.Agent(1, 2, args)
    agent.actor.net[-1].weight.data.zero_()
    agent.actor.net[-1].bias.data.zero_()  # mean 0 and standard deviation 1, before tanh
    u = np.stack([np.arctanh(agent.act(torch.zeros(50, 1))[0]) for _ in range(1024)])
    assert u.std() == pytest.approx(1, abs=0.05)
    across = np.corrcoef(u[500].T)[0, 1]  # the two actions, in 50 environments
    assert abs(across) < 0.45  # three standard errors
    power = (np.abs(np.fft.rfft(u, axis=0)) ** 2).mean(axis=(1, 2))
    frequency = np.fft.rfftfreq(1024)
    middle = (frequency > 1 / 256) & (frequency < 1 / 5)
    slope, _ = np.polyfit(np.log(frequency[middle]), np.log(power[middle]), 1)
    assert slope == pytest.approx(-1, abs=0.15)

    with pytest.raises(AssertionError):
        agent.act(torch.zeros(1, 1))  # there is a noise for each of 50 environments, not for one

    mean, _ = agent.actor_average(agent.actor_average.rnn(torch.zeros(50, 1, 1))[0])
    mean = torch.tanh(mean).detach()
    assert np.allclose(agent.act(torch.zeros(50, 1), deterministic=True)[0], mean[:, 0])
