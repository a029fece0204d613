"""Recurrent Soft Actor-Critic (RSAC): SAC that acts on its memory of the whole episode.

If one observation does not show the state, the history may. An LSTM summarizes it, one for the
actor and one for the critics. They learn from sequences: the loss is on the last T steps, and its
gradient also goes back through the context before them.
Extends sac.py: sequences instead of steps, `Memory`, LayerNorm, scales, clipped gradients, the mean
of both critics, a minimum of alpha, an average policy, a hidden state.

Papers: Yang & Nguyen 2021, arXiv:2110.12628v1 (RSAC). Ni et al. 2022, arXiv:2110.05038v3 (separate
memories, action as input). Morad et al. 2024, arXiv:2402.09900 (gradients through episodes).

    python rsac.py --env-id pendulum-p-v0

Docs: docs/rsac.md.  One memory for actor and critics: rsac_sharing.py.
"""

from common.cli import Parser, add_run_arguments, integer, number, run_cli

# ---- 1. Arguments ----


def parse_args(argv=None):
    parser = Parser(__doc__)
    add_run_arguments(parser)  # --seed, --resume, --evaluate and others, the same everywhere
    add = parser.add_argument_group("schedule").add_argument
    add("--env-id", default="pendulum-p-v0", help="environment; `python -m envs` lists ours")
    add("--total-steps", type=integer(1), default=20_000, help="length of the run [env steps]")
    add("--eval-every", type=integer(1), default=1000, help="evaluate, save this often [env steps]")
    add("--num-threads", type=integer(1), default=1, help="threads of PyTorch on the CPU")
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=5000, help="random steps first [env steps]")
    add("--updates-per-step", type=number(0), default=0.5, help="updates per env step, on average")
    add("--batch-size", type=integer(1), default=8, help="batch, B [sequences]")
    add("--buffer-size", type=integer(2), default=1_000_000, help="replay buffer [env steps]")

    add = parser.add_argument_group("algorithm").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[64, 64], help="widths of each MLP")
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.02, help="how far targets move each time")
    add("--lr", type=number(0), default=1e-3, help="learning rate of Adam, often 3e-4 to 3e-3")
    add("--max-grad-norm", type=number(1e-3), default=10.0, help="longer gradients are cut to it")
    add("--alpha", type=number(0), help="weight of the entropy [scaled reward]; learned if not set")
    add("--target-entropy", type=number(), help="[nats]; minus the action dimension if not set")
    add("--min-alpha", type=number(1e-9), default=0.03, help="a learned alpha falls no further")
    add("--tau-average", type=number(0, 1), default=0.002, help="how far the average policy moves")

    add = parser.add_argument_group("memory").add_argument
    add("--sequence-length", type=integer(1), default=64, help="T, steps with a loss [env steps]")
    add("--context-length", type=integer(0), default=200, help="K, steps of context [env steps]")
    add("--rnn-dim", type=integer(1), default=64, help="hidden units of the LSTM")
    inputs = ["obs", "obs-action", "obs-action-reward"]
    add("--memory-input", choices=inputs, default="obs-action", help="what the memory reads")
    return parser.parse(argv)


if __name__ == "__main__":
    ARGS = parse_args()  # before the slow imports: --help and errors answer at once

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

from common.envs import check_flat, make_envs
from common.evaluate import evaluate_checkpoint
from common.run import Run

# ---- 2. Replay buffer ----


class ReplayBuffer:
    """A ring of env steps: when it is full, the newest step overwrites the oldest."""

    def __init__(self, capacity, obs_dim, action_dim):
        self.capacity = capacity
        self.num_added = 0  # since the start of the run; the next step goes to this row, % capacity
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.action = np.zeros((capacity, action_dim), np.float32)
        self.reward = np.zeros((capacity, 1), np.float32)
        self.next_obs = np.zeros((capacity, obs_dim), np.float32)
        self.terminated = np.zeros((capacity, 1), np.float32)
        self.ended = np.ones(capacity, bool)  # terminated or truncated
        # Counts the steps of an environment, and jumps ahead after each episode. So of two rows k
        # steps apart, both belong to one episode if and only if their places differ by k. Where the
        # newest row meets the oldest one, places never fit.
        self.place = np.zeros(capacity, np.int64)

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Stores one step of N environments: obs (N, obs_dim), action (N, action_dim), reward (N,).
        next_obs is the true next observation, also where an episode has ended."""
        rows = np.arange(self.num_added, self.num_added + len(obs)) % self.capacity
        self.obs[rows] = obs
        self.action[rows] = action
        self.reward[rows, 0] = reward
        self.next_obs[rows] = next_obs
        self.terminated[rows, 0] = terminated
        self.num_envs = N = len(obs)  # the previous step of an environment lies N rows back
        self.place[rows] = self.place[rows - N] + 1 + 10**9 * self.ended[rows - N]
        self.ended[rows] = terminated | truncated
        self.num_added += len(obs)

    def sample(self, batch_size, length, context, rng):
        """Sequences around steps drawn uniformly, each from one episode: T = `length` steps with a
        loss, and K = `context` before them, or fewer where the episode begins or ends.
        obs (B, L, obs_dim): from t = 0 the steps of a sequence, its next observation, then zeros.
        L is at most K + T + 1. action (M, action_dim), reward, terminated (M, 1): all M steps with
        a loss. steps (M,): where these are in obs.flatten(0, 1); their next ones at steps + 1."""
        stored = min(self.num_added, self.capacity)
        rows = rng.integers(stored, size=batch_size)
        offset = np.arange(-context, length) - rng.integers(length, size=(batch_size, 1))
        around = (rows[:, None] + offset * self.num_envs) % self.capacity  # (B, K + T)
        inside = self.place[around] == self.place[rows, None] + offset  # in its episode
        b, t = np.nonzero(inside)
        read = around[b, t]  # what the memory reads
        learned = t >= context  # the context has no loss
        t = t - inside.argmax(axis=1)[b]  # all sequences begin at t = 0, padding comes after them

        obs = np.zeros((batch_size, t.max() + 2, self.obs.shape[1]), np.float32)
        obs[b, t] = self.obs[read]
        obs[b, t + 1] = self.next_obs[read]
        rows, steps = read[learned], (b * obs.shape[1] + t)[learned]
        batch = (obs, self.action[rows], self.reward[rows], self.terminated[rows], steps)
        return [torch.from_numpy(array) for array in batch]


# ---- 3. Networks ----


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for dim in hidden_dims:
        # LayerNorm bounds the critics' values where replay has no data (arXiv:2302.02948).
        layers += [nn.Linear(input_dim, dim), nn.LayerNorm(dim), nn.ReLU(inplace=True)]
        input_dim = dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Memory(nn.LSTM):
    """Summarizes all steps so far; obs is [observation | previous action] (`--memory-input`)."""

    def __init__(self, obs_dim, args):
        super().__init__(obs_dim, args.rnn_dim, batch_first=True)
        # Larger than PyTorch's with fewer than 4 rnn_dim inputs, since most of them are small after
        # the division by obs_scale.
        nn.init.uniform_(self.weight_ih_l0, -2 * obs_dim**-0.5, 2 * obs_dim**-0.5)
        # A quarter of the units start with long time scales, up to 100 steps (arXiv:1804.11188):
        # the second of PyTorch's gates keeps the state, the first one lets the input in.
        keep = torch.linspace(-3, 1, args.rnn_dim).clamp(min=0) * np.log(100)
        self.bias_ih_l0.data = torch.cat([-keep, keep, torch.zeros(2 * args.rnn_dim)])

    def forward(self, obs, hidden=None):
        """obs (B, L, obs_dim), hidden before it -> feat (B, L, feat_dim), hidden after it.
        feat is [summary | obs]: what is visible need not pass through the memory."""
        feat, hidden = super().forward(obs, hidden)
        return torch.cat([feat, obs], dim=-1), hidden


class Actor(nn.Module):
    """A memory and the policy: a Gaussian squashed by tanh, so that actions lie in (-1, 1)."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = Memory(obs_dim, args)
        self.net = mlp(args.rnn_dim + obs_dim, args.hidden_dims, 2 * action_dim)

    def forward(self, feat):
        """(..., feat_dim) -> mean, log standard deviation before tanh, both (..., action_dim)"""
        mean, log_std = self.net(feat).chunk(2, dim=-1)
        return mean, log_std.clamp(-20, 2)

    def sample(self, feat):
        """(..., feat_dim) -> random action (..., action_dim), differentiable; log_prob (..., 1)"""
        mean, log_std = self(feat)
        noise = torch.randn_like(mean)
        u = mean + log_std.exp() * noise
        log_prob = -0.5 * noise.square() - log_std - 0.5 * np.log(2 * np.pi)
        # Change of variables (arXiv:1801.01290v2, Eq. 21): minus log(1 - tanh(u)^2), in a form that
        # neither overflows nor rounds to log(0) where tanh saturates.
        log_prob = log_prob - 2 * (np.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), log_prob.sum(dim=-1, keepdim=True)


class Critics(nn.Module):
    """A memory and two estimates of the return after `action`."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = Memory(obs_dim, args)
        self.qf1 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)
        self.qf2 = mlp(args.rnn_dim + obs_dim + action_dim, args.hidden_dims, 1)

    def forward(self, feat, action):
        """(..., feat_dim), (..., action_dim) -> q1, q2, both (..., 1)"""
        feat = torch.cat([feat, action], dim=-1)
        return self.qf1(feat), self.qf2(feat)


class Agent(nn.Module):
    """All networks of one agent and its temperature."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.actor = Actor(obs_dim, action_dim, args)
        # Not in the papers: a slow average of the policy, for evaluations.
        self.actor_average = copy.deepcopy(self.actor)
        self.critics = Critics(obs_dim, action_dim, args)
        self.critics_target = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.tensor(0.1 if args.alpha is None else args.alpha).log())
        self.register_buffer("obs_scale", torch.ones(obs_dim))
        self.register_buffer("reward_scale", torch.ones(()))
        self.device = args.device
        self.to(args.device)

    @torch.no_grad()
    def act(self, obs, hidden=None, deterministic=False):
        """obs (N, obs_dim) -> action (N, action_dim) in [-1, 1], NumPy; hidden state after `obs`"""
        obs = torch.as_tensor(obs, device=self.device) / self.obs_scale
        actor = self.actor_average if deterministic else self.actor
        feat, hidden = actor.rnn(obs[:, None], hidden)  # a sequence of one step
        mean, log_std = actor(feat[:, 0])
        u = mean if deterministic else mean + log_std.exp() * torch.randn_like(mean)
        return torch.tanh(u).cpu().numpy(), hidden


# ---- 4. Losses ----


def td_target(reward, terminated, next_value, gamma):
    """Bootstrapped target y = r + gamma (1 - d) V(o'). In arXiv:1509.02971v6, Algorithm 1, no d.
    d is 1 after termination, since nothing follows. It stays 0 after a time limit, which does not
    end the task: `next_value` is then the value of the true last observation."""
    # All have a last axis of 1: (B,) and (B, 1) would silently broadcast to (B, B).
    assert reward.shape == terminated.shape == next_value.shape
    return reward + gamma * (1 - terminated) * next_value


def critics_loss(q1, q2, y):
    """Both critics' half squared errors (arXiv:1812.05905v2, Eq. 5), per element."""
    return 0.5 * (q1 - y).square() + 0.5 * (q2 - y).square()


def actor_loss(log_prob, q1, q2, alpha):
    """alpha log pi(a|o) - Q(o, a) (arXiv:1812.05905v2, Eq. 7), per element. Q is the mean of
    both critics (arXiv:2101.05982v2), since the target already takes the lower one."""
    return alpha * log_prob - (q1 + q2) / 2


def alpha_loss(log_alpha, log_prob, target_entropy):
    """Raises alpha while the entropy, -log_prob, is below its target, per element.
    arXiv:1812.05905v2, Eq. 18, with log alpha instead of alpha, as in the authors' code."""
    return -log_alpha * (log_prob.detach() + target_entropy)


# ---- 5. Update ----


def make_optimizers(agent, args):
    return {
        "critics": Adam(agent.critics.parameters(), args.lr, fused=True),
        "actor": Adam(agent.actor.parameters(), args.lr, fused=True),
        "alpha": Adam([agent.log_alpha], args.lr, fused=True),
    }


@torch.no_grad()
def soft_update(target, online, tau):
    """target <- (1 - tau) target + tau online"""
    for slow, new in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(new, tau)


def update(agent, optimizers, batch, args):
    """One gradient step for each network: critics, actor, alpha, then the targets."""
    obs, action, reward, terminated, steps = batch
    obs = obs / agent.obs_scale
    reward = reward / agent.reward_scale
    alpha = agent.log_alpha.exp().detach()
    # The memories read whole sequences, with gradients through the context, too. Their features
    # become (B * L, feat_dim): rows `steps` have a loss, and rows steps + 1 follow these in time.
    actor_feat = agent.actor.rnn(obs)[0].flatten(0, 1)
    qf_feat = agent.critics.rnn(obs)[0].flatten(0, 1)

    with torch.no_grad():
        feat_target = agent.critics_target.rnn(obs)[0].flatten(0, 1)
        next_action, next_log_prob = agent.actor.sample(actor_feat[steps + 1])
        next_q1, next_q2 = agent.critics_target(feat_target[steps + 1], next_action)
        # The value of the next step includes its entropy bonus.
        next_value = torch.min(next_q1, next_q2) - alpha * next_log_prob
        y = td_target(reward, terminated, next_value, args.gamma)
    q1, q2 = agent.critics(qf_feat[steps], action)
    qf_loss = critics_loss(q1, q2, y).mean()
    optimizers["critics"].zero_grad()
    qf_loss.backward()
    # Clipped (arXiv:1211.5063): a few gradients can be hundreds of times as long as others. Adam
    # divides by the size of recent ones, so after such a gradient its steps would long be tiny.
    nn.utils.clip_grad_norm_(agent.critics.parameters(), args.max_grad_norm)
    optimizers["critics"].step()

    new_action, log_prob = agent.actor.sample(actor_feat[steps])
    # The critics' features are those from before their update, which saves a pass.
    q1, q2 = agent.critics(qf_feat[steps].detach(), new_action)
    pi_loss = actor_loss(log_prob, q1, q2, alpha).mean()
    optimizers["actor"].zero_grad()
    # Only the actor learns from this loss: the critics get no gradients.
    pi_loss.backward(inputs=list(agent.actor.parameters()))
    nn.utils.clip_grad_norm_(agent.actor.parameters(), args.max_grad_norm)
    optimizers["actor"].step()

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "q_mean": q1.mean()}
    losses |= {"alpha": alpha, "entropy": -log_prob.mean()}
    if args.alpha is None:
        optimizers["alpha"].zero_grad()
        alpha_loss(agent.log_alpha, log_prob, args.target_entropy).mean().backward()
        optimizers["alpha"].step()
        # Not in the papers: while no action seems better than others, alpha would fall towards 0.
        agent.log_alpha.data.clamp_(min=np.log(args.min_alpha))

    soft_update(agent.critics_target, agent.critics, args.tau)
    soft_update(agent.actor_average, agent.actor, args.tau_average)
    return losses


# ---- 6. The run ----

SCRIPT = "rsac"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent)
    run = Run(args, SCRIPT)  # with --resume, `args` become those of the run to continue
    rng = np.random.default_rng(args.seed)
    envs = make_envs(args, args.num_envs, args.seed)
    obs_dim, action_dim = check_flat(envs)
    if args.target_entropy is None:
        args.target_entropy = -float(action_dim)  # arXiv:1812.05905v2, Appendix D

    agent = Agent(obs_dim, action_dim, args)
    optimizers = make_optimizers(agent, args)
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim)
    run.track(agent=agent, optimizers=optimizers, buffer=buffer, envs=envs, rng=rng)
    obs, _ = envs.reset()
    global_step, num_updates, obs, hidden = run.start(0, 0, obs, None)

    while run.running(global_step):
        # Act
        action, hidden = agent.act(obs, hidden)
        # The memory also reads the steps with random actions.
        if global_step < args.learning_starts:
            action = rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)

        # Step and store. `next_obs` is the true next observation also where an episode ends.
        next_obs, reward, terminated, truncated, info = envs.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            run.add_returns(info, ended)
            obs, _ = envs.reset(options={"reset_mask": ended})
            for state in hidden:  # h and c, (1, N, rnn_dim) each; forget episodes that ended
                state[:, ended] = 0
        global_step += args.num_envs

        # Learn
        while num_updates < int((global_step - args.learning_starts) * args.updates_per_step):
            sample = buffer.sample(args.batch_size, args.sequence_length, args.context_length, rng)
            batch = [x.to(args.device) for x in sample]
            # Not in the papers: the first batch sets the scale of inputs, and all stored steps set
            # that of rewards. Large inputs would saturate the gates. An alpha of 0.1 would be too
            # little beside large rewards, and too much beside small or rare ones.
            if num_updates == 0:
                agent.obs_scale.copy_(batch[0].abs().amax(dim=(0, 1)).clamp(min=0.1))
                rewards = torch.from_numpy(buffer.reward[: buffer.num_added])
                agent.reward_scale.copy_(rewards.abs().mean().clamp(min=0.01))
            run.add_losses(global_step, update(agent, optimizers, batch, args))
            num_updates += 1

        # Show, evaluate and save, each when it is time
        run.step(global_step, num_updates, obs, hidden)

    return run.finish(global_step, num_updates, obs, hidden)


if __name__ == "__main__":
    run_cli(main, ARGS)
