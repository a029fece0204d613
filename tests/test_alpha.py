"""Where alpha, the price of randomness, starts."""

import importlib

import numpy as np
import pytest
import torch
from script_runs import tiny


@pytest.mark.parametrize("script", ["sac", "rsac", "rsac_sharing"])
@pytest.mark.parametrize("num_envs", [1, 2])
def test_alpha_starts_at_the_mean_size_of_the_rewards_of_the_random_steps(
    script, num_envs, tmp_path, monkeypatch
):
    module = importlib.import_module(script)
    rewards, alphas = [], []
    add, update = module.ReplayBuffer.add, module.update

    def watched_add(buffer, obs, action, reward, *rest):
        rewards.extend(np.atleast_1d(reward).tolist())
        add(buffer, obs, action, reward, *rest)

    def watched_update(agent, *rest):
        alphas.append((agent.log_alpha.exp().item(), np.abs(rewards).mean()))
        return update(agent, *rest)

    monkeypatch.setattr(module.ReplayBuffer, "add", watched_add)
    monkeypatch.setattr(module, "update", watched_update)
    argv = tiny(script, "--log-dir", tmp_path, "--num-envs", num_envs, "--lr", 0, total=30)
    assert not module.main(module.parse_args(argv))
    assert len(alphas) > 5
    first, mean = alphas[0]
    assert first == pytest.approx(mean, rel=1e-6)
    assert mean != pytest.approx(1, rel=0.1)  # else nothing is shown
    assert {alpha for alpha, _ in alphas} == {first}  # nor does it start anew later


@pytest.mark.parametrize("script", ["sac", "rsac", "rsac_sharing"])
def test_alpha_starts_at_one_where_no_reward_was_seen(script):
    module = importlib.import_module(script)
    agent = module.Agent(3, 1, module.parse_args(["--hidden-dims", "4"]))
    buffer = module.ReplayBuffer(8, 3, 1)
    buffer.t[0, :4] = range(4)  # four steps without reward
    module.start_alpha(agent, buffer)
    torch.testing.assert_close(agent.log_alpha.exp().item(), 1.0)
