"""The scripts on a GPU (skipped without one), and benchmark.gpu."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from script_runs import SCRIPTS, env_id, progress, tiny

from benchmark import gpu

ROOT = Path(__file__).parent.parent
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")


def conv_sac(device):
    """What an update of conv_sac.py needs, as `gpu.make`."""
    module = importlib.import_module("conv_sac")
    args = module.parse_args(["--device", device, "--batch-size", "8", "--shift-pad", "0"])
    args.target_entropy = -2.0
    torch.manual_seed(0)
    agent = module.Agent((3, 36, 36), 2, args)
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (2, 8, 3, 1, 36, 36), generator=generator, dtype=torch.uint8)
    obs, next_obs = pictures
    action = torch.rand(8, 2, generator=generator) * 2 - 1
    reward, discount = torch.rand(2, 8, 1, generator=generator)
    batch = [obs, action, reward, next_obs, torch.zeros(8, 1), discount]
    optimizers = module.make_optimizers(agent, args)
    return module, agent, optimizers, lambda: [x.to(device) for x in batch], args


def make(script, device):
    return conv_sac(device) if script == "conv_sac" else gpu.make(script, device)


def one_update(script, device, monkeypatch):
    """The agent's parameters after one update with noise that no device draws."""
    module, agent, optimizers, draw, args = make(script, device)
    generator = torch.Generator().manual_seed(1)

    def noise(x):
        return torch.randn(x.shape, generator=generator).to(x.device)

    monkeypatch.setattr(torch, "randn_like", noise)
    # SGD: Adam's first step is the sign of the gradient, which rounding can turn.
    optimizers = {
        name: torch.optim.SGD(x.param_groups[0]["params"], 0.1) for name, x in optimizers.items()
    }
    gpu.update_call(module, agent, optimizers, draw(), args)()
    return {name: x.cpu() for name, x in agent.state_dict().items()}


@needs_gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_update_is_the_same_on_cpu_and_gpu(script, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    here, there = (one_update(script, device, monkeypatch) for device in ("cpu", "cuda"))
    for name, value in here.items():
        torch.testing.assert_close(there[name], value, rtol=1e-3, atol=1e-5, msg=name)


@needs_gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_an_update_never_waits_for_the_gpu(script):
    module, agent, optimizers, draw, args = make(script, "cuda")
    batch = draw()
    call = gpu.update_call(module, agent, optimizers, batch, args)
    call()  # the first one prepares
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()


def start(script, *argv):
    """Runs a script in a process of its own."""
    command = [sys.executable, ROOT / f"{script}.py", *map(str, argv)]
    paths = [str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.run(command, capture_output=True, text=True, env=env)


@needs_gpu
@pytest.mark.parametrize(("first", "second"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_run_goes_on_and_is_evaluated_on_either_device(script, first, second, tmp_path):
    folder = tmp_path / "run"
    ended = start(script, *tiny(script, "--device", first, "--run-dir", folder))
    assert ended.returncode == 0, ended.stderr
    ended = start(script, "--resume", folder, "--device", second, "--total-steps", 100)
    assert ended.returncode == 0, ended.stderr
    assert [row["global_step"] for row in progress(folder)] == ["0", "25", "50", "75", "100"]
    ours = ["--env-id", env_id(script)]  # the toy's module is allowed by naming it
    ended = start(script, "--evaluate", folder, "--device", first, "--eval-episodes", 2, *ours)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("episodes 2 ")


# ---- benchmark.gpu ----


@pytest.mark.parametrize("script", gpu.SCRIPTS)
def test_the_timed_update_learns_every_part(script):
    module, agent, optimizers, draw, args = gpu.make(script, "cpu", 4, 10)
    before = {name: x.clone() for name, x in agent.named_parameters()}
    gpu.update_call(module, agent, optimizers, draw(), args)()
    same = [name for name, x in agent.named_parameters() if torch.equal(x, before[name])]
    assert same == []


def test_a_block_of_calls_is_timed_per_call():
    calls = []
    milliseconds = gpu.milliseconds(lambda: sum(range(20_000), calls.append(0) or 0), "cpu", 0.01)
    assert 0 < milliseconds < 10
    assert (len(calls) - 6) % gpu.BLOCKS == 0


def test_a_row_for_each_script_batch_and_context(capsys):
    words = "--scripts sac rsac --batch-sizes 2 4 --context-lengths 0 8 --devices cpu"
    gpu.main(gpu.parse_args([*words.split(), "--num-threads", "1", "--seconds", "0.001"]))
    rows = [line.split("|")[1:5] for line in capsys.readouterr().out.splitlines()[3:]]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert cells == [
        [script, str(size), length, "cpu"]
        for script, lengths in (("sac", ["-"]), ("rsac", ["0", "8"]))
        for size in (2, 4)
        for length in lengths
    ]
