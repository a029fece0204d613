"""What memory must not get wrong, in all four recurrent scripts.

Everything is checked against stored episodes step by step or against loops written here.
"""

import csv
import importlib
import tracemalloc
from collections import Counter
from itertools import pairwise

import numpy as np
import probes  # noqa: F401  (registers the environments)
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from optimizers import keep_gradients

from common.cli import run_cli

SCRIPTS = ["rdpg", "rtd3", "rsac", "rsac_sharing"]
SIBLING = {"rdpg": "ddpg", "rtd3": "td3", "rsac": "sac"}
OBS, ACT = 3, 2


def setup_module():
    torch.set_num_threads(1)


def make(script, *argv, double=False, seed=0):
    """Module, arguments, agent and optimizers of a script with small networks."""
    module = importlib.import_module(script)
    memory = ["--rnn-hidden", "5"] if script in SCRIPTS else []
    args = module.parse_args(["--hidden-dims", "8", *memory, *map(str, argv)])
    args.target_entropy = -float(ACT)
    torch.manual_seed(seed)
    agent = module.Agent(OBS, ACT, args)
    agent = agent.double() if double else agent
    optimizers = module.make_optimizers(agent, args)
    return module, args, agent, {name: keep_gradients(o) for name, o in optimizers.items()}


def fill(module, lengths, num_envs=1, capacity=1000, seed=0, hidden=None):
    """A buffer with episodes of these lengths, of random numbers; every second one terminates."""
    rng, buffer = np.random.default_rng(seed), module.ReplayBuffer(capacity, OBS, ACT, num_envs)
    hidden = [torch.zeros(1, num_envs, 5)] if module.__name__ == "rsac_sharing" else []
    for number, length in enumerate(lengths):
        obs = rng.normal(size=(length + 1, num_envs, OBS))
        for t in range(length):
            end, action = t + 1 == length, rng.uniform(-1, 1, (num_envs, ACT))
            flags = [np.full(num_envs, end and number % 2 == k) for k in range(2)]
            reward = rng.normal(size=num_envs)
            buffer.add(obs[t], action, reward, obs[t + 1], *flags, *hidden)
    return buffer


def draw_batch(module, lengths, size=6, sequence_length=0, burn_in=0, double=True, seed=0):
    batch = fill(module, lengths).sample(
        size, sequence_length, burn_in, np.random.default_rng(seed)
    )
    return [x.double() for x in batch] if double else list(batch)


def learn(module, agent, optimizers, batch, args):
    """One update with all its parts."""
    extra = [True] if module.__name__ == "rtd3" else []
    return module.update(agent, optimizers, batch, args, *extra)


def fix_noise(monkeypatch, *noises):
    """torch.randn_like gives the first steps of these, in turn, whatever the padding."""
    queue = list(noises)
    monkeypatch.setattr(torch, "randn_like", lambda x: queue.pop(0)[:, : x.shape[1]])


def gradients(agent):
    return {name: p.grad for name, p in agent.named_parameters() if p.grad is not None}


# ---- Acting and unrolling ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("layers", [1, 2])
def test_acting_step_by_step_equals_one_pass_over_the_episode(script, rnn, layers):
    _, _, agent, _ = make(script, "--rnn", rnn, "--rnn-layers", layers)
    history = np.random.default_rng(0).normal(size=(4, 9, OBS + ACT + 1)).astype(np.float32)
    memory, actor = agent.policy
    feat = memory.window(torch.from_numpy(history), 0)
    unrolled = torch.tanh(actor(feat)[0]) if "sac" in script else actor(feat)
    hidden = None
    for t in range(9):
        action, hidden = agent.act(history[:, t], hidden, deterministic=True)
        np.testing.assert_allclose(action, unrolled[:, t].detach(), atol=1e-6)


@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
@pytest.mark.parametrize("burn_in", [1, 4, 8])
def test_a_window_after_its_burn_in_sees_what_the_whole_pass_sees(rnn, burn_in):
    _, _, agent, _ = make("rsac", "--rnn", rnn)
    history = torch.randn(2, 9, OBS + ACT + 1)
    whole = agent.actor_rnn.window(history, 0)[:, burn_in:]
    torch.testing.assert_close(agent.actor_rnn.window(history, burn_in), whole)
    with torch.no_grad():
        torch.testing.assert_close(agent.actor_rnn.window(history, burn_in), whole)


@pytest.mark.parametrize(
    ("reads", "seen"), [("obs", 0), ("obs-action", 2), ("obs-action-reward", 3)]
)
def test_the_memory_reads_what_it_is_told_to(reads, seen):
    _, _, agent, _ = make("rsac", "--memory-input", reads, "--no-skip")
    history = torch.randn(1, 4, OBS + ACT + 1, requires_grad=True)
    agent.actor_rnn.window(history, 0).sum().backward()
    touched = history.grad.abs().sum(dim=(0, 1)) > 0
    assert touched.tolist() == [k < OBS + seen for k in range(OBS + ACT + 1)]


@pytest.mark.parametrize("rnn", ["lstm", "gru", "rnn"])
def test_a_step_learns_from_all_before_it_and_from_nothing_after_it(rnn):
    _, _, agent, _ = make("rsac", "--rnn", rnn)
    history = torch.randn(2, 9, OBS + ACT + 1, requires_grad=True)
    agent.actor_rnn.window(history, 0)[:, 5].sum().backward()
    touched = history.grad[..., :OBS].abs().sum(dim=(0, 2)) > 0
    assert touched.tolist() == [t <= 5 for t in range(9)]


def test_burn_in_steps_count_but_give_no_gradient():
    _, _, agent, _ = make("rsac")
    history = torch.randn(2, 9, OBS + ACT + 1, requires_grad=True)
    feat = agent.actor_rnn.window(history, 4)
    feat.sum().backward()
    touched = history.grad.abs().sum(dim=(0, 2)) > 0
    assert touched.tolist() == [t >= 4 for t in range(9)]
    other = history.detach().clone()
    other[:, 0] += 1
    assert not torch.equal(agent.actor_rnn.window(other, 4), feat)


# ---- The loop: hidden states of acting ----


def record_acting(module, monkeypatch):
    """Collects (history, hidden before) of every training step, and agents and buffers."""
    steps, made = [], []
    act, buffer = module.Agent.act, module.ReplayBuffer

    def spy(self, history, hidden=None, deterministic=False):
        if not deterministic:
            parts = hidden if isinstance(hidden, tuple) else [hidden]
            flat = None if hidden is None else torch.cat([h.clone() for h in parts])
            steps.append((history.copy(), flat))
        return act(self, history, hidden, deterministic)

    class Buffer(buffer):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            made.append(self)

    class Agent(module.Agent):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(module, "ReplayBuffer", Buffer)
    monkeypatch.setattr(module, "Agent", Agent)
    monkeypatch.setattr(Agent, "act", spy)
    return steps, made


def run(script, tmp_path, *argv, env="Varied", name="run"):
    """Runs main in this process and returns the rows of progress.csv."""
    module = importlib.import_module(script)
    common = "--num-threads 1 --hidden-dims 8 --rnn-hidden 5 --batch-size 3 --eval-episodes 3"
    common += " --learning-starts 10 --updates-per-step 1 --sequence-length 4 --burn-in 3"
    common += f" --buffer-size 200 --env-id probes:{env}-v0 --log-dir {tmp_path}"
    argv = list(map(str, argv))
    if "--resume" in argv:
        assert not module.main(module.parse_args(argv))
        name = argv[argv.index("--resume") + 1]
    else:
        assert not module.main(module.parse_args([*common.split(), "--run-name", name, *argv]))
    with open(tmp_path / name / "progress.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("num_envs", [1, 3])
def test_while_acting_the_hidden_state_is_that_of_the_stored_episode(
    script, num_envs, tmp_path, monkeypatch
):
    """Through random warm-up steps, too, and from zero at the start of every episode."""
    module = importlib.import_module(script)
    steps, made = record_acting(module, monkeypatch)
    run(script, tmp_path, "--total-steps", 60, "--learning-starts", 60, "--num-envs", num_envs)
    agent, buffer = made
    for env in range(num_envs):
        rows = [row for row in range(200 // num_envs) if buffer.t[env, row] >= 0]
        starts = [k for k, row in enumerate(rows) if buffer.t[env, row] == 0]
        assert len(rows) == len(steps)
        assert len(starts) > 3
        for k, row in enumerate(rows):
            history, hidden = steps[k]
            first = row - buffer.t[env, row]
            episode = torch.from_numpy(buffer.rows[env, first : row + 1])
            last = torch.cat([torch.zeros(1, 2), episode[:-1, 3:5]])
            history = np.reshape(history, (num_envs, -1))[env]
            np.testing.assert_array_equal(history, torch.cat([episode[-1, :3], last[-1]]))
            if row == first:
                assert hidden is None or not hidden[:, env].any()
            else:
                inputs = torch.cat([episode[:, :3], last], dim=1)[None, :-1]
                _, unrolled = agent.policy[0](inputs)
                unrolled = torch.cat(unrolled)[:, 0]
                torch.testing.assert_close(hidden[:, env], unrolled)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_resumed_run_acts_on_the_same_memory_as_an_unbroken_one(script, tmp_path, monkeypatch):
    steps, _ = record_acting(importlib.import_module(script), monkeypatch)
    run(script, tmp_path, "--total-steps", 40)
    unbroken = steps[23:]
    steps.clear()
    run(script, tmp_path, "--total-steps", 23, name="broken")
    steps.clear()
    run(script, tmp_path, "--resume", tmp_path / "broken", "--total-steps", 40)
    assert len(steps) == len(unbroken) == 17
    for (history, hidden), (expected_history, expected_hidden) in zip(steps, unbroken, strict=True):
        np.testing.assert_array_equal(history, expected_history)
        assert torch.equal(hidden, expected_hidden)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_behaviour_network_changes_between_episodes_alone(script):
    module, args, agent, optimizers = make(script, "--behaviour-refresh", "episode")
    history = np.ones(OBS + ACT + 1, np.float32)

    def acts():
        torch.manual_seed(0)
        return agent.act(history)[0].tolist()

    before = acts()
    learn(module, agent, optimizers, draw_batch(module, [5, 3], double=False), args)
    assert acts() == before
    agent.refresh_behaviour()
    assert acts() != before


@pytest.mark.parametrize("refresh", ["step", "episode"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_while_an_episode_is_played_its_weights_change_only_if_asked_to(
    script, refresh, tmp_path, monkeypatch
):
    module, acts = importlib.import_module(script), []
    act = module.Agent.act

    def spy(self, history, hidden=None, deterministic=False):
        if not deterministic:
            parts = hidden if isinstance(hidden, tuple) else [hidden]
            begins = hidden is None or not any(h.any() for h in parts)
            acts.append((begins, [p.sum().item() for p in self.behaviour.parameters()]))
        return act(self, history, hidden, deterministic)

    monkeypatch.setattr(module.Agent, "act", spy)
    argv = ["--policy-delay", 1] if script == "rtd3" else []
    run(script, tmp_path, "--total-steps", 80, "--behaviour-refresh", refresh, *argv)
    learned = acts[12:]  # learning starts at 10
    changed = [(new[0], new[1] != old[1]) for old, new in pairwise(learned)]
    at_start = [change for begins, change in changed if begins]
    within = [change for begins, change in changed if not begins]
    assert len(at_start) > 5
    assert all(at_start)
    assert any(within) == (refresh == "step")


# ---- Windows ----


@settings(max_examples=80, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("script", ["rsac", "rsac_sharing"])
def test_windows_are_slices_of_one_stored_episode(script, data):
    """Against lists of episodes: ring wrap, several environments, burn-in, whole episodes."""
    module = importlib.import_module(script)
    num_envs = data.draw(st.integers(1, 3))
    longest = data.draw(st.integers(1, 6))
    capacity = data.draw(st.integers(longest + 2, 40))
    total = data.draw(st.integers(1, 90))
    length = data.draw(st.integers(0, longest))
    burn_in = data.draw(st.integers(0, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    buffer = module.ReplayBuffer(capacity * num_envs, 3, 1, num_envs)
    hidden = [torch.zeros(1, num_envs, 1)] if script == "rsac_sharing" else []

    # Step t of episode k in environment e has obs (e, k, t), action and reward made from them.
    # rows[e] is what a ring without end would hold: (k, t), t = None for the last observation.
    k, t, rows, lengths = [0] * num_envs, [0] * num_envs, [[] for _ in range(num_envs)], {}
    for _ in range(total):
        ends = [t[e] + 1 == longest or rng.random() < 0.25 for e in range(num_envs)]
        obs = np.array([(e, k[e], t[e]) for e in range(num_envs)])
        value = 100 * obs[:, 1] + obs[:, 2] + 1
        terminated = np.array(ends) & (value % 2 == 0)
        next_obs = obs + np.array([0, 0, 1])
        buffer.add(obs, value[:, None], -value, next_obs, terminated, np.array(ends), *hidden)
        for e in range(num_envs):
            rows[e].append((k[e], t[e]))
            lengths[e, k[e]] = t[e] + 1
            t[e] += 1
            if ends[e]:
                rows[e].append((k[e], None))
                k[e], t[e] = k[e] + 1, 0
    stored = set()
    for e in range(num_envs):
        kept = rows[e][max(0, len(rows[e]) + 1 - capacity) :]  # one row is open
        stored |= {(e, episode) for episode, time in kept if time == 0}

    history, action, reward, end, mask = buffer.sample(4, length, burn_in, rng)[:5]
    assert len(history) == 4
    steps = history.shape[1] - action.shape[1] - 1
    if length == 0:
        assert steps == 0
        assert action.shape[1] == mask.sum(dim=1).max()
    else:
        assert action.shape[1] == length
    for b in range(4):
        start = int(history[b, steps, 2])
        assert steps == min(start, burn_in)
        e, episode = int(history[b, 0, 0]), int(history[b, 0, 1])
        assert (e, episode) in stored
        assert (history[b, :, :2] == history[b, 0, :2]).all()  # padding, too
        last = lengths[e, episode]
        for j in range(history.shape[1]):
            time = start - steps + j
            if time <= last:
                before = 100 * episode + time if time else 0
                expected = [e, episode, time, before, -before]
                assert history[b, j].tolist() == expected
            if j >= steps and j < history.shape[1] - 1:
                assert mask[b, j - steps].item() == (time < last)
                if time < last:
                    value = 100 * episode + time + 1
                    assert action[b, j - steps].item() == value
                    assert reward[b, j - steps].item() == -value
                    ended = time + 1 == last and value % 2 == 0 and episode < k[e]
                    assert end[b, j - steps].item() == ended


LENGTHS = [2] * 12 + [5] * 6 + [30, 40]


@pytest.mark.parametrize("burn_in", [0, 7, 50])
@pytest.mark.parametrize("script", ["rsac", "rsac_sharing"])
def test_each_window_of_a_batch_lies_around_a_step_drawn_uniformly(script, burn_in):
    """Whatever the lengths of episodes: not drawn more often for being like the rest of a batch."""
    module, length, size, rng = importlib.import_module(script), 4, 8, np.random.default_rng(0)
    expected = Counter()  # (episode, start of the window): over all steps and places around them
    for episode, end in enumerate(LENGTHS):
        for t in range(end):
            for u in range(length):
                start = min(max(0, t - u), max(0, end - length))
                expected[episode, start] += 1 / (sum(LENGTHS) * length)
    buffer, drawn, batches = fill(module, LENGTHS), Counter(), 4000
    first_rows = np.cumsum([0] + [end + 1 for end in LENGTHS])
    for _ in range(batches):
        _, first, start, end = buffer.draw(size, length, burn_in, rng)
        assert len(set(np.minimum(start, burn_in))) == 1
        episode = np.searchsorted(first_rows, first)
        assert (first_rows[episode] == first).all()
        assert end.tolist() == [LENGTHS[k] for k in episode]
        drawn.update(zip(episode.tolist(), start.tolist(), strict=True))
    assert drawn.keys() == expected.keys()
    for of in (lambda key: LENGTHS[key[0]], lambda key: key[1]):  # by length, by start
        for group in {of(key) for key in expected}:
            share = sum(n for key, n in expected.items() if of(key) == group)
            count = sum(n for key, n in drawn.items() if of(key) == group)
            # Windows of a batch resemble each other, at worst as if there were one per batch.
            error = (share * (1 - share) / batches) ** 0.5
            assert count / (batches * size) == pytest.approx(share, abs=5 * error)


def test_whole_episodes_are_drawn_equally_often_however_long():
    buffer, rng = fill(importlib.import_module("rsac"), LENGTHS), np.random.default_rng(0)
    ends = np.concatenate([buffer.draw(8, 0, 200, rng)[3] for _ in range(1000)])
    for end in set(LENGTHS):
        share = LENGTHS.count(end) / len(LENGTHS)
        assert np.mean(ends == end) == pytest.approx(share, abs=0.03)


def test_windows_beyond_the_burn_in_start_at_times_of_their_own():
    buffer, rng = fill(importlib.import_module("rsac"), [900]), np.random.default_rng(0)
    starts = [buffer.draw(16, 10, 50, rng)[2] for _ in range(100)]
    late = [set(start.tolist()) for start in starts if start[0] > 50]
    assert len(late) > 80
    assert np.mean([len(start) for start in late]) > 14  # of 16 from 850


@pytest.mark.parametrize("length", [1, 3, 7])
def test_every_stored_step_is_learned_from(length):
    buffer = fill(importlib.import_module("rsac"), [7, 2, 5])
    rng, seen = np.random.default_rng(0), set()
    for _ in range(300):
        _, action, *_, mask = buffer.sample(2, length, 0, rng)
        seen |= {tuple(x.tolist()) for x in action[mask[..., 0] > 0]}
    assert len(seen) == 7 + 2 + 5


@pytest.mark.parametrize("script", SCRIPTS)
def test_replay_memory_grows_with_steps_and_not_with_padding(script):
    module = importlib.import_module(script)
    mixed = fill(module, [10] * 20 + [1000], capacity=3000)
    assert mixed.next_row == 20 * 10 + 1000 + 21  # a row for each last observation
    sizes = []
    for capacity in (1000, 2000, 3000):
        buffer = fill(module, [10, 300], capacity=capacity)
        sizes.append(sum(x.nbytes for x in vars(buffer).values() if isinstance(x, np.ndarray)))
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] == 1000 * 4 * (OBS + ACT + 2 + 2)


def test_sampling_costs_the_same_with_many_stored_episodes():
    class Counting:
        def __init__(self):
            self.rng, self.drawn = np.random.default_rng(0), 0

        def integers(self, *args, **kwargs):
            numbers = self.rng.integers(*args, **kwargs)
            self.drawn += np.size(numbers)
            return numbers

    costs = []
    for episodes in (20, 2000):
        buffer, rng = (
            fill(importlib.import_module("rsac"), [5] * episodes, capacity=20_000),
            Counting(),
        )
        tracemalloc.start()
        for _ in range(200):
            buffer.sample(8, 3, 2, rng)
        costs.append((rng.drawn, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
    assert costs[1][0] < 1.2 * costs[0][0]
    assert costs[1][1] < 1.5 * costs[0][1]


def test_a_stored_state_is_the_one_that_the_agent_had(tmp_path, monkeypatch):
    module = importlib.import_module("rsac_sharing")
    _, made = record_acting(module, monkeypatch)
    argv = "--total-steps 60 --learning-starts 2 --updates-per-step 0 --stored-state"
    run("rsac_sharing", tmp_path, *argv.split(), "--rnn-layers", 2, "--num-envs", 2)
    agent, buffer = made
    memory, rng, later, random = agent.critics.rnn, np.random.default_rng(0), 0, 0
    for _ in range(30):
        history, *_, stored = buffer.sample(4, 2, 0, rng)
        hidden = module.unpack(stored, memory.rnn)
        for b in range(4):
            # The episode is found by its first observation of the window.
            env, row = np.argwhere((buffer.rows[..., :3] == history[b, 0, :3].numpy()).all(-1))[0]
            t = buffer.t[env, row]
            rows = torch.from_numpy(buffer.rows[env, row - t : row])
            random += row == 1  # after the first step, the random one
            if t == 0 or row == 1:
                assert not any(h[:, b].any() for h in hidden)
                continue
            later += 1
            last = torch.cat([torch.zeros(1, 2), rows[:-1, 3:5]])
            _, unrolled = memory(torch.cat([rows[:, :3], last], dim=1)[None])
            for h, u in zip(hidden, unrolled, strict=True):
                torch.testing.assert_close(h[:, b], u[:, 0])
    assert later > 10
    assert random > 0


# ---- Losses and updates ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("padding", ["nan", "longer"])
def test_padding_changes_no_loss_and_no_gradient(script, padding, monkeypatch):
    results = []
    for padded in (False, True):
        module, args, agent, optimizers = make(script, double=True)
        batch = draw_batch(module, [6, 2, 1, 4])
        mask = batch[4]
        assert 0 < mask.sum() < mask.numel()
        if padded:
            extra = 3 if padding == "longer" else 0
            value = float("nan")
            for k in range(4):
                batch[k] = torch.nn.functional.pad(batch[k], (0, 0, 0, extra), value=value)
            batch[4] = torch.nn.functional.pad(mask, (0, 0, 0, extra))
            batch[0][:, 1:][batch[4][..., 0] == 0] = value
            for k in range(1, 4):
                batch[k][batch[4][..., 0] == 0] = value
        torch.manual_seed(1)
        noises = [torch.randn(6, 20, ACT, dtype=torch.double) for _ in range(2)]
        fix_noise(monkeypatch, *noises)
        losses = learn(module, agent, optimizers, batch, args)
        results.append((losses, gradients(agent)))
    (losses, grads), (padded_losses, padded_grads) = results
    assert grads.keys() == padded_grads.keys()
    assert ("log_alpha" in grads) == ("sac" in script)
    for name in losses:
        torch.testing.assert_close(padded_losses[name], losses[name], rtol=1e-9, atol=1e-12)
    for name in grads:
        torch.testing.assert_close(padded_grads[name], grads[name], rtol=1e-9, atol=1e-12)


def critic_parts(agent):
    """Names of what the critics' loss trains."""
    return [
        n for n, _ in agent.named_parameters() if n.startswith(("critics.", "qf1.", "qf1_rnn."))
    ]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_actor_loss_leaves_critics_and_their_memory_alone(script, monkeypatch):
    """In rsac_sharing.py that is the memory of the actor as well."""
    module, args, agent, optimizers = make(script)
    original, seen = module.step, []

    def spy(optimizer, loss):
        parameters = dict(agent.named_parameters())
        parts = {name: parameters[name] for name in critic_parts(agent)}
        before = {name: (p.clone(), p.grad) for name, p in parts.items()}
        copies = {name: None if g is None else g.clone() for name, (_, g) in before.items()}
        original(optimizer, loss)
        if optimizer is optimizers["actor"]:
            for name, p in parts.items():
                assert torch.equal(p, before[name][0])
                assert torch.equal(p.grad, copies[name])
            seen.append(any(p.grad.any() for p in agent.actor.parameters()))

    monkeypatch.setattr(module, "step", spy)
    learn(module, agent, optimizers, draw_batch(module, [5, 3], double=False), args)
    assert seen == [True]


@pytest.mark.parametrize("script", ["rdpg", "rtd3"])
def test_an_actor_that_tanh_has_flattened_comes_back_by_default(script):
    for argv, back in ([], True), (["--tanh-penalty", "0"], False):
        module, args, agent, optimizers = make(script, *argv)
        bias = agent.actor.net[-1].bias
        bias.data.fill_(-20)
        learn(module, agent, optimizers, draw_batch(module, [5, 3], double=False), args)
        assert (bias > -20).all() if back else (bias == -20).all()


@pytest.mark.parametrize("script", SIBLING)
def test_with_one_step_episodes_and_a_memory_of_zeros_losses_are_those_without_memory(script):
    argv = ["--lr", "1e-3", "--tau", "0.1"]
    argv += ["--alpha", "0.3"] if script == "rsac" else ["--tanh-penalty", "0.01"]
    module, args, agent, optimizers = make(script, *argv, double=True)
    plain, plain_args, sibling, plain_optimizers = make(SIBLING[script], *argv, double=True)

    def widen(head, plain_head):
        """The same function of observation (and action); features of the memory get weight 0."""
        for layer, source in zip(head.net, plain_head.net, strict=True):
            if hasattr(layer, "weight"):
                extra = layer.weight.shape[1] - source.weight.shape[1]
                layer.weight.data[:, :extra] = 0
                layer.weight.data[:, extra:] = source.weight.data
                layer.bias.data[:] = source.bias.data

    for suffix in ("", "_target"):
        critics = getattr(agent, f"critics{suffix}", agent)
        source = getattr(sibling, f"critics{suffix}", sibling)
        names = ["qf1", "qf2"] if hasattr(sibling, "critics") else [f"qf1{suffix}"]
        for name in names:
            widen(getattr(critics, name), getattr(source, name))
        if hasattr(agent, f"actor{suffix}"):
            widen(getattr(agent, f"actor{suffix}"), getattr(sibling, f"actor{suffix}"))
    for name, p in agent.named_parameters():
        if "rnn." in name:
            p.data.zero_()  # an LSTM of zeros gives zeros, and zeros give no gradient

    history, action, reward, terminated, mask = draw_batch(module, [1] * 8)
    assert action.shape[1] == 1
    for _ in range(3):
        torch.manual_seed(3)
        losses = learn(module, agent, optimizers, [history, action, reward, terminated, mask], args)
        torch.manual_seed(3)
        batch = [
            history[:, 0, :OBS],
            action[:, 0],
            reward[:, 0],
            history[:, 1, :OBS],
            terminated[:, 0],
        ]
        extra = [True] if script == "rtd3" else []
        expected = plain.update(sibling, plain_optimizers, batch, plain_args, *extra)
        assert losses.keys() == expected.keys()
        for name in losses:
            torch.testing.assert_close(losses[name], expected[name], rtol=1e-9, atol=1e-9)


# ---- One whole update against loops over time ----


def loop_memory(w, name, history, obs_dim=OBS, input_dim=OBS + ACT):
    """An LSTM over one episode (T + 1, .), equation by equation, then the observation beside it."""
    weights = [
        w[f"{name}.rnn.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]
    w_ih, w_hh, b_ih, b_hh = weights
    n = w_hh.shape[1]
    h = c = torch.zeros(n, dtype=torch.double)
    feats = []
    for row in history:
        z = w_ih @ row[:input_dim] + b_ih + w_hh @ h + b_hh
        i, f, g, o = z[:n], z[n : 2 * n], z[2 * n : 3 * n], z[3 * n :]
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        feats.append(torch.cat([h, row[:obs_dim]]))
    return feats


def loop_mlp(w, name, value):
    value = torch.relu(w[f"{name}.net.0.weight"] @ value + w[f"{name}.net.0.bias"])
    return w[f"{name}.net.2.weight"] @ value + w[f"{name}.net.2.bias"]


def loop_gaussian(w, feat, noise):
    """Action and log-probability of the squashed Gaussian, by the change of variables."""
    out = loop_mlp(w, "actor", feat)
    mean, std = out[:ACT], out[ACT:].clamp(-20, 2).exp()
    u = mean + std * noise
    density = torch.distributions.Normal(mean, std).log_prob(u)
    return torch.tanh(u), (density - torch.log(1 - torch.tanh(u) ** 2)).sum()


class Reference:
    """The same update with explicit loops over episodes and time, one number after the other."""

    def __init__(self, script, args, weights, batch, noises):
        self.script, self.args, self.noises = script, args, noises
        self.entropy, self.rnns = "sac" in script, 2 if script in ("rsac", "rtd3") else 1
        self.heads = 1 if script == "rdpg" else 2
        self.history, self.action, self.reward, self.terminated, mask = batch[:5]
        self.lengths = [int(m.sum()) for m in mask]
        self.w = dict(weights)

    def memory_of(self, head, target=""):
        if self.script == "rdpg":
            return f"qf1_rnn{target}"
        if self.script == "rsac_sharing":
            return f"critics{target}.rnn"
        return f"critics{target}.rnns.{head}"

    def q(self, w, head, feats, t, action, target=""):
        name = f"qf1{target}" if self.script == "rdpg" else f"critics{target}.qf{head + 1}"
        return loop_mlp(w, name, torch.cat([feats[t], action]))[0]

    def episode(self, b):
        return self.history[b, : self.lengths[b] + 1]

    def next_action(self, w, b, t):
        """What the target takes at o_t+1, and its log-probability."""
        noise = self.noises[0][b, t]
        if self.script == "rsac":
            return loop_gaussian(w, loop_memory(w, "actor_rnn", self.episode(b))[t + 1], noise)
        if self.script == "rsac_sharing":
            feat = loop_memory(w, "critics_target.rnn", self.episode(b))[t + 1]
            return loop_gaussian(w, feat, noise)
        feat = loop_memory(w, "actor_rnn_target", self.episode(b))[t + 1]
        action = torch.tanh(loop_mlp(w, "actor_target", feat))
        if self.script == "rtd3":
            limit = self.args.noise_clip
            action = action + (self.args.target_noise * noise).clamp(-limit, limit)
        return action.clamp(-1, 1), 0

    def qf_loss(self, w):
        old, total = self.w, 0
        for b, length in enumerate(self.lengths):
            for t in range(length):
                with torch.no_grad():
                    action, log_prob = self.next_action(old, b, t)
                    values = []
                    for head in range(self.heads):
                        feats = loop_memory(old, self.memory_of(head, "_target"), self.episode(b))
                        values.append(self.q(old, head, feats, t + 1, action, "_target"))
                    value = min(values)
                    if self.entropy:
                        value = value - old["log_alpha"].exp() * log_prob
                    y = self.reward[b, t, 0]
                    if not self.terminated[b, t, 0]:
                        y = y + self.args.gamma * value
                for head in range(self.heads):
                    feats = loop_memory(w, self.memory_of(head), self.episode(b))
                    error = self.q(w, head, feats, t, self.action[b, t]) - y
                    total = total + (0.5 if self.entropy else 1) * error**2
        return total / sum(self.lengths)

    def actor_loss(self, w):
        total = entropy = 0
        for b, length in enumerate(self.lengths):
            critics = [
                loop_memory(self.w, self.memory_of(head), self.episode(b))
                for head in range(self.heads)
            ]
            shared = self.script == "rsac_sharing"
            feats = critics[0] if shared else loop_memory(w, "actor_rnn", self.episode(b))
            for t in range(length):
                if self.entropy:
                    action, log_prob = loop_gaussian(w, feats[t], self.noises[1][b, t])
                    q1, q2 = (self.q(self.w, k, critics[k], t, action) for k in range(2))
                    alpha = self.w["log_alpha"].exp().detach()
                    total = total + alpha * log_prob - torch.min(q1, q2)
                    entropy = entropy - log_prob.detach()
                else:
                    u = loop_mlp(w, "actor", feats[t])
                    total = total - self.q(self.w, 0, critics[0], t, torch.tanh(u))
                    total = total + self.args.tanh_penalty * u.square().sum()
        self.entropy_mean = entropy / sum(self.lengths)
        return total / sum(self.lengths)

    def descend(self, loss, names):
        """The first step of Adam, whose running means are then the gradient and its square."""
        leaves = {name: self.w[name].clone().requires_grad_() for name in names}
        value = loss({**self.w, **leaves})
        for name, grad in zip(names, torch.autograd.grad(value, leaves.values()), strict=True):
            lr = self.args.rnn_lr if "rnn" in name else self.args.lr
            self.w[name] = self.w[name] - lr * grad / (grad.abs() + 1e-8)
        return value.detach()

    def update(self):
        critics = [n for n in self.w if n.startswith(("critics.", "qf1.", "qf1_rnn."))]
        actor = [n for n in self.w if n.startswith(("actor.", "actor_rnn."))]
        losses = {"qf_loss": self.descend(self.qf_loss, critics)}
        losses["actor_loss"] = self.descend(self.actor_loss, actor)
        if self.entropy:
            missing = self.entropy_mean - self.args.target_entropy
            losses["alpha_loss"] = self.descend(lambda w: w["log_alpha"] * missing, ["log_alpha"])
        for name in self.w:
            if "_target" in name:
                online, tau = self.w[name.replace("_target", "")], self.args.tau
                self.w[name] = (1 - tau) * self.w[name] + tau * online
        return losses


@pytest.mark.parametrize("script", SCRIPTS)
def test_one_update_on_whole_episodes_equals_loops_over_time(script, monkeypatch):
    per_critic = ["--rnn-per-critic"] if script in ("rsac", "rtd3") else []
    argv = ["--lr", "1e-2", "--rnn-lr", "3e-3", "--tau", "0.3", "--gamma", "0.8", *per_critic]
    module, args, agent, optimizers = make(script, *argv, double=True)
    torch.manual_seed(5)
    for name, p in agent.named_parameters():  # targets that differ from what they follow
        if "_target" in name or "bias" in name:
            p.data += 0.3 * torch.randn_like(p)
    batch = draw_batch(module, [5, 3, 1, 2], size=20)
    assert {int(n) for n in batch[4].sum(dim=1)} == {5, 3, 1, 2}
    assert 0 < batch[3].sum() < 20
    noises = [torch.randn(20, 5, ACT, dtype=torch.double) for _ in range(2)]
    weights = {name: p.detach().clone() for name, p in agent.named_parameters()}
    reference = Reference(script, args, weights, batch, noises)
    expected = reference.update()
    fix_noise(monkeypatch, *noises)
    losses = learn(module, agent, optimizers, batch, args)
    for name, value in expected.items():
        assert losses[name].item() == pytest.approx(value.item(), rel=1e-9)
    for name, p in agent.named_parameters():
        torch.testing.assert_close(p.detach(), reference.w[name], rtol=0, atol=1e-7)
        assert not torch.equal(p, weights[name])


# ---- Whole runs ----


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("length", [0, 4])
def test_episodes_of_one_and_two_steps_are_learned_from(script, length, tmp_path):
    argv = ["--sequence-length", length, "--total-steps", 40, "--eval-every", 20]
    argv += ["--burn-in", 0] if length == 0 else []
    rows = run(script, tmp_path, *argv, env="Short")
    assert [row["num_updates"] for row in rows] == ["0", "10", "30"]


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_same_seed_gives_the_same_progress(script, tmp_path):
    argv = ["--total-steps", 60, "--eval-every", 20]
    runs = [run(script, tmp_path, *argv, name=name) for name in ("a", "b")]
    for row in runs[0] + runs[1]:
        del row["wall_seconds"], row["steps_per_second"]
    assert runs[0] == runs[1]
    assert len(runs[0]) == 4


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--sequence-length 9", "longer than"),
        ("--sequence-length 0 --burn-in 2", "--sequence-length"),
        ("--sequence-length 0 --env-id probes:Timeless-v0", "no time limit"),
        ("--buffer-size 9", "at least 10"),
        ("--buffer-size 29 --num-envs 3", "at least 30"),
    ],
)
def test_what_cannot_work_ends_in_one_line(script, argv, words, tmp_path, capfd):
    module = importlib.import_module(script)
    common = (
        f"--num-threads 1 --env-id probes:Varied-v0 --sequence-length 4 --log-dir {tmp_path}/runs"
    )
    with pytest.raises(SystemExit) as stop:
        run_cli(module.main, module.parse_args([*common.split(), *argv.split()]))
    assert stop.value.code == 2
    lines = [line for line in capfd.readouterr().err.splitlines() if "cut after" not in line]
    assert len(lines) == 1
    assert words in lines[0]
    assert not (tmp_path / "runs").exists()
