"""Losses, targets and whole updates of the feed-forward scripts, against numbers worked out by
hand, derivatives and Stable-Baselines3; and what the loops of all scripts learn from."""

import copy
import importlib
import math

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from script_runs import RECURRENT, SCRIPTS, tiny
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

import sac

FEED_FORWARD = ["ddpg", "td3", "sac"]
DETERMINISTIC = ["ddpg", "td3", "rdpg", "rtd3"]
PICTURE = (1, 36, 36)
B, OBS_DIM, ACTION_DIM = 64, 5, 2


def make_agent(script, *options):
    """Module, arguments, agent and optimizers."""
    torch.manual_seed(0)
    module = importlib.import_module(script)
    args = module.parse_args(["--hidden-dims", "32", "32", *options])
    args.target_entropy = -float(ACTION_DIM)
    agent = module.Agent(PICTURE if script == "conv_sac" else OBS_DIM, ACTION_DIM, args)
    return module, args, agent, module.make_optimizers(agent, args)


def make_batch(seed):
    """obs, action, reward, next_obs, terminated; about a third of the steps are terminal."""
    random = torch.Generator().manual_seed(seed)
    shapes = (B, OBS_DIM), (B, ACTION_DIM), (B, 1), (B, OBS_DIM)
    obs, action, reward, next_obs = (torch.randn(s, generator=random) for s in shapes)
    terminated = (torch.rand(B, 1, generator=random) < 0.3).float()
    return obs, action.tanh(), reward, next_obs, terminated


# ---- Targets ----


def test_the_target_bootstraps_unless_the_step_is_terminal():
    reward, terminated = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [1.0]])
    y = sac.td_target(reward, terminated, torch.tensor([[10.0], [10.0]]), 0.9)
    torch.testing.assert_close(y, torch.tensor([[10.0], [1.0]]))


def test_the_target_refuses_shapes_that_would_broadcast():
    with pytest.raises((AssertionError, ValueError)):
        sac.td_target(torch.zeros(4), torch.zeros(4, 1), torch.zeros(4, 1), 0.9)


class TwoStates(gym.Env):
    """0 -> 1 -> 2, and there the episode ends; rewards 1 and 2.  end: terminated or truncated."""

    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, end, shape, dtype, render_mode=None):
        self.end = end
        self.observation_space = gym.spaces.Box(0, 255, shape, dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def step(self, action):
        self.place += 1
        ended = self.place == 2
        terminated, truncated = (ended and self.end == x for x in ("terminated", "truncated"))
        return self.observe(), float(self.place), terminated, truncated, {}

    def observe(self):
        return np.full(self.observation_space.shape, self.place, self.observation_space.dtype)


for end in ("terminated", "truncated"):
    for name, shape, dtype in (("TwoStates", (1,), np.float32), ("Pictures", PICTURE, np.uint8)):
        kwargs = {"end": end, "shape": shape, "dtype": dtype}
        gym.register(f"{name}-{end}-v0", TwoStates, max_episode_steps=9, kwargs=kwargs)


def run_two_states(script, folder, *options, end="truncated"):
    """Runs the script's own loop; it learns at each of the steps 7 to 12."""
    module = importlib.import_module(script)
    name = "Pictures" if script == "conv_sac" else "TwoStates"
    text = (
        f"--env-id {name}-{end}-v0 --run-dir {folder / 'run'} --total-steps 12 --learning-starts 6 "
        "--updates-per-step 1 --batch-size 32 --buffer-size 1000 --eval-episodes 1 --num-threads 1 "
    )
    text += "--n-step 1 " if script == "conv_sac" else "--hidden-dims 8 "
    if script in RECURRENT:
        text += "--rnn-dim 5 --sequence-length 1 --memory-input obs "
    module.main(module.parse_args([*text.split(), *options]))


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("end", "last"), [("terminated", 2.0), ("truncated", 12.0)])
def test_a_terminated_episode_is_worth_its_last_reward_a_truncated_one_what_would_follow(
    script, num_envs, end, last, tmp_path, monkeypatch
):
    module = importlib.import_module(script)
    targets, seen, real_td_target, real_update = [], {}, module.td_target, module.update

    def watched_td_target(*args):
        targets.append(real_td_target(*args))
        return targets[-1]

    def ten_times(feat, action):
        """10 o; the last of a memory's features is here the observation."""
        q = 10 * feat[..., -1:]
        return q if script in ("ddpg", "rdpg") else (q, q)

    def watched_update(agent, optimizers, batch, *args):
        agent.critics_target.forward = ten_times
        if script in RECURRENT:
            agent.obs_scale.fill_(1)
            getattr(agent, "reward_scale", torch.ones(1)).fill_(1)
            rnn = agent.critics_target.rnn
            rnn.forward = lambda obs, hidden=None: (
                torch.cat([type(rnn).forward(rnn, obs)[0][..., :-1], obs], dim=-1),
                None,
            )
        if script == "conv_sac":
            agent.critics_target.encoder.forward = lambda obs: obs.mean(dim=(-2, -1))
        losses = real_update(agent, optimizers, batch, *args)
        obs, next_obs = batch[0], batch[3]
        if script in RECURRENT:
            obs, next_obs = batch[0].flatten(0, 1)[batch[4]], batch[0].flatten(0, 1)[batch[4] + 1]
        first = (x.flatten(1)[:, 0].tolist() for x in (obs, next_obs, targets[-1]))
        for o, next_o, y in zip(*first, strict=True):
            seen.setdefault(o, set()).add((next_o, y))
        return losses

    monkeypatch.setattr(module, "td_target", watched_td_target)
    monkeypatch.setattr(module, "update", watched_update)
    options = ["--gamma", "0.5", "--num-envs", str(num_envs)]
    options += ["--alpha", "0"] if script not in DETERMINISTIC else []
    run_two_states(script, tmp_path, *options, end=end)
    # By hand: y(0) = 1 + 0.5 * 10 * 1; y(1) = 2, or from the true last observation 2 + 0.5 * 10 * 2
    assert seen == {0.0: {(1.0, 6.0)}, 1.0: {(2.0, last)}}


@pytest.mark.parametrize("script", ["td3", "rtd3"])
def test_noisy_next_actions_stay_in_bounds(script, tmp_path, monkeypatch):
    module, actions = importlib.import_module(script), []
    real_update = module.update

    def watched_update(agent, *args):
        agent.critics_target.register_forward_pre_hook(lambda _, x: actions.append(x[1]))
        return real_update(agent, *args)

    monkeypatch.setattr(module, "update", watched_update)
    run_two_states(script, tmp_path, "--target-noise", "1", "--noise-clip", "1")
    assert torch.cat(actions).abs().max() == 1.0


# ---- SAC's log-probability and temperature ----


def sample_of(mean, log_std, noise, monkeypatch):
    """Action and log_prob of an actor that gives exactly these, all (B, action_dim)."""
    actor = sac.Actor(1, mean.shape[1], sac.parse_args(["--hidden-dims", "2"]))
    actor.forward = lambda feat: (mean, log_std)
    monkeypatch.setattr(torch, "randn_like", lambda x: noise)
    return actor.sample(None)


def test_the_log_probability_is_the_density_after_the_change_of_variables(monkeypatch):
    """Against the determinant of the numeric Jacobian of noise -> action."""
    random = torch.Generator().manual_seed(0)
    mean, log_std, noise = 0.7 * torch.randn(3, 50, 3, generator=random, dtype=torch.double)
    action, log_prob = sample_of(mean, log_std, noise, monkeypatch)
    assert (action.shape, log_prob.shape) == ((50, 3), (50, 1))
    columns = []
    for k in range(3):
        step = torch.zeros(3, dtype=torch.double)
        step[k] = 1e-6
        up, down = (sample_of(mean, log_std, noise + s, monkeypatch)[0] for s in (step, -step))
        columns.append((up - down) / 2e-6)
    jacobian = torch.stack(columns, dim=-1)
    density = torch.distributions.Normal(0, 1).log_prob(noise).sum(dim=-1)
    expected = density - jacobian.det().abs().log()
    torch.testing.assert_close(log_prob[:, 0], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("mean", [-400.0, -30.0, 30.0, 400.0])
def test_the_log_probability_and_its_gradient_are_exact_where_tanh_saturates(mean, monkeypatch):
    u = torch.full((1, 1), mean, dtype=torch.double, requires_grad=True)
    _, log_prob = sample_of(u, torch.full_like(u, -1.0), torch.zeros_like(u), monkeypatch)
    # log(1 - tanh(u)^2) = -2 log(cosh(u)), and log(cosh(u)) = |u| + log1p(exp(-2 |u|)) - log(2)
    log_slope = -2 * (abs(mean) + math.log1p(math.exp(-2 * abs(mean))) - math.log(2))
    assert log_prob.item() == pytest.approx(1 - 0.5 * math.log(2 * math.pi) - log_slope, rel=1e-9)
    log_prob.sum().backward()
    assert u.grad.item() == pytest.approx(2 * math.copysign(1, mean))


@pytest.mark.parametrize("entropy", [1.0, 3.0])
def test_alpha_rises_exactly_while_the_entropy_is_below_its_target(entropy):
    log_alpha = torch.tensor(0.0, requires_grad=True)
    sac.alpha_loss(log_alpha, torch.tensor([[-entropy]]), 2.0).sum().backward()
    assert (log_alpha.grad.item() < 0) == (entropy < 2.0)


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in DETERMINISTIC])
@pytest.mark.parametrize(("options", "expected"), [([], -2.0), (["--target-entropy", "0.3"], 0.3)])
def test_the_target_entropy_is_minus_the_action_dimension_unless_it_is_set(
    script, options, expected, tmp_path, monkeypatch
):
    module, seen = importlib.import_module(script), set()
    real = module.alpha_loss

    def watched(log_alpha, log_prob, target_entropy):
        seen.add(target_entropy)
        return real(log_alpha, log_prob, target_entropy)

    monkeypatch.setattr(module, "alpha_loss", watched)
    argv = tiny(script, "--run-dir", tmp_path / "run", *options, total=30)
    module.main(module.parse_args(argv))
    assert seen == {expected}


# ---- What an update may move ----


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_update_forgets_the_gradients_of_the_one_before(script, tmp_path, monkeypatch):
    module, pairs = importlib.import_module(script), []
    real_update = module.update

    def watched_update(agent, optimizers, batch, args, *rest):
        agents = copy.deepcopy(agent), copy.deepcopy(agent)
        for other, left_over in zip(agents, (0.0, 9.0), strict=True):
            for p in other.parameters():
                p.grad = torch.full_like(p, left_over)
            torch.manual_seed(0)
            real_update(other, module.make_optimizers(other, args), batch, args, *rest)
        pairs.extend(zip(*(other.named_parameters() for other in agents), strict=True))
        return real_update(agent, optimizers, batch, args, *rest)

    monkeypatch.setattr(module, "update", watched_update)
    run_two_states(script, tmp_path)
    for (name, p), (_, q) in pairs:
        assert torch.equal(p, q), name


@pytest.mark.parametrize("script", ["td3", "rtd3"])
def test_all_but_the_critics_move_at_every_policy_delay_th_update(script, tmp_path, monkeypatch):
    moved, parts, module = [], set(), importlib.import_module(script)
    real_update = module.update

    def watched_update(agent, *args):
        before = copy.deepcopy(dict(agent.named_parameters()))
        losses = real_update(agent, *args)
        parts.update(name.split(".")[0] for name in before)
        changed = (name for name, p in agent.named_parameters() if not p.equal(before[name]))
        moved.append({name.split(".")[0] for name in changed})
        return losses

    monkeypatch.setattr(module, "update", watched_update)
    run_two_states(script, tmp_path, "--policy-delay", "3")
    assert moved == 2 * [{"critics"}, {"critics"}, parts]


# ---- How an agent starts and explores ----


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in ("ddpg", "rdpg")])
def test_twin_critics_start_with_different_weights(script):
    critics = make_agent(script)[2].critics
    for p, q in zip(critics.qf1.parameters(), critics.qf2.parameters(), strict=True):
        assert not p.equal(q) or p.min() == p.max()  # a LayerNorm starts at 1 and 0


@pytest.mark.parametrize("script", DETERMINISTIC)
def test_exploration_noise_has_the_asked_size_and_stays_in_bounds(script):
    agent = make_agent(script, "--exploration-noise", "0.05")[2]
    obs = np.zeros((20_000, OBS_DIM), np.float32)
    without = agent.act(obs, deterministic=True)[0]
    assert np.ptp(without, axis=0).max() < 1e-6
    assert (agent.act(obs)[0] - without).std() == pytest.approx(0.05, rel=0.03)
    agent.exploration_noise = 10.0
    assert abs(agent.act(obs)[0]).max() == 1.0


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in DETERMINISTIC])
def test_a_random_policy_acts_with_its_own_mean_and_standard_deviation(script):
    agent, count = make_agent(script)[2], 3000
    mean, log_std = torch.tensor([[0.3, -0.5], [-1.0, 0.2]])
    for actor in (agent.actor, getattr(agent, "actor_average", agent.actor)):
        actor.forward = lambda feat: (mean.expand(count, -1), log_std.expand(count, -1))
    shape = PICTURE if script == "conv_sac" else (OBS_DIM,)
    obs = np.zeros((count, *shape), np.float32)
    u = np.arctanh(agent.act(obs)[0].astype(np.float64))
    np.testing.assert_allclose(u.mean(axis=0), mean, atol=0.1)
    np.testing.assert_allclose(u.std(axis=0), log_std.exp(), rtol=0.07)
    best = agent.act(obs, deterministic=True)[0]
    np.testing.assert_allclose(best, mean.tanh().expand(count, -1), rtol=1e-5)


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name not in DETERMINISTIC])
def test_a_random_policy_is_never_too_narrow_or_too_wide_to_compute_with(script):
    actor = make_agent(script)[2].actor
    last = actor.net[-1]
    last.bias.data[ACTION_DIM:] = torch.tensor([1000.0, -1000.0])
    _, log_std = actor(torch.zeros(1, actor.net[0].in_features))
    assert log_std.tolist() == [[2.0, -20.0]]


@pytest.mark.parametrize("script", SCRIPTS)
def test_actions_are_random_up_to_learning_starts_and_then_the_policys(
    script, tmp_path, monkeypatch
):
    module, actions = importlib.import_module(script), []
    real_act, real_add = module.Agent.act, module.ReplayBuffer.add

    def still(*args, **kwargs):
        action, hidden = real_act(*args, **kwargs)
        return 0 * action, hidden

    def watched_add(self, obs, action, *args):
        actions.extend(action)
        real_add(self, obs, action, *args)

    monkeypatch.setattr(module.Agent, "act", still)
    monkeypatch.setattr(module.ReplayBuffer, "add", watched_add)
    options = ["--learning-starts", 100, "--updates-per-step", 0, "--eval-every", 1000]
    argv = tiny(script, *options, "--run-dir", tmp_path / "run", total=110)
    module.main(module.parse_args(argv))
    drawn = np.array(actions[:100])
    assert (np.array(actions[100:]) == 0).all()
    # Uniform from -1 to 1: 200 numbers, a fifth of them in each fifth.
    counts = np.histogram(drawn, bins=5, range=(-1, 1))[0]
    assert counts.sum() == 200
    assert abs(counts - 40).max() < 25  # 4.4 standard deviations


@pytest.mark.parametrize("script", SCRIPTS)
def test_training_explores_and_evaluation_does_not(script, tmp_path, monkeypatch):
    flags, module = [], importlib.import_module(script)
    real_act = module.Agent.act

    def watched_act(self, *args, deterministic=False):
        flags.append(deterministic)
        return real_act(self, *args, deterministic=deterministic)

    monkeypatch.setattr(module.Agent, "act", watched_act)
    run_two_states(script, tmp_path)
    acts = 12 if script in RECURRENT else 6  # a memory also reads the random steps
    assert flags == [True] * 2 + [False] * acts + [True] * 2


# ---- Whole updates against Stable-Baselines3 ----


class Blank(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,))
    action_space = gym.spaces.Box(-1, 1, (ACTION_DIM,))


def make_sb3(script):
    kind = getattr(stable_baselines3, script.upper())
    policy = {"net_arch": [32, 32]}
    options = {"learning_rate": 3e-4, "gamma": 0.99, "tau": 0.005, "batch_size": B, "device": "cpu"}
    options |= {"ent_coef": "auto_1.0"} if script == "sac" else {}
    model = kind("MlpPolicy", Blank(), buffer_size=10, policy_kwargs=policy, **options)
    model.set_logger(configure(None, []))
    if script == "sac":  # it adds 1e-6 to 1 - tanh(u)^2, no part of SAC
        model.actor.action_dist.epsilon = 0.0
    return model


def linears(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.Linear)]


def layers(script, agent, model):
    """Pairs of (our, list of their) linear layers; SAC's actor has two heads there, one here."""
    actors = [(agent.actor, model.actor)]
    if script != "sac":
        actors += [(agent.actor_target, model.actor_target)]
    pairs = []
    for ours, theirs in actors:
        their = linears(theirs)
        split = len(linears(ours)) - 1
        pairs += zip(linears(ours), [*([x] for x in their[:split]), their[split:]], strict=True)
    critics = (agent.critics, model.critic), (agent.critics_target, model.critic_target)
    for ours, theirs in critics:
        pairs += zip(linears(ours), ([x] for x in linears(theirs)), strict=True)
    return pairs


def parity(script, num_updates, monkeypatch):
    """Trains both from our initial weights on the same batches and noise.

    Returns both agents and the losses of the last update, ours and theirs, by name.
    """
    module, args, agent, optimizers = make_agent(script)
    model = make_sb3(script)
    with torch.no_grad():
        for name, part in agent.named_children():  # as after some training
            for p in part.parameters() if name.endswith("_target") else []:
                p += 0.05 * torch.randn_like(p)
        for our, theirs in layers(script, agent, model):
            sizes = [len(x.bias) for x in theirs]
            for their, weight, bias in zip(
                theirs, our.weight.split(sizes), our.bias.split(sizes), strict=True
            ):
                their.weight.copy_(weight)
                their.bias.copy_(bias)
    for k in range(num_updates):
        obs, action, reward, next_obs, terminated = batch = make_batch(k)
        pi_noise, next_noise = torch.randn(2, B, ACTION_DIM)
        ours = [next_noise, pi_noise] if script == "sac" else [next_noise]
        theirs = [pi_noise, next_noise]  # it draws the action of the actor's loss first
        delayed = [(k + 1) % args.policy_delay == 0] if script == "td3" else []
        samples = ReplayBufferSamples(obs, action, next_obs, terminated, reward)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "randn_like", lambda x, ours=ours: ours.pop(0))
            losses = module.update(agent, optimizers, batch, args, *delayed)
        with monkeypatch.context() as patch:
            normal, noise = torch.distributions.normal, next_noise
            patch.setattr(normal, "_standard_normal", lambda *a, t=theirs, **k: t.pop(0))
            patch.setattr(torch.Tensor, "normal_", lambda x, m, s, n=noise: x.copy_(m + s * n))
            patch.setattr(model.replay_buffer, "sample", lambda *a, s=samples, **k: s)
            model.train(1, B)
    names = {"qf_loss": "critic_loss", "actor_loss": "actor_loss"}
    names |= {"alpha": "ent_coef"}
    logged = {
        ours: model.logger.name_to_value["train/" + names[ours]] for ours in losses if ours in names
    }
    return agent, model, losses, logged


@pytest.mark.parametrize("num_updates", [1, 10])
@pytest.mark.parametrize("script", FEED_FORWARD)
def test_losses_and_every_parameter_are_those_of_stable_baselines3(
    script, num_updates, monkeypatch
):
    agent, model, losses, logged = parity(script, num_updates, monkeypatch)
    only_critics = script == "td3" and num_updates == 1
    assert len(logged) == (3 if script == "sac" else 1 if only_critics else 2)
    for name, value in logged.items():
        assert losses[name].item() == pytest.approx(value, abs=1e-5), name
    pairs = layers(script, agent, model)
    count = sum(our.weight.numel() + our.bias.numel() for our, _ in pairs)
    assert count + (script == "sac") == sum(p.numel() for p in agent.parameters())
    for our, theirs in pairs:
        weight, bias = (torch.cat([getattr(x, n) for x in theirs]) for n in ("weight", "bias"))
        torch.testing.assert_close(our.weight, weight, atol=1e-5, rtol=0)
        torch.testing.assert_close(our.bias, bias, atol=1e-5, rtol=0)
    if script == "sac":
        assert agent.log_alpha.item() == pytest.approx(model.log_ent_coef.item(), abs=1e-5)


@pytest.mark.parametrize("script", SCRIPTS)
def test_acting_without_noise_draws_no_random_number(script):
    agent, before = make_agent(script)[2], torch.get_rng_state()
    shape = PICTURE if script == "conv_sac" else (OBS_DIM,)
    agent.act(np.zeros((3, *shape), np.float32), deterministic=True)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("script", SCRIPTS)
def test_targets_and_averages_start_as_copies(script):
    agent, found = make_agent(script)[2], []
    for name, follower in agent.named_children():
        owner, _, kind = name.partition("_")
        if kind:
            online = agent.critics.rnn if owner == "rnn" else getattr(agent, owner)
            for p, q in zip(follower.parameters(), online.parameters(), strict=True):
                assert torch.equal(p, q), name
                assert p is not q
            found.append(name)
    assert "critics_target" in found


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_told_beside_the_losses(script, tmp_path, monkeypatch):
    module, seen, told = importlib.import_module(script), [], []
    real_loss, real_update = module.actor_loss, module.update

    def watched_update(agent, *rest):
        alpha = agent.log_alpha.exp().item() if script not in DETERMINISTIC else None
        told.append((real_update(agent, *rest), alpha))
        return told[-1][0]

    monkeypatch.setattr(module, "actor_loss", lambda *x: seen.append(x) or real_loss(*x))
    monkeypatch.setattr(module, "update", watched_update)
    run_two_states(script, tmp_path)
    told = [(losses, alpha) for losses, alpha in told if "actor_loss" in losses]
    for (losses, alpha), (first, *more) in zip(told, seen, strict=True):
        q1 = first if alpha is None else more[0]
        assert losses["q_mean"].item() == pytest.approx(q1.mean().item())
        if alpha is not None:
            assert losses["entropy"].item() == pytest.approx(-first.mean().item())
            assert losses["alpha"].item() == pytest.approx(alpha)
