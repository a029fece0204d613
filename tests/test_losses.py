"""Losses, targets and whole updates of the feed-forward scripts, against numbers worked out by
hand, `torch.distributions` and Stable-Baselines3; and what the loops of all scripts learn from."""

import copy
import math

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3
import torch
from optimizers import keep_gradients
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

import conv_sac
import ddpg
import rdpg
import rsac
import rsac_sharing
import rtd3
import sac
import td3

SCRIPTS = [ddpg, td3, sac]
RECURRENT = [rdpg, rtd3, rsac, rsac_sharing]
WITH_ENTROPY = [sac, rsac, rsac_sharing, conv_sac]
PICTURE = (36, 36)
B, OBS_DIM, ACTION_DIM = 64, 5, 2


def make_agent(script, *options):
    torch.manual_seed(0)
    args = script.parse_args(["--hidden-dims", "32", "32", *options])
    args.target_entropy = -float(ACTION_DIM)
    agent = script.Agent(PICTURE if script is conv_sac else OBS_DIM, ACTION_DIM, args)
    optimizers = script.make_optimizers(agent, args)
    return agent, {name: keep_gradients(o) for name, o in optimizers.items()}, args


def make_batch(seed):
    """obs, action, reward, next_obs, terminated; about a third of the steps are terminal."""
    random = torch.Generator().manual_seed(seed)
    shapes = (B, OBS_DIM), (B, ACTION_DIM), (B, 1), (B, OBS_DIM)
    obs, action, reward, next_obs = (torch.randn(s, generator=random) for s in shapes)
    terminated = (torch.rand(B, 1, generator=random) < 0.3).float()
    return obs, action.tanh(), reward, next_obs, terminated


def update(script, agent, optimizers, batch, args, num_updates=1):
    """One update; num_updates: which one it is, counted from 1."""
    delayed = [num_updates % args.policy_delay == 0] if script is td3 else []
    return script.update(agent, optimizers, batch, args, *delayed)


# ---- Targets ----


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_target_bootstraps_unless_the_step_is_terminal(script):
    reward, terminated = torch.tensor([[1.0], [1.0]]), torch.tensor([[0.0], [1.0]])
    y = script.td_target(reward, terminated, torch.tensor([[10.0], [10.0]]), 0.9)
    torch.testing.assert_close(y, torch.tensor([[10.0], [1.0]]))


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_target_refuses_shapes_that_would_broadcast(script):
    with pytest.raises(ValueError, match="equal shapes"):
        script.td_target(torch.zeros(4), torch.zeros(4, 1), torch.zeros(4, 1), 0.9)


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
    name = "Pictures" if script is conv_sac else "TwoStates"
    argv = ["--env-id", f"{name}-{end}-v0", "--log-dir", str(folder), "--eval-episodes", "1"]
    argv += ["--total-steps", "12", "--learning-starts", "6", "--updates-per-step", "1"]
    argv += ["--batch-size", "32", "--buffer-size", "1000", "--hidden-dims", "8"]
    if script is conv_sac:
        argv += ["--n-step", "1"]
    argv += ["--rnn-hidden", "5", "--sequence-length", "1"] if script in RECURRENT else []
    script.main(script.parse_args([*argv, "--num-threads", "1", *options]))


def learn_on_two_states(script, end, num_envs, folder, monkeypatch):
    """Runs the script's own loop where the next value is 10 o'.  Returns {o: {(o', y)}}."""
    targets, seen, real_td_target, real_update = [], {}, script.td_target, script.update

    def watched_td_target(*args):
        targets.append(real_td_target(*args))
        return targets[-1]

    def ten_times(feat, action):  # the last feature is the observation
        q = 10 * feat[..., -1:]
        return q if script in (ddpg, rdpg) else (q, q)

    def watched_update(agent, optimizers, batch, *args):
        critics = agent.qf1_target if script in (ddpg, rdpg) else agent.critics_target
        critics.forward = ten_times
        if script is conv_sac:
            critics.encoder.forward = lambda obs: obs.mean(dim=(-2, -1))
        losses = real_update(agent, optimizers, batch, *args)
        obs, next_obs = batch[0], batch[3]
        if script in RECURRENT:  # history of windows of one step
            obs, next_obs = batch[0][:, -2], batch[0][:, -1]
        first = (x.flatten(1)[:, 0].tolist() for x in (obs, next_obs, targets[-1]))
        for o, next_o, y in zip(*first, strict=True):
            seen.setdefault(o, set()).add((next_o, y))
        return losses

    monkeypatch.setattr(script, "td_target", watched_td_target)
    monkeypatch.setattr(script, "update", watched_update)
    options = ["--gamma", "0.5", "--num-envs", str(num_envs)]
    options += ["--no-autotune", "--alpha", "0"] if script in WITH_ENTROPY else []
    run_two_states(script, folder, *options, end=end)
    return seen


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("script", [*SCRIPTS, *RECURRENT, conv_sac])
def test_a_terminated_episode_is_worth_its_last_reward(script, num_envs, tmp_path, monkeypatch):
    seen = learn_on_two_states(script, "terminated", num_envs, tmp_path, monkeypatch)
    # By hand: y(0) = 1 + 0.5 * 10 * 1, y(1) = 2.
    assert seen == {0.0: {(1.0, 6.0)}, 1.0: {(2.0, 2.0)}}


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("script", [*SCRIPTS, *RECURRENT, conv_sac])
def test_a_truncated_episode_is_worth_what_would_follow(script, num_envs, tmp_path, monkeypatch):
    seen = learn_on_two_states(script, "truncated", num_envs, tmp_path, monkeypatch)
    # By hand: y(0) = 1 + 0.5 * 10 * 1, y(1) = 2 + 0.5 * 10 * 2, from the true last observation.
    assert seen == {0.0: {(1.0, 6.0)}, 1.0: {(2.0, 12.0)}}


@pytest.mark.parametrize("script", [td3, rtd3])
def test_noisy_next_actions_stay_in_bounds(script, tmp_path, monkeypatch):
    actions, real_update = [], script.update

    def watched_update(agent, *args):
        agent.critics_target.register_forward_pre_hook(lambda _, x: actions.append(x[1]))
        return real_update(agent, *args)

    monkeypatch.setattr(script, "update", watched_update)
    run_two_states(script, tmp_path, "--target-noise", "1", "--noise-clip", "1")
    assert torch.cat(actions).abs().max() == 1.0


# ---- SAC's log-probability ----


def sample_of(mean, log_std, noise, monkeypatch):
    """Action and log_prob of an actor that outputs exactly these, one action dimension."""
    actor = sac.Actor(1, 1, [2]).double()
    with torch.no_grad():
        actor.net[-1].weight.zero_()
        actor.net[-1].bias.copy_(torch.tensor([mean, log_std]))
    monkeypatch.setattr(torch, "randn_like", lambda x: torch.full_like(x, noise))
    return actor.sample(torch.zeros(1, 1, dtype=torch.float64))


@pytest.mark.parametrize("mean", [-1.5, 0.0, 0.3])
@pytest.mark.parametrize("log_std", [-3.0, 0.0, 1.0])
def test_the_log_probability_is_that_of_torch_distributions(mean, log_std, monkeypatch):
    action, log_prob = sample_of(mean, log_std, 0.7, monkeypatch)
    normal = torch.distributions.Normal(mean, math.exp(log_std))
    squashed = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    torch.testing.assert_close(log_prob, squashed.log_prob(action), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("mean", [-400.0, -30.0, 30.0, 400.0])
def test_the_log_probability_is_exact_where_tanh_saturates(mean, monkeypatch):
    _, log_prob = sample_of(mean, -1.0, 0.5, monkeypatch)
    u = mean + math.exp(-1.0) * 0.5
    # log(1 - tanh(u)^2) = -2 log(cosh(u)), and log(cosh(u)) = |u| + log1p(exp(-2 |u|)) - log(2)
    log_slope = -2 * (abs(u) + math.log1p(math.exp(-2 * abs(u))) - math.log(2))
    expected = -0.5 * 0.5**2 + 1.0 - 0.5 * math.log(2 * math.pi) - log_slope
    assert log_prob.item() == pytest.approx(expected, rel=1e-9)


def test_the_log_probability_sums_over_action_dimensions():
    torch.manual_seed(0)
    actor = sac.Actor(OBS_DIM, 3, [8])
    action, log_prob = actor.sample(torch.randn(B, OBS_DIM))
    assert (action.shape, log_prob.shape) == ((B, 3), (B, 1))


def test_the_gradient_of_the_log_probability_is_finite_at_extreme_actions():
    mean = torch.tensor([[-200.0, -20.0, 20.0, 200.0]], requires_grad=True)
    actor = sac.Actor(1, 4, [2])
    actor.forward = lambda feat: (mean, torch.zeros(1, 4))
    actor.sample(torch.zeros(1, 1))[1].sum().backward()
    # Of -2 (log 2 - u - softplus(-2 u)) the slope is 2 tanh(u), here +-2.
    torch.testing.assert_close(mean.grad, torch.tensor([[-2.0, -2.0, 2.0, 2.0]]))


# ---- What each loss may move ----


@pytest.mark.parametrize("entropy", [1.0, 3.0])
def test_alpha_rises_exactly_while_the_entropy_is_below_its_target(entropy):
    log_alpha = torch.tensor(0.0, requires_grad=True)
    sac.alpha_loss(log_alpha, torch.tensor([[-entropy]]), 2.0).sum().backward()
    assert (log_alpha.grad.item() < 0) == (entropy < 2.0)


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_actor_loss_leaves_the_gradients_of_the_critics_alone(script, monkeypatch):
    agent, optimizers, args = make_agent(script)
    critics = agent.qf1 if script is ddpg else agent.critics
    after_critic_loss, real_step = [], script.step

    def watched_step(optimizer, loss):
        real_step(optimizer, loss)
        if not after_critic_loss:
            after_critic_loss.extend(p.grad.clone() for p in critics.parameters())

    monkeypatch.setattr(script, "step", watched_step)
    update(script, agent, optimizers, make_batch(0), args, num_updates=2)
    for before, p in zip(after_critic_loss, critics.parameters(), strict=True):
        assert torch.equal(before, p.grad)


@pytest.mark.parametrize("script", [td3, rtd3])
def test_all_but_the_critics_move_at_every_policy_delay_th_update(script, tmp_path, monkeypatch):
    moved, parts, real_update = [], set(), script.update

    def watched_update(agent, *args):
        before = copy.deepcopy(dict(agent.named_parameters()))
        losses = real_update(agent, *args)
        parts.update(name.split(".")[0] for name in before)
        changed = (name for name, p in agent.named_parameters() if not p.equal(before[name]))
        moved.append({name.split(".")[0] for name in changed})
        return losses

    monkeypatch.setattr(script, "update", watched_update)
    run_two_states(script, tmp_path, "--policy-delay", "3")
    assert moved == 2 * [{"critics"}, {"critics"}, parts]


@pytest.mark.parametrize("script", [ddpg, td3, rdpg, rtd3])
@pytest.mark.parametrize("far", [-20.0, 20.0])
def test_only_the_penalty_brings_back_an_action_that_tanh_has_flattened(script, far):
    for penalty, pull in ((0.0, 0.0), (1e-3, 2e-3 * far)):
        u = torch.full((4, 3, ACTION_DIM), far, requires_grad=True)
        q1 = -np.sign(far) * torch.tanh(u).sum(dim=-1, keepdim=True)  # the way back is worth more
        loss = script.actor_loss(q1, u, penalty)
        assert loss.shape == q1.shape
        loss.sum().backward()
        torch.testing.assert_close(u.grad, torch.full_like(u, pull))


# ---- How an agent starts and explores ----


@pytest.mark.parametrize("script", [td3, rtd3, *WITH_ENTROPY])
def test_twin_critics_start_with_different_weights(script):
    options = ["--rnn-per-critic"] if script in (rtd3, rsac) else []
    critics = make_agent(script, *options)[0].critics
    for one, other in [(critics.qf1, critics.qf2), *([critics.rnns] if options else [])]:
        for p, q in zip(one.parameters(), other.parameters(), strict=True):
            assert not p.equal(q)


@pytest.mark.parametrize("script", [ddpg, td3, rdpg, rtd3])
def test_exploration_noise_has_the_asked_size_and_stays_in_bounds(script):
    agent, _, _ = make_agent(script, "--exploration-noise", "0.3")
    width = OBS_DIM + ACTION_DIM + 1 if script in RECURRENT else OBS_DIM

    def act(**options):
        action = agent.act(np.zeros((20_000, width), np.float32), **options)
        return action[0] if script in RECURRENT else action

    without = act(deterministic=True)
    assert np.ptp(without, axis=0).max() < 1e-6
    assert (act() - without).std() == pytest.approx(0.3, rel=0.03)
    agent.exploration_noise = 10.0
    assert abs(act()).max() == 1.0


@pytest.mark.parametrize("script", [*SCRIPTS, *RECURRENT, conv_sac])
def test_training_explores_and_evaluation_does_not(script, tmp_path, monkeypatch):
    flags, real_act = [], script.Agent.act

    def watched_act(self, *args, deterministic=False):
        flags.append(deterministic)
        return real_act(self, *args, deterministic=deterministic)

    monkeypatch.setattr(script.Agent, "act", watched_act)
    run_two_states(script, tmp_path)
    steps = 12 if script in RECURRENT else 6  # the memory reads on during the random steps
    assert flags == [True] * 2 + [False] * steps + [True] * 2


# ---- Whole updates against Stable-Baselines3 ----


class Blank(gym.Env):
    observation_space = gym.spaces.Box(-np.inf, np.inf, (OBS_DIM,))
    action_space = gym.spaces.Box(-1, 1, (ACTION_DIM,))


def make_sb3(script):
    kind = {ddpg: stable_baselines3.DDPG, td3: stable_baselines3.TD3, sac: stable_baselines3.SAC}
    policy = {"net_arch": [32, 32]}
    options = {"learning_rate": 3e-4, "gamma": 0.99, "tau": 0.005, "batch_size": B, "device": "cpu"}
    options |= {"ent_coef": "auto_1.0"} if script is sac else {}
    model = kind[script]("MlpPolicy", Blank(), buffer_size=10, policy_kwargs=policy, **options)
    model.set_logger(configure(None, []))
    if script is sac:  # it adds 1e-6 inside the logarithm of 1 - tanh(u)^2, which is no part of SAC
        model.actor.action_dist.epsilon = 0.0
    return model


def linears(module):
    return [m for m in module.modules() if isinstance(m, torch.nn.Linear)]


def layers(script, agent, model):
    """Pairs of (our, list of their) linear layers; SAC's actor has two heads there, one here."""
    actors = [(agent.actor, model.actor)]
    if script is not sac:
        actors += [(agent.actor_target, model.actor_target)]
    pairs = []
    for ours, theirs in actors:
        their = linears(theirs)
        split = len(linears(ours)) - 1
        pairs += zip(linears(ours), [*([x] for x in their[:split]), their[split:]], strict=True)
    if script is ddpg:
        critics = (agent.qf1, model.critic), (agent.qf1_target, model.critic_target)
    else:
        critics = (agent.critics, model.critic), (agent.critics_target, model.critic_target)
    for ours, theirs in critics:
        pairs += zip(linears(ours), ([x] for x in linears(theirs)), strict=True)
    return pairs


def parity(script, num_updates, monkeypatch):
    """Trains both from our initial weights on the same batches and noise.

    Returns both agents and the losses of the last update, ours and theirs, by name.
    """
    agent, optimizers, args = make_agent(script)
    model = make_sb3(script)
    with torch.no_grad():
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
        ours = [next_noise, pi_noise] if script is sac else [next_noise]
        theirs = [pi_noise, next_noise]  # it draws the action of the actor's loss first
        samples = ReplayBufferSamples(obs, action, next_obs, terminated, reward)
        with monkeypatch.context() as patch:
            patch.setattr(torch, "randn_like", lambda x, ours=ours: ours.pop(0))
            losses = update(script, agent, optimizers, batch, args, num_updates=k + 1)
        with monkeypatch.context() as patch:
            normal, noise = torch.distributions.normal, next_noise
            patch.setattr(normal, "_standard_normal", lambda *a, t=theirs, **k: t.pop(0))
            patch.setattr(torch.Tensor, "normal_", lambda x, m, s, n=noise: x.copy_(m + s * n))
            patch.setattr(model.replay_buffer, "sample", lambda *a, s=samples, **k: s)
            model.train(1, B)
    names = {"qf_loss": "critic_loss", "actor_loss": "actor_loss", "alpha_loss": "ent_coef_loss"}
    names |= {"alpha": "ent_coef"}
    logged = {
        ours: model.logger.name_to_value["train/" + names[ours]] for ours in losses if ours in names
    }
    return agent, model, losses, logged


@pytest.mark.parametrize("num_updates", [1, 10])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_losses_are_those_of_stable_baselines3(script, num_updates, monkeypatch):
    _, _, losses, logged = parity(script, num_updates, monkeypatch)
    assert len(logged) == (4 if script is sac else 1 if script is td3 and num_updates == 1 else 2)
    for name, value in logged.items():
        assert losses[name].item() == pytest.approx(value, abs=1e-5), name


@pytest.mark.parametrize("num_updates", [1, 10])
@pytest.mark.parametrize("script", SCRIPTS)
def test_every_parameter_moves_as_in_stable_baselines3(script, num_updates, monkeypatch):
    agent, model, _, _ = parity(script, num_updates, monkeypatch)
    pairs = layers(script, agent, model)
    assert sum(our.weight.numel() + our.bias.numel() for our, _ in pairs) + (script is sac) == sum(
        p.numel() for p in agent.parameters()
    )
    for our, theirs in pairs:
        weight, bias = (torch.cat([getattr(x, n) for x in theirs]) for n in ("weight", "bias"))
        torch.testing.assert_close(our.weight, weight, atol=1e-5, rtol=0)
        torch.testing.assert_close(our.bias, bias, atol=1e-5, rtol=0)
    if script is sac:
        assert agent.log_alpha.item() == pytest.approx(model.log_ent_coef.item(), abs=1e-5)
