"""The loop of each script, with one environment and with several: what it stores, how often it
learns, and where its memory is emptied."""

import argparse
import importlib

import gymnasium as gym
import numpy as np
import pytest
import torch
from script_runs import RECURRENT, SCRIPTS, tiny

from common.envs import make_envs
from common.errors import RunError

FLAT = [name for name in SCRIPTS if name != "conv_sac"]
num_envs = pytest.mark.parametrize("num_envs", [1, 3])


class Count(gym.Env):
    """Observes (episode's length, step within it); lengths come from the seed, 1 to 4 steps.

    Ends by termination where the length is even, by truncation where it is odd.
    """

    observation_space = gym.spaces.Box(0, 10, (2,))
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.t = int(self.np_random.integers(1, 5)), 0
        return self.observe(), {}

    def step(self, action):
        self.t += 1
        ended, even = self.t == self.length, self.length % 2 == 0
        return self.observe(), 1.0, ended and even, ended and not even, {}

    def observe(self):
        return np.array([self.length, self.t], np.float32)


gym.register("Count-v0", Count, max_episode_steps=100)


def test_actions_lie_within_the_bounds_and_info_may_be_anything():
    rng = np.random.default_rng(0)
    args = argparse.Namespace(env_id="toy_envs:ToyStrict-v0")
    envs = make_envs(args, 3)
    envs.reset()
    for _ in range(200):
        action = rng.choice([-1, 0.3, 1], size=(3, 2)).astype(np.float32)
        *_, terminated, truncated, info = envs.step(action)
        ended = terminated | truncated
        assert {name.strip("_") for name in info} <= {"episode", "is_success"}
        if ended.any():
            assert (info["is_success"][ended] == terminated[ended]).all()
            envs.reset(options={"reset_mask": ended})


def test_an_error_names_the_start_of_the_episode():
    args = argparse.Namespace(env_id="toy_envs:ToyNan-v0")  # at the 40th step
    for seed, says in (
        (None, r"episode 5, with seed \d+, step 5"),
        (7, "episode with seed 7, step 5"),
    ):
        envs = make_envs(args, 1)
        with pytest.raises(RunError, match=f"ToyNan-v0, {says}: the observation is not finite"):
            play(envs, seed)


def play(envs, seed):
    """Episodes of 7 steps, all with this seed; the same action each time."""
    while True:
        envs.reset(seed=seed)
        for _ in range(7):
            envs.step(np.zeros((1, 2), np.float32))


def train(script, folder, num_envs, monkeypatch, *options):
    """Runs a script's own loop for 120 steps, 60 of them random; returns the batches that it
    learned from, in order."""
    module, batches = importlib.import_module(script), []
    real = module.update

    def watched(agent, optimizers, batch, *rest):
        batches.append(batch)
        return real(agent, optimizers, batch, *rest)

    monkeypatch.setattr(module, "update", watched)
    text = "--env-id Count-v0 --total-steps 120 --learning-starts 60 --updates-per-step 1 "
    text += "--batch-size 32 --hidden-dims 8 --eval-episodes 1 --eval-every 60 --num-threads 1"
    argv = [*text.split(), "--run-dir", folder / "run", "--num-envs", num_envs, *options]
    module.main(module.parse_args([str(word) for word in argv]))
    return batches


def steps_of(script, batch):
    """obs, next_obs (n, 2) and terminated (n,) of the steps to learn in a batch."""
    if script not in RECURRENT:
        obs, _, _, next_obs, terminated = batch
        return obs, next_obs, terminated[:, 0]
    obs, _, _, terminated, steps = batch
    obs = obs[..., :2].flatten(0, 1)
    return obs[steps], obs[steps + 1], terminated[:, 0]


@num_envs
@pytest.mark.parametrize("script", FLAT)
def test_the_true_last_observation_is_stored(script, num_envs, tmp_path, monkeypatch):
    for batch in train(script, tmp_path, num_envs, monkeypatch):
        obs, next_obs, terminated = steps_of(script, batch)
        length, t = obs.unbind(dim=-1)
        assert (next_obs[:, 0] == length).all()  # never that of the next episode
        assert (next_obs[:, 1] == t + 1).all()
        last, even = t + 1 == length, length % 2 == 0
        assert (terminated.bool() == (last & even)).all()
        assert last.any()


@pytest.mark.parametrize("per_step", [0.5, 1, 2])
@num_envs
def test_updates_per_step_do_not_depend_on_num_envs(num_envs, per_step, tmp_path, monkeypatch):
    options = ["--updates-per-step", per_step]
    assert len(train("sac", tmp_path, num_envs, monkeypatch, *options)) == 60 * per_step


@num_envs
@pytest.mark.parametrize("script", RECURRENT)
def test_memory_is_emptied_at_the_end_of_an_episode_and_nowhere_else(
    script, num_envs, tmp_path, monkeypatch
):
    agent_class, seen = importlib.import_module(script).Agent, []
    real = agent_class.act

    def watched(agent, obs, hidden=None, deterministic=False):
        if not deterministic and hidden is not None:
            held = torch.stack([x.abs().amax(dim=(0, 2)) for x in hidden]).numpy()  # (2, N)
            seen.append((obs[:, 1] == 0, held))  # step 0 of an episode?
        return real(agent, obs, hidden, deterministic)

    monkeypatch.setattr(agent_class, "act", watched)
    train(script, tmp_path, num_envs, monkeypatch)
    starts, held = np.concatenate([s for s, _ in seen]), np.concatenate([h for _, h in seen], 1)
    assert starts.mean() > 0.2
    assert (held[:, starts] == 0).all()
    assert (held[:, ~starts] > 0).all()


def test_only_the_environments_whose_episode_ended_are_reset():
    module = importlib.import_module("sac")
    envs = make_envs(module.parse_args(["--env-id", "Count-v0"]), 8)
    obs, _ = envs.reset()
    lengths = obs[:, 0]
    assert len(set(lengths)) > 1, "each has its own episodes"
    obs, _, terminated, truncated, _ = envs.step(np.zeros((8, 1), np.float32))
    ended = terminated | truncated
    assert (ended == (lengths == 1)).all()
    assert 0 < ended.sum() < 8
    after, _ = envs.reset(options={"reset_mask": ended})
    envs.close()
    assert (after[~ended] == obs[~ended]).all()
    assert (after[ended, 1] == 0).all()


def test_training_returns_are_those_of_whole_episodes(tmp_path, monkeypatch):
    module, returns = importlib.import_module("sac"), []
    real = module.Run.add_returns

    def watched(run, info, ended):
        before = len(run.train_returns)
        real(run, info, ended)
        returns.extend(run.train_returns[before:])

    monkeypatch.setattr(module.Run, "add_returns", watched)
    train("sac", tmp_path, 4, monkeypatch)
    assert len(returns) > 10
    assert set(returns) == {1.0, 2.0, 3.0, 4.0}


# ---- What the loop takes from the arguments ----


def watch(script, folder, monkeypatch, *options):
    """The batches of a run of 40 steps that learns once at each step from 17 on."""
    module, batches = importlib.import_module(script), []
    real = module.update

    def watched(agent, optimizers, batch, *rest):
        batches.append(batch)
        return real(agent, optimizers, batch, *rest)

    monkeypatch.setattr(module, "update", watched)
    argv = tiny(script, "--updates-per-step", 1, "--run-dir", folder / "run", *options, total=40)
    args = module.parse_args(argv)
    module.main(args)
    assert len(batches) == 24
    return batches


@pytest.mark.parametrize("script", SCRIPTS)
def test_batches_are_as_large_and_as_long_as_asked_for(script, tmp_path, monkeypatch):
    options = ["--batch-size", 5, "--buffer-size", 1000]
    options += ["--n-step", 2, "--gamma", 0.9] if script == "conv_sac" else []
    batches = watch(script, tmp_path, monkeypatch, *options)
    assert {len(batch[0]) for batch in batches} == {5}
    if script == "conv_sac":  # two steps of reward, one where the episode ends
        discounts = {round(x, 4) for *_, discount in batches for x in discount[:, 0].tolist()}
        assert discounts == {0.81, 0.9}
    if script in RECURRENT:
        learned, context = [], []  # steps of each sequence
        for obs, *_, steps in batches:
            for row in range(5):
                places = steps[steps // obs.shape[1] == row] % obs.shape[1]
                learned.append(len(places))
                context.append(places[0].item())
        assert (max(learned), max(context)) == (4, 3)


@pytest.mark.parametrize("per_step", [0.5, 2])
@pytest.mark.parametrize("script", SCRIPTS)
def test_env_steps_and_updates_are_counted_with_several_environments_too(
    script, per_step, tmp_path, monkeypatch
):
    module, stored, learned = importlib.import_module(script), [], []
    real_add, real_update = module.ReplayBuffer.add, module.update
    monkeypatch.setattr(
        module.ReplayBuffer, "add", lambda self, *x: stored.append(len(x[0])) or real_add(self, *x)
    )
    monkeypatch.setattr(module, "update", lambda *x: learned.append(0) or real_update(*x))
    argv = ["--num-envs", 3, "--updates-per-step", per_step, "--run-dir", tmp_path / "run"]
    module.main(module.parse_args(tiny(script, *argv, total=30)))
    assert sum(stored) == 30
    assert len(learned) == (30 - 16) * per_step
