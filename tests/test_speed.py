"""benchmark.speed and benchmark.compare_sb3."""

import fcntl
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from benchmark import compare_sb3, read_curve, speed
from common.errors import UserError

ROOT = Path(__file__).parent.parent
SMALL = ["--learning-starts", "30", "--batch-size", "4", "--hidden-dims", "8"]
MEMORY = ["--rnn-dim", "8", "--sequence-length", "4", "--context-length", "2"]


def arguments(script, *options):
    small = [*SMALL, *MEMORY] if script in speed.RECURRENT else SMALL
    ours = ["--scripts", script, "--env-id", "toy_envs:Toy-v0", "--num-threads", "1"]
    return speed.parse_args([*ours, "--turns", "2", "--steps", "2", "--", *small, *options])


class Pipe:
    """Asks for turns of 3 steps, twice, and keeps what is answered."""

    def __init__(self):
        self.asked, self.answers = [3, 3, 0], []

    def send(self, answer):
        self.answers.append(answer)

    def recv(self):
        return self.asked.pop(0)


@pytest.mark.parametrize("script", ["sac", "td3", *speed.RECURRENT])
def test_a_turn_is_the_script_s_own_steps_each_with_an_update(script, monkeypatch):
    pipe, updates = Pipe(), []
    load = speed.load

    def load_counting(*of_load):
        module, its = load(*of_load)
        update = module.update
        monkeypatch.setattr(module, "update", lambda *call: updates.append(0) or update(*call))
        return module, its

    monkeypatch.setattr(speed, "load", load_counting)
    speed.run_ours(pipe, script, arguments(script), 1)
    ready, *turns = pipe.answers
    assert ready is None
    assert len(turns) == 2
    assert all(wall > 0 and cpu > 0 for wall, cpu in turns)
    # A recurrent script learns from the end of the first episode on, and catches up there.
    assert speed.WARM + 6 <= len(updates) <= speed.WARM + 6 + 7


@pytest.mark.parametrize("script", ["sac", "rsac"])
def test_a_memory_can_be_filled_beforehand(script, monkeypatch):
    stored, fill = [], speed.fill

    def fill_and_count(buffer, envs, num_steps):
        fill(buffer, envs, num_steps)
        stored.append(buffer.num_added)

    monkeypatch.setattr(speed, "fill", fill_and_count)
    speed.run_ours(Pipe(), script, arguments(script), 1, 70)
    assert stored == [70]  # ten episodes of seven steps


def test_matrix_products_and_lstm_layers_are_a_part_of_the_update(monkeypatch):
    # CPU time: tests run beside others, which would stop the clock of one part more than another.
    monkeypatch.setattr(time, "perf_counter", time.process_time)
    args = arguments("rsac", "--rnn-dim", "128", "--batch-size", "32")
    update, products = speed.update_and_matmul_seconds("rsac", args, 1)
    assert 0.05 < products / update < 1.1


@pytest.mark.slow
def test_both_sides_of_the_table_are_measured(capsys):
    pytest.importorskip("stable_baselines3")
    speed.compare(arguments("sac"))
    *_, row = capsys.readouterr().out.splitlines()
    cells = row.strip("| ").split(" | ")
    assert cells[:2] == ["sac", "1"]
    assert all(float(cell.split()[0]) > 0 for cell in cells[2:])


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
    "threads after --, in one word": (["--", "--num-threads=4"], "before --"),
    "a state where pictures are needed": (
        ["--scripts", "rsac", "conv_sac", "--env-id", "pendulum-v0"],
        "pendulum-v0 has no pictures",
    ),
}


def test_what_a_comparison_needs_is_said_before_anything_runs(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="stable_baselines3: pip install"):
        speed.main(arguments("sac"))


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(what):
    words, expected = BAD[what]
    if "conv_sac" in words:
        pytest.importorskip("stable_baselines3")
    command = [sys.executable, "-m", "benchmark.speed", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stdout == ""
    *_, last = done.stderr.splitlines()
    assert expected in last
    assert "Traceback" not in done.stderr


# ---- The difference of two means ----


def test_the_interval_is_that_of_welch_by_hand():
    ours, theirs = [1.0, 2.0, 3.0], [1.0, 5.0, 3.0, 7.0]
    variances = 1 / 3, (20 / 3) / 4  # of the means
    degrees = sum(variances) ** 2 / (variances[0] ** 2 / 2 + variances[1] ** 2 / 3)
    assert degrees == pytest.approx(4.0755, abs=1e-3)
    half = 2.7563 * sum(variances) ** 0.5  # the 97.5 % quantile of Student's t with so many
    mean, interval = compare_sb3.difference(ours, theirs)
    assert mean == "-2.0"
    low, high = map(float, interval.split(" to "))
    assert [low, high] == pytest.approx([-2 - half, -2 + half], abs=0.06)


def test_in_19_of_20_draws_the_interval_has_the_true_difference_in_it():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        interval = compare_sb3.difference(rng.normal(9, 1, 4), rng.normal(2, 5, 6))[1]
        low, high = map(float, interval.split(" to "))
        inside += low <= 7 <= high
    assert 0.92 < inside / 400 < 0.98


def test_a_run_of_ours_ends_at_the_step_at_which_theirs_does(tmp_path):
    text = "global_step,wall_seconds,eval_return_mean\n0,1,-9\n200,2,-8\n"
    (tmp_path / "progress.csv").write_text(text)
    assert compare_sb3.complete(tmp_path, 200)
    assert not compare_sb3.complete(tmp_path, 300)
    with pytest.raises(UserError, match="200 steps, not --total-steps 100"):
        compare_sb3.complete(tmp_path, 100)


def compare(folder, *words):
    """A comparison as a process of its own, SAC with seed 0."""
    command = [sys.executable, "-m", "benchmark.compare_sb3", "--scripts", "sac", "--seeds", "0"]
    command += ["--log-dir", str(folder), *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    return subprocess.Popen(command, **pipes)


def test_both_are_trained_once_and_evaluated_at_the_same_steps(tmp_path):
    words = ["--total-steps", "300", "--env-id", "Pendulum-v1"]
    out, err = compare(tmp_path, *words).communicate(timeout=250)
    paths = [tmp_path / f"Pendulum-v1__{name}__0" / "progress.csv" for name in ("sac", "sb3-sac")]
    texts = [path.read_text() for path in paths]
    for curve in map(read_curve, paths):
        assert curve["global_step"].tolist() == [0, 300], err
        assert all(-2000 < value < 0 for value in curve["eval_return_mean"])
    ours, theirs = re.search(r"\| sac \| (\S+) \| (\S+) \| \S+ \| - \|", out).groups()
    assert out.count(f"seed 0: {ours}") == out.count(f"seed 0: {theirs}") == 1
    again, _ = compare(tmp_path, *words).communicate(timeout=250)
    assert again == out
    assert texts == [path.read_text() for path in paths]


def test_a_comparison_that_is_asked_to_end_leaves_no_training_behind(tmp_path):
    process = compare(tmp_path, "--total-steps", "1000000")
    folder = tmp_path / "Pendulum-v1__sac__0"
    while not (folder / "args.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    with open(folder / "args.json", "r+") as file:  # a run that is alive holds this lock
        for _ in range(100):
            try:
                return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.1)  # it was killed, but the system may still be ending it
    raise AssertionError("10 s later the training still runs")


def test_one_seed_has_no_interval():
    assert compare_sb3.difference([1.0], [2.0, 3.0]) == ("-1.5", "-")
