"""A run that is interrupted is, to the last bit, the run that would have been."""

import csv
import importlib
import os
import random
import shutil
import signal
import time

import pytest
from script_runs import (
    RECURRENT,
    SCRIPTS,
    checkpoint,
    differences,
    env_id,
    launch,
    progress,
    resume,
    run,
    tiny,
    train,
    wait,
)

from common.checkpoint import load_checkpoint, save_checkpoint
from common.run import STOP

# What a checkpoint holds that may differ: clocks, where files lie, how often it was saved.
NOT_COMPARED = ("wall_seconds", "args", "origins", "buffer.files")


def assert_same_run(folder, other):
    assert progress(folder) == progress(other)
    states = [checkpoint(folder), checkpoint(other)]
    for state in states:
        for row in [*state["rows"], state["scalars"]]:
            del row["wall_seconds"], row["steps_per_second"]
    found = differences(*states)
    assert [line for line in found if not line[1:].startswith(NOT_COMPARED)] == []


# 50 and 60 steps are in the middle of an episode, after a replay buffer of 40 steps is full; 60 is
# no step of an evaluation. Three environments end at 51 and 102 steps.
CASES = {
    "one env": (50, ["--seed", 3]),
    "between evaluations": (60, []),
    "three envs": (50, ["--num-envs", 3]),
}
MORE = {"sac": ["--alpha", 0.1], "rsac": ["--memory-input", "obs-action-reward"]}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("script", SCRIPTS)
def test_2n_steps_are_n_steps_a_resume_and_n_steps(script, case, tmp_path):
    steps, argv = CASES[case]
    argv = argv + (MORE.get(script, []) if case == "one env" else [])
    whole = train(script, tiny(script, *argv, total=100), tmp_path, "whole")
    cut = train(script, tiny(script, *argv, total=steps), tmp_path, "cut")
    resume(script, cut, tmp_path, 100)
    assert_same_run(whole, cut)
    assert int(progress(whole)[-1]["num_updates"]) > 10


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_run_goes_on_from_the_checkpoint_of_an_evaluation(script, tmp_path, monkeypatch):
    """As after a kill: there is no checkpoint of the moment when the run ended."""
    module, whole, copy = importlib.import_module(script), tmp_path / "whole", tmp_path / "copy"
    real_step = module.Run.step

    def step(run, global_step, *progress):
        real_step(run, global_step, *progress)
        if global_step == 50:  # in the middle of an episode
            shutil.copytree(whole, copy)

    monkeypatch.setattr(module.Run, "step", step)
    assert not module.main(module.parse_args(tiny(script, "--run-dir", whole, total=100)))
    assert load_checkpoint(copy, script)["progress"][0] == 50
    resume(script, copy, tmp_path, 100)
    assert_same_run(whole, copy)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_twenty_kills_change_nothing(script, tmp_path):
    options = tiny(script, total=80)
    whole = train(script, options, tmp_path, "whole")
    rng, kills, resumes, log = random.Random(0), 0, 0, tmp_path / "log"
    while kills < 20:
        folder, newest = tmp_path / "runs" / f"run-{kills}", 0
        argv = command = [*options, "--run-dir", folder]
        while True:
            ended = wait(launch(script, argv, log, "kill_at", rng.randrange(1, 80)), log)
            if ended.code == 0:
                break
            assert ended.code == -signal.SIGKILL, ended.err
            kills += 1
            if any(folder.glob("checkpoint*.pt")):
                step = load_checkpoint(folder, script)["progress"][0]
                assert step >= newest, "a complete checkpoint was lost"
                argv, newest, resumes = ["--resume", folder], step, resumes + 1
            elif folder.exists():  # killed before its first checkpoint: begin again
                folder.rename(tmp_path / f"early-{kills}")
                argv = command
        assert_same_run(whole, folder)
        assert not list(folder.rglob(".*tmp"))
    assert resumes >= 8


# ---- Signals ----


def start(script, tmp_path, *patch, until="checkpoint.pt"):
    """A long run that is under way: its process, its log and its folder, with the file `until`."""
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    pid = launch(script, tiny(script, "--run-dir", folder, total=10**6), log, *patch)
    ended = wait(pid, log, until=(folder / until).exists)
    assert ended.code is None, f"the run ended before its time: {ended}"
    return pid, log, folder


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_ends_the_run(script, number, code, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "run"
    words = ["--run-dir", folder, "--eval-every", 10**6]  # so that no checkpoint is due for long
    pid = launch(script, tiny(script, *words, total=10**6), log)
    wait(pid, log, until=(folder / "progress.csv").exists)
    os.kill(pid, number)
    ended = wait(pid, log)
    assert ended.code == code, ended.err
    assert load_checkpoint(folder, script)["progress"][0] < 10**6
    assert f"python {script}.py --resume {folder}" in ended.out
    assert ", step 0, " in ended.out, "the step of the only evaluation"
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("total", [50, 60])
def test_a_request_in_the_last_evaluation_comes_too_late(total, tmp_path):
    """Evaluations are due at 50 steps, not at 60."""
    patch = "asked_to_stop_in_the_evaluation", total
    ended = run("sac", tiny("sac", total=total), tmp_path, *patch)
    assert ended.code == 0, ended.err
    assert "stopped" not in ended.out
    assert progress(tmp_path / "runs" / "run")[-1]["global_step"] == str(total)


@pytest.mark.parametrize("script", ["sac", "rsac"])
def test_a_replay_buffer_that_has_changed_since_is_refused(script, tmp_path):
    folder = train(script, tiny(script), tmp_path)
    before = (folder / "progress.csv").read_bytes()
    words = ["--resume", folder, "--total-steps", 100]
    ended = run(script, words, tmp_path, "another_array", script)
    assert ended.code == 2
    assert ".npz does not fit the present script: its replay buffer differs" in ended.err
    assert (folder / "progress.csv").read_bytes() == before


def test_a_second_ctrl_c_stops_at_once(tmp_path):
    pid, log, folder = start("sac", tmp_path, "slow_steps", 0.5, until="args.json")
    while "0/1000000" not in log.with_suffix(".err").read_text():
        time.sleep(0.01)
    time.sleep(0.2)
    for pause in (1.2, 0):
        os.kill(pid, signal.SIGINT)
        time.sleep(pause)
    ended = wait(pid, log)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert not (folder / "progress.csv").exists()  # it did not wait for the first evaluation


def test_one_request_that_comes_twice_within_an_instant_saves_and_ends_the_run(tmp_path):
    """`timeout make train` signals the whole group, and make passes the signal on."""
    pid, log, folder = start("sac", tmp_path, "slow_steps", 0.3, until="progress.csv")
    for _ in range(2):
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)  # two signals at the very same time arrive as one
    ended = wait(pid, log)
    assert ended.code == 143, ended.err
    assert (folder / "checkpoint.pt").exists()


def test_one_process_at_a_time_writes_to_a_folder(tmp_path):
    pid, log, folder = start("sac", tmp_path)
    ended = run("sac", ["--resume", folder], tmp_path / "second")
    assert ended.code == 2
    assert f"another process is writing to {folder}" in ended.err
    os.kill(pid, signal.SIGTERM)
    assert wait(pid, log).code == 143


# ---- Rows ----


def lose_rows(folder):
    (folder / "progress.csv").unlink()


def cut_rows(folder):
    path = folder / "progress.csv"
    path.write_bytes(path.read_bytes()[:-9] + b"\0" * 40)


@pytest.mark.parametrize("damage", [lose_rows, cut_rows])
def test_rows_that_were_lost_are_written_again(damage, tmp_path):
    whole = train("sac", tiny("sac", total=100), tmp_path, "whole")
    folder = train("sac", tiny("sac", total=50), tmp_path)
    damage(folder)
    resume("sac", folder, tmp_path, 100)
    assert_same_run(whole, folder)


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="reads /proc")
def test_a_row_is_on_the_disk_after_the_checkpoint_of_its_step(tmp_path, monkeypatch):
    """Whoever sees the final row, such as a sweep, finds the final checkpoint."""
    order = []
    fsync = os.fsync

    def watched(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    module = importlib.import_module("sac")
    argv = tiny("sac", "--run-dir", tmp_path / "run")
    assert not module.main(module.parse_args(argv))
    saved = [k for k, name in enumerate(order) if "checkpoint" in name]
    rows = [k for k, name in enumerate(order) if "progress.csv" in name]
    assert len(saved) == len(rows) - 1 == 3  # every 25 of 60 steps, and at the end; rows also at 0
    assert rows[0] < saved[0] < rows[1] < saved[1] < rows[2] < saved[2] < rows[3]


# ---- What a run follows from ----


@pytest.mark.parametrize("script", [name for name in ("sac", "rsac") if name in SCRIPTS])
def test_same_seed_same_run_and_another_seed_another_run(script, tmp_path):
    first, second = (train(script, tiny(script), tmp_path, name) for name in "ab")
    assert_same_run(first, second)
    other = train(script, tiny(script, "--seed", 1), tmp_path, "c")
    assert progress(first) != progress(other)


@pytest.mark.parametrize("script", ["sac", *RECURRENT[:1]])
def test_evaluation_does_not_disturb_training(script, tmp_path):
    seldom = train(script, tiny(script), tmp_path, "seldom")
    often = ["--eval-every", 9, "--eval-episodes", 5, "--video"]
    often = train(script, tiny(script, *often), tmp_path, "often")
    states = [checkpoint(folder) for folder in (seldom, often)]
    for name in ("agent", "optimizers", "envs", "rng", "torch_rng", "progress"):
        assert differences(*(state[name] for state in states)) == [], name


def test_a_finished_run_resumed_does_nothing_more(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    before = progress(folder)
    assert [row["global_step"] for row in before] == ["0", "25", "50", "60"]
    resume("sac", folder, tmp_path, 60)
    assert progress(folder) == before


def test_wall_seconds_count_from_process_start_and_go_on_after_a_resume(tmp_path):
    begun, folder = time.perf_counter(), tmp_path / "runs" / "run"
    for argv in (tiny("sac", total=50), ["--resume", folder, "--total-steps", 100]):
        assert run("sac", argv, tmp_path, "late_start", 0.5).code == 0
    elapsed = time.perf_counter() - begun
    with open(folder / "progress.csv", newline="") as file:
        seconds = [float(row["wall_seconds"]) for row in csv.DictReader(file)]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0.45
    assert 0.95 < seconds[-1] < elapsed


@pytest.mark.parametrize("script", ["sac", "rdpg"])
def test_networks_that_have_changed_since_are_refused_in_one_line(script, tmp_path):
    folder = train(script, tiny(script), tmp_path)
    state = load_checkpoint(folder, script)
    state["agent"]["actor.extra"] = state["agent"].pop("actor.net.0.bias")
    save_checkpoint(folder, state)
    before = (folder / "progress.csv").read_bytes()
    ended = run(script, ["--resume", folder, "--total-steps", 100], tmp_path)
    assert ended.code == 2
    assert f"does not fit the present {script}.py: RuntimeError" in ended.err
    assert "Traceback" not in ended.err
    assert (folder / "progress.csv").read_bytes() == before


def test_a_run_of_a_gpu_goes_on_on_the_cpu_unless_told_otherwise(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    state = load_checkpoint(folder, "sac")
    state["args"]["device"] = "cuda:77"
    save_checkpoint(folder, state)
    resume("sac", folder, tmp_path, 70)
    argv = ["--evaluate", folder, "--env-id", env_id("sac"), "--eval-episodes", 1]
    assert run("sac", argv, tmp_path).code == 0


def test_more_threads_may_be_asked_for_on_a_resume(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    ended = run("sac", ["--resume", folder, "--num-threads", 2, "--total-steps", 70], tmp_path)
    assert ended.code == 0, ended.err


def test_after_a_run_signals_do_what_they_did_before(tmp_path):
    module, before = importlib.import_module("sac"), [signal.getsignal(x) for x in STOP]
    assert not module.main(module.parse_args(tiny("sac", "--run-dir", tmp_path / "run")))
    assert [signal.getsignal(x) for x in STOP] == before
