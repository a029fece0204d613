"""Episodes of an evaluation are played side by side: each must be as if it were played alone."""

import importlib

import numpy as np
import probes  # noqa: F401  (registers the environments)
import pytest
import torch
from script_runs import RECURRENT, SCRIPTS, env_id

from common.envs import SIDE_BY_SIDE, make_env, make_envs

SEED = 3


def make_agent(script, env):
    module, shape = importlib.import_module(script), env.observation_space.shape
    torch.set_num_threads(1)
    torch.manual_seed(0)
    args = module.parse_args(["--rnn-hidden", "5"] if script in RECURRENT else [])
    return module, module.Agent(shape[0] if len(shape) == 1 else shape, 1, args)


def play_alone(module, agent, env, episode):
    """Return and length of one episode, acting from its first step on as while training."""
    obs, _ = env.reset(seed=SEED, options={"episode": episode})
    action, reward, hidden, rewards, ended = np.zeros(1), 0.0, None, [], False
    while not ended:
        if module.__name__ in RECURRENT:
            history = module.join(obs, action, reward)
            action, hidden = agent.act(history, hidden, deterministic=True)
        else:
            action = agent.act(obs, deterministic=True)
        obs, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        ended = terminated or truncated
    return sum(rewards), len(rewards)


@pytest.mark.parametrize("count", [1, 2, 3, 6])
@pytest.mark.parametrize("script", SCRIPTS)
def test_episodes_side_by_side_are_those_played_alone(script, count):
    name = "toy_envs:ToyPictures-v0" if script == "conv_sac" else "probes:Varied-v0"
    envs, stepped = [make_env(name) for _ in range(count)], []
    module, agent = make_agent(script, envs[0])
    for env in envs:
        env.step = lambda action, step=env.step: stepped.append(1) or step(action)
    returns, lengths, _ = module.evaluate(agent, envs, 6, SEED)
    expected = [play_alone(module, agent, make_env(name), episode) for episode in range(6)]
    np.testing.assert_allclose(returns, [r for r, _ in expected], rtol=1e-5, atol=1e-6)
    assert lengths == [length for _, length in expected]
    assert len(set(returns)) == 6
    assert len(stepped) == sum(lengths)  # none goes on after its last episode


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name in RECURRENT])
def test_memory_makes_a_difference_to_what_is_played(script):
    """Else the test above would not see a hidden state that is never cleared."""
    envs = [make_env("probes:Varied-v0")]
    module, agent = make_agent(script, envs[0])
    returns, _, _ = module.evaluate(agent, envs, 6, SEED)
    forget, module.forget = module.forget, lambda hidden, ended: None
    try:
        assert module.evaluate(agent, envs, 6, SEED)[0] != returns
    finally:
        module.forget = forget


def test_success_is_reported_for_each_episode_in_order():
    class Lucky:
        """Episodes of one to three steps; the even ones succeed."""

        action_space = make_env(env_id("sac")).action_space

        def reset(self, seed, options):
            self.episode, self.left = options["episode"], 1 + options["episode"] % 3
            return np.zeros(3, np.float32), {}

        def step(self, action):
            self.left -= 1
            length = 1 + self.episode % 3
            info = {"episode": {"r": float(self.episode), "l": length}}
            info["is_success"] = self.episode % 2 == 0
            return np.zeros(3, np.float32), 0.0, self.left == 0, False, info

    module = importlib.import_module("sac")
    agent = module.Agent(3, 2, module.parse_args([]))
    returns, lengths, successes = module.evaluate(agent, [Lucky(), Lucky()], 7, SEED)
    assert returns == [0, 1, 2, 3, 4, 5, 6]
    assert lengths == [1, 2, 3, 1, 2, 3, 1]
    assert successes == [1, 0, 1, 0, 1, 0, 1]


def test_there_are_no_more_environments_than_episodes_and_never_many():
    assert len(make_envs("probes:Varied-v0", 3)) == 3
    assert len(make_envs("probes:Varied-v0", 1000)) == SIDE_BY_SIDE


def test_only_the_first_environment_draws():
    draws = [env.render_mode for env in make_envs("pendulum-p-v0", 3, video=True)]
    assert draws == ["rgb_array", None, None]
