"""Soft Actor-Critic from pixels: SAC on features that an encoder finds in stacked pictures.

Convolutions turn a stack of frames into 50 features, for both critics and the actor. Only the
critics' loss trains them. Each picture is shifted at random by a few pixels before it is learned
from, else the encoder learns the few pictures in replay by heart.
Extends sac.py: `Encoder`, `random_shift`, returns over n steps, replay that holds each frame once.

Papers: Yarats et al. 2019, arXiv:1910.01741v3 (who trains the encoder). Kostrikov et al. 2020,
arXiv:2004.13649v4 (random shifts). Yarats et al. 2021, arXiv:2107.09645v1 (one pass per picture,
n-step returns).

    python conv_sac.py --env-id dmc-cartpole-balance-mdp-img-concat3-v0

Docs: docs/conv_sac.md.  From vectors: sac.py.
"""

from common.cli import Parser, add_run_arguments, integer, number, run_cli

# ---- 1. Arguments ----

CARTPOLE = "dmc-cartpole-balance-mdp-img-concat3-v0"


def parse_args(argv=None):
    parser = Parser(__doc__)
    add_run_arguments(parser)  # --seed, --resume, --evaluate and others, the same everywhere
    add = parser.add_argument_group("schedule").add_argument
    add("--env-id", default=CARTPOLE, help="environment; `python -m envs` lists ours")
    add("--total-steps", type=integer(1), default=30_000, help="length of the run [env steps]")
    add("--eval-every", type=integer(1), default=2000, help="evaluate, save this often [env steps]")
    add("--num-threads", type=integer(1), default=2, help="threads of PyTorch on the CPU")
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random steps first [env steps]")
    add("--updates-per-step", type=number(0), default=1.0, help="updates per env step, on average")
    add("--batch-size", type=integer(1), default=64, help="batch, B [transitions]")
    add("--buffer-size", type=integer(2), default=100_000, help="replay buffer [frames]")

    add = parser.add_argument_group("algorithm").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[256, 256], help="widths of each MLP")
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.02, help="how far targets move each time")
    add("--lr", type=number(0), default=1e-3, help="learning rate of Adam, often 1e-4 to 1e-3")
    add("--alpha", type=number(0), help="weight of the entropy; learned if not set")
    add("--target-entropy", type=number(), help="[nats]; minus the action dimension if not set")
    add("--feat-dim", type=integer(1), default=50, help="width of the encoder's output")
    add("--shift-pad", type=integer(0), default=4, help="largest random shift, 0 = none [pixels]")
    add("--n-step", type=integer(1), default=5, help="steps of reward in a target [env steps]")
    return parser.parse(argv)


if __name__ == "__main__":
    ARGS = parse_args()  # before the slow imports: --help and errors answer at once

import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

from common.envs import check_pixels, make_envs
from common.evaluate import evaluate_checkpoint
from common.run import Run

# ---- 2. Replay buffer ----


class ReplayBuffer:
    """A ring of frames, each with the step that brought it: the newest overwrites the oldest.

    An observation is a stack of frames, all but one of which are those of the observation before.
    So a step stores one frame, the newest of its next observation. Where an episode begins, the
    whole first observation comes before, one frame after another, in rows without a step.
    """

    def __init__(self, capacity, obs_shape, action_dim, frame_stack):
        self.capacity = capacity
        self.frame_stack = frame_stack
        self.num_added = 0  # since the start of the run; the next step goes to this row, % capacity
        self.frame = np.zeros((capacity, obs_shape[0] // frame_stack, *obs_shape[1:]), np.uint8)
        self.action = np.zeros((capacity, action_dim), np.float32)
        self.reward = np.zeros((capacity, 1), np.float32)
        self.terminated = np.zeros((capacity, 1), np.float32)
        self.ended = np.ones(capacity, bool)  # terminated or truncated, in any environment
        # Counts the rows of an environment, and jumps ahead at each new beginning. So of two rows k
        # steps apart, no beginning lies between them if and only if their places differ by k.
        self.place = np.zeros(capacity, np.int64)

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Stores one step of N environments: obs (N, *obs_shape), action (N, action_dim), reward
        (N,). next_obs is the true next observation, also where an episode has ended."""
        self.num_envs = N = len(obs)  # the previous frame of an environment lies N rows back
        frames = np.split(next_obs, self.frame_stack, axis=1)[-1:]
        if self.ended[(self.num_added - 1) % self.capacity]:
            # One begins an episode: all store their whole stack, so that their rows stay N apart.
            frames = np.split(obs, self.frame_stack, axis=1) + frames
        for frame in frames:
            rows = np.arange(self.num_added, self.num_added + N) % self.capacity
            self.frame[rows] = frame
            self.place[rows] = self.place[rows - N] + 1 + 10**9 * self.ended[rows - N]
            self.ended[rows] = False
            self.num_added += N
        self.action[rows] = action
        self.reward[rows, 0] = reward
        self.terminated[rows, 0] = terminated
        self.ended[rows] = (terminated | truncated).any()

    def sample(self, batch_size, n_step, gamma, rng):
        """Steps drawn uniformly: obs (B, frame_stack, channels, H, W) uint8, action (B, action_dim)
        and, of up to `n_step` steps that begin there, the discounted sum of rewards (B, 1),
        next_obs after them, terminated and the discount of next_obs, both (B, 1)."""
        N, stack = self.num_envs, self.frame_stack
        # A row is a step if the rows before it hold its whole observation, with no beginning since.
        steps = np.flatnonzero(self.place - np.roll(self.place, N * stack) == stack)
        rows = rng.choice(steps, batch_size)
        obs = self.frame[(rows[:, None] + N * np.arange(-stack, 0)) % self.capacity]

        # The steps from there on, up to the next beginning or the newest step.
        offset = np.arange(n_step)
        ahead = (rows[:, None] + N * offset) % self.capacity  # (B, n_step)
        same = self.place[ahead] == self.place[rows, None] + offset
        discount = gamma ** np.arange(n_step + 1, dtype=np.float32)[:, None]
        reward = (same * self.reward[ahead, 0]) @ discount[:-1]
        length = same.sum(axis=1)
        last = ahead[np.arange(batch_size), length - 1]
        next_obs = self.frame[(last[:, None] + N * np.arange(1 - stack, 1)) % self.capacity]
        batch = (obs, self.action[rows], reward, next_obs, self.terminated[last], discount[length])
        return [torch.from_numpy(array) for array in batch]


# ---- 3. Networks ----


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for dim in hidden_dims:
        layers += [nn.Linear(input_dim, dim), nn.ReLU(inplace=True)]
        input_dim = dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Encoder(nn.Sequential):
    """Convolutions, then a few features between -1 and 1 (arXiv:1910.01741v3)."""

    def __init__(self, obs_shape, args):
        layers = []
        input_dim = obs_shape[0]
        # The paper has (32, 3, 2) and three of (32, 3, 1). An early large stride and few channels
        # make 1 million multiplications of its 41 million, for each stack of pictures.
        for channels, kernel, stride in [(16, 6, 4), (16, 3, 2), (16, 3, 1)]:
            layers += [nn.Conv2d(input_dim, channels, kernel, stride), nn.ReLU(inplace=True)]
            input_dim = channels
        convs = nn.Sequential(*layers, nn.Flatten())
        linear = nn.Linear(convs(torch.zeros(1, *obs_shape)).shape[1], args.feat_dim)
        super().__init__(convs, linear, nn.LayerNorm(args.feat_dim), nn.Tanh())

    def forward(self, obs):
        """(B, C, H, W) from 0 to 255 -> (B, feat_dim)"""
        return super().forward(obs / 255)


class Actor(nn.Module):
    """The policy: a Gaussian squashed by tanh, so that actions lie in (-1, 1)."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.net = mlp(obs_dim, args.hidden_dims, 2 * action_dim)

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
    """All networks of one agent and its temperature."""

    def __init__(self, obs_shape, action_dim, args):
        super().__init__()
        self.actor = Actor(args.feat_dim, action_dim, args)
        self.critics = Critics(args.feat_dim, action_dim, args)
        self.critics.encoder = Encoder(obs_shape, args)  # trained with the critics, by their loss
        self.critics_target = copy.deepcopy(self.critics)
        self.log_alpha = nn.Parameter(torch.tensor(1.0 if args.alpha is None else args.alpha).log())
        self.device = args.device
        self.to(args.device)

    @torch.no_grad()
    def act(self, obs, hidden=None, deterministic=False):
        """obs (N, *obs_shape) -> action (N, action_dim) in [-1, 1], both NumPy; `hidden`,
        unchanged, since only agents with memory use it."""
        obs = torch.as_tensor(obs, device=self.device)
        mean, log_std = self.actor(self.critics.encoder(obs))
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
    """alpha log pi(a|o) - min Q(o, a) (arXiv:1812.05905v2, Eq. 7), per element."""
    return alpha * log_prob - torch.min(q1, q2)


def alpha_loss(log_alpha, log_prob, target_entropy):
    """Raises alpha while the entropy, -log_prob, is below its target, per element.
    arXiv:1812.05905v2, Eq. 18, with log alpha instead of alpha, as in the authors' code."""
    return -log_alpha * (log_prob.detach() + target_entropy)


def random_shift(obs, pad):
    """Moves each picture by up to `pad` pixels (arXiv:2004.13649v4).

    (B, frame_stack, channels, H, W) -> (B, C, H, W) float32. Both shifts are uniform from -pad to
    pad, alike for all frames of a stack, as another shift would look like motion. The border is
    repeated.
    """
    padded = F.pad(obs.flatten(1, 2).float(), [pad] * 4, mode="replicate")
    # Views of all shifted versions: (B, C, 2 pad + 1, 2 pad + 1, H, W).
    shifted = padded.unfold(2, obs.shape[-2], 1).unfold(3, obs.shape[-1], 1)
    y, x = torch.randint(2 * pad + 1, (2, len(obs)), device=obs.device)
    return shifted[torch.arange(len(obs), device=obs.device), :, y, x]


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
    obs, action, reward, next_obs, terminated, discount = batch
    alpha = agent.log_alpha.exp().detach()
    feat = agent.critics.encoder(random_shift(obs, args.shift_pad))
    next_obs = random_shift(next_obs, args.shift_pad)

    with torch.no_grad():
        next_action, next_log_prob = agent.actor.sample(agent.critics.encoder(next_obs))
        feat_target = agent.critics_target.encoder(next_obs)
        next_q1, next_q2 = agent.critics_target(feat_target, next_action)
        # The value after n steps includes its entropy bonus; the steps between have none.
        next_value = torch.min(next_q1, next_q2) - alpha * next_log_prob
        y = td_target(reward, terminated, next_value, discount)
    q1, q2 = agent.critics(feat, action)
    qf_loss = critics_loss(q1, q2, y).mean()
    optimizers["critics"].zero_grad()
    qf_loss.backward()
    optimizers["critics"].step()

    # The actor must not train the encoder of the critics that judge it.
    new_action, log_prob = agent.actor.sample(feat.detach())
    q1, q2 = agent.critics(feat.detach(), new_action)
    pi_loss = actor_loss(log_prob, q1, q2, alpha).mean()
    optimizers["actor"].zero_grad()
    # Only the actor learns from this loss: the critics get no gradients.
    pi_loss.backward(inputs=list(agent.actor.parameters()))
    optimizers["actor"].step()

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "q_mean": q1.mean()}
    losses |= {"alpha": alpha, "entropy": -log_prob.mean()}
    if args.alpha is None:
        optimizers["alpha"].zero_grad()
        alpha_loss(agent.log_alpha, log_prob, args.target_entropy).mean().backward()
        optimizers["alpha"].step()

    soft_update(agent.critics_target, agent.critics, args.tau)
    return losses


# ---- 6. The run ----

SCRIPT = "conv_sac"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent)
    run = Run(args, SCRIPT)  # with --resume, `args` become those of the run to continue
    rng = np.random.default_rng(args.seed)
    envs = make_envs(args, args.num_envs, args.seed)
    obs_shape, action_dim, frame_stack = check_pixels(envs, args)
    if args.target_entropy is None:
        args.target_entropy = -float(action_dim)  # arXiv:1812.05905v2, Appendix D

    agent = Agent(obs_shape, action_dim, args)
    optimizers = make_optimizers(agent, args)
    buffer = ReplayBuffer(args.buffer_size, obs_shape, action_dim, frame_stack)
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
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        ended = terminated | truncated
        obs = next_obs
        if ended.any():
            run.add_returns(info, ended)
            obs, _ = envs.reset(options={"reset_mask": ended})
        global_step += args.num_envs

        # Learn
        while num_updates < int((global_step - args.learning_starts) * args.updates_per_step):
            sample = buffer.sample(args.batch_size, args.n_step, args.gamma, rng)
            batch = [x.to(args.device) for x in sample]
            run.add_losses(global_step, update(agent, optimizers, batch, args))
            num_updates += 1

        # Show, evaluate and save, each when it is time
        run.step(global_step, num_updates, obs)

    return run.finish(global_step, num_updates, obs)


if __name__ == "__main__":
    run_cli(main, ARGS)
