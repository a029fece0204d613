"""Twin Delayed DDPG (TD3): DDPG with three remedies against critics that overestimate.

The actor climbs the critic, so it finds the actions that the critic overestimates. The remedies:
the lower of two critics, noise on the target's action, and an actor that learns less often.
Extends ddpg.py: `Critics`, the noise in `update`, `--policy-delay`; nothing else.

Papers: Fujimoto et al. 2018, arXiv:1802.09477v3 (TD3). Lillicrap et al. 2015, arXiv:1509.02971v6
(DDPG).

    python td3.py --env-id Pendulum-v1

Docs: docs/td3.md.  With memory: rtd3.py.  With entropy: sac.py.
"""

from common.cli import Parser, add_run_arguments, integer, number, run_cli

# ---- 1. Arguments ----


def parse_args(argv=None):
    parser = Parser(__doc__)
    add_run_arguments(parser)  # --seed, --resume, --evaluate and others, the same everywhere
    add = parser.add_argument_group("schedule").add_argument
    add("--env-id", default="Pendulum-v1", help="environment; `python -m envs` lists ours")
    add("--total-steps", type=integer(1), default=20_000, help="length of the run [env steps]")
    add("--eval-every", type=integer(1), default=1000, help="evaluate, save this often [env steps]")
    add("--num-threads", type=integer(1), default=2, help="threads of PyTorch on the CPU")
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random steps first [env steps]")
    add("--updates-per-step", type=number(0), default=1.0, help="updates per env step, on average")
    add("--batch-size", type=integer(1), default=256, help="batch, B [transitions]")
    add("--buffer-size", type=integer(2), default=1_000_000, help="replay buffer [env steps]")

    add = parser.add_argument_group("algorithm").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[256, 256], help="widths of each MLP")
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.005, help="how far targets move each time")
    add("--lr", type=number(0), default=3e-4, help="learning rate of Adam, often 1e-4 to 1e-3")
    add("--exploration-noise", type=number(0), default=0.1, help="std of noise [half action range]")
    add("--target-noise", type=number(0), default=0.2, help="noise in targets [half action range]")
    add("--noise-clip", type=number(0), default=0.5, help="max target noise [half action range]")
    add("--policy-delay", type=integer(1), default=2, help="critic updates per actor update")
    return parser.parse(argv)


if __name__ == "__main__":
    ARGS = parse_args()  # before the slow imports: --help and errors answer at once

import copy

import numpy as np
import torch
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

    def add(self, obs, action, reward, next_obs, terminated):
        """Stores one step of N environments: obs (N, obs_dim), action (N, action_dim), reward (N,).
        next_obs is the true next observation, also where an episode has ended."""
        rows = np.arange(self.num_added, self.num_added + len(obs)) % self.capacity
        self.obs[rows] = obs
        self.action[rows] = action
        self.reward[rows, 0] = reward
        self.next_obs[rows] = next_obs
        self.terminated[rows, 0] = terminated
        self.num_added += len(obs)

    def sample(self, batch_size, rng):
        """Steps drawn uniformly: obs (B, obs_dim), action (B, action_dim), reward (B, 1), next_obs,
        terminated."""
        stored = min(self.num_added, self.capacity)
        rows = rng.integers(stored, size=batch_size)
        arrays = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        batch = [array[rows] for array in arrays]
        return [torch.from_numpy(array) for array in batch]


# ---- 3. Networks ----
# They read features, `feat`: here the observation; with a memory or an encoder, its output.


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for dim in hidden_dims:
        layers += [nn.Linear(input_dim, dim), nn.ReLU(inplace=True)]
        input_dim = dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Actor(nn.Module):
    """The policy: one action for each observation; tanh keeps it in [-1, 1]."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.net = mlp(obs_dim, args.hidden_dims, action_dim)

    def forward(self, feat):
        """(..., feat_dim) -> (..., action_dim)"""
        return torch.tanh(self.net(feat))


class Critics(nn.Module):
    """Two estimates of the return after `action`; their errors differ, and the lower one counts."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.qf1 = mlp(obs_dim + action_dim, args.hidden_dims, 1)
        self.qf2 = mlp(obs_dim + action_dim, args.hidden_dims, 1)

    def forward(self, feat, action):
        """(..., feat_dim), (..., action_dim) -> q1, q2, both (..., 1)"""
        feat = torch.cat([feat, action], dim=-1)
        return self.qf1(feat), self.qf2(feat)


class Agent(nn.Module):
    """All networks of one agent."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.actor = Actor(obs_dim, action_dim, args)
        self.actor_target = copy.deepcopy(self.actor)
        self.critics = Critics(obs_dim, action_dim, args)
        self.critics_target = copy.deepcopy(self.critics)
        self.exploration_noise = args.exploration_noise
        self.device = args.device
        self.to(args.device)

    @torch.no_grad()
    def act(self, obs, hidden=None, deterministic=False):
        """obs (N, obs_dim) -> action (N, action_dim) in [-1, 1], both NumPy; `hidden`, unchanged,
        since only agents with memory use it."""
        obs = torch.as_tensor(obs, device=self.device)
        action = self.actor(obs)
        if not deterministic:
            action += self.exploration_noise * torch.randn_like(action)
        return action.clamp(-1, 1).cpu().numpy(), hidden


# ---- 4. Losses ----


def td_target(reward, terminated, next_value, gamma):
    """Bootstrapped target y = r + gamma (1 - d) V(o'). In arXiv:1509.02971v6, Algorithm 1, no d.
    d is 1 after termination, since nothing follows. It stays 0 after a time limit, which does not
    end the task: `next_value` is then the value of the true last observation."""
    # All have a last axis of 1: (B,) and (B, 1) would silently broadcast to (B, B).
    assert reward.shape == terminated.shape == next_value.shape
    return reward + gamma * (1 - terminated) * next_value


def critics_loss(q1, q2, y):
    """Both critics' squared errors (arXiv:1802.09477v3, Algorithm 1), per element."""
    return (q1 - y).square() + (q2 - y).square()


def actor_loss(q1):
    """-Q1(o, pi(o)), per element. A step down its gradient is a step up the policy gradient
    (arXiv:1802.09477v3, Eq. 1)."""
    return -q1


# ---- 5. Update ----


def make_optimizers(agent, args):
    return {
        "critics": Adam(agent.critics.parameters(), args.lr, fused=True),
        "actor": Adam(agent.actor.parameters(), args.lr, fused=True),
    }


@torch.no_grad()
def soft_update(target, online, tau):
    """target <- (1 - tau) target + tau online"""
    for slow, new in zip(target.parameters(), online.parameters(), strict=True):
        slow.lerp_(new, tau)


def update(agent, optimizers, batch, args, delayed_too):
    """One gradient step for the critics. With `delayed_too` one for the actor, too; then the
    targets move."""
    obs, action, reward, next_obs, terminated = batch

    with torch.no_grad():
        next_action = agent.actor_target(next_obs)
        # Similar actions should have similar values. Noise averages over narrow peaks of critics,
        # which are errors that the actor would climb (arXiv:1802.09477v3, Section 5.3).
        noise = args.target_noise * torch.randn_like(action)
        next_action = (next_action + noise.clamp(-args.noise_clip, args.noise_clip)).clamp(-1, 1)
        next_q1, next_q2 = agent.critics_target(next_obs, next_action)
        next_value = torch.min(next_q1, next_q2)
        y = td_target(reward, terminated, next_value, args.gamma)
    q1, q2 = agent.critics(obs, action)
    qf_loss = critics_loss(q1, q2, y).mean()
    optimizers["critics"].zero_grad()
    qf_loss.backward()
    optimizers["critics"].step()
    # The critics become more accurate before the actor learns (arXiv:1802.09477v3, Section 5.2).
    if not delayed_too:
        return {"qf_loss": qf_loss}

    new_action = agent.actor(obs)
    q1, q2 = agent.critics(obs, new_action)
    pi_loss = actor_loss(q1).mean()
    optimizers["actor"].zero_grad()
    # Only the actor learns from this loss: the critics get no gradients.
    pi_loss.backward(inputs=list(agent.actor.parameters()))
    optimizers["actor"].step()

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "q_mean": q1.mean()}
    soft_update(agent.actor_target, agent.actor, args.tau)
    soft_update(agent.critics_target, agent.critics, args.tau)
    return losses


# ---- 6. The run ----

SCRIPT = "td3"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent)
    run = Run(args, SCRIPT)  # with --resume, `args` become those of the run to continue
    rng = np.random.default_rng(args.seed)
    envs = make_envs(args, args.num_envs, args.seed)
    obs_dim, action_dim = check_flat(envs)

    agent = Agent(obs_dim, action_dim, args)
    optimizers = make_optimizers(agent, args)
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim)
    run.track(agent=agent, optimizers=optimizers, buffer=buffer, envs=envs, rng=rng)
    obs, _ = envs.reset()
    global_step, num_updates, obs = run.start(0, 0, obs)

    while run.running(global_step):
        # Act
        if global_step < args.learning_starts:
            action = rng.uniform(-1, 1, envs.action_space.shape).astype(np.float32)
        else:
            action, _ = agent.act(obs)

        # Step and store. `next_obs` is the true next observation also where an episode ends.
        next_obs, reward, terminated, truncated, info = envs.step(action)
        buffer.add(obs, action, reward, next_obs, terminated)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            run.add_returns(info, ended)
            obs, _ = envs.reset(options={"reset_mask": ended})
        global_step += args.num_envs

        # Learn
        while num_updates < int((global_step - args.learning_starts) * args.updates_per_step):
            sample = buffer.sample(args.batch_size, rng)
            batch = [x.to(args.device) for x in sample]
            delayed_too = (num_updates + 1) % args.policy_delay == 0
            run.add_losses(global_step, update(agent, optimizers, batch, args, delayed_too))
            num_updates += 1

        # Show, evaluate and save, each when it is time
        run.step(global_step, num_updates, obs)

    return run.finish(global_step, num_updates, obs)


if __name__ == "__main__":
    run_cli(main, ARGS)
