"""benchmark.readout: what a line finds in a memory is what is there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from script_runs import RECURRENT, env_id, tiny, train

from benchmark import open_run, readout

ROOT = Path(__file__).parent.parent
NOISE = "toy_envs:ToyNoise-v0"


def test_a_line_finds_what_is_there_and_nothing_else():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((400, 3)).astype(np.float32)
    values[:, 2] = 0.5  # nothing to explain
    hidden = rng.standard_normal((400, 10))
    hidden[:, :4] += np.outer(values[:, 0], rng.standard_normal(4)) * 30
    there, not_there, constant = readout.explained(hidden, values)
    assert there > 0.95
    assert not_there < 0.1
    assert np.isnan(constant)


class RemembersTwo:
    """Acts like an agent whose memory is the last two observations, and nothing else."""

    def act(self, obs, hidden=None, deterministic=False):
        obs = torch.from_numpy(obs[:, :3])
        before = torch.zeros_like(obs) if hidden is None else hidden[0, :, :3]
        return np.zeros((len(obs), 2)), torch.cat([obs, before], dim=1)[None]


def test_each_observation_is_found_where_the_memory_holds_it(tmp_path, monkeypatch, capsys):
    folder, fit, counts = train("rsac", tiny("rsac", env=NOISE), tmp_path), readout.explained, []
    monkeypatch.setattr(readout, "open_run", lambda *x, **y: (RemembersTwo(), open_run(*x, **y)[1]))
    monkeypatch.setattr(readout, "explained", lambda *x: counts.append(len(x[0])) or fit(*x))
    words = ["--episodes", "400", "--of", "2", "--at", "1", "2", "3", "4", "--env-id", NOISE]
    readout.main(readout.parse_args([str(folder), *words]))
    report, _, header, _, *rows = capsys.readouterr().out.splitlines()
    assert report.startswith("400 episodes, mean return ")
    assert header == "| entry of observation 2 | step 1 | step 2 | step 3 | step 4 |"
    table = np.array([row.strip("| ").split(" | ") for row in rows[:3]])  # without the action
    before, now, next_step, later = table.T[1:]
    assert (before.astype(float) < 0.1).all()
    assert (now.astype(float) > 0.99).all()
    assert (next_step.astype(float) > 0.99).all()
    assert (later.astype(float) < 0.1).all()
    # About one of ten observations ends an episode, and what is over counts no more.
    assert 400 > counts[1] > counts[2] > counts[3] > 200


@pytest.mark.parametrize("script", RECURRENT)
def test_an_untrained_memory_tells_the_observation_of_the_same_step(script, tmp_path, capsys):
    folder = train(script, tiny(script, "--rnn-dim", 32, env=NOISE), tmp_path)
    words = ["--episodes", "200", "--at", "0", "--env-id", NOISE]
    readout.main(readout.parse_args([str(folder), *words]))
    rows = capsys.readouterr().out.splitlines()[4:7]
    assert all(float(row.strip("| ").split(" | ")[1]) > 0.8 for row in rows)


class Wanders:
    """Acts at random. Its memory is what it sees."""

    def __init__(self, action_dim):
        self.rng, self.action_dim = np.random.default_rng(0), action_dim

    def act(self, obs, hidden=None, deterministic=False):
        action = self.rng.uniform(-1, 1, (len(obs), self.action_dim)).astype(np.float32)
        return action, torch.from_numpy(obs.copy())[None]


# Task -> where the numbers that it shows are in its full state.
SHOWN = {
    "pendulum-p-v0": [0, 1],
    "cartpole-continuous-p-v0": [0, 2],
    "water-maze-simple-pomdp-v0": [0, 1, 2],
    "bumps-normal-test-v0": [0, 1],
}


@pytest.mark.parametrize("task", SHOWN)
def test_the_full_state_is_that_of_the_same_step_of_the_same_episode(task, monkeypatch):
    if task.startswith("bumps"):
        pytest.importorskip("pybullet")
    fit, pairs = readout.explained, []

    def open_random(*words, **options):
        envs = open_run(*words, **options)[1]
        return Wanders(envs.single_action_space.shape[0]), envs

    monkeypatch.setattr(readout, "open_run", open_random)
    monkeypatch.setattr(readout, "explained", lambda *x: pairs.append(x) or fit(*x))
    words = [str(ROOT / f"policies/{task}__rsac.pt"), "--full-state", "--at", "1", "2", "-1"]
    readout.main(readout.parse_args([*words, "--episodes", "60"]))
    shown = SHOWN[task]
    assert len(pairs) == 3
    for seen, state in pairs:
        assert state.shape[1] > len(shown)
        assert state.std(axis=0).max() > 0.01  # not the same episode again and again
        np.testing.assert_array_equal(seen[:, : len(shown)], state[:, shown])
    assert len(pairs[-1][0]) == 60  # each episode has a last step


def test_a_trained_memory_comes_to_hold_the_velocity_that_it_never_sees(capsys):
    words = [str(ROOT / "policies/pendulum-p-v0__rsac.pt"), "--full-state", "--at", "0", "10", "-1"]
    readout.main(readout.parse_args([*words, "--episodes", "100"]))
    header, _, _, _, velocity = capsys.readouterr().out.splitlines()[2:]
    assert header == "| entry of the full state | step 0 | step 10 | last step |"
    first, later, last = map(float, velocity.strip("| ").split(" | ")[1:])
    assert first < 0.2
    assert later > 0.95
    assert last > 0.95


BAD = {
    "no run": (["nowhere"], "nowhere: No such file"),
    "a step that no episode has": (["RUN", "--at", "7", "--episodes", "20"], "0 episodes"),
    "a script without memory": (["SAC", "--episodes", "20"], "no memory to look into"),
    "no full state": (["RUN", "--full-state"], "no version that shows the full state"),
    "two things at once": (["RUN", "--full-state", "--of", "0"], "leave --of out"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(what, tmp_path):
    words, expected = BAD[what]
    if words[0] in ("RUN", "SAC"):
        script = {"RUN": "rsac", "SAC": "sac"}[words[0]]
        folder = train(script, tiny(script), tmp_path)
        words = [str(folder), *words[1:], "--env-id", env_id(script)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmark.readout", *words],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    *_, last = done.stderr.splitlines()  # after the line about device and threads
    assert expected in last
    assert "Traceback" not in done.stderr
