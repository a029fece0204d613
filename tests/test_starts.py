"""What the random steps tell before learning starts: the units of rewards and of inputs."""

import importlib

import numpy as np
import pytest
import torch
from script_runs import RECURRENT, tiny


@pytest.mark.parametrize(
    "script", ["sac", "rsac", "rsac_sharing", "rsac_sharing --stored-state", "conv_sac"]
)
@pytest.mark.parametrize("num_envs", [1, 2])
def test_alpha_starts_at_the_mean_size_of_the_rewards_of_the_random_steps(
    script, num_envs, tmp_path, monkeypatch
):
    script, *options = script.split()
    module = importlib.import_module(script)
    rewards, alphas = {}, []  # rewards of each buffer: conv_sac first tries one out
    add, update = module.ReplayBuffer.add, module.update

    def watched_add(buffer, obs, action, reward, *rest):
        rewards.setdefault(id(buffer), []).extend(np.atleast_1d(reward).tolist())
        add(buffer, obs, action, reward, *rest)

    def watched_update(agent, *rest):
        mean = np.abs(list(rewards.values())[-1]).mean()
        alphas.append((agent.log_alpha.exp().item(), mean))
        return update(agent, *rest)

    monkeypatch.setattr(module.ReplayBuffer, "add", watched_add)
    monkeypatch.setattr(module, "update", watched_update)
    argv = tiny(script, "--log-dir", tmp_path, "--num-envs", num_envs, "--lr", 0, total=30)
    argv += ["--update-every", 2, "--updates-per-step", 1, "--buffer-size", 200]
    argv = list(map(str, argv + options))
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


@pytest.mark.parametrize("script", RECURRENT)
def test_all_memories_read_inputs_as_parts_of_the_largest_of_the_random_steps(
    script, tmp_path, monkeypatch
):
    module = importlib.import_module(script)
    seen, units, update = [], [], module.update

    def watched_update(agent, optimizers, batch, args, *rest):
        memories = [m for m in agent.modules() if isinstance(m, module.Memory)]
        units.append(torch.stack([m.unit for m in memories]))
        return update(agent, optimizers, batch, args, *rest)

    def watched_add(buffer, obs, action, *rest):
        seen.append(np.concatenate([np.ravel(obs), np.ravel(action)]))
        add(buffer, obs, action, *rest)

    add = module.ReplayBuffer.add
    monkeypatch.setattr(module.ReplayBuffer, "add", watched_add)
    monkeypatch.setattr(module, "update", watched_update)
    argv = ["--log-dir", tmp_path, "--behaviour-refresh", "episode"]
    assert not module.main(module.parse_args(tiny(script, *argv, total=40)))
    memories = {"rdpg": 5, "rtd3": 5, "rsac": 4, "rsac_sharing": 3}[script]
    assert units[0].shape == (memories, 5)
    largest = np.abs(seen[:16]).max(axis=0).clip(0.1)  # 16 random steps
    for unit in (*units[0], *units[-1]):
        np.testing.assert_allclose(unit, largest, rtol=1e-6)


@pytest.mark.parametrize("script", RECURRENT)
def test_without_rescale_a_memory_is_that_of_pytorch(script):
    module = importlib.import_module(script)
    torch.manual_seed(0)
    memory = module.Memory(3, 1, module.parse_args(["--no-rescale", "--rnn-hidden", "5"]))
    torch.manual_seed(0)
    plain = torch.nn.LSTM(4, 5, batch_first=True)
    history = torch.randn(2, 6, 5)
    torch.testing.assert_close(memory.rnn.state_dict(), plain.state_dict())
    torch.testing.assert_close(memory(history)[0][..., :5], plain(history[..., :4])[0])


@pytest.mark.parametrize("script", RECURRENT)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_the_forget_bias_opens_the_gates_that_keep_the_memory(script, rnn, layers):
    module = importlib.import_module(script)

    def kept(bias):
        """The share of what each layer holds that is left after one step."""
        argv = ["--rnn", rnn, "--rnn-layers", layers, "--rnn-hidden", 5, "--forget-bias", bias]
        torch.manual_seed(0)
        memory = module.Memory(3, 1, module.parse_args([*map(str, argv)]))
        history, zeros = torch.randn(2, 1, 5), torch.zeros(layers, 2, 5)
        held = torch.randn(layers, 2, 5)
        if rnn == "gru":
            return memory(history, held)[1] / held
        shares = []
        for k in range(layers):  # of one layer at a time: the layer above reads what it holds
            cell = zeros.clone()
            cell[k] = held[k]
            with_it, without = (memory(history, (zeros, c))[1][1][k] for c in (cell, zeros))
            shares.append((with_it - without) / held[k])
        return torch.stack(shares)

    torch.testing.assert_close(kept(30), torch.ones_like(kept(30)))
    if rnn == "lstm":
        torch.testing.assert_close(kept(-30), torch.zeros_like(kept(-30)))
        at_first, more = kept(0), kept(1)
        torch.testing.assert_close(more.logit() - at_first.logit(), torch.ones_like(more))


@pytest.mark.parametrize("script", RECURRENT)
def test_a_memory_without_gates_has_no_forget_bias(script):
    module = importlib.import_module(script)
    biases = []
    for bias in "03":
        torch.manual_seed(0)
        args = module.parse_args(["--rnn", "rnn", "--forget-bias", bias])
        biases.append(module.Memory(3, 1, args).rnn.state_dict())
    torch.testing.assert_close(*biases, atol=0, rtol=0)
