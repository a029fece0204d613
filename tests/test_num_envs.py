"""--num-envs: several environments in lockstep learn from the same steps as one does.

These tests run under the oldest and the newest Gymnasium that pyproject.toml allows.
"""

import gymnasium as gym
import numpy as np
import pytest

import ddpg
import sac
import td3
from common.envs import make_env

SCRIPTS = [ddpg, td3, sac]


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


gym.register("Count-v0", Count)


def run(script, folder, monkeypatch, num_envs, total_steps=120, learning_starts=60, options=()):
    """Runs a script's own loop; returns the batches that it learned from, in order."""
    batches, real_update = [], script.update

    def watched_update(agent, optimizers, batch, *args):
        batches.append(batch)
        return real_update(agent, optimizers, batch, *args)

    monkeypatch.setattr(script, "update", watched_update)
    argv = ["--env-id", "Count-v0", "--log-dir", str(folder), "--num-envs", str(num_envs)]
    argv += ["--total-steps", str(total_steps), "--learning-starts", str(learning_starts)]
    argv += ["--batch-size", "64", "--hidden-dims", "8", "--eval-episodes", "1"]
    argv += ["--num-threads", "1", "--buffer-size", "1000", *options]
    script.main(script.parse_args(argv))
    return batches


@pytest.mark.parametrize("num_envs", [1, 2, 4])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_true_last_observation_is_stored(script, num_envs, tmp_path, monkeypatch):
    for obs, _, _, next_obs, terminated in run(script, tmp_path, monkeypatch, num_envs):
        length, t = obs.unbind(dim=-1)
        assert (next_obs[:, 0] == length).all()  # never that of the next episode
        assert (next_obs[:, 1] == t + 1).all()
        last, even = t + 1 == length, length % 2 == 0
        assert (terminated[:, 0].bool() == (last & even)).all()


@pytest.mark.parametrize("num_envs", [1, 2, 4])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_number_of_updates_per_step_does_not_depend_on_num_envs(
    script, num_envs, tmp_path, monkeypatch
):
    assert len(run(script, tmp_path, monkeypatch, num_envs)) == 60


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize(
    ("every", "per_step", "expected"), [(1, 0.5, 30), (20, 1, 60), (12, 2, 120)]
)
def test_update_every_and_updates_per_step_set_the_ratio(
    every, per_step, expected, num_envs, tmp_path, monkeypatch
):
    options = ["--update-every", str(every), "--updates-per-step", str(per_step)]
    assert len(run(sac, tmp_path, monkeypatch, num_envs, options=options)) == expected


def test_every_environment_has_its_own_episodes(tmp_path, monkeypatch):
    env = make_env("Count-v0", seed=0, num_envs=8)
    lengths = env.reset()[0][:, 0]
    env.close()
    assert len(set(lengths)) > 1


def test_only_the_environments_whose_episode_ended_are_reset():
    env = make_env("Count-v0", seed=0, num_envs=8)
    obs, _ = env.reset()
    lengths = obs[:, 0]
    obs, _, terminated, truncated, _ = env.step(np.zeros((8, 1), np.float32))
    ended = terminated | truncated
    assert (ended == (lengths == 1)).all()
    assert 0 < ended.sum() < 8
    after, _ = env.reset(options={"reset_mask": ended})
    env.close()
    assert (after[~ended] == obs[~ended]).all()
    assert (after[ended, 1] == 0).all()


def test_training_returns_are_those_of_whole_episodes(tmp_path, monkeypatch):
    returns, real = [], sac.Run.add_returns

    def watched(self, info, ended):
        before = len(self._returns)
        real(self, info, ended)
        returns.extend(self._returns[before:])

    monkeypatch.setattr(sac.Run, "add_returns", watched)
    run(sac, tmp_path, monkeypatch, num_envs=4)
    assert len(returns) > 10
    assert set(returns) <= {1.0, 2.0, 3.0, 4.0}


def test_a_linear_learning_rate_ends_at_zero_where_the_last_step_goes_beyond_the_end(
    tmp_path, monkeypatch
):
    rates, real = [], sac.scale_lr

    def watched(optimizers, factor):
        rates.append(factor)
        real(optimizers, factor)

    monkeypatch.setattr(sac, "scale_lr", watched)
    options = ["--lr-schedule", "linear"]
    run(sac, tmp_path, monkeypatch, num_envs=16, total_steps=100, options=options)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == 0
