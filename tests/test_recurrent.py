"""What memory must not get wrong, in all four recurrent scripts.

Everything is checked against stored episodes step by step or against loops written here.
"""

import copy
import importlib
import math
from argparse import Namespace
from collections import Counter

import numpy as np
import probes  # noqa: F401  (registers the environments)
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from script_runs import RECURRENT as SCRIPTS
from script_runs import tiny
from toy_envs import Toy, register

import rsac
from common.envs import make_envs
from common.replay_files import ReplayFiles

OBS, ACT = 6, 2  # of what the memory reads


def setup_module():
    torch.set_num_threads(1)


def make(script, *argv):
    """Module, arguments, agent and optimizers of a script, with small networks of doubles.

    Parameters are moved at random: targets are to differ from what they follow.
    """
    module = importlib.import_module(script)
    args = module.parse_args(["--hidden-dims", "8", "7", "--rnn-dim", "5", *map(str, argv)])
    args.target_entropy = -float(ACT)
    torch.manual_seed(0)
    agent = module.Agent(OBS, ACT, args).double()
    for p in agent.parameters():
        p.data += 0.3 * torch.randn(p.shape)
    return module, args, agent, module.make_optimizers(agent, args)


def fill(lengths, capacity=1000):
    """A buffer with random episodes of these lengths; every second one terminates."""
    rng, buffer = np.random.default_rng(0), rsac.ReplayBuffer(capacity, OBS, ACT)
    for number, length in enumerate(lengths):
        obs = rng.normal(size=(length + 1, 1, OBS))
        for t in range(length):
            action, reward = rng.uniform(-1, 1, (1, ACT)), rng.normal(size=1)
            ends = np.array([t == length - 1])
            terminated = ends & (number % 2 == 0)
            buffer.add(obs[t], action, reward, obs[t + 1], terminated, ends & ~terminated)
    return buffer


def draw_batch(lengths, size, length, context):
    *batch, steps = fill(lengths).sample(size, length, context, np.random.default_rng(0))
    return [*(x.double() for x in batch), steps]


def learn(module, agent, optimizers, batch, args):
    """One update with all its parts."""
    extra = [True] if module.SCRIPT == "rtd3" else []
    return module.update(agent, optimizers, batch, args, *extra)


def fix_noise(monkeypatch, noises):
    """torch.randn_like gives these in turn."""
    queue = list(noises)
    monkeypatch.setattr(torch, "randn_like", lambda x: queue.pop(0))


def memories(agent):
    return [m for m in agent.modules() if type(m).__name__ == "Memory"]


def policy_memory(agent):
    """The memory that the agent acts with."""
    return agent.actor.rnn if hasattr(agent.actor, "rnn") else agent.critics.rnn


# ---- What the memory reads, remembers and learns from ----


@pytest.mark.parametrize("reads", ["obs", "obs-action", "obs-action-reward"])
def test_the_memory_reads_the_previous_action_and_reward(reads):
    args = Namespace(env_id="probes:Varied-v0", memory_input=reads)
    envs, plain = make_envs(args, 1), make_envs(Namespace(env_id=args.env_id), 1)
    obs, raw = envs.reset()[0], plain.reset()[0]
    action, reward = np.zeros((1, 1), np.float32), np.zeros(1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        read = [raw] + [action] * ("action" in reads) + [reward[:, None]] * ("reward" in reads)
        np.testing.assert_array_equal(obs, np.concatenate(read, axis=1, dtype=np.float32))
        assert obs.shape[1:] == envs.single_observation_space.shape
        action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
        obs, reward, terminated, truncated, _ = envs.step(action)
        raw = plain.step(action)[0]
        if terminated[0] | truncated[0]:
            obs, raw = envs.reset()[0], plain.reset()[0]
            action, reward = np.zeros((1, 1), np.float32), np.zeros(1)


@pytest.mark.parametrize("script", SCRIPTS)
def test_acting_step_by_step_equals_one_pass_over_the_episode(script):
    _, _, agent, _ = make(script)
    agent.obs_scale[:] = torch.linspace(0.5, 2, OBS)
    obs = np.random.default_rng(0).normal(size=(4, 9, OBS))
    actor = agent.actor_average
    memory = getattr(actor, "rnn", None) or agent.rnn_average
    feat = memory(torch.from_numpy(obs) / agent.obs_scale)[0]
    unrolled = torch.tanh(actor(feat)[0]) if "sac" in script else actor(feat)
    hidden = None
    for t in range(9):
        action, hidden = agent.act(obs[:, t], hidden, deterministic=True)
        np.testing.assert_allclose(action, unrolled[:, t].detach(), atol=1e-12)


@pytest.mark.parametrize("script", SCRIPTS)
def test_evaluations_play_the_average_and_training_the_newest_policy(script):
    _, _, agent, _ = make(script)
    obs = np.random.default_rng(0).normal(size=(4, OBS))
    averages = [x for name, x in agent.named_children() if name.endswith("_average")]
    assert averages
    others = [x for name, x in agent.named_children() if not name.endswith("_average")]
    for nan, deterministic in ((others, True), (averages, False)):
        broken = copy.deepcopy(agent)
        for part, copied in zip(agent.children(), broken.children(), strict=True):
            for p in copied.parameters() if part in nan else []:
                p.data.fill_(torch.nan)
        hidden = broken.act(obs, None, deterministic)[1]
        assert np.isfinite(broken.act(obs, hidden, deterministic)[0]).all()
        assert np.isnan(broken.act(obs, None, not deterministic)[0]).all()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_feature_depends_on_its_step_and_all_before_it_and_on_no_other(script):
    _, _, agent, _ = make(script)
    for memory in memories(agent):
        obs = torch.randn(2, 9, OBS, dtype=torch.double, requires_grad=True)
        memory(obs)[0][0, 5].sum().backward()
        touched = obs.grad.abs().sum(dim=2) > 0
        assert touched.tolist() == [[t <= 5 for t in range(9)], [False] * 9]


@pytest.mark.parametrize("script", SCRIPTS)
def test_padding_changes_no_loss_and_no_parameter(script, monkeypatch):
    """Whatever comes after a sequence: some zeros, many, or numbers that are not zero."""
    results = []
    for padding, value in ((0, 0), (7, 0), (300, 0), (7, 5)):
        module, args, agent, optimizers = make(script)
        obs, *others, steps = draw_batch([6, 2, 1, 4], 6, length=3, context=20)
        row, place = steps // obs.shape[1], steps % obs.shape[1]
        obs = torch.nn.functional.pad(obs, (0, 0, 0, padding))
        for b in range(len(obs)):
            obs[b, place[row == b].max() + 2 :] = value  # after the last next observation
        steps = row * obs.shape[1] + place
        fix_noise(monkeypatch, torch.randn(2, len(steps), ACT, generator=torch.manual_seed(1)))
        losses = learn(module, agent, optimizers, [obs, *others, steps], args)
        grads = {name: p.grad for name, p in agent.named_parameters() if p.grad is not None}
        results.append((losses, grads, dict(agent.named_parameters())))
    for result in results[1:]:
        for plain, padded in zip(results[0], result, strict=True):
            assert plain.keys() == padded.keys()
            for name in plain:
                torch.testing.assert_close(padded[name], plain[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("script", SCRIPTS)
def test_gradients_stay_finite_with_a_memory_that_is_unstable_at_rest(script):
    """Before the steps, padding would make them overflow: a state of 0 can be an unstable point,
    where each step multiplies a gradient by 2, say, and 200 of them by 1e60."""
    module, args, agent, optimizers = make(script)
    agent.float()
    for memory in memories(agent):
        memory.weight_hh_l0.data = 8 * torch.eye(5).repeat(4, 1)
        memory.bias_ih_l0.data.zero_()
        memory.bias_hh_l0.data.zero_()
    obs, *others, steps = draw_batch([230], 8, length=3, context=220)
    count = (obs.abs().sum(dim=2) > 0).sum(dim=1)
    assert count.max() - count.min() > 150, "else there is little padding"
    learn(module, agent, optimizers, [*(x.float() for x in (obs, *others)), steps], args)
    for name, p in agent.named_parameters():
        assert p.grad is None or p.grad.isfinite().all(), name
        assert p.isfinite().all(), name


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_loss_of_the_last_step_reaches_the_first_step_of_the_context(script, monkeypatch):
    module, args, agent, optimizers = make(script)
    batch = draw_batch([20], 1, length=1, context=50)
    num_steps = batch[0].shape[1] - 1
    assert num_steps > 9
    assert batch[1].shape == (1, ACT)
    read = []
    real = module.Memory.forward

    def watched(memory, obs, hidden=None):
        read.append(obs.detach().requires_grad_())
        return real(memory, read[-1], hidden)

    monkeypatch.setattr(module.Memory, "forward", watched)
    learn(module, agent, optimizers, batch, args)
    grads = [obs.grad for obs in read if obs.grad is not None]
    assert len(grads) == 1  # the actor's loss asks for no gradient but its parameters'
    for grad in grads:
        touched = grad[0].abs().sum(dim=1) > 0
        assert touched.tolist() == [True] * num_steps + [False]  # the last one is for the target
    if script != "rsac_sharing":  # its actor reads the critics' memory and does not train it
        read.clear()
        obs = batch[0] / agent.obs_scale
        out = agent.actor(agent.actor.rnn(obs)[0].flatten(0, 1)[batch[4]])
        torch.cat(out if isinstance(out, tuple) else [out]).sum().backward()
        touched = read[0].grad[0].abs().sum(dim=1) > 0
        assert touched.tolist() == [True] * num_steps + [False]


@pytest.mark.parametrize("script", SCRIPTS)
def test_some_units_of_a_new_memory_remember_a_hundred_steps(script):
    module = importlib.import_module(script)
    torch.manual_seed(0)
    memory = module.Memory(OBS, module.parse_args([]))
    obs = torch.zeros(2, 101, OBS)
    obs[0, 0, 0] = 1  # all that differs
    first, last = (memory(obs[:, :count])[1][1][0] for count in (1, 101))
    left = (last[0] - last[1]) / (first[0] - first[1])
    assert left.abs().max() > 0.1  # exp(-1) is meant


@pytest.mark.parametrize("script", SCRIPTS)
def test_values_stay_in_bounds_where_there_is_no_data(script):
    _, _, agent, _ = make(script)
    head = agent.critics.qf1
    feat = torch.randn(9, head[0].in_features, dtype=torch.double)
    torch.testing.assert_close(head(1e4 * feat), head(1e8 * feat), rtol=0, atol=0.01)


# ---- The loop: hidden states of acting ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_while_acting_the_hidden_state_is_that_of_the_stored_episode(
    script, num_envs, tmp_path, monkeypatch
):
    """Through random warm-up steps, too, and from zero at the start of every episode."""
    module, steps, made = importlib.import_module(script), [], []
    real_act, real_init = module.Agent.act, module.ReplayBuffer.__init__

    def spy(self, obs, hidden=None, deterministic=False):
        action, after = real_act(self, obs, hidden, deterministic)
        if not deterministic:
            steps.append((obs.copy(), torch.cat([state.clone() for state in after])))
        made[:1] = [self]
        return action, after

    def keep(self, *args):
        real_init(self, *args)
        made.append(self)

    monkeypatch.setattr(module.Agent, "act", spy)
    monkeypatch.setattr(module.ReplayBuffer, "__init__", keep)
    text = f"--env-id probes:Varied-v0 --run-dir {tmp_path / 'run'} --total-steps 90 "
    text += f"--learning-starts 90 --num-envs {num_envs} --num-threads 1 --rnn-dim 5"
    made.append(None)
    assert not module.main(module.parse_args(text.split()))
    agent, buffer = made
    stored = slice(buffer.num_added)
    names = (buffer.place // 10**9 * num_envs + np.arange(buffer.capacity) % num_envs)[stored]
    assert len(set(names)) > 9
    acted = {obs[k].tobytes(): hidden[:, k] for obs, hidden in steps for k in range(num_envs)}
    for name in set(names):
        episode = torch.from_numpy(buffer.obs[stored][names == name])
        for t in range(len(episode)):
            _, hidden = policy_memory(agent)(episode[None, : t + 1] / agent.obs_scale)
            torch.testing.assert_close(acted[episode[t].numpy().tobytes()], torch.cat(hidden)[:, 0])


# ---- Replay ----


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_sequences_are_pieces_of_stored_episodes_with_what_came_before(data):
    """Against a list of all steps: several environments, a full buffer, all lengths."""
    num_envs, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    context = data.draw(st.integers(0, 8))
    capacity = data.draw(st.integers(num_envs, 60))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    buffer = rsac.ReplayBuffer(capacity, 3, 1)

    # Step t of episode k of environment e has obs (e, k, t), and numbers made from k and t.
    k, t, added = np.zeros(num_envs, int), np.zeros(num_envs, int), []
    for _ in range(data.draw(st.integers(1, 60))):
        obs = np.stack([np.arange(num_envs) + 1, k, t], axis=1)
        value, ends = 100 * k + t + 1, rng.random(num_envs) < 0.2
        terminated = ends & (k % 2 == 0)
        next_obs = obs + np.array([0, 0, 1])
        buffer.add(obs, value[:, None], -value, next_obs, terminated, ends & ~terminated)
        added += list(zip(map(tuple, obs.tolist()), value, terminated, strict=True))
        t = (t + 1) * ~ends
        k = k + ends
    stored = {obs: (value, terminated) for obs, value, terminated in added[-capacity:]}

    obs, action, reward, terminated, steps = (
        x.numpy() for x in buffer.sample(8, length, context, rng)
    )
    learned = steps // obs.shape[1]
    assert obs[:, -1].any()  # no padding that all sequences have
    for b in range(8):
        places = (steps % obs.shape[1])[learned == b]
        assert 1 <= len(places) <= length
        real = np.flatnonzero(obs[b].any(axis=1))
        assert real.tolist() == list(range(places[-1] + 2))
        assert places.tolist() == list(range(places[0], places[-1] + 1))
        first = obs[b, 0]
        for j in real:
            assert obs[b, j].tolist() == [first[0], first[1], first[2] + j]
        # It is shorter than T only where the episode begins or ends, and so is its context.
        e, number, time = obs[b, places[0]].astype(int)
        before = sum((e, number, time - j) in stored for j in range(1, context + 1))
        assert places[0] == before
        if len(places) < length:
            after = (e, number, time + len(places)) in stored
            assert not ((e, number, time - 1) in stored and after)
        for row, place in zip(np.flatnonzero(learned == b), places, strict=True):
            value, ends = stored[tuple(obs[b, place].astype(int).tolist())]
            assert action[row] == value
            assert reward[row] == -value
            assert terminated[row] == ends


@pytest.mark.parametrize("length", [1, 4])
def test_a_sequence_lies_around_a_step_drawn_uniformly(length):
    """So steps are learned alike often, whatever the length of their episodes, but those within T
    of its first or last step, down to half as often."""
    lengths = [2] * 12 + [5] * 6 + [30, 40]
    buffer, rng, count, total = fill(lengths), np.random.default_rng(0), Counter(), 20_000
    _, action, *_ = buffer.sample(total, length, 3, rng)
    count.update(x.tobytes() for x in action.numpy())
    row = 0
    for last in lengths:
        for t in range(last):
            pairs = sum(max(0, length - abs(t - u)) for u in range(last))  # (drawn step, its place)
            share = pairs / length / sum(lengths)
            error = (share * (1 - share) / total) ** 0.5
            found = count[buffer.action[row].tobytes()] / total
            assert found == pytest.approx(share, abs=5 * error)
            row += 1


def test_sequences_of_one_batch_start_at_times_of_their_own():
    buffer, rng = fill([900]), np.random.default_rng(0)
    buffer.obs[:900, 0] = np.arange(900)
    obs, *_, steps = buffer.sample(64, 10, 50, rng)
    firsts = obs.flatten(0, 1)[steps[np.unique(steps // obs.shape[1], return_index=True)[1]], 0]
    assert len(set(firsts.tolist())) > 50


def test_a_buffer_restored_from_its_files_gives_the_same_sequences(tmp_path):
    """Also of the episode that is under way at the checkpoint."""
    buffers, files = [rsac.ReplayBuffer(40, 3, 1) for _ in range(2)], ReplayFiles(tmp_path)

    def play(num_steps, which, seed):
        rng = np.random.default_rng(seed)
        for _ in range(num_steps):
            obs, next_obs = rng.normal(size=(2, 2, 3)).astype(np.float32)
            ends = rng.random((2, 2)) < 0.1
            action, reward = rng.normal(size=(2, 1)), rng.normal(size=2)
            for buffer in which:
                buffer.add(obs, action, reward, next_obs, *ends)

    play(30, buffers[:1], 0)
    files.save(buffers[0])
    play(33, buffers[:1], 1)
    state = files.save(buffers[0])
    ReplayFiles(tmp_path).load(buffers[1], state)
    play(30, buffers, 2)
    assert buffers[0].num_added == buffers[1].num_added
    ours, theirs = (b.sample(50, 3, 8, np.random.default_rng(1)) for b in buffers)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


# ---- One whole update against loops over time ----


def loop_lstm(memory, obs):
    """Features (n, feat_dim) of one episode (n, obs_dim), equation by equation."""
    w_ih, w_hh, b_ih, b_hh = memory.parameters()
    size = w_hh.shape[1]
    h = c = torch.zeros(size, dtype=torch.double)
    feats = []
    for row in obs:
        z = w_ih @ row + b_ih + w_hh @ h + b_hh
        i, f, g, o = z[:size], z[size : 2 * size], z[2 * size : 3 * size], z[3 * size :]
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        feats.append(torch.cat([h, row]))
    return torch.stack(feats)


def loop_mlp(net, x):
    for layer in net:
        if isinstance(layer, torch.nn.ReLU):
            x = x * (x > 0)
        elif isinstance(layer, torch.nn.LayerNorm):
            variance = (x - x.mean()).square().mean()
            x = (x - x.mean()) / (variance + 1e-5) ** 0.5 * layer.weight + layer.bias
        else:
            assert isinstance(layer, torch.nn.Linear), layer
            x = layer.weight @ x + layer.bias
    return x


def loop_gaussian(actor, feat, noise):
    """Action and log-probability of the squashed Gaussian, by the change of variables."""
    out = loop_mlp(actor.net, feat)
    mean, std = out[:ACT], out[ACT:].clamp(-20, 2).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2)).sum()


class Reference:
    """The same update with explicit loops over steps and time, one number after the other."""

    def __init__(self, script, args, agent, batch, noises):
        self.script, self.args, self.agent = script, args, agent
        self.noises, self.entropy = noises, "sac" in script
        self.obs, self.action, self.reward, self.terminated, self.steps = batch

    def feat(self, memory, m, later=0):
        """The feature of step m to learn, or of the one `later`, from what came before it."""
        b, place = divmod(int(self.steps[m]), self.obs.shape[1])
        return loop_lstm(memory, self.obs[b, : place + later + 1] / self.agent.obs_scale)[-1]

    def values(self, critics, m, action, later=0):
        inputs = torch.cat([self.feat(critics.rnn, m, later), action])
        heads = [critics.qf1] if self.script == "rdpg" else [critics.qf1, critics.qf2]
        return [loop_mlp(head, inputs)[0] for head in heads]

    def next_action(self, m):
        """What the target takes at the next observation, and its log-probability."""
        agent, noise = self.agent, self.noises[0][m]
        if self.entropy:
            memory = agent.critics_target.rnn if "sharing" in self.script else agent.actor.rnn
            return loop_gaussian(agent.actor, self.feat(memory, m, 1), noise)
        actor = agent.actor_target
        action = torch.tanh(loop_mlp(actor.net, self.feat(actor.rnn, m, 1)))
        if self.script == "rtd3":
            limit = self.args.noise_clip
            action = action + (self.args.target_noise * noise).clamp(-limit, limit)
        return action.clamp(-1, 1), 0

    def qf_loss(self):
        total, alpha = 0, self.agent.log_alpha.exp() if self.entropy else 0
        for m in range(len(self.steps)):
            with torch.no_grad():
                action, log_prob = self.next_action(m)
                value = min(self.values(self.agent.critics_target, m, action, 1))
                y = self.reward[m, 0]
                if self.entropy:
                    y = y / self.agent.reward_scale
                if not self.terminated[m, 0]:
                    y = y + self.args.gamma * (value - alpha * log_prob)
            for q in self.values(self.agent.critics, m, self.action[m]):
                total = total + (0.5 if self.entropy else 1) * (q - y) ** 2
        return total / len(self.steps)

    def actor_loss(self):
        agent, total, log_probs = self.agent, 0, []
        memory = agent.critics.rnn if "sharing" in self.script else agent.actor.rnn
        for m in range(len(self.steps)):
            feat = self.feat(memory, m)
            if self.entropy:
                action, log_prob = loop_gaussian(agent.actor, feat, self.noises[1][m])
                log_probs.append(log_prob.detach())
                total = total + agent.log_alpha.exp().detach() * log_prob
                total = total - sum(self.values(agent.critics, m, action)) / 2
            else:
                u = loop_mlp(agent.actor.net, feat)
                total = total - self.values(agent.critics, m, torch.tanh(u))[0]
                total = total + 1e-3 * (u**2).mean()
        self.entropy_mean = -sum(log_probs) / len(self.steps)
        return total / len(self.steps)

    def descend(self, loss, parameters, max_norm=math.inf):
        """The first step of Adam, whose running means are then the gradient and its square."""
        parameters = list(parameters)
        grads = torch.autograd.grad(loss, parameters)
        norm = sum(grad.square().sum() for grad in grads).sqrt() + 1e-6  # as PyTorch does
        shorter = min(1, max_norm / norm)
        for p, grad in zip(parameters, grads, strict=True):
            p.data -= self.args.lr * shorter * grad / (shorter * grad.abs() + 1e-8)
        return loss.detach()

    def update(self):
        agent = self.agent
        # The features that the actor learns from were computed before the critics' step.
        before = copy.deepcopy(agent.critics.rnn)
        longest = self.args.max_grad_norm
        losses = {"qf_loss": self.descend(self.qf_loss(), agent.critics.parameters(), longest)}
        agent.critics.rnn, after = before, agent.critics.rnn
        losses["actor_loss"] = self.descend(self.actor_loss(), agent.actor.parameters(), longest)
        agent.critics.rnn = after
        if self.entropy:
            missing = self.entropy_mean - self.args.target_entropy
            loss = agent.log_alpha * missing
            self.descend(loss, [agent.log_alpha])
        rates = {"target": self.args.tau, "average": self.args.tau_average}
        for name, follower in agent.named_children():
            owner, _, kind = name.partition("_")
            if kind in rates:
                online = agent.critics.rnn if owner == "rnn" else getattr(agent, owner)
                for p, q in zip(follower.parameters(), online.parameters(), strict=True):
                    p.data = (1 - rates[kind]) * p.data + rates[kind] * q.data
        return losses


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("length", "context"), [(9, 0), (2, 0), (2, 3)])
def test_one_update_equals_loops_over_time(script, length, context, monkeypatch):
    argv = ["--lr", "1e-2", "--tau", "0.3", "--tau-average", "0.1", "--gamma", "0.8"]
    argv += ["--noise-clip", "0.1"] if script == "rtd3" else []
    module, args, agent, optimizers = make(script, *argv)
    agent.obs_scale[:] = torch.linspace(0.5, 2, OBS)
    if script.startswith("rsac"):
        agent.reward_scale.fill_(3)
    batch = draw_batch([5, 3, 1, 2], 12, length, context)
    assert 0 < batch[3].sum() < len(batch[3])
    noises = torch.randn(2, len(batch[4]), ACT, dtype=torch.double)
    reference = Reference(script, args, copy.deepcopy(agent), batch, noises)
    before = copy.deepcopy(agent)
    expected = reference.update()
    fix_noise(monkeypatch, noises)
    losses = learn(module, agent, optimizers, batch, args)
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value.item(), rel=1e-9), name
    triples = zip(*(a.named_parameters() for a in (agent, reference.agent, before)), strict=True)
    for (name, p), (_, q), (_, old) in triples:
        torch.testing.assert_close(p.detach(), q.detach(), rtol=0, atol=1e-6, msg=name)
        assert not torch.equal(p, old), name


@pytest.mark.parametrize("script", SCRIPTS)
def test_long_gradients_are_shortened_and_short_ones_are_left_alone(script):
    batch = draw_batch([5, 3, 1, 2], 12, 4, 3)

    def gradients(max_grad_norm):
        """name -> all gradients of the first update, which Adam's running means are a tenth of"""
        module, args, agent, optimizers = make(script, "--max-grad-norm", max_grad_norm)
        torch.manual_seed(1)
        learn(module, agent, optimizers, batch, args)
        found = {}
        for name in ("critics", "actor"):
            states = optimizers[name].state.values()
            found[name] = 10 * torch.cat([state["exp_avg"].flatten() for state in states])
        return found

    whole = gradients(1e9)
    norms = [gradient.norm().item() for gradient in whole.values()]
    for name, gradient in gradients(2 * max(norms)).items():
        torch.testing.assert_close(gradient, whole[name], rtol=0, atol=0)
    cut = gradients(min(norms) / 4)
    for gradient in cut.values():
        assert gradient.norm().item() == pytest.approx(min(norms) / 4, rel=1e-4)
    # The actor's loss is that of critics which have taken another step.
    torch.testing.assert_close(
        cut["critics"] / cut["critics"].norm(), whole["critics"] / whole["critics"].norm()
    )


# ---- Whole runs ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("length", [1, 4])
def test_episodes_of_one_and_two_steps_are_learned_from(script, length, tmp_path):
    module = importlib.import_module(script)
    text = f"--env-id probes:Short-v0 --run-dir {tmp_path / 'run'} --total-steps 30 --num-threads 1"
    text += f" --learning-starts 10 --updates-per-step 1 --sequence-length {length} --rnn-dim 5"
    assert not module.main(module.parse_args(text.split()))
    last = (tmp_path / "run" / "progress.csv").read_text().splitlines()[-1]
    assert last.startswith("30,20,")


class Still(Toy):
    def step(self, action):
        obs, _, *rest = super().step(action)
        return obs * [1, 1, 0], 0.0, *rest

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return obs * [1, 1, 0], info


register("Still-v0", Still)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_always_zero_has_a_scale_all_the_same(script, tmp_path, monkeypatch):
    module, agents = importlib.import_module(script), []
    real = module.update
    monkeypatch.setattr(module, "update", lambda agent, *x: agents.append(agent) or real(agent, *x))
    argv = tiny(script, "--run-dir", tmp_path / "run", env="Still-v0", total=20)
    assert not module.main(module.parse_args(argv))
    assert agents[0].obs_scale[2] == pytest.approx(0.1)
    assert getattr(agents[0], "reward_scale", 0.01) == pytest.approx(0.01)


@pytest.mark.parametrize("script", SCRIPTS)
def test_weights_of_a_new_memory_are_larger_than_pytorchs(script):
    module = importlib.import_module(script)
    torch.manual_seed(0)
    memory = module.Memory(6, module.parse_args([]))
    assert 1.9 < memory.weight_ih_l0.abs().max() * 6**0.5 <= 2
    keep = memory.bias_ih_l0[64:128]
    assert torch.equal(memory.bias_ih_l0[:64], -keep)
    assert (keep > 0).sum() == 16
