"""What a run shows and leaves, and what it does when the machine or the environment fails."""

import importlib
import json
import os
import re
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from script_runs import (
    RECURRENT,
    SCRIPTS,
    checkpoint,
    env_id,
    launch,
    progress,
    run,
    tiny,
    train,
    wait,
)
from toy_envs import WRONG, Toy

from common.checkpoint import load_checkpoint
from common.envs import make_env, make_envs
from common.run import Run
from common.video import Film, Panel, blue_white_red

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
    ended = run(request.param, tiny(request.param, "--run-name", "run"), tmp_path)
    assert ended.code == 0, ended.err
    return request.param, tmp_path / "runs" / "run", ended


def test_a_run_leaves_its_files(finished):
    script, folder, _ = finished
    names = {path.name.split(".out")[0] for path in folder.iterdir()}
    expected = {"args.json", "progress.csv", "checkpoint.pt", "checkpoint.previous.pt", "replay"}
    assert expected <= names
    assert len(names) == 6  # and TensorBoard's events
    assert json.loads((folder / "args.json").read_text())["env_id"] == env_id(script)


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
    assert final.startswith(f"final return {mean:.1f} +- ")
    assert curves == f"curves:  tensorboard --logdir {folder.parent}"
    assert policy == f"policy:  python {script}.py --evaluate {folder}/checkpoint.pt --video"


def test_the_bar_shows_step_rate_time_left_and_both_returns(finished):
    _, folder, ended = finished
    row = progress(folder)[2]
    shown = [part for part in ended.err.replace("\r", "\n").split("\n") if "50/60" in part]
    returns = f"eval={float(row['eval_return_mean']):.1f}, "
    returns += f"train={float(row['train_return_mean']):.1f}"
    assert any("<" in part and "step/s" in part and returns in part for part in shown), ended.err


def test_a_loaded_policy_does_what_it_did_before_it_was_saved(finished):
    script, folder, _ = finished
    module, state = importlib.import_module(script), load_checkpoint(folder, script)
    torch.set_num_threads(1)
    envs = make_envs(state["args"]["env_id"], 2)
    shape, action_dim = envs[0].observation_space.shape, envs[0].action_space.shape[0]
    args = Namespace(**state["args"])
    agent = module.Agent(shape[0] if len(shape) == 1 else shape, action_dim, args)
    agent.load_state_dict(state["agent"])
    returns, lengths, _ = module.evaluate(agent, envs, 2, (0 + 1) << 32 | 60)
    row = progress(folder)[-1]
    assert float(row["eval_return_mean"]) == sum(returns) / 2
    assert float(row["eval_length_mean"]) == sum(lengths) / 2


def test_tensorboard_has_the_rows_of_progress(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = train("sac", tiny("sac", total=50), tmp_path)
    assert run("sac", ["--resume", folder, "--total-steps", 100], tmp_path).code == 0
    events = EventAccumulator(str(folder)).Reload()
    steps = [event.step for event in events.Scalars("eval_return_mean")]
    assert steps == [0, 25, 50, 75, 100]
    assert {"qf_loss", "actor_loss", "alpha", "entropy"} <= set(events.Tags()["scalars"])


def test_a_loss_that_comes_every_other_update_is_a_mean_over_its_own_updates():
    run = Run.__new__(Run)
    run._losses, run._counts = {}, {}
    for update in range(4):
        losses = {"qf_loss": 1.0} | ({"actor_loss": 6.0} if update % 2 else {})
        run.add_losses(update, **{name: torch.tensor(x) for name, x in losses.items()})
    means = {name: x / run._counts[name] for name, x in run._losses.items()}
    assert means == {"qf_loss": 1.0, "actor_loss": 6.0}


def test_two_runs_in_one_second_of_a_clock_that_goes_back(tmp_path):
    argv = [*tiny("sac"), "--log-dir", tmp_path / "runs"]
    logs = [tmp_path / "a", tmp_path / "b"]
    pids = [launch("sac", argv, log, "frozen_clock", 10**9) for log in logs]
    assert [wait(pid, log).code for pid, log in zip(pids, logs, strict=True)] == [0, 0]
    first, second = sorted((tmp_path / "runs").iterdir())
    assert second.name == first.name + "-2"
    assert progress(first) == progress(second)


# ---- Machine trouble ----


def run_folder(tmp_path):
    return next((tmp_path / "runs").iterdir())


@pytest.mark.parametrize("flushes", [0, 1, 2, 3, 4, 5])
def test_a_full_disk_ends_the_run_and_keeps_what_is_there(flushes, tmp_path):
    whole = train("sac", tiny("sac"), tmp_path / "whole")
    ended = run("sac", tiny("sac"), tmp_path, "full_disk", flushes)
    assert ended.code == 1
    assert "No space left on device" in last_line(ended)
    folder = run_folder(tmp_path)
    assert not list(folder.rglob(".*tmp"))
    if flushes >= 4:  # arguments, replay memory, rows, checkpoint
        assert run("sac", ["--resume", folder], tmp_path).code == 0
        assert progress(folder) == progress(whole)


@pytest.mark.parametrize("num_bytes", [400, 2000, 20_000])
def test_files_that_cannot_grow_end_the_run_in_one_line(num_bytes, tmp_path):
    ended = run("sac", tiny("sac"), tmp_path, "file_size_limit", num_bytes)
    assert ended.code == 1
    assert "File too large" in last_line(ended)
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
        assert ended.code == 1
        assert "Permission denied" in last_line(ended)
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        assert after == before
    finally:
        shutil.rmtree(open_to_all)


@pytest.mark.parametrize("script", ONE_OF_EACH)
def test_a_run_whose_folder_is_deleted_says_so(script, tmp_path):
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    argv = tiny(script, "--run-name", "run", "--log-dir", tmp_path / "runs", total=10**6)
    pid = launch(script, argv, log)
    wait(pid, log, until=(folder / "checkpoint.pt").exists)
    folder.rename(tmp_path / "away")
    ended = wait(pid, log)
    assert ended.code == 1
    assert f"cannot write {folder}" in last_line(ended)
    assert not folder.exists()


# ---- Environment trouble ----

SAYS = {
    "nan": "the observation is not finite",
    "inf reward": "the reward is inf",
    "no reward": "raised TypeError",
    "shape": "observation of shape (2,) instead of",
    "raise": "raised KeyError: 'the gearbox fell off'",
}
TROUBLE = [(script, wrong) for script in SCRIPTS for wrong in SAYS if script in ONE_OF_EACH]
TROUBLE += [(script, "raise") for script in SCRIPTS if script not in ONE_OF_EACH]


@pytest.mark.parametrize(("script", "wrong"), TROUBLE)
def test_environment_trouble_is_named_and_the_last_checkpoint_stands(script, wrong, tmp_path):
    env = env_id(script, WRONG[wrong][:-3])
    more = ["--run-name", "run", "--eval-every", 1000, "--eval-episodes", 1]
    ended = run(script, tiny(script, *more, env=env), tmp_path)
    assert ended.code == 1
    line, folder = last_line(ended), tmp_path / "runs" / "run"
    assert line.startswith(f"{script}.py: error: {env.split(':')[1]}, episode ")
    assert SAYS[wrong] in line
    assert "the run ends after step 39" in line  # the 40th step of an instance goes wrong
    assert f"the last checkpoint is {folder}/checkpoint.pt" in line
    assert load_checkpoint(folder, script)["global_step"] == 20


def test_a_loss_that_is_not_finite_ends_the_run(tmp_path):
    ended = run("sac", tiny("sac", "--lr", 1e30, "--eval-every", 1000), tmp_path)
    assert ended.code == 1
    assert re.search(r"loss is (nan|-?inf) at step \d+: learning diverges", last_line(ended))


def test_an_environment_without_a_time_limit_is_cut(tmp_path):
    argv = tiny("sac", "--run-name", "run", env="toy_envs:ToyEndless-v0")
    ended = run("sac", argv, tmp_path, "longest_episode", 9)
    assert ended.code == 0, ended.err
    assert (
        ended.err.count("ToyEndless-v0 has no time limit: its episodes are cut after 9 steps") == 1
    )
    assert {row["eval_length_mean"] for row in progress(tmp_path / "runs" / "run")} == {"9.0"}


# ---- Memory ----


def resident(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("script", ONE_OF_EACH)
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_is_flat_once_the_buffer_is_full(script, tmp_path):
    """The buffer is full after 500 steps; the run is watched from 2,000 to its end."""
    log, folder = tmp_path / "log", tmp_path / "runs" / "run"
    more = ["--run-name", "run", "--log-dir", tmp_path / "runs", "--buffer-size", 500]
    more += ["--eval-every", 500, "--save-every", 1000, "--updates-per-step", 0.1]
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


# ---- Weights & Biases ----


def test_track_logs_every_row(tmp_path):
    calls = tmp_path / "calls"
    argv = tiny("sac", "--run-name", "run", "--track")
    ended = run("sac", argv, tmp_path, "fake_wandb", str(calls), True)
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert [what for what, _ in lines] == ["init", "log", "log", "log", "log", "finish"]
    assert lines[0][1]["name"] == lines[0][1]["id"] == "run"
    assert lines[0][1]["config"]["batch_size"] == 3
    assert [content["step"] for what, content in lines if what == "log"] == [0, 25, 50, 60]


def test_track_that_cannot_start_leaves_nothing(tmp_path):
    ended = run("sac", tiny("sac", "--track"), tmp_path, "fake_wandb", "", False)
    assert ended.code == 2
    assert "Weights & Biases does not start: no API key configured" in last_line(ended)
    assert list((tmp_path / "runs").iterdir()) == []


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
    ended = run(script, ["--evaluate", folder, "--video", "--json", "--episodes", 2], tmp_path)
    assert ended.code == 0, ended.err
    pictures = frames(folder / "evaluation-seed0.mp4")
    assert len(pictures) == json.loads(ended.out)["lengths"][0]
    wide = pictures[0].shape[1] > 300
    assert wide == (script in RECURRENT), "the memory is shown beside the picture, if there is one"
    assert not list(folder.glob(".*"))


def test_a_film_can_be_a_gif(tmp_path):
    env = make_env("toy_envs:Toy-v0", render_mode="rgb_array")
    film, (obs, _) = Film(tmp_path / "film.gif"), env.reset()
    for _ in range(4):
        film.add(env, obs, np.zeros(2))
        obs, *_ = env.step(np.ones(2))
    film.save()
    assert (tmp_path / "film.gif").read_bytes()[:3] == b"GIF"
    assert len(frames(tmp_path / "film.gif")) == 4


def test_the_panel_shows_the_hidden_state_in_colour():
    panel, frame = Panel(), np.zeros((300, 100, 3), np.uint8)
    picture = panel.beside(frame, [0.1], [0.2], np.array([1.0, -1.0, 0.0, 0.5]))
    column = picture[:, 111].astype(int)  # the first step of the map
    red = (column[:, 0] > 200) & (column[:, 1] < 60) & (column[:, 2] < 60)
    blue = (column[:, 2] > 200) & (column[:, 1] < 60) & (column[:, 0] < 60)
    assert red.sum() > 5
    assert blue.sum() > 5
    assert np.flatnonzero(red).max() < np.flatnonzero(blue).min()  # unit 0 above unit 1


def test_the_panel_keeps_the_past_of_arrays_that_are_reused():
    panel, frame = Panel(), np.zeros((300, 100, 3), np.uint8)
    obs, action, hidden = np.zeros(2, np.float32), np.zeros(1, np.float32), np.zeros(3, np.float32)
    for step in range(1, 4):
        for value in (obs, action, hidden):
            value[:] = step
        panel.beside(frame, obs, action, hidden)
    for past in panel.past:
        assert [value[0] for value in past] == [1, 2, 3]


def test_colours_run_from_blue_over_white_to_red():
    colours = blue_white_red(np.array([[-1.0, 0.0, 1.0]]))[0].tolist()
    assert colours == [[0, 0, 255], [255, 255, 255], [255, 0, 0]]


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_a_hidden_state_may_be_a_pair_or_a_tensor(kind, tmp_path):
    env = make_env("toy_envs:Toy-v0", render_mode="rgb_array")
    obs, _ = env.reset()
    hidden = torch.zeros(2, 1, 5)
    film = Film(tmp_path / "film.mp4")
    film.add(env, obs, np.zeros(2), (hidden, hidden) if kind == "lstm" else hidden)
    assert len(film.panel.past[2][0]) == 10


# ---- Episodes by number ----


@pytest.mark.parametrize("script", ["sac", "rdpg"])
def test_flat_observations_of_whole_numbers_are_learned_from_as_numbers(script, tmp_path):
    ended = run(script, tiny(script, env="toy_envs:ToyBytes-v0"), tmp_path)
    assert ended.code == 0, ended.err


def test_an_episode_depends_on_its_number_alone():
    env = make_env("toy_envs:Toy-v0", seed=5)
    firsts = [env.reset()[0] for _ in range(3)]
    env.reset(seed=5), env.reset()
    for _ in range(4):
        env.step(np.ones(2))
    np.testing.assert_array_equal(env.reset()[0], firsts[2])
    assert len({obs.tobytes() for obs in firsts}) == 3


def test_an_episode_is_played_again_to_where_it_was():
    env, other = (make_env("toy_envs:Toy-v0", seed=5) for _ in range(2))
    env.reset(), env.reset()
    for k in range(4):
        obs, *_ = env.step(np.array([0.1 * k, -1]))
    np.testing.assert_array_equal(other.restore(env.state_dict()), obs)
    for one, two in zip(env.step(np.ones(2))[:3], other.step(np.ones(2))[:3], strict=True):
        np.testing.assert_array_equal(one, two)


def test_an_environment_that_has_changed_is_refused(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    for mode in ("--resume", "--evaluate"):
        ended = run("sac", [mode, folder], tmp_path, "another_environment")
        assert ended.code == 2
        assert "Toy-v0 has changed since the checkpoint" in last_line(ended)


def test_an_environment_that_does_not_repeat_is_named_and_the_run_goes_on(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    ended = run("sac", ["--resume", folder, "--total-steps", 80], tmp_path, "own_randomness")
    assert ended.code == 0, ended.err
    assert "not repeated to the last bit" in ended.err


def test_an_environment_may_reuse_its_array():
    env = make_env("toy_envs:Toy-v0", seed=5)
    inner = env.unwrapped
    inner.observation_space.dtype = np.dtype(np.float32)
    shared = np.zeros(3, np.float32)

    def step(action):
        shared[:] += 1
        return shared, 0.0, False, False, {}

    inner.step = step
    env.reset()
    first, *_ = env.step(np.zeros(2))
    env.step(np.zeros(2))
    assert first.tolist() == [1, 1, 1]


def test_actions_reach_the_environment_in_its_own_bounds():
    env, seen = make_env("toy_envs:Toy-v0"), []
    env.reset()
    env.unwrapped.step = lambda action: (seen.append(action), Toy.step(env.unwrapped, action))[1]
    for action in (-1, 0, 1):
        env.step(np.full(2, action))
    np.testing.assert_allclose(seen, [[-1, -1], [0.5, 0.5], [2, 2]])


def test_a_checkpoint_holds_all_that_was_promised(finished):
    _, folder, _ = finished
    state = checkpoint(folder)
    assert {"global_step", "num_updates", "agent", "optimizers", "buffer", "env"} <= set(state)
    assert {"python", "numpy", "torch"} <= set(state["rng"])
    assert {"python", "torch", "numpy", "gymnasium"} == set(state["versions"])
    assert state["args"]["batch_size"] == 3
    assert state["num_updates"] > 0
    for name, optimizer in state["optimizers"].items():
        assert optimizer["state"], name
