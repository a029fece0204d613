"""Recurrent Soft Actor-Critic with a shared memory (RSAC-sharing): one LSTM for all networks.

Actor and critics read the same features, so one memory does the work of two or three, and what it
holds at a step is well defined: it can be stored in replay. Only the critics' loss trains it; the
actor's loss would change what the critics read in order to look good.
Extends rsac.py: who owns the memory and who may train it, the target's action read from the target
memory, `--stored-state`; nothing else.

Papers: Yang & Nguyen 2021, arXiv:2110.12628v1 (the sharing variant). Kapturowski et al. 2019,
"R2D2" (stored states).

    python rsac_sharing.py --env-id pendulum-p-v0

Docs: docs/rsac_sharing.md.
"""

from argparse import BooleanOptionalAction

from common.cli import Parser, integer, number, run_cli

# ---- 1. Arguments ----

MEMORY_INPUTS = ("obs", "obs-action", "obs-action-reward")


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument_group("run").add_argument
    add("--env-id", default="pendulum-p-v0", help="environment; `python -m envs` lists ours")
    add("--seed", type=integer(0, 2**31 - 1), default=0, help="of everything random")
    add("--total-steps", type=integer(1), default=20_000, help="length of the run [env steps]")
    add("--device", default="cpu", help="cpu, cuda or cuda:N; small networks like the cpu")
    add("--num-threads", type=integer(1), default=1, help="of PyTorch on the cpu")
    add("--log-dir", default="runs", help="where run folders go")
    add("--run-name", help="of the folder, not <env>__<script>__<seed>__<time>")
    add("--resume", metavar="FOLDER", help="go on with this run, with its arguments")
    add("--track", action="store_true", help="also log to Weights & Biases")

    add = parser.add_argument_group("schedule").add_argument
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random before [env steps]")
    add("--update-every", type=integer(1), default=1, help="period of learning [env steps]")
    add("--updates-per-step", type=number(0), default=0.5, help="mean number per env step")
    add("--batch-size", type=integer(1), default=16, help="B [windows]")
    add("--buffer-size", type=integer(2), default=1_000_000, help="rows: [env steps] + episodes")

    add = parser.add_argument_group("networks").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[64, 64], help="of the MLPs")

    add = parser.add_argument_group("algorithm").add_argument
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.02, help="step of targets towards online networks")
    add("--lr", type=number(0), default=2e-3, help="learning rate (Adam), memories apart")
    add("--lr-schedule", choices=["constant", "linear"], default="constant", help="linear: to 0")

    add = parser.add_argument_group("entropy").add_argument
    add("--autotune", action=BooleanOptionalAction, default=True, help="learn alpha")
    add("--alpha", type=number(0), help="entropy weight, its start if learned; see start_alpha")
    add("--target-entropy", type=number(), help="[nats]; minus the action dimension if not given")

    add = parser.add_argument_group("memory").add_argument
    add("--sequence-length", type=integer(0), default=32, help="T, 0 = episodes [env steps]")
    add("--burn-in", type=integer(0), default=200, help="warm-up before the window [env steps]")
    add("--rnn", choices=["lstm", "gru", "rnn"], default="lstm", help="kind of memory")
    add("--rnn-hidden", type=integer(1), default=32, help="width of the memory")
    add("--rnn-layers", type=integer(1), default=1, help="layers of the memory")
    add("--rnn-lr", type=number(0), default=1.5e-3, help="learning rate of the memories")
    add("--forget-bias", type=number(), default=0.0, help="more: gates at first forget less")
    add("--memory-input", choices=list(MEMORY_INPUTS), default="obs-action", help="what it reads")
    add("--rescale", action=BooleanOptionalAction, default=True, help="its inputs, to [-1, 1]")
    add("--skip", action=BooleanOptionalAction, default=True, help="heads also see the observation")
    add("--rnn-target", action=BooleanOptionalAction, default=True, help="target memories, too")
    add("--behaviour-refresh", choices=["step", "episode"], default="step", help="new weights act")
    add("--stored-state", action=BooleanOptionalAction, default=False, help="begin windows with it")

    add = parser.add_argument_group("evaluation and logging").add_argument
    add("--eval-every", type=integer(1), default=500, help="period [env steps]")
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

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from common.adam import Adam
from common.checkpoint import RowFiles, get_rng_state, set_rng_state
from common.envs import check_flat, check_sequences, env_state, make_env, make_envs, restore_env
from common.run import Run, check_memory, evaluate_checkpoint, load_resumed, set_up_torch

# ---- 2. Replay buffer ----


class ReplayBuffer:
    """A ring of env steps that holds each observation once.

    Row k is [obs_k | action_k | reward_k | terminated_k]; the next observation is that of row
    k + 1. The last observation of an episode has a row of its own. `t` is the time of a row within
    its episode, -1 for a row without a step. Environment e writes to ring e.
    `hidden` is the hidden state after obs_k, of no width unless it is to be stored, 0 in the random
    steps: what the memory held then was in other units, see `start_memory`.
    """

    def __init__(self, capacity, obs_dim, action_dim, num_envs=1, hidden_dim=0):
        capacity //= num_envs
        self.obs_dim, self.action_dim, self.num_envs = obs_dim, action_dim, num_envs
        self.rows = np.zeros((num_envs, capacity, obs_dim + action_dim + 2), np.float32)
        self.hidden = np.zeros((num_envs, capacity, hidden_dim), np.float32)
        self.t = np.full((num_envs, capacity), -1, np.int32)
        self.length = np.zeros((num_envs, capacity), np.int32)  # of the episode starting at a row
        self.next_row = np.zeros(num_envs, np.int64)  # counted from the start of the run
        self.next_t = np.zeros(num_envs, np.int32)
        self.files = RowFiles()

    def add(self, obs, action, reward, next_obs, terminated, truncated, hidden):
        """Stores one step of each environment; a leading axis num_envs if there are several."""
        n, capacity = self.num_envs, self.t.shape[1]
        env, row, row_after = np.arange(n), self.next_row % capacity, (self.next_row + 1) % capacity
        rows = np.zeros((2, n, self.rows.shape[-1]), np.float32)  # this step's and the next one's
        rows[0, :, : self.obs_dim], rows[1, :, : self.obs_dim] = obs, next_obs
        rows[0, :, self.obs_dim : -2], rows[0, :, -2], rows[0, :, -1] = action, reward, terminated
        self.rows[env, row], self.rows[env, row_after] = rows
        self.hidden[env, row] = 0 if hidden is None else pack(hidden)[:, : self.hidden.shape[2]]
        self.t[env, row], self.t[env, row_after] = self.next_t, -1  # until its step is known
        self.length[env, (self.next_row - self.next_t) % capacity] = self.next_t + 1
        ended = np.logical_or(terminated, truncated)
        self.next_row += 1 + ended
        self.next_t = np.where(ended, 0, self.next_t + 1)

    def draw(self, size, sequence_length, burn_in, rng):
        """Windows around steps drawn uniformly among those of episodes that are stored from their
        first step on; whole episodes (sequence_length 0) each equally often.

        As many steps of burn-in come before each window as before the first one drawn; windows with
        more or fewer are passed over. So they form one batch without padding.

        Returns (4, size): environment (each equally often), first row of the episode, start of the
        window within it, length of the episode.
        """
        capacity, drawn = self.t.shape[1], np.zeros((4, 0), np.int64)
        while drawn.shape[1] < size:
            env = rng.integers(self.num_envs, size=4096)  # many, as few will be alike
            oldest = np.maximum(0, self.next_row + 1 - capacity)[env]
            row = rng.integers(oldest, self.next_row[env])
            t = self.t[env, row % capacity]
            end = self.length[env, (row - t) % capacity]
            good = (t >= 0) & (row - t >= oldest)
            start = t - rng.integers(sequence_length or 1, size=t.size)
            start = np.clip(start, 0, np.maximum(0, end - sequence_length))
            if not sequence_length:
                good &= start == 0  # one step of each episode stands for it
            before = np.minimum(start, burn_in)
            wanted = min(drawn[2, 0], burn_in) if drawn.size else before[np.argmax(good)]
            alike = good & (before == wanted)
            drawn = np.append(drawn, np.stack([env, row - t, start, end])[:, alike], axis=1)
        return drawn[:, :size]

    def sample(self, batch_size, sequence_length, burn_in, rng):
        """Windows of episodes, with the history before them; see `draw`.

        Returns history (B, K + T + 1, .) = [obs | last action | last reward], where K <= burn_in
        steps come before the window, and of the window action (B, T, action_dim), reward,
        terminated, mask (B, T, 1); mask is 0 on padding beyond the end of an episode. Last comes
        the stored hidden state before the history, (B, hidden_dim).
        """
        windows = self.draw(batch_size, sequence_length, burn_in, rng)[..., None]
        env, first, start, end = windows  # (B, 1)
        length, steps = sequence_length or end.max(), min(start[0, 0], burn_in)  # T, K
        t = start + np.arange(-steps - 1, length + 1)  # (B, K + T + 2)
        row = first + np.clip(t, 0, end)  # (B, K + T + 2), never outside the episode
        rows = torch.from_numpy(self.rows[env, row % self.t.shape[1]])
        obs, action, reward, terminated = rows.split([self.obs_dim, self.action_dim, 1, 1], dim=-1)
        last = torch.cat([action, reward], dim=-1)[:, :-1]
        hidden = torch.from_numpy(self.hidden[env[:, 0], row[:, 0] % self.t.shape[1]])
        last[t[:, 0] < 0, 0] = 0  # nothing was done before the first step
        hidden[t[:, 0] < 0] = 0
        history = torch.cat([obs[:, 1:], last], dim=-1)
        mask = torch.from_numpy((t[:, steps + 1 : -1] < end).astype(np.float32))[..., None]
        window = (x[:, steps + 1 : -1] for x in (action, reward, terminated))
        return history, *window, mask, hidden

    def arrays(self):
        return {"rows": self.rows, "t": self.t, "hidden": self.hidden}

    def state_dict(self, folder):
        """For a checkpoint; rows that are not on disk yet go to files in `folder`."""
        files = self.files.save(folder, self.arrays(), self.next_row)
        return {"next_row": self.next_row.tolist(), "next_t": self.next_t.tolist(), "files": files}

    def load_state_dict(self, state, folder):
        """Puts back exactly the rows that the checkpoint knew."""
        self.files.load(folder, self.arrays(), state["files"])
        self.next_row[:], self.next_t[:] = state["next_row"], state["next_t"]
        capacity = self.t.shape[1]
        for env, total in enumerate(state["next_row"]):
            row = np.arange(max(0, total + 1 - capacity), total)
            t = self.t[env, row % capacity]
            # Not of episodes whose start is overwritten: a later one may start in the same place.
            good = (t >= 0) & (row - t >= row[:1])
            np.maximum.at(self.length[env], (row - t)[good] % capacity, t[good] + 1)


# ---- 3. Networks ----


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for hidden_dim in hidden_dims:
        layers += [nn.Linear(input_dim, hidden_dim), nn.ReLU(inplace=True)]
        input_dim = hidden_dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


class Memory(nn.Module):
    """Sums up the history, [obs | last action | last reward] at every step, in a feature vector."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.obs_dim, self.skip = obs_dim, args.skip
        widths = dict(zip(MEMORY_INPUTS, [0, action_dim, action_dim + 1], strict=True))
        self.input_dim = obs_dim + widths[args.memory_input]
        cell = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}[args.rnn]
        self.rnn = cell(self.input_dim, args.rnn_hidden, args.rnn_layers, batch_first=True)
        for name, param in self.rnn.named_parameters():
            if name.startswith("weight_ih") and args.rescale:
                # PyTorch's default lets a few inputs drown among many recurrent weights, and
                # learning waits long for the memory to see anything: larger weights for these.
                limit = 2 / param.shape[1] ** 0.5
                nn.init.uniform_(param, -limit, limit)
            if name.startswith("bias_ih"):
                # A gate at a bias of 0 keeps half of the memory: after 20 steps a millionth, and of
                # the gradient, too. With 1 it keeps 0.73 (Jozefowicz et al. 2015). In an LSTM and a
                # GRU of PyTorch the second gate is the one that keeps; a plain RNN has none.
                param.data[args.rnn_hidden : 2 * args.rnn_hidden] += args.forget_bias
        self.register_buffer("unit", torch.ones(self.input_dim))  # see start_memory
        self.feat_dim = args.rnn_hidden + (obs_dim if args.skip else 0)

    def forward(self, history, hidden=None):
        """history (B, T, .), hidden before it -> feat (B, T, feat_dim), hidden after it"""
        feat, hidden = self.rnn(history[..., : self.input_dim] / self.unit, hidden)
        if self.skip:
            feat = torch.cat([feat, history[..., : self.obs_dim]], dim=-1)
        return feat, hidden

    def window(self, history, burn_in, hidden=None):
        """Features of the steps after the first `burn_in`, which only warm up the hidden state."""
        if not torch.is_grad_enabled():  # one pass will do
            return self(history, hidden)[0][:, burn_in:]
        if burn_in:
            with torch.no_grad():
                _, hidden = self(history[:, :burn_in], hidden)
        return self(history[:, burn_in:], hidden)[0]


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
    """The memory, which they alone train, and two Q-networks: the lower of the two is trusted."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnn = Memory(obs_dim, action_dim, args)
        self.qf1 = QNetwork(self.rnn.feat_dim, action_dim, args.hidden_dims)
        self.qf2 = QNetwork(self.rnn.feat_dim, action_dim, args.hidden_dims)

    def forward(self, feat, action):
        """(B, T, feat_dim), (B, T, action_dim) -> q1, q2, both (B, T, 1)"""
        return self.qf1(feat, action), self.qf2(feat, action)


class Agent(nn.Module):
    """All networks of one agent and its temperature."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.critics = Critics(obs_dim, action_dim, args)
        self.actor = Actor(self.critics.rnn.feat_dim, action_dim, args.hidden_dims)
        self.critics_target = copy.deepcopy(self.critics)
        alpha = 1.0 if args.alpha is None else args.alpha
        self.log_alpha = nn.Parameter(torch.tensor(alpha).log(), args.autotune)
        # The networks that act in training: the learner itself, or a copy that stays the same
        # for a whole episode, so that its hidden state stems from one set of weights.
        self.policy = self.behaviour = nn.ModuleList([self.critics.rnn, self.actor])
        if args.behaviour_refresh == "episode":
            self.behaviour = copy.deepcopy(self.policy)
        self.to(args.device)
        self.online = list(self.critics.parameters())
        self.targets = list(self.critics_target.parameters())

    def refresh_behaviour(self):
        self.behaviour.load_state_dict(self.policy.state_dict())

    @torch.no_grad()
    def act(self, history, hidden=None, deterministic=False):
        """The next action, in [-1, 1], and the hidden state after `history`.

        history: last step's (obs | last action | last reward), (.,) or (N, .) as NumPy.
        """
        rnn, actor = self.policy if deterministic else self.behaviour
        history = torch.as_tensor(history, device=self.log_alpha.device)
        feat, hidden = rnn(history.reshape(-1, 1, history.shape[-1]), hidden)
        feat = feat.reshape(*history.shape[:-1], -1)
        mean, log_std = actor(feat)
        u = mean if deterministic else torch.normal(mean, log_std.exp())
        return torch.tanh(u).cpu().numpy(), hidden


def forget(hidden, ended):
    """Clears the hidden state of the environments whose episode has ended; ended: bool or (N,)."""
    for h in hidden if isinstance(hidden, tuple) else [hidden]:
        h[:, np.flatnonzero(ended)] = 0


def pack(hidden):
    """A hidden state as rows of the buffer, (N, hidden_dim)."""
    hidden = torch.cat(hidden) if isinstance(hidden, tuple) else hidden
    return hidden.transpose(0, 1).flatten(1).cpu().numpy()


def unpack(rows, rnn):
    """What `pack` gave -> the hidden state for `rnn`; None, which stands for zeros, if empty."""
    if rows.shape[1] == 0:
        return None
    hidden = rows.unflatten(1, (-1, rnn.hidden_size)).transpose(0, 1).contiguous()
    return hidden.chunk(2) if isinstance(rnn, nn.LSTM) else hidden


def join(obs, last_action, last_reward, ended=False):
    """What the memory reads at one step, (., obs_dim + action_dim + 1); zeros where one ended."""
    last = np.concatenate([last_action, np.expand_dims(last_reward, -1)], axis=-1)
    last = np.where(np.expand_dims(ended, -1), 0, last)
    return np.concatenate([obs, last], axis=-1, dtype=np.float32)


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


def masked_mean(x, mask):
    """Mean over real steps: padding touches neither the sum nor the count.  x, mask: (B, T, 1)"""
    return torch.where(mask > 0, x, 0).sum() / mask.sum()


@torch.no_grad()
def start_alpha(agent, buffer):
    """Alpha is a price in rewards, so it starts at the mean size of those of the random steps.

    Not in the papers: where rewards are around 7, a policy that starts at 1 seemed to settle before
    it had explored, in single runs.
    """
    reward = buffer.rows[..., -2][buffer.t >= 0]
    agent.log_alpha.fill_(np.log(np.abs(reward).mean() or 1.0))


@torch.no_grad()
def start_memory(agent, buffer):
    """The memories read each input as a part of its largest value in the random steps.

    Inputs far beyond 1, such as speeds, would saturate the gates, which then see no difference.
    """
    largest = torch.from_numpy(np.abs(buffer.rows[buffer.t >= 0]).max(axis=0))
    for module in agent.modules():
        if isinstance(module, Memory):
            module.unit.copy_(largest[: module.input_dim].clamp(min=0.1))


@torch.no_grad()
def soft_update(targets, online, tau):
    """target <- (1 - tau) target + tau online, all tensors in one call."""
    torch._foreach_lerp_(targets, online, tau)


def make_adam(*groups):
    """Adam over groups of (parameters, learning rate), fused: one call for all tensors."""
    groups = [{"params": list(params), "lr": lr, "base_lr": lr} for params, lr in groups]
    return Adam(groups)


def make_optimizers(agent, args):
    def adam(module):
        memory = [p for name, p in module.named_parameters() if "rnn" in name]
        heads = [p for name, p in module.named_parameters() if "rnn" not in name]
        return make_adam((heads, args.lr), (memory, args.rnn_lr))

    return {
        "critics": adam(agent.critics),
        "actor": adam(agent.actor),
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
    """One gradient step for each network: critics, actor, alpha, then the targets.

    Features of o_0 .. o_T come from one pass over the window; steps 0..T-1 are learned from and
    steps 1..T give the next values. Features are (B, T + 1, .), all else is (B, T, .).
    """
    *batch, hidden = batch
    history, action, reward, terminated, mask = zero_padding(*batch)
    burn_in = history.shape[1] - action.shape[1] - 1
    hidden = unpack(hidden, agent.critics.rnn.rnn)
    alpha = agent.log_alpha.exp().detach()

    feat = agent.critics.rnn.window(history, burn_in, hidden)  # (B, T + 1, feat_dim)
    with torch.no_grad():
        feat_target = feat
        if args.rnn_target:
            feat_target = agent.critics_target.rnn.window(history, burn_in, hidden)
        next_action, next_log_prob = agent.actor.sample(feat_target[:, 1:])
        next_q = torch.min(*agent.critics_target(feat_target[:, 1:], next_action))
        # The entropy bonus of the steps to come belongs to their value.
        y = td_target(reward, terminated, next_q - alpha * next_log_prob, args.gamma)
    qf_loss = masked_mean(critics_loss(*agent.critics(feat[:, :-1], action), y), mask)
    step(optimizers["critics"], qf_loss)

    # The memory has just learned, so it remembers anew: old features do not fit new heads.
    with torch.no_grad():  # the actor reads the memory, it does not train it
        feat = agent.critics.rnn.window(history[:, :-1], burn_in, hidden)
    new_action, log_prob = agent.actor.sample(feat)
    # The critics only judge here: `step` computes nothing for their weights.
    q1, q2 = agent.critics(feat, new_action)
    pi_loss = masked_mean(actor_loss(log_prob, q1, q2, alpha), mask)
    step(optimizers["actor"], pi_loss)

    losses = {"qf_loss": qf_loss, "actor_loss": pi_loss, "alpha": alpha}
    losses["entropy"] = -masked_mean(log_prob, mask)
    if args.autotune:
        per_step = alpha_loss(agent.log_alpha, log_prob, args.target_entropy)
        losses["alpha_loss"] = masked_mean(per_step, mask)
        step(optimizers["alpha"], losses["alpha_loss"])

    soft_update(agent.targets, agent.online, args.tau)
    return losses


def zero_padding(history, action, reward, terminated, mask):
    """Whatever stands in the padding, even NaN, becomes 0: NaN * 0 is NaN in the gradients."""
    real_obs = F.pad(mask, (0, 0, history.shape[1] - mask.shape[1], 0), value=1.0)
    history = torch.where(real_obs > 0, history, 0)
    padded = [torch.where(mask > 0, x, 0) for x in (action, reward, terminated)]
    return history, *padded, mask


# ---- 5. Evaluation ----


def evaluate(agent, envs, episodes, seed, film=None):
    """Whole episodes with the deterministic policy; returns lists: returns, lengths, successes.

    envs: they play side by side, so that one pass through the networks acts for all.
    seed: of the sequence of start states.  film: a `common.video.Film` for the first episode.
    """
    infos = [None] * episodes
    playing = np.arange(len(envs))  # the episode in each environment
    obs = np.stack([env.reset(seed=seed, options={"episode": k})[0] for k, env in enumerate(envs)])
    action, reward = np.zeros((len(envs), *envs[0].action_space.shape)), np.zeros(len(envs))
    history, hidden = join(obs, action, reward), None
    while (playing < episodes).any():
        action, hidden = agent.act(history, hidden, deterministic=True)
        if film and playing[0] == 0:
            film.add(envs[0], obs[0], action[0], hidden)
        ended = np.zeros(len(envs), bool)
        for i in np.flatnonzero(playing < episodes):
            obs[i], reward[i], terminated, truncated, info = envs[i].step(action[i])
            if terminated or truncated:
                infos[playing[i]], ended[i] = info, True
                playing[i] += len(envs)
                if playing[i] < episodes:
                    obs[i], _ = envs[i].reset(seed=seed, options={"episode": playing[i]})
        forget(hidden, ended)
        history = join(obs, action, reward, ended)
    returns = [float(info["episode"]["r"]) for info in infos]
    lengths = [int(info["episode"]["l"]) for info in infos]
    return returns, lengths, [float(info["is_success"]) for info in infos if "is_success" in info]


# ---- 6. The run ----

SCRIPT = "rsac_sharing"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent, evaluate)
    state, args = load_resumed(args, SCRIPT) if args.resume else (None, args)
    set_up_torch(args)
    rng = np.random.default_rng(args.seed)
    env = make_env(args.env_id, args.seed, num_envs=args.num_envs)
    eval_envs = make_envs(args.env_id, args.eval_episodes, args.video)
    obs_dim, action_dim = check_flat(eval_envs[0])
    check_sequences(eval_envs[0], args)
    if args.target_entropy is None:
        args.target_entropy = -float(action_dim)  # arXiv:1812.05905v2, Appendix D

    agent = Agent(obs_dim, action_dim, args)
    optimizers = make_optimizers(agent, args)
    hidden_dim = args.rnn_layers * args.rnn_hidden * (2 if args.rnn == "lstm" else 1)
    hidden_dim *= args.stored_state
    check_memory(4 * args.buffer_size * (obs_dim + action_dim + 4 + hidden_dim), args)
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim, args.num_envs, hidden_dim)
    run = Run(args, SCRIPT, state)

    global_step = num_updates = 0
    if state is None:
        obs, _ = env.reset()
        history = join(obs, np.zeros(env.action_space.shape), np.zeros(obs.shape[:-1]))
        hidden = None
    else:
        global_step, num_updates = state["global_step"], state["num_updates"]
        obs = restore_env(env, state["env"])
        agent.load_state_dict(state["agent"])
        for name, optimizer in optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        buffer.load_state_dict(state["buffer"], run.folder)
        history, hidden = state["history"].numpy(), state["hidden"]
        set_rng_state(state["rng"], rng)

    def save():
        run.save(
            global_step=global_step,
            num_updates=num_updates,
            agent=agent.state_dict(),
            optimizers={name: optimizer.state_dict() for name, optimizer in optimizers.items()},
            buffer=buffer.state_dict(run.folder),
            env=env_state(env),
            history=torch.from_numpy(history),
            hidden=hidden,
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
        action, hidden = agent.act(history, hidden)
        if global_step < args.learning_starts:  # the memory reads on, with the random action
            action = rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)

        # Step and store. `next_obs` is the true next observation also where an episode ends.
        next_obs, reward, terminated, truncated, info = env.step(action)
        known = hidden if global_step >= args.learning_starts else None
        buffer.add(obs, action, reward, next_obs, terminated, truncated, known)
        ended = np.logical_or(terminated, truncated)
        run.add_returns(info, ended)
        obs = next_obs
        if ended.any():
            forget(hidden, ended)
            agent.refresh_behaviour()
            obs, _ = env.reset(options={"reset_mask": ended} if args.num_envs > 1 else None)
        history = join(obs, action, reward, ended)
        global_step += args.num_envs

        # Learn
        periods = (global_step - args.learning_starts) // args.update_every
        while num_updates < int(periods * args.update_every * args.updates_per_step):
            if num_updates == 0 and args.alpha is None:
                start_alpha(agent, buffer)
            if num_updates == 0 and args.rescale:
                start_memory(agent, buffer)
            if args.lr_schedule == "linear":
                scale_lr(optimizers, max(0, 1 - global_step / args.total_steps))
            sample = buffer.sample(args.batch_size, args.sequence_length, args.burn_in, rng)
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
