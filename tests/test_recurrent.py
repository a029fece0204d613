"""What memory must not get wrong, in all four recurrent scripts.

Everything is checked against stored episodes step by step or against loops written here.
"""

import copy
import importlib
from argparse import Namespace
from collections import Counter

import numpy as np
import probes  # noqa: F401  (registers the environments)
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from script_runs import RECURRENT as SCRIPTS

import rsac
from common.envs import make_envs
from common.replay_files import ReplayFiles

OBS, ACT = 6, 2  # of what the memory reads, the constant 1 included


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


def make_episode(length, rng, terminates=False):
    """An episode of random numbers as the replay buffer keeps it."""
    obs = rng.normal(size=(length + 1, OBS))
    obs[:, -1] = 1
    terminated = np.zeros((length, 1))
    terminated[-1] = terminates
    action, reward = rng.uniform(-1, 1, (length, ACT)), rng.normal(size=(length, 1))
    return {"obs": obs, "action": action, "reward": reward, "terminated": terminated}


def fill(lengths, capacity=1000):
    """A buffer with random episodes of these lengths; every second one terminates."""
    rng, buffer = np.random.default_rng(0), rsac.ReplayBuffer(capacity, OBS, ACT, 1)
    for number, length in enumerate(lengths):
        buffer.append(make_episode(length, rng, number % 2 == 0))
    return buffer


def draw_batch(lengths, size, sequence_length, context_length):
    rng = np.random.default_rng(0)
    batch = fill(lengths).sample(size, sequence_length, context_length, rng)
    return [x.double() for x in batch]


def learn(module, agent, optimizers, batch, args):
    """One update with all its parts."""
    extra = [True] if module.SCRIPT == "rtd3" else []
    return module.update(agent, optimizers, batch, args, *extra)


def fix_noise(monkeypatch, noises):
    """torch.randn_like gives these in turn, of each the last steps: padding is on the left."""
    queue = list(noises)
    monkeypatch.setattr(torch, "randn_like", lambda x: queue.pop(0)[:, -x.shape[1] :])


def memories(agent):
    return [m for m in agent.modules() if type(m).__name__ == "Memory"]


def policy_memory(agent):
    """The memory that the agent acts with."""
    return agent.actor.rnn if hasattr(agent.actor, "rnn") else agent.critics.rnn


# ---- What the memory reads, remembers and learns from ----


@pytest.mark.parametrize("reads", ["obs", "obs-action", "obs-action-reward"])
def test_the_memory_reads_the_previous_action_and_reward_and_a_one(reads):
    args = Namespace(env_id="probes:Varied-v0", memory_input=reads)
    envs, plain = make_envs(args, 1), make_envs(Namespace(env_id=args.env_id), 1)
    obs, raw = envs.reset()[0], plain.reset()[0]
    action, reward = np.zeros((1, 1), np.float32), np.zeros(1)
    rng = np.random.default_rng(0)
    for _ in range(30):
        read = [raw] + [action] * ("action" in reads) + [reward[:, None]] * ("reward" in reads)
        np.testing.assert_array_equal(obs, np.concatenate([*read, [[1]]], axis=1, dtype=np.float32))
        assert obs.shape[1:] == envs.single_observation_space.shape
        action = rng.uniform(-1, 1, (1, 1)).astype(np.float32)
        obs, reward, terminated, truncated, _ = envs.step(action)
        raw = plain.step(action)[0]
        if terminated[0] | truncated[0]:
            obs, raw = envs.reset()[0], plain.reset()[0]
            action, reward = np.zeros((1, 1), np.float32), np.zeros(1)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_acting_step_by_step_equals_one_pass_over_the_episode(script, rnn):
    _, _, agent, _ = make(script, "--rnn", rnn)
    obs = np.random.default_rng(0).normal(size=(4, 9, OBS))
    feat = policy_memory(agent)(torch.from_numpy(obs))[0]
    unrolled = torch.tanh(agent.actor(feat)[0]) if "sac" in script else agent.actor(feat)
    hidden = None
    for t in range(9):
        action, hidden = agent.act(obs[:, t], hidden, deterministic=True)
        np.testing.assert_allclose(action, unrolled[:, t].detach(), atol=1e-12)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_a_feature_depends_on_its_step_and_all_before_it_and_on_no_other(script, rnn):
    _, _, agent, _ = make(script, "--rnn", rnn)
    for memory in memories(agent):
        obs = torch.randn(2, 9, OBS, dtype=torch.double, requires_grad=True)
        memory(obs)[0][0, 5].sum().backward()
        touched = obs.grad.abs().sum(dim=2) > 0
        assert touched.tolist() == [[t <= 5 for t in range(9)], [False] * 9]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_padding_leaves_every_feature_of_a_real_step_as_it_is(script, rnn):
    _, _, agent, _ = make(script, "--rnn", rnn)
    obs = torch.randn(2, 6, OBS, dtype=torch.double)
    for memory in memories(agent):
        feat = memory(obs)[0]
        for padding in (1, 7, 300):
            padded = memory(torch.nn.functional.pad(obs, (0, 0, padding, 0)))[0]
            torch.testing.assert_close(padded[:, padding:], feat, rtol=0, atol=1e-12)
            assert not padded[:, :padding].any()


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
@pytest.mark.parametrize("where", ["context", "sequence"])
def test_padding_changes_no_loss_and_no_parameter(script, rnn, where, monkeypatch):
    """where: in the context alone, or also in steps that have a loss."""
    noises, results = torch.randn(2, 6, 60, ACT, dtype=torch.double), []
    for padding in (0, 40):
        module, args, agent, optimizers = make(script, "--rnn", rnn)
        batch = draw_batch([6, 2, 1, 4], 6, sequence_length=3, context_length=20)
        assert 0 < batch[4].sum() < batch[4].numel()
        for k in range(5):
            if where == "sequence" or k == 0:
                batch[k] = torch.nn.functional.pad(batch[k], (0, 0, padding, 0))
        fix_noise(monkeypatch, noises)
        losses = learn(module, agent, optimizers, batch, args)
        grads = {name: p.grad for name, p in agent.named_parameters() if p.grad is not None}
        results.append((losses, grads, dict(agent.named_parameters())))
    for plain, padded in zip(*results, strict=True):
        assert plain.keys() == padded.keys()
        for name in plain:
            torch.testing.assert_close(padded[name], plain[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_the_loss_of_the_last_step_reaches_the_first_step_of_the_context(script, rnn, monkeypatch):
    module, args, agent, optimizers = make(script, "--rnn", rnn)
    batch = draw_batch([20], 1, sequence_length=1, context_length=50)
    batch[0].requires_grad_()
    steps = batch[0].shape[1] - 1
    assert steps > 9
    assert batch[1].shape == (1, 1, ACT)
    grads, real_mean = [], module.masked_mean

    def spy(x, mask):
        mean = real_mean(x, mask)
        if len(grads) < 2:  # the losses of critics and actor; what follows is only shown
            grads.extend(torch.autograd.grad(mean, batch[0], retain_graph=True, allow_unused=True))
        return mean

    monkeypatch.setattr(module, "masked_mean", spy)
    learn(module, agent, optimizers, batch, args)
    if script == "rsac_sharing":  # its actor reads the critics' memory and does not train it
        assert grads.pop() is None
    for grad in grads:
        touched = grad[0].abs().sum(dim=1) > 0
        assert touched.tolist() == [True] * steps + [False]  # the next observation is the target's


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
            parts = after if isinstance(after, tuple) else [after]
            steps.append((obs.copy(), torch.cat([part.clone() for part in parts])))
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
    assert len(buffer.episodes) > 9
    acted = {obs[k].tobytes(): hidden[:, k] for obs, hidden in steps for k in range(num_envs)}
    for episode in buffer.episodes:
        for t in range(len(episode["reward"])):
            _, hidden = policy_memory(agent)(torch.from_numpy(episode["obs"][None, : t + 1]))
            hidden = torch.cat(hidden if isinstance(hidden, tuple) else [hidden])
            torch.testing.assert_close(acted[episode["obs"][t].tobytes()], hidden[:, 0])


# ---- Replay ----


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_sequences_are_ends_of_stored_episodes_padded_on_the_left(data):
    """Against lists of episodes: several environments, a full buffer, all lengths."""
    num_envs, capacity = data.draw(st.integers(1, 3)), data.draw(st.integers(6, 40))
    length, context = data.draw(st.integers(0, 6)), data.draw(st.integers(0, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    buffer = rsac.ReplayBuffer(capacity, 3, 1, num_envs)

    # Step t of episode k of environment e has obs (e, k, t), and numbers made from k and t.
    k, t, finished = np.zeros(num_envs, int), np.zeros(num_envs, int), []
    for _ in range(data.draw(st.integers(30, 90))):
        obs = np.stack([np.arange(num_envs) + 1, k, t], axis=1)
        value, ends = 100 * k + t + 1, (t == 5) | (rng.random(num_envs) < 0.25)
        terminated = ends & (k % 2 == 0)
        next_obs = obs + np.array([0, 0, 1])
        buffer.add(obs, value[:, None], -value, next_obs, terminated, ends & ~terminated)
        t += 1
        finished += [(e + 1, k[e], t[e]) for e in np.flatnonzero(ends)]
        k, t = k + ends, t * ~ends
    kept, steps = [], 0  # the youngest episodes that fit, at least one
    for episode in reversed(finished):
        steps += episode[2]
        if steps <= capacity or not kept:
            kept.append(episode)
    stored = {(e, number): last for e, number, last in kept[: len(buffer.episodes)]}
    assert len(stored) == len(buffer.episodes)
    assert sum(stored.values()) <= max(capacity, kept[0][2])

    obs, action, reward, terminated, mask = (
        x.numpy() for x in buffer.sample(8, length, context, rng)
    )
    T, total = action.shape[1], obs.shape[1] - 1
    for b in range(8):
        e, number = obs[b, -1, :2].astype(int)
        end, last = int(obs[b, -1, 2]), stored[e, number]
        n = min(total, end)  # real steps, the last of which comes before observation `end`
        assert end <= last
        assert end == last or length > 0
        assert n == min(end, context + T)  # no context is left out
        assert not obs[b, : total - n].any()
        for j in range(total - n, total + 1):
            assert obs[b, j].tolist() == [e, number, end - total + j]
        for j in range(T):
            time = end - T + j
            assert mask[b, j] == (time >= 0)
            value = (100 * number + time + 1) * (time >= 0)
            assert action[b, j] == value
            assert reward[b, j] == -value
            assert terminated[b, j] == (time == last - 1 and number % 2 == 0)
    assert min(length or 99, obs[:, -1, 2].max()) == T
    assert (mask.sum(axis=1) > 0).all()


LENGTHS = [2] * 12 + [5] * 6 + [30, 40]


@pytest.mark.parametrize("length", [1, 4, 0])
def test_a_sequence_lies_around_a_step_drawn_uniformly(length):
    """Every stored step is reached, whatever the lengths of episodes; so is every end."""
    expected = Counter()  # (episode, end of the sequence): over all steps and places around them
    for episode, last in enumerate(LENGTHS):
        T = length or last
        for t in range(last):
            for u in range(T):
                expected[episode, min(max(t + 1 + u, T), last)] += 1 / (sum(LENGTHS) * T)
    buffer, rng = fill(LENGTHS), np.random.default_rng(0)
    known = {x["obs"][t].astype(np.float32).tobytes(): (k, t)
             for k, x in enumerate(buffer.episodes) for t in range(len(x["obs"]))}  # fmt: skip
    drawn, seen, total = Counter(), set(), 0
    for _ in range(400):
        obs, action, *_, mask = (x.numpy() for x in buffer.sample(50, length, 3, rng))
        ends = [known[x[-1].tobytes()] for x in obs]
        drawn.update(ends)
        seen |= {x.tobytes() for x in action[mask[..., 0] > 0]}
        total += 50
    assert len(seen) == sum(LENGTHS)
    assert drawn.keys() == expected.keys()
    for of in (lambda key: LENGTHS[key[0]], lambda key: key[1]):  # by length, by end
        for group in {of(key) for key in expected}:
            share = sum(n for key, n in expected.items() if of(key) == group)
            count = sum(n for key, n in drawn.items() if of(key) == group)
            error = (share * (1 - share) / total) ** 0.5
            assert count / total == pytest.approx(share, abs=5 * error)


def test_sequences_of_one_batch_start_at_times_of_their_own():
    buffer, rng = fill([900]), np.random.default_rng(0)
    buffer.episodes[0]["obs"][:, 0] = np.arange(901)
    starts = buffer.sample(64, 10, 50, rng)[0][:, 0, 0]
    assert len(set(starts.tolist())) > 50


def test_replay_memory_takes_what_it_announces_and_no_more():
    buffer = fill([10, 300] * 10, capacity=1000)
    stored = sum(x.nbytes for episode in buffer.episodes for x in episode.values()) / 2  # doubles
    assert 0.6 * buffer.num_bytes < stored < 1.05 * buffer.num_bytes


def test_a_buffer_restored_from_its_files_gives_the_same_sequences(tmp_path):
    """Also of the episode that is under way at the checkpoint."""
    buffers, files = [rsac.ReplayBuffer(40, 3, 1, 2) for _ in range(2)], ReplayFiles(tmp_path)

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
    assert buffers[0].num_finished == buffers[1].num_finished
    ours, theirs = (b.sample(50, 3, 9, np.random.default_rng(1)) for b in buffers)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


# ---- One whole update against loops over time ----


def loop_lstm(memory, obs):
    """Features (n, feat_dim) of one episode (n, obs_dim), equation by equation."""
    w_ih, w_hh = memory.rnn.weight_ih_l0, memory.rnn.weight_hh_l0
    size = w_hh.shape[1]
    h = c = torch.zeros(size, dtype=torch.double)
    feats = []
    for row in obs:
        z = w_ih @ (row / memory.input_scale) + w_hh @ h
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
        elif isinstance(layer, torch.nn.Linear):
            x = layer.weight @ x + layer.bias
        else:
            assert isinstance(layer, torch.nn.Identity), layer
    return x


def loop_gaussian(actor, feat, noise):
    """Action and log-probability of the squashed Gaussian, by the change of variables."""
    out = loop_mlp(actor.net, feat)
    mean, std = out[:ACT], out[ACT:].clamp(-20, 2).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2)).sum()


class Reference:
    """The same update with explicit loops over sequences and time, one number after the other."""

    def __init__(self, script, args, agent, batch, noises):
        self.script, self.args, self.agent = script, args, agent
        self.noises, self.entropy = noises, "sac" in script
        self.obs, self.action, self.reward, self.terminated, self.mask = batch
        self.offset = self.obs.shape[1] - 1 - self.action.shape[1]  # of step t in `obs`

    def feats(self, memory, b):
        """Features of a sequence, of its real steps alone; indices as in `obs`."""
        real = int(self.obs[b, :, -1].sum())
        feats = loop_lstm(memory, self.obs[b, -real:])
        return [None] * (self.obs.shape[1] - real) + list(feats)

    def values(self, critics, b, t, action):
        """Of step t of the sequence, t from 0 where losses begin."""
        inputs = torch.cat([self.feats(critics.rnn, b)[self.offset + t], action])
        heads = [critics.qf1] if self.script == "rdpg" else [critics.qf1, critics.qf2]
        return [loop_mlp(head, inputs)[0] for head in heads]

    def next_action(self, b, t):
        """What the target takes at o_t+1, and its log-probability."""
        agent, noise = self.agent, self.noises[0][b, t]
        if self.entropy:
            memory = agent.critics_target.rnn if "sharing" in self.script else agent.actor.rnn
            return loop_gaussian(agent.actor, self.feats(memory, b)[self.offset + t + 1], noise)
        actor = agent.actor_target
        feat = self.feats(actor.rnn, b)[self.offset + t + 1]
        action = torch.tanh(loop_mlp(actor.net, feat))
        if self.script == "rtd3":
            limit = self.args.noise_clip
            action = action + (self.args.target_noise * noise).clamp(-limit, limit)
        return action.clamp(-1, 1), 0

    def real_steps(self):
        return [(b, t) for b, t, _ in self.mask.nonzero().tolist()]

    def qf_loss(self):
        total, alpha = 0, self.agent.log_alpha.exp() if self.entropy else 0
        for b, t in self.real_steps():
            with torch.no_grad():
                action, log_prob = self.next_action(b, t)
                value = min(self.values(self.agent.critics_target, b, t + 1, action))
                y = self.reward[b, t, 0]
                if not self.terminated[b, t, 0]:
                    y = y + self.args.gamma * (value - alpha * log_prob)
            for q in self.values(self.agent.critics, b, t, self.action[b, t]):
                total = total + (0.5 if self.entropy else 1) * (q - y) ** 2
        return total / len(self.real_steps())

    def actor_loss(self):
        agent, total, log_probs = self.agent, 0, []
        shared = "sharing" in self.script
        for b, t in self.real_steps():
            memory = agent.critics.rnn if shared else agent.actor.rnn
            feat = self.feats(memory, b)[self.offset + t]
            if self.entropy:
                action, log_prob = loop_gaussian(agent.actor, feat, self.noises[1][b, t])
                log_probs.append(log_prob.detach())
                total = total + agent.log_alpha.exp().detach() * log_prob
                total = total - min(self.values(agent.critics, b, t, action))
            else:
                action = torch.tanh(loop_mlp(agent.actor.net, feat))
                total = total - self.values(agent.critics, b, t, action)[0]
        self.entropy_mean = -sum(log_probs) / len(self.real_steps())
        return total / len(self.real_steps())

    def descend(self, loss, parameters):
        """The first step of Adam, whose running means are then the gradient and its square."""
        parameters = list(parameters)
        for p, grad in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.data -= self.args.lr * grad / (grad.abs() + 1e-8)
        return loss.detach()

    def update(self):
        agent = self.agent
        # The features that the actor learns from were computed before the critics' step.
        before = copy.deepcopy(agent.critics.rnn)
        losses = {"qf_loss": self.descend(self.qf_loss(), agent.critics.parameters())}
        agent.critics.rnn, after = before, agent.critics.rnn
        losses["actor_loss"] = self.descend(self.actor_loss(), agent.actor.parameters())
        agent.critics.rnn = after
        if self.entropy:
            missing = self.entropy_mean - self.args.target_entropy
            loss = agent.log_alpha * missing
            self.descend(loss, [agent.log_alpha])
        for name, target in agent.named_children():
            if name.endswith("_target"):
                online = getattr(agent, name.removesuffix("_target"))
                for p, q in zip(target.parameters(), online.parameters(), strict=True):
                    p.data = (1 - self.args.tau) * p.data + self.args.tau * q.data
        return losses


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("length", "context"), [(0, 0), (2, 0), (2, 3)])
def test_one_update_equals_loops_over_time(script, length, context, monkeypatch):
    argv = ["--lr", "1e-2", "--tau", "0.3", "--gamma", "0.8"]
    module, args, agent, optimizers = make(script, *argv)
    for memory in memories(agent):
        memory.input_scale[:] = torch.linspace(0.5, 2, OBS)
    batch = draw_batch([5, 3, 1, 2], 8, length, context)
    assert 0 < batch[3].sum() < 8
    assert length > 0 or batch[4].sum() < batch[4].numel()
    noises = torch.randn(2, 8, batch[1].shape[1], ACT, dtype=torch.double)
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


# ---- Whole runs ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("length", [0, 4])
def test_episodes_of_one_and_two_steps_are_learned_from(script, length, tmp_path):
    module = importlib.import_module(script)
    text = f"--env-id probes:Short-v0 --run-dir {tmp_path / 'run'} --total-steps 30 --num-threads 1"
    text += f" --learning-starts 10 --updates-per-step 1 --sequence-length {length} --rnn-dim 5"
    assert not module.main(module.parse_args(text.split()))
    last = (tmp_path / "run" / "progress.csv").read_text().splitlines()[-1]
    assert last.startswith("30,20,")
