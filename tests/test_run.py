"""What a run shows and leaves, and what it does when the machine or the environment fails."""

import errno
import importlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from argparse import Namespace
from datetime import datetime
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import psutil
import pytest
import torch
from script_runs import (
    RECURRENT,
    SCRIPTS,
    checkpoint,
    env_id,
    launch,
    progress,
    resume,
    run,
    tiny,
    train,
    wait,
)
from torch.utils.tensorboard import SummaryWriter
from toy_envs import WRONG

import common.machine
import common.run
import sac
from common.checkpoint import load_checkpoint
from common.errors import UserError
from common.run import Run
from envs.drawing import write_film

ONE_OF_EACH = [name for name in ("sac", "rsac") if name in SCRIPTS]


def last_line(ended):
    """The error of a run that failed: its last line, alone, after what the run showed."""
    assert "Traceback" not in ended.err, ended.err
    *_, line = ended.err.strip().split("\n")
    assert ended.err.count(": error: ") == 1, ended.err
    return line


# ---- Files and figures ----


@pytest.fixture(scope="module", params=SCRIPTS)
def finished(request, tmp_path_factory):
    """(script, run folder, what it printed) of a run that ended well."""
    tmp_path = tmp_path_factory.mktemp(request.param)
    ended = run(request.param, tiny(request.param), tmp_path)
    assert ended.code == 0, ended.err
    return request.param, tmp_path / "runs" / "run", ended


def test_a_run_leaves_its_files(finished):
    script, folder, _ = finished
    names = {path.name for path in folder.iterdir() if "tfevents" not in path.name}
    assert names == {"args.json", "run.json", "progress.csv", "checkpoint.pt", "replay"}
    assert json.loads((folder / "args.json").read_text())["env_id"] == env_id(script)


def test_a_run_says_where_it_comes_from(finished):
    _, folder, _ = finished
    (its,) = json.loads((folder / "run.json").read_text())
    assert f"--run-dir {folder}" in its["command"]
    assert its["python"] == platform.python_version()
    assert its["torch"] == torch.__version__
    assert its["machine"].startswith(platform.platform())
    assert datetime.fromisoformat(its["started"]).date() <= datetime.now().date()
    assert checkpoint(folder)["origins"] == [its]


def test_after_a_resume_the_files_say_what_the_run_has_become(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    resume("sac", folder, tmp_path, 120)
    assert json.loads((folder / "args.json").read_text())["total_steps"] == 120
    first, second = json.loads((folder / "run.json").read_text())
    assert "--resume" not in first["command"]
    assert "--resume" in second["command"]


def test_a_run_that_cannot_go_on_leaves_its_files_as_they_are(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    before = {path: path.read_bytes() for path in folder.glob("*.json")}
    argv = ["--resume", folder, "--total-steps", 120]
    assert run("sac", argv, tmp_path, "another_environment").code == 2
    assert {path: path.read_bytes() for path in folder.glob("*.json")} == before


def test_the_commit_is_named_and_whether_files_differ_from_it(tmp_path, monkeypatch):
    def git(*words):
        who = ["-c", "user.name=x", "-c", "user.email=x@x"]
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.setattr(common.run, "__file__", str(tmp_path / "run.py"))
    (tmp_path / "file").write_text("one")
    assert common.run.origin()["commit"] is None
    git("init"), git("add", "."), git("commit", "-m", "x")
    its = common.run.origin()
    assert (its["commit"], its["clean"]) == (git("rev-parse", "HEAD"), True)
    (tmp_path / "file").write_text("two")
    assert common.run.origin()["clean"] is False
    monkeypatch.setenv("PATH", "")  # no git on this machine
    its = common.run.origin()
    assert (its["commit"], its["clean"]) == (None, None)


def test_progress_has_a_row_for_each_evaluation(finished):
    _, folder, _ = finished
    assert [row["global_step"] for row in progress(folder)] == ["0", "25", "50", "60"]
    header = (folder / "progress.csv").read_text().split("\n")[0]
    assert header.startswith(
        "global_step,num_updates,wall_seconds,train_return_mean,eval_return_mean,"
        "eval_return_std,eval_length_mean,steps_per_second"
    )


def test_the_last_lines_name_the_return_and_two_commands(finished):
    script, folder, ended = finished
    mean = float(progress(folder)[-1]["eval_return_mean"])
    final, curves, policy = ended.out.strip().split("\n")
    assert final.startswith(f"return {mean:.1f} +- ")
    assert curves == f"curves:  tensorboard --logdir {folder}"
    typed = f"--env-id {env_id(script)} "  # an environment of the user's own
    assert policy == f"policy:  python {script}.py --evaluate {folder} {typed}--video"


def test_the_bar_shows_step_rate_time_left_and_both_returns(finished):
    _, folder, ended = finished
    row = progress(folder)[2]
    shown = [part for part in ended.err.replace("\r", "\n").split("\n") if "50/60" in part]
    returns = f"eval={float(row['eval_return_mean']):.1f}, "
    returns += f"train={float(row['train_return_mean']):.1f}"
    assert any("<" in part and "step/s" in part and returns in part for part in shown), ended.err


def test_tensorboard_has_the_rows_of_progress(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = train("sac", tiny("sac", total=50), tmp_path)
    resume("sac", folder, tmp_path, 100)
    events = EventAccumulator(str(folder)).Reload()
    steps = [event.step for event in events.Scalars("eval_return_mean")]
    assert steps == [0, 25, 50, 75, 100]
    assert {"qf_loss", "actor_loss", "alpha", "entropy"} <= set(events.Tags()["scalars"])


def test_tensorboard_lacks_nothing_if_a_run_dies_after_its_checkpoint(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    argv = tiny("sac", "--run-dir", folder, total=100)
    assert run("sac", argv, tmp_path, "dies_after_its_checkpoint", 50).code == -signal.SIGKILL
    resume("sac", folder, tmp_path, 110)
    resume("sac", folder, tmp_path, 150)  # 110 is no step of an evaluation: it is not there now
    events = EventAccumulator(str(folder)).Reload()
    for name in ("eval_return_mean", "qf_loss"):
        steps = [event.step for event in events.Scalars(name)]
        assert steps[-5:] == [50, 75, 100, 125, 150]
    assert [int(row["global_step"]) for row in progress(folder)][-5:] == [50, 75, 100, 125, 150]


def test_a_run_that_ends_before_it_learns_says_so(tmp_path):
    ended = run("sac", tiny("sac", total=16), tmp_path)
    assert ended.code == 0
    assert "--total-steps 16 is not above --learning-starts 16" in ended.err


def test_a_checkpoint_holds_all_that_was_promised(finished):
    _, folder, _ = finished
    state = checkpoint(folder)
    assert {"agent", "optimizers", "buffer", "envs", "rng", "torch_rng", "rows"} <= set(state)
    assert state["args"]["batch_size"] == 3
    step, num_updates, *_ = state["progress"]
    assert step == 60
    assert num_updates > 0
    for name, optimizer in state["optimizers"].items():
        assert optimizer["state"], name


def watch_alpha(module, monkeypatch):
    """A list that gets the alpha before each update from now on."""
    alphas, real = [], module.update

    def watched(agent, *rest):
        alphas.append(agent.log_alpha.exp().item())
        return real(agent, *rest)

    monkeypatch.setattr(module, "update", watched)
    return alphas


@pytest.mark.parametrize("script", [name for name in SCRIPTS if "sac" in name])
def test_a_fixed_alpha_stays_and_a_learned_one_starts_at_1_or_in_rsac_at_a_tenth(
    script, tmp_path, monkeypatch
):
    module = importlib.import_module(script)
    alphas = watch_alpha(module, monkeypatch)
    first = 0.1 if script.startswith("rsac") else 1.0
    for start, more in ((first, []), (0.3, ["--alpha", "0.3"])):
        alphas.clear()
        argv = tiny(script, "--updates-per-step", 1, "--run-dir", tmp_path / str(start), total=30)
        assert not module.main(module.parse_args([*argv, *more]))
        assert alphas[0] == pytest.approx(start)
        assert (len(set(alphas)) == 1) == (start == 0.3)


@pytest.mark.parametrize("script", ["rsac", "rsac_sharing"])
def test_a_learned_alpha_falls_down_to_its_minimum_and_no_further(script, tmp_path, monkeypatch):
    module = importlib.import_module(script)
    alphas = watch_alpha(module, monkeypatch)
    # No entropy is below such a target, so alpha falls at each update.
    falls = ["--target-entropy", "-100", "--min-alpha", "0.05", "--lr", "0.2"]
    argv = tiny(script, "--updates-per-step", 1, "--run-dir", tmp_path / "run", *falls, total=30)
    assert not module.main(module.parse_args(argv))
    assert 0.05 < alphas[1] < alphas[0]
    assert alphas[-1] == min(alphas) == pytest.approx(0.05)


@pytest.mark.parametrize("script", RECURRENT)
def test_the_first_batch_sets_the_scale_of_inputs_and_all_random_steps_that_of_rewards(
    script, tmp_path, monkeypatch
):
    module, seen, rewards = importlib.import_module(script), [], []
    real, real_sample = module.update, module.ReplayBuffer.sample

    def watched_sample(buffer, *rest):
        rewards.append(buffer.reward[: buffer.num_added].copy())
        return real_sample(buffer, *rest)

    def watched(agent, optimizers, batch, *rest):
        scale = getattr(agent, "reward_scale", torch.ones(()))
        seen.append((batch[0], agent.obs_scale.clone(), scale.clone()))
        return real(agent, optimizers, batch, *rest)

    monkeypatch.setattr(module, "update", watched)
    monkeypatch.setattr(module.ReplayBuffer, "sample", watched_sample)
    # Its rewards are far from 1.
    argv = tiny(script, "--eval-every", 60, "--run-dir", tmp_path / "run", env="pendulum-p-v0")
    assert not module.main(module.parse_args(argv))
    obs, *scales = seen[0]
    torch.testing.assert_close(scales[0], obs.abs().amax(dim=(0, 1)).clamp(min=0.1))
    if script.startswith("rsac"):
        torch.testing.assert_close(scales[1].item(), float(abs(rewards[0]).mean()))
        assert abs(scales[1] - 1) > 0.01, "else nothing is shown"
    assert len(seen) > 9
    for *_, obs_scale, reward_scale in seen:
        assert torch.equal(obs_scale, scales[0])
        assert torch.equal(reward_scale, scales[1])


# ---- Machine trouble ----


def run_folder(tmp_path):
    return tmp_path / "runs" / "run"


@pytest.mark.parametrize("flushes", range(8))
def test_a_full_disk_ends_the_run_and_keeps_what_is_there(flushes, tmp_path):
    whole = train("sac", tiny("sac"), tmp_path / "whole")
    ended = run("sac", tiny("sac"), tmp_path, "full_disk", flushes)
    assert ended.code == 1
    assert "No space left on device" in last_line(ended)
    folder = run_folder(tmp_path)
    assert not list(folder.rglob(".*tmp"))
    assert folder.exists() == (flushes >= 3)  # a run that could not begin leaves nothing
    if flushes >= 6:  # origin, arguments, rows of steps 0 and 25, replay buffer, checkpoint
        resume("sac", folder, tmp_path, 60)
        assert progress(folder) == progress(whole)


@pytest.mark.parametrize("num_bytes", [400, 2000, 20_000])
def test_files_that_cannot_grow_end_the_run_in_one_line(num_bytes, tmp_path):
    ended = run("sac", tiny("sac"), tmp_path, "file_size_limit", num_bytes)
    assert ended.code == 1
    assert "File too large" in last_line(ended)
    assert "Traceback" not in ended.err
    for path in (tmp_path / "runs").rglob("progress.csv"):
        assert path.read_text()[-1:] in ("", "\n"), "half a row"


def test_a_folder_that_may_not_be_written_is_left_alone(tmp_path):
    open_to_all = Path(tempfile.mkdtemp())
    open_to_all.chmod(0o755)
    try:
        folder = train("sac", tiny("sac"), open_to_all)
        for path in (folder, folder.parent):
            path.chmod(0o555)
        (open_to_all / "log.out").unlink(), (open_to_all / "log.err").unlink()
        before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        argv = ["--resume", folder, "--total-steps", 90]
        ended = run("sac", argv, open_to_all, "as_nobody")
        assert ended.code == 2
        assert "Permission denied" in last_line(ended)
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert after == before
    finally:
        shutil.rmtree(open_to_all)


@pytest.mark.parametrize("script", ONE_OF_EACH)
def test_a_run_whose_folder_is_deleted_says_so(script, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    pid = launch(script, tiny(script, "--run-dir", folder, total=10**6), log)
    wait(pid, log, until=lambda: (folder / "progress.csv").exists() and len(progress(folder)) > 1)
    folder.rename(tmp_path / "away")
    ended = wait(pid, log, until=folder.exists)
    assert ended.code == 1
    assert f"cannot write {folder}" in last_line(ended)
    assert not folder.exists()


# ---- Environment trouble ----

SAYS = {
    "nan": "the observation is not finite",
    "inf reward": "the reward is inf",
    "no reward": "the reward is None, not a number",
    "shape": "observation of shape (",
    "raise": "raised KeyError: 'the gearbox fell off' (toy_envs.py, line ",
}
TROUBLE = [(script, wrong) for script in SCRIPTS for wrong in SAYS if script in ONE_OF_EACH]
TROUBLE += [(script, "raise") for script in SCRIPTS if script not in ONE_OF_EACH]


@pytest.mark.parametrize(("script", "wrong"), TROUBLE)
def test_environment_trouble_is_named_and_the_last_checkpoint_stands(script, wrong, tmp_path):
    env = env_id(script, WRONG[wrong][:-3])
    ended = run(script, tiny(script, "--eval-episodes", 1, env=env), tmp_path)
    assert ended.code == 1
    line = last_line(ended)
    assert line.startswith(f"{script}.py: error: {env.split(':')[1]}, episode ")
    assert SAYS[wrong] in line
    # The 40th step of an environment goes wrong.
    assert load_checkpoint(run_folder(tmp_path), script)["progress"][0] == 25


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    ended = run("sac", tiny("sac", "--lr", 1e30, "--eval-every", 1000), tmp_path)
    assert ended.code == 1
    assert re.search(r"loss is (nan|-?inf) at step \d+: learning diverges", last_line(ended))


def test_an_environment_without_a_time_limit_is_cut(tmp_path):
    ended = run("sac", tiny("sac", env="toy_envs:ToyEndless-v0"), tmp_path, "longest_episode", 9)
    assert ended.code == 0, ended.err
    assert ended.err.count("no time limit: episodes end after 9 steps") == 1
    assert {row["eval_length_mean"] for row in progress(run_folder(tmp_path))} == {"9.0"}


def test_a_run_that_ends_before_its_first_step_leaves_no_folder(tmp_path):
    """So the same command can be tried again when the environment is mended."""
    argv = tiny("sac", "--run-dir", tmp_path / "run", env="toy_envs:ToyNanAtOnce-v0")
    ended = run("sac", argv, tmp_path)
    assert ended.code == 1
    assert "step 1: the observation is not finite" in last_line(ended)
    assert not (tmp_path / "run").exists()


# ---- Memory ----


def test_a_replay_buffer_that_cannot_be_kept_is_refused(tmp_path, monkeypatch):
    class More(sac.ReplayBuffer):
        def __init__(self, *args):
            super().__init__(*args)
            self.mean = np.zeros(3)

    monkeypatch.setattr(sac, "ReplayBuffer", More)
    with pytest.raises(
        UserError, match=r"the replay buffer's `mean` has shape \(3,\), not one row"
    ):
        sac.main(sac.parse_args(tiny("sac", "--run-dir", tmp_path / "run")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["memory.max", "memory/memory.limit_in_bytes"])
@pytest.mark.parametrize(("limit", "free"), [("1", 0), ("max", None), (str(2**62), None)])
def test_what_a_container_may_use_bounds_what_is_free(name, limit, free, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Namespace(available=2**40))
    monkeypatch.setattr(common.machine, "CGROUP", tmp_path)
    assert common.machine.free_memory() == 2**40
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(f"{limit}\n")
    assert common.machine.free_memory() == (2**40 if free is None else free)
    (tmp_path / name).write_text(f"{2**39}\n")
    used = psutil.Process().memory_info().rss
    assert common.machine.free_memory() == pytest.approx(2**39 - used, abs=2**25)


@pytest.mark.parametrize(
    ("quota", "cores"), [("250000", 2), ("50000", 1), ("max", 8), ("900000", 8), ("", 8)]
)
def test_the_cores_of_a_container_count(quota, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(common.machine, "CGROUP", tmp_path)
    if quota:
        (tmp_path / "cpu.max").write_text(f"{quota} 100000\n")
    assert common.machine.usable_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("250000", 2), ("50000", 1), ("-1", 8), ("", 8)])
def test_the_cores_of_an_older_container_count(quota, cores, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(common.machine, "CGROUP", tmp_path)
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert common.machine.usable_cores() == cores


@pytest.mark.parametrize(
    ("line", "limit"),
    [
        ("0::/slurm/job_7/step_0", "slurm/job_7/memory.max"),
        ("4:memory:/slurm/job_7", "memory/slurm/job_7/memory.limit_in_bytes"),
    ],
)
def test_the_limit_of_a_batch_job_counts(line, limit, tmp_path, monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Namespace(available=2**40))
    monkeypatch.setattr(common.machine, "CGROUP", tmp_path)
    monkeypatch.setattr(common.machine, "GROUPS", tmp_path / "groups")
    (tmp_path / "groups").write_text(f"1:cpu:/other\n{line}\n")
    (tmp_path / limit).parent.mkdir(parents=True)
    (tmp_path / limit).write_text(f"{2**39}\n")
    used = psutil.Process().memory_info().rss
    assert common.machine.free_memory() == pytest.approx(2**39 - used, abs=2**25)


def test_a_folder_that_cannot_be_locked_is_one_line(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "args.json").touch()
    monkeypatch.setattr(common.run.fcntl, "flock", refuse)
    for given, hint in ((None, "choose another --run-dir"), (tmp_path, "copy it to another disk")):
        run = Namespace(folder=tmp_path, locks=[], args=Namespace(resume=given))
        with pytest.raises(UserError, match=rf"cannot be locked .No locks available.; {hint}"):
            Run._lock(run)


def test_a_replay_memory_larger_than_the_container_is_refused(tmp_path):
    (tmp_path / "memory.max").write_text(f"{2**33}\n")
    argv = tiny("sac", "--buffer-size", "3e8")  # about 10 GiB
    ended = run("sac", argv, tmp_path, "in_container", str(tmp_path))
    assert ended.code == 2
    assert "choose a smaller one" in last_line(ended)


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.parametrize("script", ONE_OF_EACH)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_memory_is_flat_once_the_buffer_is_full(script, tmp_path):
    """The buffer is full after 500 steps; the run is watched from 2,000 to its end."""
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    more = ["--run-dir", folder, "--buffer-size", 500, "--eval-every", 500]
    more += ["--updates-per-step", 0.1]
    pid = launch(script, tiny(script, *more, total=5000), log)
    sizes = []

    def watch():
        rows = progress(folder) if (folder / "progress.csv").exists() else []
        if rows and int(rows[-1]["global_step"]) >= 2000:
            sizes.append(resident(pid))
        return False

    assert wait(pid, log, until=watch).code == 0
    assert len(sizes) > 10
    sizes = [size for size in sizes if size]  # a process that has ended has none
    early, late = max(sizes[: len(sizes) // 4]), max(sizes[-len(sizes) // 4 :])
    assert late - early < 2 * 2**20


# ---- Films ----


def frames(path):
    with imageio.get_reader(path) as film:
        return [np.asarray(frame) for frame in film]


def test_training_with_video_films_every_tenth_evaluation(tmp_path):
    folder = train("sac", tiny("sac", "--video", "--eval-every", 3, total=35), tmp_path)
    names = sorted(path.name for path in folder.glob("*.mp4"))
    assert names == ["step-0.mp4", "step-30.mp4"]
    assert frames(folder / "step-0.mp4")[0].shape == (66, 68, 3)  # 65 x 67, made even


@pytest.mark.parametrize("script", SCRIPTS)
def test_evaluate_with_video_films_the_first_episode(script, tmp_path):
    folder = train(script, tiny(script, total=20), tmp_path)
    argv = ["--evaluate", folder, "--env-id", env_id(script), "--video", "--eval-episodes", 1]
    ended = run(script, argv, tmp_path)
    assert ended.code == 0, ended.err
    length = float(re.search(r"length_mean (\S+)", ended.out).group(1))
    assert len(frames(folder / "evaluation-seed0.mp4")) == length
    assert not list(folder.glob(".*tmp*"))


@pytest.mark.parametrize("name", ["film.gif", "film.mp4"])
def test_a_film_that_cannot_be_written_is_one_error(name, tmp_path, capfd):
    with pytest.raises(FileNotFoundError):
        write_film(tmp_path / "nowhere" / name, [np.zeros((16, 16, 3), np.uint8)], 10)
    assert capfd.readouterr() == ("", "")


def test_a_film_can_be_a_gif(tmp_path):
    write_film(
        tmp_path / "film.gif", [np.full((16, 16, 3), k, np.uint8) for k in (0, 120, 240)], 10
    )
    assert (tmp_path / "film.gif").read_bytes()[:3] == b"GIF"
    assert len(frames(tmp_path / "film.gif")) == 3


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_row_and_tensorboard_tell_of_what_came_since_the_row_before(
    script, tmp_path, monkeypatch
):
    module = importlib.import_module(script)
    returns, losses, rows, written = [], {}, [], {}
    make, real_evaluate, real_update = module.make_envs, common.run.evaluate, module.update

    def watched_make(*args):
        envs = make(*args)
        real_step = envs.step

        def step(action):
            result = real_step(action)
            ended = result[2] | result[3]
            returns.extend(result[4]["episode"]["r"][ended].tolist() if ended.any() else [])
            return result

        envs.step = step
        return envs

    def watched_update(*args):
        its = real_update(*args)
        for name, value in its.items():
            losses.setdefault(name, []).append(value.item())
        return its

    def evaluate(*args):
        its = real_evaluate(*args)
        nan = [np.nan]
        row = {
            "train_return_mean": np.mean(returns or nan),
            "eval_return_std": np.std(its["returns"]),
        }
        row["eval_success_rate"] = np.mean(its["successes"] or nan)
        rows.append(row | {name: np.mean(x) for name, x in losses.items()})
        returns.clear(), losses.clear()
        return its

    def add_scalar(writer, name, value, step):
        written.setdefault(step, {})[name] = value

    monkeypatch.setattr(module, "make_envs", watched_make)
    monkeypatch.setattr(module, "update", watched_update)
    monkeypatch.setattr(common.run, "evaluate", evaluate)
    monkeypatch.setattr(SummaryWriter, "add_scalar", add_scalar)
    module.main(module.parse_args(tiny(script, "--run-dir", tmp_path / "run")))
    assert len(rows) == 4
    for row, told, scalars in zip(rows, progress(tmp_path / "run"), written.values(), strict=True):
        for name, value in row.items():
            if name in told:
                assert float(told[name]) == pytest.approx(value, nan_ok=True), name
            assert (name in scalars) == np.isfinite(value), name
            assert scalars.get(name, 0) == pytest.approx(value if name in scalars else 0), name


def test_steps_per_second_are_those_since_the_row_before(monkeypatch):
    run = Run.__new__(Run)
    run.args = Namespace(seed=0, eval_episodes=1, eval_every=100, video=False)
    run.tracked, run.eval_envs, run.saved, run.rows = {"agent": None}, None, {}, []
    run.loss_sums, run.loss_counts, run.train_returns, run.rate_mark = {}, {}, [], (0, 0.0)
    results = {"returns": [0.0], "lengths": [1], "successes": []}
    monkeypatch.setattr(common.run, "evaluate", lambda *_: results)
    for step, now in ((100, 10.0), (300, 20.0)):
        monkeypatch.setattr(common.run, "time", Namespace(perf_counter=lambda now=now: now))
        run._evaluate(step, 0)
    assert [row["steps_per_second"] for row in run.rows] == [10, 20]


def test_the_bar_counts_the_steps_of_all_environments_and_goes_on_after_a_resume(tmp_path):
    ended = run("sac", tiny("sac", "--num-envs", 3), tmp_path)
    assert " 60/60 " in ended.err
    again = resume("sac", tmp_path / "runs" / "run", tmp_path, 90)
    assert " 90/90 " in again.err


def test_a_film_has_the_speed_of_its_environment(tmp_path):
    folder = train("sac", tiny("sac", "--video", total=20), tmp_path)
    with imageio.get_reader(folder / "step-0.mp4") as film:
        assert film.get_meta_data()["fps"] == 10  # of Toy.metadata


def test_the_default_folder_names_environment_script_seed_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sac = importlib.import_module("sac")
    assert not sac.main(sac.parse_args(tiny("sac", "--seed", 3, total=1)))
    (folder,) = (tmp_path / "runs").iterdir()
    assert re.fullmatch(r"toy_envs_Toy-v0__sac__3__\d{8}-\d{6}", folder.name)
