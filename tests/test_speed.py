"""benchmark.speed with the recurrent scripts, and its answers to bad input."""

import itertools
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmark import speed
from common.errors import UserError

ROOT = Path(__file__).parent.parent
SMALL = ["--learning-starts", "30", "--batch-size", "4", "--hidden-dims", "8"]
MEMORY = ["--rnn-hidden", "8", "--sequence-length", "4", "--burn-in", "2"]


def arguments(script, *options):
    small = [*SMALL, *MEMORY] if script in speed.RECURRENT else SMALL
    ours = ["--scripts", script, "--env-id", "toy_envs:Toy-v0", "--num-threads", "1"]
    return speed.parse_args([*ours, "--turns", "2", "--steps", "2", "--", *small, *options])


@pytest.mark.parametrize("script", speed.RECURRENT)
def test_each_step_of_a_recurrent_script_is_stored_and_learned_from(script):
    loop = speed.run_ours(script, arguments(script))
    for k, learner in enumerate(itertools.islice(loop, 3), start=1):
        assert learner.num_updates == k
        assert (learner.buffer.t >= 0).sum() == 30 + k


def test_stored_hidden_states_are_measured_too():
    learner = next(speed.run_ours("rsac_sharing", arguments("rsac_sharing", "--stored-state")))
    assert learner.sample(learner.buffer)[-1].shape == (4, 16)  # h and c


def test_whole_episodes_are_there_before_the_first_update():
    options = ["--sequence-length", "0", "--burn-in", "0", "--batch-size", "10"]
    learner = next(speed.run_ours("rsac", arguments("rsac", *options)))
    lengths = learner.sample(learner.buffer)[-1].sum(dim=(1, 2))  # (B,)
    assert lengths.max() == 7  # the time limit


@pytest.mark.parametrize("script", ["sac", "td3", *speed.RECURRENT])
def test_a_filled_memory_can_be_learned_from(script):
    learner = speed.Learner(script, arguments(script))
    buffer = speed.fill(learner, 100, 50)
    assert (buffer.t >= 0).sum() == 50
    assert buffer.t.max() == 6
    assert "qf_loss" in learner.learn(buffer)


@pytest.mark.parametrize(("rnn", "least"), [("lstm", 0.35), ("gru", 0.05)])
def test_matrix_products_and_lstm_layers_are_a_part_of_the_update(rnn, least, monkeypatch):
    # CPU time: tests run beside others, which would stop the clock of one part more than another.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    args = arguments("rsac", "--rnn", rnn, "--rnn-hidden", "128", "--batch-size", "32")
    update, products = speed.update_and_matmul_seconds("rsac", args)
    assert least < products / update < 1.1


def test_a_row_without_a_peer_has_dashes_where_it_would_be(capsys):
    speed.compare(arguments("rtd3"))
    *_, row = capsys.readouterr().out.splitlines()
    cells = row.strip("| ").split(" | ")
    assert cells[:2] == ["rtd3", "1"]
    assert cells[3:6] == ["-", "-", "-"]
    assert all(float(cell) > 0 for cell in (cells[2], *cells[6:]))


BAD = {
    "an unknown script": (["--scripts", "rsca"], "rsca"),
    "an unknown argument": (["--scripts", "rsac", "--", "--nonsense"], "rsac.py: error"),
    "an environment after --": (["--", "--env-id", "pendulum-v0"], "before --"),
    "a compiled recurrent script": (["--scripts", "rsac", "--compile"], "ddpg, td3, sac"),
}


def test_what_a_comparison_needs_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    args = arguments("sac")
    args.growth, args.tuned = False, "ours"
    with pytest.raises(UserError, match="stable_baselines3: pip install"):
        speed.main(args)


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(what):
    words, expected = BAD[what]
    command = [sys.executable, "-m", "benchmark.speed", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert expected in done.stderr
