"""benchmark.sweep and benchmark.time_to_solve, as processes, on a script without learning.

Those of Ray start real clusters on this machine.
"""

import csv
import errno
import fcntl
import io
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from benchmark import import_script, move_aside, plot, read_curve, sweep
from benchmark.sweep import clock, last_lines, parse_args, read_config, split_options
from common.errors import UserError
from common.files import write_file

ROOT = Path(__file__).parent.parent
FAKE = "tests/fake_script.py"
SIX = ["--scripts", FAKE, "--env-ids", "pendulum-p-v0", "pendulum-v0", "--seeds", "0", "1", "2"]
ONE = ["--scripts", FAKE, "--env-ids", "pendulum-p-v0"]
# Of one worker: two clusters of Ray at a time would disturb each other.
pytestmark = pytest.mark.xdist_group("sweep")


def start(*words, module="sweep", **options):
    command = [sys.executable, "-m", f"benchmark.{module}", *map(str, words)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
    return subprocess.Popen(command, **pipes, **options)


def run(*words, **options):
    """Exit code, stdout and stderr of a sweep."""
    process = start(*words, **options)
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


def trace(folder):
    """How often each (run, step) was computed."""
    return Counter((folder / "trace.txt").read_text().splitlines())


def steps(folder):
    """Run name -> the steps in its progress.csv."""
    found = {}
    for path in folder.glob("*__*/progress.csv"):
        with open(path) as file:
            found[path.parent.name] = [int(row["global_step"]) for row in csv.DictReader(file)]
    return found


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


NAMES = {
    f"{env}__fake_script__{seed}" for env in ("pendulum-p-v0", "pendulum-v0") for seed in range(3)
}


# ---- The local pool ----


def test_every_run_of_a_sweep_is_finished(tmp_path):
    code, _, err = run(*SIX, "--log-dir", tmp_path, "--", "--total-steps", 300)
    assert code == 0, err
    assert steps(tmp_path) == {key: [0, 100, 200, 300] for key in NAMES}


BURN = """
import sys, time
from pathlib import Path

given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
folder = Path(given["--run-dir"])
folder.mkdir(parents=True)
while time.process_time() < 1:
    pass
rows = "global_step,wall_seconds,eval_return_mean\\n0,0,0\\n100,1,0\\n"
(folder / "progress.csv").write_text(rows)
"""


def test_a_sweep_says_how_busy_it_kept_the_cores(tmp_path):
    (tmp_path / "burn.py").write_text(BURN)
    words = ["--scripts", tmp_path / "burn.py", "--env-ids", "pendulum-p-v0", "--seeds", 0, 1]
    words += ["--workers", 1, "--log-dir", tmp_path / "runs", "--", "--total-steps", 100]
    start = time.monotonic()
    code, _, err = run(*words)
    seconds = time.monotonic() - start
    assert code == 0, err
    found = re.search(r"(\S+) of \d+ cores were busy with runs, (\S+) with the sweep itself", err)
    busy, own = map(float, found.groups())
    assert busy > 0.8 * 2 / seconds  # each run takes one second of one core
    assert 0 <= own < busy  # so little that it may be 0 in three decimals


def test_a_finished_sweep_started_again_computes_nothing(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300]
    run(*words)
    before = trace(tmp_path)
    code, _, err = run(*words)
    assert code == 0
    assert trace(tmp_path) == before
    assert "1 runs, 1 of them finished" in err


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_sweep_that_was_killed_goes_on_and_repeats_nothing(tmp_path, number):
    words = [*SIX, "--log-dir", tmp_path, "--workers", 2]
    words += ["--", "--total-steps", 1000, "--seconds-per-row", 0.1]
    process = start(*words)
    wait_for(lambda: (tmp_path / "trace.txt").exists() and sum(trace(tmp_path).values()) > 8)
    process.send_signal(number)
    process.wait(timeout=20)
    assert len(steps(tmp_path)) < 6, "the kill came too late to test anything"
    code, _, err = run(*words)
    assert code == 0, err
    assert steps(tmp_path) == {key: list(range(0, 1001, 100)) for key in NAMES}
    assert set(trace(tmp_path).values()) == {1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_sweep_that_is_stopping_waits_for_its_runs_whatever_it_is_told(tmp_path, number):
    words = [*ONE, "--log-dir", tmp_path, "--", "--total-steps", 1000, "--seconds-per-row", 2]
    process = start(*words)
    wait_for(lambda: (tmp_path / "trace.txt").exists())
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode == 130
    folder = tmp_path / "pendulum-p-v0__fake_script__0"
    assert json.loads((folder / "checkpoint.pt").read_text())[0] in (0, 100)


def test_a_run_without_a_checkpoint_is_moved_aside_and_starts_anew(tmp_path):
    folder = tmp_path / "pendulum-p-v0__fake_script__0"
    for leftover in ("first", "second"):
        folder.mkdir()
        (folder / "progress.csv").write_text("global_step,wall_seconds,eval_return_mean\n0,1,2\n")
        (folder / leftover).touch()
        (it,) = sweep.make_runs(parse_args([*ONE, "--log-dir", str(tmp_path)]))
        assert it.command() == it.fresh_command()
        assert not folder.exists()
    for k, leftover in enumerate(("first", "second"), start=1):
        assert (tmp_path / f"pendulum-p-v0_fake_script_0_unfinished_{k}" / leftover).exists()
    told = []
    plot.read_runs([tmp_path], lambda path, why: told.append(path))
    assert len(told) == 2, "no figure may have them"
    code, _, err = run(*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300)
    assert code == 0, err
    assert steps(tmp_path)[folder.name] == [0, 100, 200, 300]


def test_more_steps_go_on_from_the_checkpoint(tmp_path):
    for total in (300, 500):
        assert run(*ONE, "--log-dir", tmp_path, "--", "--total-steps", total)[0] == 0
    name = "pendulum-p-v0__fake_script__0"
    assert steps(tmp_path) == {name: [0, 100, 200, 300, 400, 500]}
    assert trace(tmp_path)[f"{name} 100"] == 1


def test_two_sweeps_in_one_folder_share_the_work(tmp_path):
    words = [*SIX, "--log-dir", tmp_path, "--workers", 1]
    words += ["--", "--total-steps", 300, "--seconds-per-row", 0.1]
    both = [start(*words), start(*words)]
    assert [process.communicate(timeout=60) and process.returncode for process in both] == [0, 0]
    assert trace(tmp_path) == {f"{name} {step}": 1 for name in NAMES for step in range(0, 301, 100)}


def test_failures_are_listed_last_with_their_log_and_exit_code_1(tmp_path):
    words = ["--log-dir", tmp_path, "--", "--total-steps", 300, "--fail-at-seed", 1]
    code, _, err = run(*SIX, *words)
    assert code == 1
    assert len(steps(tmp_path)) == 6, "a failure must not stop the others"
    tail = err[err.index("failed: ") :]
    assert tail.count("failed: ") == 2
    assert tail.count("the simulator fell over") == 2
    assert "step/s" not in tail, "progress bars tell nothing here"
    assert "4 finished, 2 failed" in err


def test_a_failed_run_is_tried_again_by_the_next_sweep(tmp_path):
    words = [*ONE, "--log-dir", tmp_path]
    assert run(*words, "--", "--total-steps", 300, "--fail-at-seed", 0)[0] == 1
    assert run(*words, "--", "--total-steps", 300)[0] == 0
    assert steps(tmp_path) == {"pendulum-p-v0__fake_script__0": [0, 100, 200, 300]}


def test_no_more_runs_at_a_time_than_workers(tmp_path):
    words = [*SIX, "--log-dir", tmp_path, "--workers", 2]
    process = start(*words, "--", "--total-steps", 300, "--seconds-per-row", 0.15)
    most = 0
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        try:
            most = max(most, len(children.read_text().split()))
        except OSError:
            break
        time.sleep(0.02)
    process.communicate()
    assert most == 2


def test_each_run_is_told_its_number_of_threads(tmp_path):
    _, out, _ = run(*ONE, "--log-dir", tmp_path, "--threads", 3, "--list")
    assert out.strip().endswith("--num-threads 3")
    assert sweep.child_env(3)["OMP_NUM_THREADS"] == "3"


# ---- Job arrays ----


def test_every_index_runs_the_command_of_its_number(tmp_path):
    words = [*SIX, "--log-dir", tmp_path]
    options = ["--", "--total-steps", 300]
    _, out, _ = run(*words, "--list", *options)
    lines = out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["0", "1", "2", "3", "4", "5"]
    code, _, err = run(*words, "--index", 4, *options)
    assert code == 0, err
    listed = shlex.split(lines[4])
    assert [str(path.parent) for path in tmp_path.glob("*/progress.csv")] == [
        listed[listed.index("--run-dir") + 1]
    ]


def test_an_index_has_the_exit_code_of_its_run(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--index", 0, "--", "--total-steps", 300]
    assert run(*words, "--fail-at-seed", 0)[0] == 1
    folder = tmp_path / "pendulum-p-v0__fake_script__0"
    assert folder.exists()


def test_a_run_that_ends_early_has_failed(tmp_path):
    (tmp_path / "early.py").write_text(EARLY)
    words = ["--scripts", tmp_path / "early.py", "--env-ids", "pendulum-p-v0"]
    code, _, err = run(*words, "--log-dir", tmp_path / "runs")
    assert code == 1
    assert "failed: pendulum-p-v0__early__0 (ended early)" in err
    code, _, err = run(*words, "--log-dir", tmp_path / "runs", "--index", 0)
    assert code == 1
    assert "pendulum-p-v0__early__0 ended early" in err


EARLY = """
import sys
from pathlib import Path

Path(sys.argv[sys.argv.index("--run-dir") + 1]).mkdir()
"""


def test_an_index_that_is_terminated_saves_and_goes_on(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--index", 0]
    words += ["--", "--total-steps", 600, "--seconds-per-row", 0.2, "--rows-per-save", 100]
    process = start(*words)
    wait_for(lambda: (tmp_path / "trace.txt").exists() and sum(trace(tmp_path).values()) > 2)
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 143
    assert run(*words)[0] == 0
    assert trace(tmp_path) == {f"pendulum-p-v0__fake_script__0 {s}": 1 for s in range(0, 601, 100)}


# ---- Configs ----


def test_a_config_is_read_as_the_shell_reads_it(tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(
        '# a comment of $5\nTAG=small\nA="--lr 1e-3 --gamma 0.9"\nB="$A --tau 0.1"\n\n'
        "python echo.py --env-id pendulum-p-v0 $B \\\n    --total-steps 1_000  # and why\n"
        'TAG=other\nSEEDS="3 4"\npython echo.py --env-id pendulum-va-v0\n'
    )
    (tmp_path / "echo.py").write_text("import sys; print(' '.join(sys.argv[1:]))")
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    shell = subprocess.run(
        ["sh", config], cwd=tmp_path, capture_output=True, text=True, env=os.environ | path
    )
    options = ["--lr", "1e-3", "--gamma", "0.9", "--tau", "0.1", "--total-steps", "1000"]
    assert read_config(config) == [
        ("echo.py", "pendulum-p-v0", options, "small", [0]),
        ("echo.py", "pendulum-va-v0", [], "other", [3, 4]),
    ]
    assert shell.stdout.splitlines() == [
        "--env-id pendulum-p-v0 --lr 1e-3 --gamma 0.9 --tau 0.1 --total-steps 1_000",
        "--env-id pendulum-va-v0",
    ]


def test_a_config_gives_its_tag_to_the_run_names():
    words = ["--config", "benchmark/configs/paper.txt", "--scripts", "sac", "--seeds", "3"]
    runs = sweep.make_runs(parse_args([*words, "--env-ids", "pendulum-p-v0"]))
    assert [run.name for run in runs] == ["pendulum-p-v0__sac-paper__3"]


def test_a_tag_of_the_command_comes_after_that_of_the_config():
    words = ["--config", "benchmark/configs/paper.txt", "--scripts", "sac", "--tag", "new"]
    runs = sweep.make_runs(parse_args([*words, "--env-ids", "pendulum-p-v0"]))
    assert [run.name for run in runs] == ["pendulum-p-v0__sac-paper-new__0"]


def test_a_config_gives_its_seeds_and_seeds_of_the_command_line_replace_them(tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(
        'SEEDS="7 8"\npython rsac.py --env-id pendulum-p-v0\n'
        'SEEDS="9"\npython sac.py --env-id pendulum-p-v0\n'
    )

    def names(*more):
        return [run.name for run in sweep.make_runs(parse_args(["--config", str(config), *more]))]

    rsac, sac = "pendulum-p-v0__rsac__", "pendulum-p-v0__sac__"
    assert names() == [f"{rsac}7", f"{sac}9", f"{rsac}8"]
    assert names("--seeds", "5") == [f"{rsac}5", f"{sac}5"]


CONFIGS = sorted((ROOT / "benchmark" / "configs").glob("*.txt"))


@pytest.mark.parametrize("config", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_every_command_in_the_configs_is_valid(config):
    sweep.make_runs(parse_args(["--config", str(config)]))  # no two runs with one name
    modules = {}
    for script, env_id, options, _, _ in read_config(config):
        module = modules[script] = modules.get(script) or import_script(script)
        args = module.parse_args(["--env-id", env_id, *options])
        assert args.total_steps == split_options(options)[0].total_steps


def test_the_papers_tasks_and_algorithms_are_all_in_its_config():
    commands = read_config(ROOT / "benchmark" / "configs" / "paper.txt")
    hidden = {
        "pendulum-p-v0",
        "pendulum-va-v0",
        "dmc-cartpole-balance-p-v0",
        "dmc-cartpole-balance-va-v0",
        "dmc-cartpole-swingup-p-v0",
        "dmc-cartpole-swingup-va-v0",
        "reacher-pomdp-v0",
        "water-maze-simple-pomdp-v0",
        "bumps-normal-test-v0",
    }
    full = {"pendulum-v0", "dmc-cartpole-balance-v0", "dmc-cartpole-swingup-v0"}
    pairs = {(script, env_id) for script, env_id, *_ in commands}
    for script in ("rdpg", "rtd3", "rsac", "rsac_sharing"):
        path = f"benchmark/variants/{script}-paper.py"
        assert {env_id for s, env_id in pairs if s == path} == hidden
    assert {env_id for s, env_id in pairs if s == "sac.py"} >= hidden | full


# ---- Bad input ----

BAD = {
    "an unknown script": (["--scripts", "rsca", "--env-ids", "pendulum-p-v0"], "rsac"),
    "an unknown environment": (
        ["--scripts", FAKE, "--env-ids", "pendulun-p-v0"],
        "pendulum-p-v0 or",
    ),
    "nothing to run": (["--scripts", FAKE], "--env-ids"),
    "an index too high": ([*ONE, "--index", "1"], "--index 1"),
    "a config that is not there": (["--config", "nowhere.txt"], "nowhere.txt"),
    "the same run twice": (["--scripts", FAKE, FAKE, "--env-ids", "pendulum-p-v0"], "twice"),
    "a seed after --": ([*ONE, "--", "--seed", "7"], "--seeds of this command"),
    "threads after --": ([*ONE, "--", "--num-threads=4"], "--threads of this command"),
    "a tag that splits a name": ([*ONE, "--tag", "lr__1"], "--tag lr__1"),
    "a program for a config": (["--config", sys.executable], "is not a text file"),
    "a typo among the choices": (
        ["--config", "benchmark/configs/paper.txt", "--env-ids", "pendulum-p-v0", "pendulun-va-v0"],
        "nothing for pendulun-va-v0",
    ),
    "a log folder that is a file": ([*ONE, "--log-dir", "README.md"], "README.md"),
    "an environment that splits a name": (
        ["--scripts", FAKE, "--env-ids", "tests.toy_envs:a__b-v0"],
        "a__b-v0",
    ),
    "cores for Ray without Ray": ([*ONE, "--cpus-per-run", "2"], "need --ray"),
    "a config that is a folder": (["--config", "benchmark"], "benchmark: Is a directory"),
    "a Ray address without a host": ([*ONE, "--ray", "nonsense:x"], "nonsense:x"),
    "a Ray address where nobody is": ([*ONE, "--ray", "127.0.0.1:1"], "127.0.0.1:1"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_gives_one_line_and_exit_code_2(what, tmp_path):
    words, expected = BAD[what]
    code, _, err = run("--log-dir", tmp_path, *words)
    assert code == 2
    last = [line for line in err.splitlines() if "error:" in line]
    assert len(last) == 1
    assert expected in last[0]
    assert "Traceback" not in err


def test_a_folder_made_with_other_arguments_is_refused(tmp_path):
    run(*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300)
    code, _, err = run(*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300, "--gain", 2)
    assert code == 2
    assert "--gain 2" in err


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--gain", 2, "--seconds-per-row", 0], ["--gain", 0, "--seconds-per-row", 2]),
        (["--gain", 2], []),
        ([], ["--gain=2"]),
    ],
)
def test_settings_are_compared_by_name_and_value(before, after, tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300]
    assert run(*words, *before)[0] == 0
    code, _, err = run(*words, *after)
    assert code == 2
    assert "--gain" in err
    assert run(*words, *before)[0] == 0


def test_a_number_may_be_written_in_another_way(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300]
    assert run(*words, "--gain", "1e-3")[0] == 0
    assert run(*words, "--gain", "0.001")[0] == 0
    assert run(*words, "--gain", "0.002")[0] == 2


def test_a_run_that_another_sweep_made_meanwhile_with_other_arguments_fails(tmp_path):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    waiting = sweep.LocalPool(sweep.make_runs(parse_args(words)), 1)
    code, _, err = run(*words, "--gain", 2)
    assert code == 0, err
    ((_, error),) = waiting.poll()
    assert "was made with --gain 2, not no --gain" in str(error)
    assert waiting.poll() == []


def test_a_folder_that_is_in_use_does_not_stop_the_other_runs(tmp_path):
    folder = tmp_path / "pendulum-p-v0__fake_script__1"
    folder.mkdir()
    with open(folder / "args.json", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        words = [*ONE, "--seeds", 0, 1, 2, "--log-dir", tmp_path, "--workers", 2]
        code, _, err = run(*words, "--", "--total-steps", 300)
    assert code == 1
    assert f"another process is writing to {folder}" in err
    assert set(steps(tmp_path)) == {f"pendulum-p-v0__fake_script__{seed}" for seed in (0, 2)}


def test_why_a_run_could_not_begin_is_said_last_without_its_old_log(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--", "--total-steps"]
    assert run(*words, 300)[0] == 0
    with open(tmp_path / "pendulum-p-v0__fake_script__0" / "args.json", "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (tmp_path / "pendulum-p-v0__fake_script__0" / "checkpoint.pt").unlink()
        code, _, err = run(*words, 600)
    assert code == 1
    *_, last = err.splitlines()
    assert last.startswith("failed: pendulum-p-v0__fake_script__0 (another process is writing")


def test_a_run_that_cannot_be_started_does_not_stop_the_others(tmp_path, monkeypatch):
    words = [*ONE, "--seeds", "0", "1", "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    pool, start_run = sweep.LocalPool(sweep.make_runs(parse_args(words)), 2), sweep.announce

    def fill_the_disk(log, command):
        if command[command.index("--seed") + 1] == "0":
            raise OSError(errno.ENOSPC, "No space left on device")
        start_run(log, command)

    monkeypatch.setattr(sweep, "announce", fill_the_disk)
    ended = []
    wait_for(lambda: ended.extend(pool.poll()) or len(ended) == 2)
    (first, error), (second, code) = ended
    assert (first.name[-1], error.errno) == ("0", errno.ENOSPC)
    assert (second.name[-1], code) == ("1", 0)


def test_a_full_disk_does_not_stop_the_other_runs(tmp_path, monkeypatch):
    words = [*ONE, "--seeds", "0", "1", "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    pool, take = sweep.LocalPool(sweep.make_runs(parse_args(words)), 2), sweep.take
    # What cannot be written is tried again when the file is closed.
    full = type("Full", (io.TextIOWrapper,), {"truncate": lambda self, size: None})
    fill = {"0": lambda: full(open("/dev/full", "wb"))}  # noqa: SIM115
    monkeypatch.setattr(sweep, "take", lambda run: fill.get(run.name[-1], lambda: take(run))())
    ended = []
    wait_for(lambda: ended.extend(pool.poll()) or len(ended) == 2)
    (first, error), (second, code) = ended
    assert (first.name[-1], error.errno) == ("0", errno.ENOSPC)
    assert (second.name[-1], code) == ("1", 0)


def test_a_run_made_with_other_arguments_does_not_block_another_number(tmp_path):
    words = [*ONE, "--seeds", 0, 1, "--log-dir", tmp_path]
    assert run(*words, "--index", 0, "--", "--gain", 2, "--total-steps", 300)[0] == 0
    assert run(*words, "--index", 1, "--", "--total-steps", 300)[0] == 0
    for more in ((), ("--index", 0)):
        code, _, err = run(*words, *more, "--", "--total-steps", 300)
        assert (code, "was made with --gain 2" in err) == (2, True)


def test_a_run_that_is_locked_is_looked_at_once_a_second(tmp_path, monkeypatch):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    (it,) = runs = sweep.make_runs(parse_args(words))
    pool, tries, take = sweep.LocalPool(runs, 1), [], sweep.take
    monkeypatch.setattr(sweep, "take", lambda run: tries.append(1) or take(run))
    with take(it):
        for _ in range(5):
            assert pool.poll() == []
    assert len(tries) == 1
    ended = []
    wait_for(lambda: ended.extend(pool.poll()) or ended)
    assert ended == [(it, 0)]


def test_a_folder_that_a_process_writes_to_is_not_moved_aside(tmp_path):
    folder = tmp_path / "pendulum-p-v0__fake_script__0"
    folder.mkdir()
    with open(folder / "args.json", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is writing to"):
            move_aside(folder)
    move_aside(folder)
    assert [path.name for path in tmp_path.iterdir()] == [
        "pendulum-p-v0_fake_script_0_unfinished_1"
    ]


def test_a_copy_of_a_script_in_another_place_is_another_setting(tmp_path):
    words = ["--env-ids", "pendulum-p-v0", "--log-dir", tmp_path / "runs"]
    run("--scripts", FAKE, *words, "--", "--total-steps", 300)
    copy = tmp_path / "fake_script.py"
    copy.write_text((ROOT / FAKE).read_text())
    code, _, err = run("--scripts", copy, *words, "--", "--total-steps", 300)
    assert code == 2
    assert str(copy) in err


def test_a_config_says_on_which_device(tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(f"python {FAKE} --env-id pendulum-p-v0 --device cuda\n")
    assert "--device cuda" in run("--config", config, "--list")[1]
    config.write_text(f"python {FAKE} --env-id pendulum-p-v0 --seed 3\n")
    code, _, err = run("--config", config, "--list")
    assert code == 2
    assert "--seeds of this command" in err


def test_a_run_goes_on_on_its_device(tmp_path):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--device", "cuda", "--total-steps", "300"]
    (it,) = sweep.make_runs(parse_args(words))
    it.folder.mkdir()
    (it.folder / "checkpoint.pt").touch()
    assert it.command()[3:] == [str(it.folder), "--total-steps", "300", "--device", "cuda"]


def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(sweep.fcntl, "flock", refuse)
    (it,) = sweep.make_runs(parse_args([*ONE, "--log-dir", str(tmp_path)]))
    with pytest.raises(UserError, match="cannot be locked"):
        sweep.take(it)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "1", "[1]", "[{}]", "\x00\xff"),
        *('[{"command": null}]', '[{"command": ""}]', '[{"command": "python \'x"}]'),
    ],
)
def test_a_run_of_which_run_json_says_nothing_is_refused(text, tmp_path):
    (it,) = sweep.make_runs(parse_args([*ONE, "--log-dir", str(tmp_path)]))
    it.folder.mkdir()
    (it.folder / "checkpoint.pt").touch()
    (it.folder / "run.json").write_text(text)
    with pytest.raises(UserError, match="does not say how it was made"):
        sweep.check_same(it)


def test_a_run_is_known_by_its_run_json(tmp_path):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    (it,) = sweep.make_runs(parse_args(words))
    it.folder.mkdir()
    (it.folder / "checkpoint.pt").touch()
    (it.folder / "run.json").write_text(json.dumps([{"command": shlex.join(it.fresh_command())}]))
    sweep.check_same(it)
    (other,) = sweep.make_runs(parse_args([*words, "--gain", "2"]))
    with pytest.raises(UserError, match="was made with no --gain, not --gain 2"):
        sweep.check_same(other)


def test_a_run_made_in_the_repository_is_known_elsewhere(tmp_path, monkeypatch):
    """There the scripts are named by their whole paths."""
    words = ["--scripts", "sac", "--env-ids", "pendulum-p-v0", "--log-dir", str(tmp_path)]
    monkeypatch.chdir(ROOT)
    (it,) = sweep.make_runs(parse_args(words))
    assert str(it.script) == "sac.py"
    it.folder.mkdir()
    (it.folder / "checkpoint.pt").touch()
    (it.folder / "run.json").write_text(json.dumps([{"command": shlex.join(it.fresh_command())}]))
    monkeypatch.chdir(tmp_path)
    (it,) = sweep.make_runs(parse_args(words))
    assert str(it.script) == str(ROOT / "sac.py")
    sweep.check_same(it)


def test_a_run_without_a_checkpoint_starts_anew_with_other_arguments(tmp_path):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    (it,) = sweep.make_runs(parse_args(words))
    it.folder.mkdir()
    (it.folder / "run.json").write_text(json.dumps([{"command": shlex.join(it.fresh_command())}]))
    code, _, err = run(*words, "--gain", 2)
    assert code == 0, err
    assert steps(tmp_path)["pendulum-p-v0__fake_script__0"][-1] == 300
    assert len(list(tmp_path.glob("*_unfinished_1"))) == 1


def test_a_narrow_table_shows_the_end_of_a_name(tmp_path):
    (it,) = sweep.make_runs(parse_args([*ONE, "--log-dir", str(tmp_path)]))
    table = sweep.Table([it])
    assert table.row(it).endswith(f"  {it.name}")
    narrow = table.row(it, 70)
    assert len(narrow) == 70
    assert narrow.endswith("…cript__0")


def test_no_line_of_a_table_is_wider_than_the_terminal(tmp_path, monkeypatch):
    runs = sweep.make_runs(parse_args([*SIX, "--log-dir", str(tmp_path)]))
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sweep.shutil, "get_terminal_size", lambda: os.terminal_size((40, 20)))
    sweep.Table(runs, terminal).draw(last=True)
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 8
    assert max(map(len, lines)) == 39


def test_a_table_reads_a_curve_again_only_when_it_has_changed(tmp_path, monkeypatch):
    runs = sweep.make_runs(parse_args([*ONE, "--seeds", "0", "1", "--log-dir", str(tmp_path)]))
    text, read = "global_step,wall_seconds,eval_return_mean\n0,1,-9\n", []
    for it in runs:
        it.folder.mkdir()
        (it.folder / "progress.csv").write_text(text)
    monkeypatch.setattr(sweep, "read_curve", lambda path: read.append(path) or read_curve(path))
    table = sweep.Table(runs)
    for _ in range(3):
        assert [it.step() for it in runs] == [0, 0]
        table.summary()
    assert read == [it.folder / "progress.csv" for it in runs]
    write_file(runs[1].folder / "progress.csv", f"{text}100,2,-8\n".encode())
    assert [it.step() for it in runs] == [0, 100]
    assert len(read) == 3


def test_a_shorter_run_is_not_taken_for_one_of_the_default_length(tmp_path):
    run(*ONE, "--log-dir", tmp_path, "--", "--total-steps", 300)
    code, _, err = run(*ONE, "--log-dir", tmp_path)
    assert code == 2
    assert "was made with --total-steps 300, not no --total-steps" in err


def test_a_list_says_what_is_finished(tmp_path):
    words = ["--log-dir", tmp_path, "--", "--total-steps", 300]
    run(*ONE, *words)
    lines = run(*ONE, "--seeds", 0, 1, *words[:2], "--list", *words[2:])[1].splitlines()
    assert [line.endswith("--num-threads 1  # finished") for line in lines] == [True, False]
    (line,) = run(*ONE, *words[:2], "--list", *words[2:], "--gain", 2)[1].splitlines()
    assert "  # " in line
    assert "was made with no --gain, not --gain 2" in line


def test_an_index_says_that_it_waits(tmp_path):
    words = [*ONE, "--log-dir", str(tmp_path), "--", "--total-steps", "300"]
    (it,) = sweep.make_runs(parse_args(words))
    log = sweep.take(it)
    waiting = start("--index", 0, *words)
    assert waiting.stderr.readline() == f"waiting: another process works on {it.name}\n"
    log.close()
    assert waiting.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "text", ["[]", "5", "{", '{"total_steps": Infinity}', '{"total_steps": null}']
)
def test_damaged_arguments_do_not_tell_how_far_a_run_goes(text, tmp_path):
    (it,) = sweep.make_runs(parse_args([*ONE, "--log-dir", str(tmp_path)]))
    it.folder.mkdir()
    (it.folder / "args.json").write_text(text)
    assert it.target() is None
    assert not it.finished()


def test_the_time_that_an_index_waits_for_a_lock_is_not_that_of_the_run(tmp_path):
    (tmp_path / "clock.py").write_text(
        "import time, psutil\nfrom pathlib import Path\n"
        "seconds = time.time() - psutil.Process().create_time()\n"
        f"Path({str(tmp_path)!r}, 'seconds').write_text(str(seconds))\n"
    )
    words = ["--scripts", tmp_path / "clock.py", "--env-ids", "pendulum-p-v0"]
    (it,) = sweep.make_runs(parse_args([*map(str, words), "--log-dir", str(tmp_path)]))
    lock = sweep.take(it)
    process, begun = start(*words, "--log-dir", tmp_path, "--index", 0), time.monotonic()
    time.sleep(4)
    assert process.poll() is None
    lock.close()
    process.communicate(timeout=60)
    # It was started 4 s earlier.
    assert 0 < float((tmp_path / "seconds").read_text()) < time.monotonic() - begun - 3


def test_an_index_of_ray_is_asked_to_stop_when_its_worker_dies(tmp_path):
    words = [*ONE, "--log-dir", tmp_path, "--index", 0, "--ray", "--"]
    words += ["--total-steps", 3000, "--seconds-per-row", 0.2, "--rows-per-save", 1000]
    command = [sys.executable, "-m", "benchmark.sweep", *map(str, words)]
    code = f"import subprocess; subprocess.run({command})"
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT)
    wait_for(lambda: (tmp_path / "trace.txt").exists() and sum(trace(tmp_path).values()) > 2)
    worker.kill()
    worker.wait()
    wait_for(lambda: list(tmp_path.glob("*/checkpoint.pt")))


def test_a_config_line_that_is_no_command_is_named(tmp_path):
    config = tmp_path / "config.txt"
    config.write_text("rm -rf everything\n")
    with pytest.raises(UserError, match="rm -rf everything"):
        read_config(config)


@pytest.mark.parametrize("tag", ["a__b", "lr/2"])
def test_a_tag_of_a_config_that_breaks_a_name_is_refused(tag, tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(f"TAG={tag}\npython rsac.py --env-id pendulum-p-v0\n")
    with pytest.raises(UserError, match=f"TAG {tag}: it becomes part of a file name"):
        read_config(config)


@pytest.mark.parametrize(("seeds", "says"), [("1 x", "must be a whole number"), ("", "is empty")])
def test_seeds_of_a_config_that_are_none_are_refused(seeds, says, tmp_path):
    config = tmp_path / "config.txt"
    config.write_text(f'SEEDS="{seeds}"\npython rsac.py --env-id pendulum-p-v0\n')
    with pytest.raises(UserError, match=f"SEEDS.* {says}"):
        read_config(config)


# ---- Small parts ----


def test_time_left_is_written_with_hours():
    assert clock(3725) == "1:02:05"
    assert clock(None) == "?"


def test_last_lines_skip_progress_bars(tmp_path):
    log = tmp_path / "log"
    log.write_text("one\n 10%|#   | 1/10\r 20%|##  | 2/10\rtwo\n\nthree\n")
    assert last_lines(log, 2) == ["two", "three"]


# ---- time_to_solve ----


def test_time_to_solve_reports_the_first_evaluation_over_the_threshold(tmp_path):
    task = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 301, "--seeds", 0, 1, 2]
    words = [*task, "--keep", tmp_path, "--out", tmp_path / "times.csv"]
    words += ["--", "--total-steps", 1000, "--seconds-per-row", 0.05]
    code, out, err = run(*words, module="time_to_solve")
    assert code == 0, err
    with open(tmp_path / "times.csv") as file:
        rows = list(csv.DictReader(file))
    # The return is the step plus the seed, so seed 0 has to wait for one evaluation more.
    assert [int(row["global_step"]) for row in rows] == [400, 300, 300]
    for row in rows:
        path = tmp_path / f"pendulum-p-v0__fake_script__{row['seed']}" / "progress.csv"
        with open(path) as file:
            curve = {r["global_step"]: float(r["wall_seconds"]) for r in csv.DictReader(file)}
        assert float(row["wall_seconds"]) == curve[row["global_step"]]
    assert "3 of 3 seeds solved it" in out
    _, read, _ = run(*task, "--read", tmp_path, module="time_to_solve")
    _, out = out.split("\n", 1)  # not this machine, which may be another one
    assert read == out
    for path in list(tmp_path.glob("*__fake_script__*")):
        path.rename(str(path).replace("fake_script", "fake_script-tagged"))
    _, tagged, _ = run(*task, "--read", tmp_path, "--tag", "tagged", module="time_to_solve")
    assert tagged == out
    code, _, err = run(*task, "--tag", "tagged", module="time_to_solve")
    assert code == 2
    assert "--tag needs --read" in err


def test_time_to_solve_keeps_the_seeds_before_a_failure(tmp_path):
    task = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 101, "--seeds", 0, 1, 2]
    words = ["--", "--total-steps", 300, "--fail-at-seed", 2]
    code, _, _ = run(*task, "--out", tmp_path / "times.csv", *words, module="time_to_solve")
    assert code == 1
    with open(tmp_path / "times.csv") as file:
        assert [row["seed"] for row in csv.DictReader(file)] == ["0", "1"]
    code, out, err = run(*task, "--out", tmp_path, *words, module="time_to_solve")
    assert code == 1
    assert out.count("\n") == 2, "a path that cannot be written shows before the first run"
    assert f"cannot write {tmp_path}" in err


def test_time_to_solve_keeps_an_old_table_until_there_is_something_new(tmp_path):
    (tmp_path / "times.csv").write_text("hours of work\n")
    words = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 0]
    words += ["--read", tmp_path / "nowhere", "--out", tmp_path / "times.csv"]
    assert run(*words, module="time_to_solve")[0] == 2
    assert (tmp_path / "times.csv").read_text() == "hours of work\n"


def test_time_to_solve_never_takes_an_old_run_for_a_new_one(tmp_path):
    words = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 101, "--seeds", 0]
    words += ["--keep", tmp_path, "--", "--total-steps", 300]
    assert run(*words, "--gain", 1, module="time_to_solve")[0] == 0
    code, _, err = run(*words, "--gain", -5, module="time_to_solve")
    assert code == 2
    assert "exists; choose another --keep" in err


def test_time_to_solve_names_a_damaged_curve(tmp_path):
    path = tmp_path / "pendulum-p-v0__rsac__0.csv"
    path.write_text("global_step,wall_seconds,eval_return_mean\n0,1,-9\n0,2,-9\n")
    words = ["--script", "rsac", "--env-id", "pendulum-p-v0", "--threshold", -200, "--seeds", 0]
    code, _, err = run(*words, "--read", tmp_path, module="time_to_solve")
    assert code == 2
    assert f"{path} is damaged: line 3" in err
    assert "Traceback" not in err


def test_time_to_solve_counts_seeds_that_never_solve():
    words = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 301, "--seeds", 0, 1, 2]
    _, out, _ = run(*words, "--", "--total-steps", 300, module="time_to_solve")
    assert "2 of 3 seeds solved it" in out


@pytest.mark.parametrize("words", [["--threshold", "nan"], ["--", "--seed", "3"]])
def test_time_to_solve_refuses_what_would_mislead(words):
    task = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 301]
    code, _, err = run(*task, *words, module="time_to_solve")
    assert code == 2
    assert words[-2] in err


def test_time_to_solve_takes_its_run_with_it(tmp_path):
    words = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 301, "--seeds", 0]
    words += ["--keep", tmp_path, "--", "--seconds-per-row", 0.2]
    process = start(*words, module="time_to_solve")
    wait_for((tmp_path / "trace.txt").exists)
    process.terminate()
    process.communicate(timeout=60)
    before = trace(tmp_path)
    time.sleep(1)
    assert trace(tmp_path) == before


def test_time_to_solve_names_a_run_that_fails():
    words = ["--script", FAKE, "--env-id", "pendulum-p-v0", "--threshold", 301, "--seeds", 0]
    code, _, err = run(*words, "--", "--fail-at-seed", 0, module="time_to_solve")
    assert code == 1
    assert "the simulator fell over" in err
    code, _, err = run(*words, "--", "--gian", 3, module="time_to_solve")
    assert code == 2
    assert "unrecognized arguments: --gian 3" in err


# ---- Real training ----

TINY = ["--total-steps", 300, "--learning-starts", 100, "--eval-every", 100, "--eval-episodes", 1]
TINY += ["--batch-size", 8, "--hidden-dims", 8]
WALL_CLOCK = ("wall_seconds", "steps_per_second")


def curves(folder):
    """Run name -> rows of progress.csv without the columns of the clock."""
    found = {}
    for path in sorted(folder.glob("*/progress.csv")):
        with open(path) as file:
            rows = list(csv.DictReader(file))
        found[path.parent.name] = [
            {name: x for name, x in row.items() if name not in WALL_CLOCK} for row in rows
        ]
    return found


def test_a_real_script_runs_and_is_finished(tmp_path):
    words = ["--scripts", "sac", "--env-ids", "pendulum-p-v0", "--log-dir", tmp_path]
    code, _, err = run(*words, "--", *TINY)
    assert code == 0, err
    assert steps(tmp_path) == {"pendulum-p-v0__sac__0": [0, 100, 200, 300]}
    assert "1 of them finished" in run(*words, "--", *TINY)[2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def cluster(monkeypatch):
    # Ray's workers step back behind all others (15), which on a busy machine may take minutes.
    monkeypatch.setenv("RAY_worker_niceness", "0")
    reason = "Ray is not installed: pip install -r requirements-ray.txt"
    pytest.importorskip("ray", reason=reason)
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": 100 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    yield cluster
    cluster.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "of_nodes"),
    [(signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_IGN)],
    ids=["SIGINT", "SIGTERM, nodes started in the background"],  # which ignore SIGINT
)
def test_a_sweep_on_ray_that_is_stopped_saves_and_repeats_nothing(
    cluster, tmp_path, number, of_nodes
):
    words = [*ONE, "--seeds", 0, 1, 2, "--log-dir", tmp_path, "--ray", cluster.address]
    words += ["--", "--total-steps", 2000, "--seconds-per-row", 0.3, "--rows-per-save", 1000]
    own = signal.signal(signal.SIGINT, of_nodes)
    cluster.add_node(num_cpus=2, object_store_memory=100 * 2**20)
    signal.signal(signal.SIGINT, own)
    cluster.wait_for_nodes()
    process = start(*words)
    wait_for(lambda: sum(len(found) > 1 for found in steps(tmp_path).values()) == 2, 90)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert len(list(tmp_path.glob("*/checkpoint.pt"))) == 2, "two ran, and both must have saved"
    words[words.index("--ray") : words.index("--ray") + 2] = []
    assert run(*words)[0] == 0
    assert set(trace(tmp_path).values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("script", ["sac"])
def test_a_sweep_on_ray_survives_the_death_of_a_node(cluster, tmp_path, script):
    words = ["--scripts", script, "--env-ids", "pendulum-p-v0", "--seeds", 0, 1, 2]
    tiny = [*TINY, "--total-steps", 1000]
    small = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
    nodes = [cluster.add_node(**small), cluster.add_node(**small)]
    cluster.wait_for_nodes()
    process = start(*words, "--log-dir", tmp_path / "ray", "--ray", cluster.address, "--", *tiny)
    begun = tmp_path / "ray"
    wait_for(lambda: len(list(begun.glob("*/checkpoint.pt"))) >= 2, seconds=90)
    cluster.remove_node(nodes[0], allow_graceful=False)
    unfinished = [rows for rows in curves(begun).values() if rows[-1]["global_step"] != "1000"]
    assert len(unfinished) >= 2, "the node died too late to test anything"
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert run(*words, "--log-dir", tmp_path / "local", "--", *tiny)[0] == 0
    assert curves(tmp_path / "ray") == curves(tmp_path / "local")
    logs = [log.read_text() for log in (tmp_path / "ray" / "logs").iterdir()]
    assert sum("--resume" in log for log in logs) == 1
    assert all(log.count(", step 1000, ") == 1 for log in logs), "finished more than once"
