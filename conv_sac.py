"""Soft Actor-Critic from pixels: SAC on features that an encoder finds in stacked pictures.

Convolutions turn a stack of frames into 50 features, for both critics and the actor. Only the
critics' loss trains them. Each picture is shifted at random by a few pixels before it is learned
from, else the encoder learns the few pictures in replay by heart. Replay holds every frame once.
Extends sac.py: `Encoder`, `random_shift`, returns over n steps, a replay buffer of frames.

Papers: Yarats et al. 2019, arXiv:1910.01741v3 (who trains the encoder). Kostrikov et al. 2020,
arXiv:2004.13649v4 (random shifts). Yarats et al. 2021, arXiv:2107.09645v1 (one pass per picture,
n-step returns).

    python conv_sac.py --env-id dmc-cartpole-balance-mdp-img-concat3-v0

Docs: docs/conv_sac.md.  From vectors: sac.py.
"""

from argparse import BooleanOptionalAction

from common.cli import Parser, integer, number, run_cli

# ---- 1. Arguments ----

# Layers of (channels, kernel, stride). An early large stride and few channels save most of the
# work: per stack of pictures 1 million multiplications instead of 41.
ENCODERS = {
    "fast": [(16, 6, 4), (16, 3, 2), (16, 3, 1)],
    "original": [(32, 3, 2), (32, 3, 1), (32, 3, 1), (32, 3, 1)],
}
CARTPOLE = "dmc-cartpole-balance-mdp-img-concat3-v0"


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument_group("run").add_argument
    add("--env-id", default=CARTPOLE, help="environment; `python -m envs` lists ours")
    add("--seed", type=integer(0, 2**31 - 1), default=0, help="of everything random")
    add("--total-steps", type=integer(1), default=30_000, help="length of the run [env steps]")
    add("--device", default="cpu", help="cpu, cuda or cuda:N; small networks like the cpu")
    add("--num-threads", type=integer(1), default=2, help="of PyTorch on the cpu")
    add("--log-dir", default="runs", help="where run folders go")
    add("--run-name", help="of the folder, not <env>__<script>__<seed>__<time>")
    add("--resume", metavar="FOLDER", help="go on with this run, with its arguments")
    add("--track", action="store_true", help="also log to Weights & Biases")

    add = parser.add_argument_group("schedule").add_argument
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random before [env steps]")
    add("--update-every", type=integer(1), default=1, help="period of learning [env steps]")
    add("--updates-per-step", type=number(0), default=1.0, help="mean number per env step")
    add("--batch-size", type=integer(1), default=64, help="B [transitions]")
    add("--buffer-size", type=integer(2), default=100_000, help="rows: [env steps] + episodes")

    add = parser.add_argument_group("networks").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[256, 256], help="of the MLPs")

    add = parser.add_argument_group("algorithm").add_argument
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.02, help="step of targets towards online networks")
    add("--lr", type=number(0), default=1e-3, help="learning rate (Adam)")
    add("--lr-schedule", choices=["constant", "linear"], default="constant", help="linear: to 0")

    add = parser.add_argument_group("entropy").add_argument
    add("--autotune", action=BooleanOptionalAction, default=True, help="learn alpha")
    add("--alpha", type=number(0), help="entropy weight, its start if learned; see start_alpha")
    add("--target-entropy", type=number(), help="[nats]; minus the action dimension if not given")

    add = parser.add_argument_group("pixels").add_argument
    add("--encoder", choices=list(ENCODERS), default="fast", help="fast is made for a cpu")
    add("--feat-dim", type=integer(1), default=50, help="what the encoder sums a picture up in")
    add("--shift-pad", type=integer(0), default=4, help="largest random shift, 0 = none [pixels]")
    add("--n-step", type=integer(1), default=5, help="steps of reward in a target")
    add("--frame-stack", type=integer(1), help="frames in an observation; found if not given")

    add = parser.add_argument_group("evaluation and logging").add_argument
    add("--eval-every", type=integer(1), default=2000, help="period [env steps]")
    add("--eval-episodes", type=integer(1), default=10, help="deterministic episodes each time")
    add("--save-every", type=integer(1), default=10_000, help="checkpoint period [env steps]")
    add("--evaluate", metavar="PATH", help="no training: run the policy of this checkpoint")
    add("--episodes", type=integer(1), default=10, help="number of them, with --evaluate")
    add("--json", action="store_true", help="print the result of --evaluate as JSON")
    add("--video", action="store_true", help="film --evaluate, or every 10th evaluation")
    args = parser.parse(argv)
    if args.autotune and args.alpha == 0:
        parser.error("--alpha 0 cannot be learned, its logarithm is infinite; add --no-autotune")
    return args


if __name__ == "__main__":
    ARGS = parse_args()  # before the imports that take seconds: --help and a typo answer at once

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from common.adam import Adam
from common.checkpoint import RowFiles, get_rng_state, set_rng_state
from common.envs import env_state, make_env, make_envs, restore_env
from common.errors import UserError
from common.run import Run, check_memory, evaluate_checkpoint, load_resumed, set_up_torch

# ---- 2. Replay buffer ----


class ReplayBuffer:
    """A ring of env steps that holds each frame once.

    Row k holds frame_k, the newest one of obs_k, and [action_k | reward_k | terminated_k]; obs_k is
    made of the frames up to row k, the next observation of those up to row k + 1. The first stack
    of an episode is held whole, with the padding that the environment puts before its first frame,
    so no stack reaches across a start. The last observation of an episode has a row of its own. `t`
    is the time of a row within its episode, -1 for a row without a step. Environment e writes to
    ring e.
    """

    def __init__(self, capacity, obs_shape, action_dim, num_envs=1, frame_stack=1):
        capacity //= num_envs
        if capacity < frame_stack + 2:
            raise UserError(f"--buffer-size holds no step of stacks of {frame_stack} frames")
        frame_shape = (obs_shape[0] // frame_stack, *obs_shape[1:])
        self.stack_shape, self.num_envs = (num_envs, frame_stack, *frame_shape), num_envs
        self.frames = np.zeros((num_envs, capacity, *frame_shape), np.uint8)
        self.rows = np.zeros((num_envs, capacity, action_dim + 2), np.float32)
        self.t = np.full((num_envs, capacity), -1, np.int32)
        self.next_row = np.zeros(num_envs, np.int64)  # counted from the start of the run
        self.next_t = np.zeros(num_envs, np.int32)
        self.files = RowFiles()

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Stores one step of each environment; a leading axis num_envs if there are several."""
        n, capacity = self.num_envs, self.t.shape[1]
        stack, next_stack = np.reshape([obs, next_obs], (2, *self.stack_shape))
        if (stack[:, 1:] != next_stack[:, :-1]).any():
            raise UserError("observations are no stacks of frames; try --frame-stack 1")
        begins = np.flatnonzero(self.next_t == 0)
        for frame in range(self.stack_shape[1] - 1):
            row = self.next_row[begins] % capacity
            self.frames[begins, row], self.t[begins, row] = stack[begins, frame], -1
            self.next_row[begins] += 1
        env, row, row_after = np.arange(n), self.next_row % capacity, (self.next_row + 1) % capacity
        step = [np.reshape(x, (n, -1)) for x in (action, reward, terminated)]
        self.frames[env, row] = stack[:, -1]
        self.rows[env, row] = np.concatenate(step, axis=1)
        self.t[env, row] = self.next_t
        self.frames[env, row_after] = next_stack[:, -1]
        self.rows[env, row_after] = 0
        self.t[env, row_after] = -1  # until its own step is known
        ended = np.reshape(np.logical_or(terminated, truncated), n)
        self.next_row += 1 + ended
        self.next_t = np.where(ended, 0, self.next_t + 1)

    def sample(self, batch_size, n_step, gamma, rng):
        """Steps drawn uniformly: obs (B, C, H, W) uint8, action (B, action_dim), and of the n_step
        steps that begin there, or fewer where the episode ends: the discounted sum of rewards
        (B, 1), next_obs after the last one, terminated, and the discount of what follows (B, 1).
        """
        capacity, stack = self.t.shape[1], self.stack_shape[1]
        env = rng.integers(self.num_envs, size=batch_size)
        # The oldest steps have lost the first frames of their stack.
        oldest = np.maximum(0, self.next_row + 1 - capacity)[env] + stack - 1
        row = rng.integers(oldest, self.next_row[env])
        while (bad := self.t[env, row % capacity] < 0).any():
            row[bad] = rng.integers(oldest[bad], self.next_row[env[bad]])
        env, row, steps = env[:, None], row[:, None], np.arange(n_step)
        rows = self.rows[env, (row + steps) % capacity]  # (B, n_step, action_dim + 2)
        # Times go on by one up to the episode's last step; a row without a step comes after it.
        same = self.t[env, (row + steps) % capacity] == self.t[env, row % capacity] + steps
        same = np.logical_and.accumulate(same, axis=1)
        length = same.sum(axis=1, keepdims=True)
        reward = (rows[..., -2] * same * gamma**steps).sum(axis=1, keepdims=True)
        terminated = np.take_along_axis(rows[..., -1], length - 1, axis=1)
        frames = np.arange(1 - stack, 1)
        obs, next_obs = (self.frames[env, (r + frames) % capacity] for r in (row, row + length))
        scalars = [x.astype(np.float32) for x in (reward, terminated, gamma**length)]
        obs, next_obs, action, reward, terminated, discount = map(
            torch.from_numpy, (obs, next_obs, rows[:, 0, :-2], *scalars)
        )
        return obs.flatten(1, 2), action, reward, next_obs.flatten(1, 2), terminated, discount

    def arrays(self):
        return {"frames": self.frames, "rows": self.rows, "t": self.t}

    def state_dict(self, folder):
        """For a checkpoint; rows that are not on disk yet go to files in `folder`."""
        files = self.files.save(folder, self.arrays(), self.next_row)
        return {"next_row": self.next_row.tolist(), "next_t": self.next_t.tolist(), "files": files}

    def load_state_dict(self, state, folder):
        """Puts back exactly the rows that the checkpoint knew."""
        self.files.load(folder, self.arrays(), state["files"])
        self.next_row[:], self.next_t[:] = state["next_row"], state["next_t"]


# ---- 3. Networks ----


def channels_first(obs, obs_shape):
    """Pictures of one environment, (..., *obs_shape), as (..., C, H, W).

    Channels may be last or missing, and frames may have an axis of their own before all others.
    """
    leading = obs.shape[: obs.ndim - len(obs_shape)]
    if len(obs_shape) > 2 and obs_shape[-1] < obs_shape[-3]:
        obs = np.moveaxis(obs, -1, -3)
    return obs.reshape(*leading, -1, *obs.shape[-2:])


def check_pixels(env, args):
    """(C, H, W) and action_dim of an environment; UserError if its observations are no pictures.

    Sets --frame-stack, if it is not given, as Gymnasium's FrameStackObservation has it.
    """
    space, action = env.observation_space, np.zeros(env.action_space.shape, np.float32)
    if space.dtype != np.uint8 or not 2 <= len(space.shape) <= 4:
        raise UserError(
            f"{env.spec.id} has no pictures (uint8) but {space}; vectors are for sac.py"
        )
    if args.frame_stack is None:
        known = env.has_wrapper_attr("stack_size")
        args.frame_stack = env.get_wrapper_attr("stack_size") if known else 1
    obs, next_obs = (channels_first(x[0], space.shape) for x in (env.reset(), env.step(action)))
    if obs.shape[0] % args.frame_stack:
        raise UserError(f"{obs.shape[0]} channels are no --frame-stack {args.frame_stack} frames")
    trial = ReplayBuffer(args.frame_stack + 2, obs.shape, len(action), 1, args.frame_stack)
    trial.add(obs, action, 0, next_obs, False, False)  # refuses what are no stacks
    return obs.shape, len(action)


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for hidden_dim in hidden_dims:
        layers += [nn.Linear(input_dim, hidden_dim), nn.ReLU(inplace=True)]
        input_dim = hidden_dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Encoder(nn.Module):
    """Convolutions, then a few features between -1 and 1 (arXiv:1910.01741v3)."""

    def __init__(self, obs_shape, name, feat_dim):
        super().__init__()
        layers, input_dim = [], obs_shape[0]
        for channels, kernel, stride in ENCODERS[name]:
            layers += [nn.Conv2d(input_dim, channels, kernel, stride), nn.ReLU(inplace=True)]
            input_dim = channels
        self.convs = nn.Sequential(*layers, nn.Flatten(-3))
        try:
            num_features = self.convs(torch.zeros(obs_shape)).shape[0]
        except RuntimeError as error:
            raise UserError(
                f"pictures of {obs_shape} are too small for --encoder {name}"
            ) from error
        self.head = nn.Sequential(
            nn.Linear(num_features, feat_dim), nn.LayerNorm(feat_dim), nn.Tanh()
        )

    def forward(self, obs):
        """(..., C, H, W) from 0 to 255 -> (..., feat_dim)"""
        return self.head(self.convs(obs / 255))


class Actor(nn.Module):
    """The policy: a Gaussian squashed by tanh, so that actions lie in (-1, 1)."""

    def __init__(self, feat_dim, action_dim, hidden_dims):
        super().__init__()
        self.net = mlp(feat_dim, hidden_dims, 2 * action_dim)

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


class QNetwork(nn.Module):
    """A critic: the expected return after `action`."""

    def __init__(self, feat_dim, action_dim, hidden_dims):
        super().__init__()
        self.net = mlp(feat_dim + action_dim, hidden_dims, 1)

    def forward(self, feat, action):
        """(..., feat_dim), (..., action_dim) -> (..., 1)"""
        return self.net(torch.cat([feat, action], dim=-1))


class Critics(nn.Module):
    """Two Q-networks: they err differently, and the lower of the two is trusted."""

    def __init__(self, obs_shape, action_dim, args):
        super().__init__()
        self.encoder = Encoder(obs_shape, args.encoder, args.feat_dim)
        self.qf1 = QNetwork(args.feat_dim, action_dim, args.hidden_dims)
        self.qf2 = QNetwork(args.feat_dim, action_dim, args.hidden_dims)

    def forward(self, feat, action):
        """(B, feat_dim), (B, action_dim) -> q1, q2, both (B, 1)"""
        return self.qf1(feat, action), self.qf2(feat, action)


class Agent(nn.Module):
    """All networks of one agent and its temperature."""

    def __init__(self, obs_shape, action_dim, args):
        super().__init__()
        self.obs_shape = obs_shape  # of the environment, channels first or last
        self.actor = Actor(args.feat_dim, action_dim, args.hidden_dims)
        self.critics = Critics(
            channels_first(np.zeros(obs_shape), obs_shape).shape, action_dim, args
        )
        self.critics_target = copy.deepcopy(self.critics)
        alpha = 1.0 if args.alpha is None else args.alpha
        self.log_alpha = nn.Parameter(torch.tensor(alpha).log(), args.autotune)
        self.to(args.device)
        self.online = list(self.critics.parameters())
        self.targets = list(self.critics_target.parameters())

    @torch.no_grad()
    def act(self, obs, deterministic=False):
        """obs (*obs_shape) or (N, *obs_shape) as NumPy -> action in [-1, 1], likewise."""
        obs = torch.as_tensor(channels_first(obs, self.obs_shape), device=self.log_alpha.device)
        feat = self.critics.encoder(obs)
        mean, log_std = self.actor(feat)
        u = mean if deterministic else torch.normal(mean, log_std.exp())
        return torch.tanh(u).cpu().numpy()


# ---- 4. Losses ----


def td_target(reward, terminated, next_value, gamma):
    """Bootstrapped target y = r + gamma (1 - d) V(o').

    reward, terminated, next_value: (B, 1) or (B, T, 1).  gamma: discount per env step.
    The y of arXiv:1509.02971v6, Algorithm 1, with the factor (1 - d) that all code has.
    Only termination stops the bootstrap. A time limit is not an outcome of the task: the value
    beyond it is real, and `next_value` is that of the true last observation.
    Raises ValueError on unequal shapes: (B,) with (B, 1) would quietly give (B, B).
    """
    if not reward.shape == terminated.shape == next_value.shape:
        shapes = [tuple(x.shape) for x in (reward, terminated, next_value)]
        raise ValueError(f"reward, terminated and next_value must have equal shapes, not {shapes}")
    return reward + gamma * (1 - terminated) * next_value


def critics_loss(q1, q2, y):
    """Both critics' half squared errors (arXiv:1812.05905v2, Eq. 5), per element."""
    return 0.5 * (q1 - y).square() + 0.5 * (q2 - y).square()


def actor_loss(log_prob, q1, q2, alpha):
    """alpha log pi(a|o) - min Q(o, a) (arXiv:1812.05905v2, Eq. 7), per element."""
    return alpha * log_prob - torch.min(q1, q2)


def alpha_loss(log_alpha, log_prob, target_entropy):
    """Raises alpha while the entropy, -log_prob, is below its target, per element.

    arXiv:1812.05905v2, Eq. 18, with log alpha in the place of alpha as in the authors' first
    code: the same sign, and steps that do not shrink with alpha.
    """
    return -log_alpha * (log_prob.detach() + target_entropy)


def random_shift(obs, pad):
    """Moves each picture by up to `pad` pixels (arXiv:2004.13649v4; off with 0).

    (B, C, H, W) -> (B, C, H, W) float32. Both shifts are uniform from -pad to pad, alike for all
    frames of a stack, as another shift would look like motion. The border is repeated.
    """
    if pad == 0:
        return obs.float()
    size, padded = obs.shape[-2:], F.pad(obs.float(), (pad, pad, pad, pad), mode="replicate")
    y, x = torch.randint(2 * pad + 1, (2, len(obs)), device=obs.device)
    every_shift = padded.unfold(2, size[0], 1).unfold(3, size[1], 1)  # a view
    return every_shift[torch.arange(len(obs), device=obs.device), :, y, x]


@torch.no_grad()
def start_alpha(agent, buffer):
    """Alpha is a price in rewards, so it starts at the mean size of those of the random steps.

    Not in the papers: where rewards are around 7, a policy that starts at 1 seemed to settle before
    it had explored, in single runs.
    """
    reward = buffer.rows[..., -2][buffer.t >= 0]
    agent.log_alpha.fill_(np.log(np.abs(reward).mean() or 1.0))


@torch.no_grad()
def soft_update(targets, online, tau):
    """target <- (1 - tau) target + tau online, all tensors in one call."""
    torch._foreach_lerp_(targets, online, tau)


def make_adam(*groups):
    """Adam over groups of (parameters, learning rate), fused: one call for all tensors."""
    groups = [{"params": list(params), "lr": lr, "base_lr": lr} for params, lr in groups]
    return Adam(groups)


def make_optimizers(agent, args):
    return {
        "critics": make_adam((agent.critics.parameters(), args.lr)),
        "actor": make_adam((agent.actor.parameters(), args.lr)),
        "alpha": make_adam(([agent.log_alpha], args.lr)),
    }


def scale_lr(optimizers, factor):
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = factor * group["base_lr"]


def step(optimizer, loss):
    """One step down the slope of `loss`, computed for the optimizer's own parameters alone.

    An optimizer of PyTorch itself has no `descend`: set each `param.grad` and call its `step`.
    """
    params = [param for group in optimizer.param_groups for param in group["params"]]
    optimizer.descend(torch.autograd.grad(loss, params))


def update(agent, optimizers, batch, args):
    """One gradient step for each network: critics, actor, alpha, then the targets."""
    obs, action, reward, next_obs, terminated, discount = batch
    alpha = agent.log_alpha.exp().detach()
    obs, next_obs = random_shift(obs, args.shift_pad), random_shift(next_obs, args.shift_pad)

    feat = agent.critics.encoder(obs)
    with torch.no_grad():
        next_action, next_log_prob = agent.actor.sample(agent.critics.encoder(next_obs))
        feat_target = agent.critics_target.encoder(next_obs)
        next_q = torch.min(*agent.critics_target(feat_target, next_action))
        # The entropy bonus of the steps to come belongs to their value.
        # Of --n-step rewards, and the discount of as many steps.
        y = td_target(reward, terminated, next_q - alpha * next_log_prob, discount)
    qf_loss = critics_loss(*agent.critics(feat, action), y).mean()
    step(optimizers["critics"], qf_loss)

    # The actor must not train the encoder: what helps it would blind the critics that judge it.
    # Its features are those from before the critics' step, which saves a pass over the pictures.
    feat = feat.detach()
    new_action, log_prob = agent.actor.sample(feat)
    # The critics only judge here: `step` computes nothing for their weights.
    q1, q2 = agent.critics(feat, new_action)
    pi_loss = actor_loss(log_prob, q1, q2, alpha).mean()
    step(optimizers["actor"], pi_loss)

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "alpha": alpha}
    losses["entropy"] = -log_prob.detach().mean()
    if args.autotune:
        losses["alpha_loss"] = alpha_loss(agent.log_alpha, log_prob, args.target_entropy).mean()
        step(optimizers["alpha"], losses["alpha_loss"])

    soft_update(agent.targets, agent.online, args.tau)
    return losses


# ---- 5. Evaluation ----


def evaluate(agent, envs, episodes, seed, film=None):
    """Whole episodes with the deterministic policy; returns lists: returns, lengths, successes.

    envs: they play side by side, so that one pass through the networks acts for all.
    seed: of the sequence of start states.  film: a `common.video.Film` for the first episode.
    """
    infos = [None] * episodes
    playing = np.arange(len(envs))  # the episode in each environment
    obs = np.stack([env.reset(seed=seed, options={"episode": k})[0] for k, env in enumerate(envs)])
    while (playing < episodes).any():
        action = agent.act(obs, deterministic=True)
        if film and playing[0] == 0:
            film.add(envs[0], obs[0], action[0])
        for i in np.flatnonzero(playing < episodes):
            obs[i], _, terminated, truncated, info = envs[i].step(action[i])
            if terminated or truncated:
                infos[playing[i]] = info
                playing[i] += len(envs)
                if playing[i] < episodes:
                    obs[i], _ = envs[i].reset(seed=seed, options={"episode": playing[i]})
    returns = [float(info["episode"]["r"]) for info in infos]
    lengths = [int(info["episode"]["l"]) for info in infos]
    return returns, lengths, [float(info["is_success"]) for info in infos if "is_success" in info]


# ---- 6. The run ----

SCRIPT = "conv_sac"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent, evaluate)
    state, args = load_resumed(args, SCRIPT) if args.resume else (None, args)
    set_up_torch(args)
    rng = np.random.default_rng(args.seed)
    env = make_env(args.env_id, args.seed, num_envs=args.num_envs)
    eval_envs = make_envs(args.env_id, args.eval_episodes, args.video)
    obs_shape, action_dim = check_pixels(eval_envs[0], args)
    if args.target_entropy is None:
        args.target_entropy = -float(action_dim)  # arXiv:1812.05905v2, Appendix D

    agent = Agent(eval_envs[0].observation_space.shape, action_dim, args)
    optimizers = make_optimizers(agent, args)
    frame_bytes = math.prod(obs_shape) // args.frame_stack
    check_memory(args.buffer_size * (frame_bytes + 4 * (action_dim + 3)), args)
    buffer = ReplayBuffer(args.buffer_size, obs_shape, action_dim, args.num_envs, args.frame_stack)
    run = Run(args, SCRIPT, state)

    global_step = num_updates = 0
    if state is None:
        obs, _ = env.reset()
    else:
        global_step, num_updates = state["global_step"], state["num_updates"]
        obs = restore_env(env, state["env"])
        agent.load_state_dict(state["agent"])
        for name, optimizer in optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        buffer.load_state_dict(state["buffer"], run.folder)
        set_rng_state(state["rng"], rng)

    def save():
        run.save(
            global_step=global_step,
            num_updates=num_updates,
            agent=agent.state_dict(),
            optimizers={name: optimizer.state_dict() for name, optimizer in optimizers.items()},
            buffer=buffer.state_dict(run.folder),
            env=env_state(env),
            rng=get_rng_state(rng),
        )

    def evaluate_and_log():
        seed = (args.seed + 1) << 32 | global_step  # new start states at each evaluation
        film = run.film(global_step)
        result = evaluate(agent, eval_envs, args.eval_episodes, seed, film)
        run.log(global_step, num_updates, *result)

    if state is None:
        evaluate_and_log()
    while global_step < args.total_steps and not run.stopped_by:
        # Act
        if global_step < args.learning_starts:
            action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        else:
            action = agent.act(obs)

        # Step and store. `next_obs` is the true next observation also where an episode ends.
        next_obs, reward, terminated, truncated, info = env.step(action)
        pictures = [channels_first(x, agent.obs_shape) for x in (obs, next_obs)]
        buffer.add(pictures[0], action, reward, pictures[1], terminated, truncated)
        ended = np.logical_or(terminated, truncated)
        run.add_returns(info, ended)
        obs = next_obs
        if ended.any():
            obs, _ = env.reset(options={"reset_mask": ended} if args.num_envs > 1 else None)
        global_step += args.num_envs

        # Learn
        periods = (global_step - args.learning_starts) // args.update_every
        while num_updates < int(periods * args.update_every * args.updates_per_step):
            if num_updates == 0 and args.alpha is None:
                start_alpha(agent, buffer)
            if args.lr_schedule == "linear":
                scale_lr(optimizers, max(0, 1 - global_step / args.total_steps))
            sample = buffer.sample(args.batch_size, args.n_step, args.gamma, rng)
            batch = [x.to(args.device) for x in sample]
            run.add_losses(global_step, **update(agent, optimizers, batch, args))
            num_updates += 1

        # Show and save
        run.bar.update(args.num_envs)
        if global_step % args.eval_every < args.num_envs:
            evaluate_and_log()
        if global_step % args.save_every < args.num_envs:
            save()

    save()
    if run.last_logged != global_step and not run.stopped_by:
        evaluate_and_log()
    for each in [env, *eval_envs]:
        each.close()
    return run.finish()


if __name__ == "__main__":
    run_cli(main, ARGS)
