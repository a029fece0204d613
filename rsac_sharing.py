"""Recurrent Soft Actor-Critic with a shared memory (RSAC-sharing): one LSTM for all networks.

Actor and critics read the same features, so one memory does the work of two. Only the critics' loss
trains it; the actor's loss would change what the critics read in order to look good.
Extends rsac.py: who owns the memory and who may train it, the target's action read from the target
memory; nothing else.

Papers: Yang & Nguyen 2021, arXiv:2110.12628v1 (the sharing variant).

    python rsac_sharing.py --env-id pendulum-p-v0

Docs: docs/rsac_sharing.md.
"""

from common.cli import Parser, add_run_arguments, integer, number, run_cli

# ---- 1. Arguments ----


def parse_args(argv=None):
    parser = Parser(__doc__)
    add_run_arguments(parser)  # --seed, --resume, --evaluate and others that change no algorithm
    add = parser.add_argument_group("schedule").add_argument
    add("--env-id", default="pendulum-p-v0", help="environment; `python -m envs` lists ours")
    add("--total-steps", type=integer(1), default=20_000, help="length of the run [env steps]")
    add("--eval-every", type=integer(1), default=500, help="also saves a checkpoint [env steps]")
    add("--num-threads", type=integer(1), default=1, help="threads of PyTorch on the CPU")
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random steps first [env steps]")
    add("--updates-per-step", type=number(0), default=0.5, help="updates per env step, on average")
    add("--batch-size", type=integer(1), default=16, help="B [sequences]")
    add("--buffer-size", type=integer(2), default=1_000_000, help="replay memory [env steps]")

    add = parser.add_argument_group("algorithm").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[64, 64], help="widths of each MLP")
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.02, help="how far targets move at each update")
    add("--lr", type=number(0), default=2e-3, help="learning rate of Adam, often 1e-4 to 1e-3")
    add(
        "--lr-schedule",
        choices=["constant", "linear"],
        default="linear",
        help="linear: to 0 in the second half",
    )
    add("--alpha", type=number(0), help="weight of the entropy; learned if not set")
    add("--target-entropy", type=number(), help="[nats]; minus the action dimension if not set")

    add = parser.add_argument_group("memory").add_argument
    add("--sequence-length", type=integer(0), default=32, help="T, steps with a loss [env steps]")
    add("--context-length", type=integer(0), default=200, help="steps before them [env steps]")
    add("--rnn", choices=["lstm", "gru"], default="lstm", help="kind of memory")
    add("--rnn-dim", type=integer(1), default=64, help="width of the memory")
    inputs = ["obs", "obs-action", "obs-action-reward"]
    add("--memory-input", choices=inputs, default="obs-action", help="what the memory reads")
    return parser.parse(argv)


if __name__ == "__main__":
    ARGS = parse_args()  # before the imports that take seconds: --help and a typo answer at once

import copy
from bisect import bisect_right
from collections import defaultdict

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
    """Finished episodes, each a dict of arrays: obs (length + 1, obs_dim), action (length,
    action_dim), reward and terminated (length, 1). Beyond `capacity` steps the oldest leave."""

    def __init__(self, capacity, obs_dim, action_dim, num_envs):
        self.capacity = capacity
        self.num_bytes = 4 * capacity * (obs_dim + action_dim + 2)
        self.episodes = []
        self.starts = [0]  # number of each episode's first step, then of the next episode's
        self.num_finished = 0  # episodes, since the start of the run
        self.open = [defaultdict(list) for _ in range(num_envs)]  # under way, as lists of steps

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Stores one step of N environments: obs (N, obs_dim), action (N, action_dim), reward (N,).
        next_obs is the true next observation, also where an episode has ended."""
        for k, episode in enumerate(self.open):
            episode["obs"].append(obs[k])
            episode["action"].append(action[k])
            episode["reward"].append([reward[k]])
            episode["terminated"].append([terminated[k]])
            if terminated[k] or truncated[k]:
                episode["obs"].append(next_obs[k])
                self.append({name: np.array(x, np.float32) for name, x in episode.items()})
                self.open[k] = defaultdict(list)

    def append(self, episode):
        """Stores a finished episode; the oldest ones make room for it."""
        self.episodes.append(episode)
        self.starts.append(self.starts[-1] + len(episode["reward"]))
        self.num_finished += 1
        while self.starts[-1] - self.starts[0] > self.capacity and len(self.episodes) > 1:
            del self.episodes[0], self.starts[0]

    def sample(self, batch_size, sequence_length, context_length, rng):
        """Sequences of T steps around steps drawn uniformly, with up to K steps of context before:
        obs (B, K + T + 1, obs_dim), and of the last T steps action (B, T, action_dim), reward,
        terminated, mask (B, T, 1). Where an episode is too short, zeros on the left, mask 0."""
        chosen = []  # (episode, end of the sequence in it)
        for step in rng.integers(self.starts[0], self.starts[-1], size=batch_size):
            k = bisect_right(self.starts, step) - 1  # the episode of that step
            length = self.starts[k + 1] - self.starts[k]
            T = sequence_length or length
            # The sequence ends up to T steps after that step, inside the episode.
            end = step - self.starts[k] + 1 + rng.integers(T)
            chosen.append((self.episodes[k], min(max(end, T), length)))
        longest = max(end for _, end in chosen)
        T = min(sequence_length or longest, longest)
        total = min(T + context_length, longest)  # K + T

        episode = self.episodes[0]
        obs = np.zeros((batch_size, total + 1, episode["obs"].shape[1]), np.float32)
        action = np.zeros((batch_size, T, episode["action"].shape[1]), np.float32)
        reward, terminated, mask = np.zeros((3, batch_size, T, 1), np.float32)
        for b, (episode, end) in enumerate(chosen):
            n = min(end, total)
            obs[b, total - n :] = episode["obs"][end - n : end + 1]
            n = min(end, T)
            action[b, T - n :] = episode["action"][end - n : end]
            reward[b, T - n :] = episode["reward"][end - n : end]
            terminated[b, T - n :] = episode["terminated"][end - n : end]
            mask[b, T - n :] = 1
        return [torch.from_numpy(x) for x in (obs, action, reward, terminated, mask)]


# ---- 3. Networks ----


def mlp(input_dim, hidden_dims, output_dim, layer_norm=False):
    layers = []
    for hidden_dim in hidden_dims:
        norm = nn.LayerNorm(hidden_dim) if layer_norm else nn.Identity()
        layers += [nn.Linear(input_dim, hidden_dim), norm, nn.ReLU()]
        input_dim = hidden_dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Memory(nn.Module):
    """Sums up all steps so far: obs is [observation | previous action | 1], and 0 on padding."""

    def __init__(self, obs_dim, args):
        super().__init__()
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[args.rnn]
        # Without biases a state of 0 stays 0 for as long as the input is 0. So padding before an
        # episode changes nothing; the input that is 1 on real steps takes the place of the biases.
        self.rnn = cell(obs_dim, args.rnn_dim, batch_first=True, bias=False)
        weight = nn.init.uniform_(self.rnn.weight_ih_l0.data, -2 * obs_dim**-0.5, 2 * obs_dim**-0.5)
        # A quarter of the units starts with long time scales, up to 100 steps (arXiv:1804.11188):
        # the second gate keeps the state; the first one lets the input in (of a GRU, the past).
        keep = torch.linspace(-3, 1, args.rnn_dim).clamp(min=0) * np.log(100)
        weight[:, -1] = torch.cat([-keep, keep, torch.zeros(len(weight) - 2 * args.rnn_dim)])
        self.register_buffer("input_scale", torch.ones(obs_dim))  # see set_input_scale
        self.feat_dim = args.rnn_dim + obs_dim

    def forward(self, obs, hidden=None):
        """obs (B, T, obs_dim), hidden before it -> feat (B, T, feat_dim), hidden after it"""
        feat, hidden = self.rnn(obs / self.input_scale, hidden)
        return torch.cat([feat, obs], dim=-1), hidden


class Actor(nn.Module):
    """The policy: a Gaussian squashed by tanh, so that actions lie in (-1, 1)."""

    def __init__(self, feat_dim, action_dim, args):
        super().__init__()
        self.net = mlp(feat_dim, args.hidden_dims, 2 * action_dim)

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
        # Change of variables (arXiv:1801.01290v2, Eq. 21): minus log(1 - tanh(u)^2), written so
        # that it neither overflows nor rounds to log(0) where tanh saturates.
        log_prob = log_prob - 2 * (np.log(2) - u - F.softplus(-2 * u))
        return torch.tanh(u), log_prob.sum(dim=-1, keepdim=True)


class Critics(nn.Module):
    """The memory, which they alone train, and two estimates of the return after `action`."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = Memory(obs_dim, args)
        # LayerNorm keeps values in bounds where replay has no data (arXiv:2302.02948).
        self.qf1 = mlp(self.rnn.feat_dim + action_dim, args.hidden_dims, 1, layer_norm=True)
        self.qf2 = mlp(self.rnn.feat_dim + action_dim, args.hidden_dims, 1, layer_norm=True)

    def forward(self, feat, action):
        """(..., feat_dim), (..., action_dim) -> q1, q2, both (..., 1)"""
        feat = torch.cat([feat, action], dim=-1)
        return self.qf1(feat), self.qf2(feat)


class Agent(nn.Module):
    """All networks of one agent and its temperature."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.critics = Critics(obs_dim, action_dim, args)
        self.critics_target = copy.deepcopy(self.critics)
        self.actor = Actor(self.critics.rnn.feat_dim, action_dim, args)
        self.log_alpha = nn.Parameter(torch.tensor(1.0 if args.alpha is None else args.alpha).log())
        self.device = args.device
        self.to(args.device)

    @torch.no_grad()
    def act(self, obs, hidden=None, deterministic=False):
        """obs (N, obs_dim) -> action (N, action_dim) in [-1, 1], NumPy; hidden state after `obs`"""
        obs = torch.as_tensor(obs, device=self.device)
        feat, hidden = self.critics.rnn(obs[:, None], hidden)  # a sequence of one step
        mean, log_std = self.actor(feat[:, 0])
        u = mean if deterministic else torch.normal(mean, log_std.exp())
        return torch.tanh(u).cpu().numpy(), hidden


def reset_hidden(hidden, ended):
    """Empties the memory of environments whose episode has ended; ended: (N,) bool."""
    for state in hidden if isinstance(hidden, tuple) else (hidden,):
        state[:, ended] = 0


# ---- 4. Losses ----


def td_target(reward, terminated, next_value, gamma):
    """Bootstrapped target y = r + gamma (1 - d) V(o') (arXiv:1509.02971v6, Algorithm 1).
    Only termination stops the bootstrap. A time limit is not an outcome of the task: the value
    beyond it is real, and `next_value` is that of the true last observation."""
    # All (B, 1) or (B, T, 1): (B,) with (B, 1) would quietly give (B, B).
    assert reward.shape == terminated.shape == next_value.shape
    return reward + gamma * (1 - terminated) * next_value


def critics_loss(q1, q2, y):
    """Both critics' half squared errors (arXiv:1812.05905v2, Eq. 5), per element."""
    return 0.5 * (q1 - y).square() + 0.5 * (q2 - y).square()


def actor_loss(log_prob, q1, q2, alpha):
    """alpha log pi(a|o) - min Q(o, a) (arXiv:1812.05905v2, Eq. 7), per element."""
    return alpha * log_prob - torch.min(q1, q2)


def alpha_loss(log_alpha, log_prob, target_entropy):
    """Raises alpha while the entropy, -log_prob, is below its target, per element.
    arXiv:1812.05905v2, Eq. 18, with log alpha in the place of alpha, as in the authors' code."""
    return -log_alpha * (log_prob.detach() + target_entropy)


def masked_mean(x, mask):
    """Mean over real steps: padding touches neither the sum nor the count.  x, mask: (B, T, 1)"""
    return (x * mask).sum() / mask.sum()


@torch.no_grad()
def start_alpha(agent, reward, mask):
    """Alpha is a price in rewards, so it starts at the mean size of those in the first batch.
    Not in the papers: where rewards are around -6, a policy that starts at 1 stops exploring."""
    agent.log_alpha.fill_(masked_mean(reward.abs(), mask).clamp(min=0.01).log())


@torch.no_grad()
def set_input_scale(agent, obs):
    """The memories divide each input by its largest absolute value in the first batch. Large
    inputs, such as speeds, would saturate the gates, and small ones drown."""
    for module in agent.modules():
        if isinstance(module, Memory):
            module.input_scale.copy_(obs.abs().amax(dim=(0, 1)).clamp(min=0.1))


# ---- 5. Update ----


def make_optimizers(agent, args):
    return {
        "critics": Adam(agent.critics.parameters(), args.lr, fused=True),
        "actor": Adam(agent.actor.parameters(), args.lr, fused=True),
        "alpha": Adam([agent.log_alpha], args.lr, fused=True),
    }


@torch.no_grad()
def soft_update(target, online, tau):
    """target <- (1 - tau) target + tau online, for all parameters in one call."""
    torch._foreach_lerp_(list(target.parameters()), list(online.parameters()), tau)


def update(agent, optimizers, batch, args):
    """One gradient step for each network: critics, actor, alpha, then the targets."""
    obs, action, reward, terminated, mask = batch
    K = obs.shape[1] - action.shape[1] - 1  # steps of context, which have no loss
    alpha = agent.log_alpha.exp().detach()
    # Features of steps 0 .. T, (B, T + 1, feat_dim), with gradients through the context, too. Of
    # steps 0 .. T - 1 actions and values are learned, steps 1 .. T give the next values.
    feat = agent.critics.rnn(obs)[0][:, K:]

    with torch.no_grad():
        feat_target = agent.critics_target.rnn(obs)[0][:, K:]
        next_action, next_log_prob = agent.actor.sample(feat_target[:, 1:])
        next_q1, next_q2 = agent.critics_target(feat_target[:, 1:], next_action)
        # The entropy bonus of the steps to come belongs to their value.
        next_value = torch.min(next_q1, next_q2) - alpha * next_log_prob
        y = td_target(reward, terminated, next_value, args.gamma)
    q1, q2 = agent.critics(feat[:, :-1], action)
    qf_loss = masked_mean(critics_loss(q1, q2, y), mask)
    optimizers["critics"].zero_grad()
    qf_loss.backward()
    optimizers["critics"].step()

    feat = feat[:, :-1].detach()  # the actor reads the memory, it does not train it
    new_action, log_prob = agent.actor.sample(feat)
    q1, q2 = agent.critics(feat, new_action)
    pi_loss = masked_mean(actor_loss(log_prob, q1, q2, alpha), mask)
    optimizers["actor"].zero_grad()
    # The critics only judge here: no gradients for their weights.
    pi_loss.backward(inputs=list(agent.actor.parameters()))
    optimizers["actor"].step()

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "q_mean": masked_mean(q1, mask)}
    losses |= {"alpha": alpha, "entropy": -masked_mean(log_prob, mask)}
    if args.alpha is None:
        loss = alpha_loss(agent.log_alpha, log_prob, args.target_entropy)
        optimizers["alpha"].zero_grad()
        masked_mean(loss, mask).backward()
        optimizers["alpha"].step()

    soft_update(agent.critics_target, agent.critics, args.tau)
    return losses


# ---- 6. The run ----

SCRIPT = "rsac_sharing"


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
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim, args.num_envs)
    run.track(agent=agent, optimizers=optimizers, buffer=buffer, envs=envs, rng=rng)
    obs, _ = envs.reset()
    global_step, num_updates, obs, hidden = run.start(0, 0, obs, None)

    while run.running(global_step):
        # Act
        action, hidden = agent.act(obs, hidden)
        if global_step < args.learning_starts:  # the memory reads on
            action = rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)

        # Step and store. `next_obs` is the true next observation also where an episode ends.
        next_obs, reward, terminated, truncated, info = envs.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            run.add_returns(info, ended)
            obs, _ = envs.reset(options={"reset_mask": ended})
            reset_hidden(hidden, ended)
        global_step += args.num_envs

        # Learn
        if args.lr_schedule == "linear":
            lr = args.lr * min(1, max(0, 2 - 2 * global_step / args.total_steps))
            for optimizer in optimizers.values():
                optimizer.param_groups[0]["lr"] = lr
        due = int((global_step - args.learning_starts) * args.updates_per_step)
        while num_updates < due and buffer.episodes:
            sample = buffer.sample(args.batch_size, args.sequence_length, args.context_length, rng)
            batch = [x.to(args.device) for x in sample]
            if num_updates == 0:
                set_input_scale(agent, obs=batch[0])
            if num_updates == 0 and args.alpha is None:
                start_alpha(agent, reward=batch[2], mask=batch[4])
            run.add_losses(global_step, update(agent, optimizers, batch, args))
            num_updates += 1

        # Show, evaluate and save, each when it is time
        run.step(global_step, num_updates, obs, hidden)

    return run.finish(global_step, num_updates, obs, hidden)


if __name__ == "__main__":
    run_cli(main, ARGS)
