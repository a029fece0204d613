"""A run that is interrupted is, to the last bit, the run that would have been."""

import csv
import importlib
import os
import random
import signal
import time

import numpy as np
import pytest
from script_runs import (
    RECURRENT,
    SCRIPTS,
    checkpoint,
    differences,
    launch,
    progress,
    run,
    tiny,
    train,
    wait,
)

import common.checkpoint
import common.run
from common.checkpoint import load_checkpoint

# What a checkpoint holds that may differ: clocks, where files lie, how often it was saved.
NOT_COMPARED = ("wall_seconds", "args", "buffer.files")


def assert_same_run(folder, other):
    assert progress(folder) == progress(other)
    found = differences(checkpoint(folder), checkpoint(other))
    assert [line for line in found if not line[1:].startswith(NOT_COMPARED)] == []


# 50 steps are in the middle of an episode and after the ring of 40 rows has wrapped.
# Three environments end at 51 and 102 steps.
CASES = {"one env": [], "three envs": ["--num-envs", 3]}
MORE = {
    "rsac_sharing": ["--stored-state", "--behaviour-refresh", "episode"],
    "rsac": ["--behaviour-refresh", "episode", "--rnn", "gru", "--rnn-per-critic"],
    "sac": ["--no-autotune"],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_2n_steps_are_n_steps_a_resume_and_n_steps(script, case, tmp_path):
    argv = CASES[case] + (MORE.get(script, []) if case == "one env" else [])
    whole = train(script, tiny(script, *argv, total=100), tmp_path, "whole")
    cut = train(script, tiny(script, *argv, total=50), tmp_path, "cut")
    ended = run(script, ["--resume", cut, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert_same_run(whole, cut)


def test_learning_really_happens_in_these_runs(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    assert int(progress(folder)[-1]["num_updates"]) == 60 - 16


@pytest.mark.parametrize("script", SCRIPTS)
def test_twenty_kills_change_nothing(script, tmp_path):
    whole = train(script, tiny(script, total=80), tmp_path, "whole")
    rng, kills, resumes, log = random.Random(0), 0, 0, tmp_path / "log"
    while kills < 20:
        folder, newest = tmp_path / "runs" / f"run-{kills}", 0
        command = tiny(script, "--run-name", folder.name, "--log-dir", folder.parent, total=80)
        argv = command
        while True:
            ended = wait(launch(script, argv, log, "kill_at", rng.randrange(1, 60)), log)
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL, ended.err
            kills += 1
            if any(folder.glob("checkpoint*.pt")):
                step = load_checkpoint(folder, script)["global_step"]
                assert step >= newest, "a complete checkpoint was lost"
                argv, newest, resumes = ["--resume", folder], step, resumes + 1
            elif folder.exists():  # killed before its first checkpoint: begin again
                folder.rename(tmp_path / f"early-{kills}")
        assert_same_run(whole, folder)
        assert not list(folder.rglob(".*tmp"))
    assert resumes >= 8


def wait_for(path, pid, log):
    ended = wait(pid, log, until=path.exists)
    assert ended.code is None, f"the run ended before its time: {ended}"


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends_the_run(script, number, code, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    argv = tiny(script, "--run-name", "run", "--log-dir", tmp_path / "runs", total=10**6)
    pid = launch(script, argv, log)
    wait_for(folder / "checkpoint.pt", pid, log)
    before = load_checkpoint(folder, script)["global_step"]
    os.kill(pid, number)
    ended = wait(pid, log)
    assert ended.code == code, ended.err
    assert load_checkpoint(folder, script)["global_step"] >= before
    assert f"python {script}.py --resume {folder}" in ended.out
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("tail", [b"75,44", b"\0" * 40])
def test_a_row_that_was_cut_off_while_it_was_written_is_written_again(tail, tmp_path):
    whole = train("sac", tiny("sac", total=100), tmp_path, "whole")
    folder = train("sac", tiny("sac", total=50), tmp_path)
    with open(folder / "progress.csv", "ab") as file:
        file.write(tail)
    ended = run("sac", ["--resume", folder, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert_same_run(whole, folder)


def test_a_run_whose_rows_were_lost_goes_on_with_a_header(tmp_path):
    folder = train("sac", tiny("sac", total=50), tmp_path)
    (folder / "progress.csv").write_text("")
    ended = run("sac", ["--resume", folder, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert [row["global_step"] for row in progress(folder)] == ["75", "100"]


def test_the_rows_are_on_the_disk_before_the_checkpoint_that_follows_them(tmp_path, monkeypatch):
    order = []

    def watched(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", watched)
    module = importlib.import_module("sac")
    argv = tiny("sac", "--log-dir", tmp_path, "--run-name", "run")
    assert not module.main(module.parse_args([str(word) for word in argv]))
    saved = [k for k, name in enumerate(order) if "checkpoint" in name]
    rows = [k for k, name in enumerate(order) if name == "progress.csv"]
    assert len(saved) == len(rows) == 4  # every 20 of 60 steps, and at the end
    assert all(row < save for row, save in zip(rows, saved, strict=True))


def test_an_argument_that_is_newer_than_the_run_is_named(tmp_path):
    folder = train("sac", tiny("sac", total=50), tmp_path)
    state = load_checkpoint(folder, "sac")
    del state["args"]["lr_schedule"]
    common.checkpoint.save_checkpoint(folder, state)
    ended = run("sac", ["--resume", folder, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert "--lr-schedule is newer than this run; it goes on with constant" in ended.err


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    log, shown = tmp_path / "log", tmp_path / "log.err"
    argv = tiny("sac", "--log-dir", tmp_path / "runs")

    pid = launch("sac", argv, log, "slow_steps", 0.5)
    wait(pid, log, until=lambda: shown.exists() and "0/60" in shown.read_text())
    time.sleep(0.2)
    begun = time.perf_counter()
    for pause in (1.2, 0):
        os.kill(pid, signal.SIGINT)
        time.sleep(pause)
    ended = wait(pid, log)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert time.perf_counter() - begun < 5  # the first evaluation alone takes 7 s


def test_one_request_that_comes_twice_within_an_instant_saves_and_ends_the_run(tmp_path):
    """`timeout make train` signals the whole group, and make passes the signal on."""
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    argv = tiny("sac", "--run-name", "run", "--log-dir", tmp_path / "runs", total=10**6)
    pid = launch("sac", argv, log, "slow_steps", 0.3)
    wait_for(folder / "progress.csv", pid, log)
    for _ in range(2):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)  # two signals at the very same time arrive as one
    ended = wait(pid, log)
    assert ended.code == 143, ended.err
    assert (folder / "checkpoint.pt").exists()


@pytest.mark.parametrize("script", [name for name in ("sac", "rsac") if name in SCRIPTS])
def test_same_seed_same_progress(script, tmp_path):
    first, second = (train(script, tiny(script), tmp_path, name) for name in "ab")
    assert_same_run(first, second)


def test_another_seed_gives_another_run(tmp_path):
    first = train("sac", tiny("sac"), tmp_path, "a")
    second = train("sac", tiny("sac", "--seed", 1), tmp_path, "b")
    assert progress(first) != progress(second)


def test_a_finished_run_resumed_does_nothing_more(tmp_path):
    folder = train(
        "sac", tiny("sac"), tmp_path
    )  # 60 steps, with an evaluation of its own at the end
    before = progress(folder)
    assert [row["global_step"] for row in before] == ["0", "25", "50", "60"]
    assert run("sac", ["--resume", folder], tmp_path).code == 0
    assert progress(folder) == before


def test_wall_seconds_count_from_process_start_and_go_on_after_a_resume(tmp_path):
    begun = time.perf_counter()
    argv = tiny("sac", "--run-name", "run", total=50)
    assert run("sac", argv, tmp_path, "late_start", 0.5).code == 0
    folder = tmp_path / "runs" / "run"
    argv = ["--resume", folder, "--total-steps", 100]
    assert run("sac", argv, tmp_path, "late_start", 0.5).code == 0
    elapsed = time.perf_counter() - begun
    with open(folder / "progress.csv", newline="") as file:
        seconds = [float(row["wall_seconds"]) for row in csv.DictReader(file)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0.45
    assert 0.95 < seconds[-1] < elapsed


def test_the_previous_checkpoint_serves_where_the_newest_is_missing(tmp_path):
    whole = train("sac", tiny("sac", total=100), tmp_path, "whole")
    folder = train("sac", tiny("sac", total=50), tmp_path)
    (folder / "checkpoint.pt").unlink()  # as if killed between the two moves
    ended = run("sac", ["--resume", folder, "--total-steps", 100], tmp_path)
    assert ended.code == 0, ended.err
    assert_same_run(whole, folder)


def test_resume_from_the_previous_checkpoint_by_name(tmp_path):
    whole = train("sac", tiny("sac", total=100), tmp_path, "whole")
    folder = train("sac", tiny("sac", total=50), tmp_path)
    (folder / "checkpoint.pt").write_bytes(b"damaged")
    ended = run(
        "sac", ["--resume", folder / "checkpoint.previous.pt", "--total-steps", 100], tmp_path
    )
    assert ended.code == 0, ended.err
    assert_same_run(whole, folder)


def test_deleted_replay_files_are_written_again(tmp_path):
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    argv = tiny("sac", "--run-name", "run", "--log-dir", tmp_path / "runs", total=10**6)
    pid = launch("sac", argv, log)
    wait_for(folder / "checkpoint.previous.pt", pid, log)
    for path in (folder / "replay").glob("*.npz"):
        path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGTERM)
    assert wait(pid, log).code == 143
    step = checkpoint(folder)["global_step"]
    ended = run(
        "sac", ["--resume", folder, "--total-steps", 10**6], tmp_path, "stop_after_checkpoint"
    )
    assert ended.code == 143, ended.err
    assert checkpoint(folder)["global_step"] > step


@pytest.mark.parametrize("script", [name for name in RECURRENT if name == "rsac"])
def test_episode_lengths_after_a_resume_are_those_of_the_ring(script, tmp_path):
    """Also where a new episode starts at the place of an old one that is half overwritten."""
    module = importlib.import_module(script)
    buffer = module.ReplayBuffer(24, 1, 1)  # three episodes of 7 steps, 8 rows each
    copy = module.ReplayBuffer(24, 1, 1)
    for step in range(1, 7 * 6 + 3):
        buffer.add([step], [0], 0, [step], False, step % 7 == 0)
        folder = tmp_path / str(step)
        folder.mkdir()
        copy = module.ReplayBuffer(24, 1, 1)
        fresh = common.checkpoint.RowFiles()
        buffer.files = fresh
        copy.load_state_dict(buffer.state_dict(folder), folder)
        drawn = [b.draw(8, 3, 0, np.random.default_rng(step)) for b in (buffer, copy)]
        np.testing.assert_array_equal(*drawn)
