"""Recurrent TD3 (RTD3): TD3 that acts on its memory of the whole episode.

An LSTM for the actor and one for the critics sum up what was seen and done so far; rsac.py explains
windows, burn-in and masks. The target actor has a memory of its own, too.
Extends td3.py: windows instead of single steps, `Memory`, masked means, a hidden state in the loop.

Papers: Yang & Nguyen 2021, arXiv:2110.12628v1 (RTD3). Fujimoto et al. 2018, arXiv:1802.09477v3
(TD3).

    python rtd3.py --env-id pendulum-p-v0

Docs: docs/rtd3.md.  One critic: rdpg.py.  With entropy: rsac.py.
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

    add = parser.add_argument_group("exploration").add_argument
    add("--exploration-noise", type=number(0), default=0.3, help="std [half action range]")
    add("--tanh-penalty", type=number(0), default=1e-3, help="weight of u^2, see actor_loss")

    add = parser.add_argument_group("targets").add_argument
    add("--target-noise", type=number(0), default=0.2, help="std [half action range]")
    add("--noise-clip", type=number(0), default=0.5, help="largest of it [half action range]")
    add("--policy-delay", type=integer(1), default=2, help="critic updates per other [updates]")

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
    add("--rnn-per-critic", action=BooleanOptionalAction, default=False, help="or one for both")
    add("--rnn-target", action=BooleanOptionalAction, default=True, help="target memories, too")
    add("--behaviour-refresh", choices=["step", "episode"], default="step", help="new weights act")

    add = parser.add_argument_group("evaluation and logging").add_argument
    add("--eval-every", type=integer(1), default=500, help="period [env steps]")
    add("--eval-episodes", type=integer(1), default=10, help="deterministic episodes each time")
    add("--save-every", type=integer(1), default=10_000, help="checkpoint period [env steps]")
    add("--evaluate", metavar="PATH", help="no training: run the policy of this checkpoint")
    add("--episodes", type=integer(1), default=10, help="number of them, with --evaluate")
    add("--json", action="store_true", help="print the result of --evaluate as JSON")
    add("--video", action="store_true", help="film --evaluate, or every 10th evaluation")
    return parser.parse(argv)


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
    """

    def __init__(self, capacity, obs_dim, action_dim, num_envs=1):
        capacity //= num_envs
        self.obs_dim, self.action_dim, self.num_envs = obs_dim, action_dim, num_envs
        self.rows = np.zeros((num_envs, capacity, obs_dim + action_dim + 2), np.float32)
        self.t = np.full((num_envs, capacity), -1, np.int32)
        self.length = np.zeros((num_envs, capacity), np.int32)  # of the episode starting at a row
        self.next_row = np.zeros(num_envs, np.int64)  # counted from the start of the run
        self.next_t = np.zeros(num_envs, np.int32)
        self.files = RowFiles()

    def add(self, obs, action, reward, next_obs, terminated, truncated):
        """Stores one step of each environment; a leading axis num_envs if there are several."""
        n, capacity = self.num_envs, self.t.shape[1]
        env, row, row_after = np.arange(n), self.next_row % capacity, (self.next_row + 1) % capacity
        rows = np.zeros((2, n, self.rows.shape[-1]), np.float32)  # this step's and the next one's
        rows[0, :, : self.obs_dim], rows[1, :, : self.obs_dim] = obs, next_obs
        rows[0, :, self.obs_dim : -2], rows[0, :, -2], rows[0, :, -1] = action, reward, terminated
        self.rows[env, row], self.rows[env, row_after] = rows
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
        terminated, mask (B, T, 1); mask is 0 on padding beyond the end of an episode.
        """
        windows = self.draw(batch_size, sequence_length, burn_in, rng)[..., None]
        env, first, start, end = windows  # (B, 1)
        length, steps = sequence_length or end.max(), min(start[0, 0], burn_in)  # T, K
        t = start + np.arange(-steps - 1, length + 1)  # (B, K + T + 2)
        row = first + np.clip(t, 0, end)  # (B, K + T + 2), never outside the episode
        rows = torch.from_numpy(self.rows[env, row % self.t.shape[1]])
        obs, action, reward, terminated = rows.split([self.obs_dim, self.action_dim, 1, 1], dim=-1)
        last = torch.cat([action, reward], dim=-1)[:, :-1]
        last[t[:, 0] < 0, 0] = 0  # nothing was done before the first step
        history = torch.cat([obs[:, 1:], last], dim=-1)
        mask = torch.from_numpy((t[:, steps + 1 : -1] < end).astype(np.float32))[..., None]
        return history, *(x[:, steps + 1 : -1] for x in (action, reward, terminated)), mask

    def state_dict(self, folder):
        """For a checkpoint; rows that are not on disk yet go to files in `folder`."""
        files = self.files.save(folder, {"rows": self.rows, "t": self.t}, self.next_row)
        return {"next_row": self.next_row.tolist(), "next_t": self.next_t.tolist(), "files": files}

    def load_state_dict(self, state, folder):
        """Puts back exactly the rows that the checkpoint knew."""
        self.files.load(folder, {"rows": self.rows, "t": self.t}, state["files"])
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
    """The policy: one action for each observation; tanh keeps it in [-1, 1]."""

    def __init__(self, feat_dim, action_dim, hidden_dims):
        super().__init__()
        self.net = mlp(feat_dim, hidden_dims, action_dim)

    def forward(self, feat):
        """(..., feat_dim) -> (..., action_dim)"""
        return torch.tanh(self.net(feat))


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

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.rnns = nn.ModuleList(
            Memory(obs_dim, action_dim, args) for _ in range(1 + args.rnn_per_critic)
        )
        self.qf1 = QNetwork(self.rnns[0].feat_dim, action_dim, args.hidden_dims)
        self.qf2 = QNetwork(self.rnns[0].feat_dim, action_dim, args.hidden_dims)

    def remember(self, history, burn_in):
        """history (B, K + T + 1, .) -> features of the window from all memories (B, T + 1, .)"""
        return torch.cat([rnn.window(history, burn_in) for rnn in self.rnns], dim=-1)

    def forward(self, feat, action):
        """what `remember` gives, action (B, T, action_dim) -> q1, q2, both (B, T, 1)"""
        feats = feat.chunk(len(self.rnns), dim=-1)
        return self.qf1(feats[0], action), self.qf2(feats[-1], action)


class Agent(nn.Module):
    """All networks of one agent."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.actor_rnn = Memory(obs_dim, action_dim, args)
        self.actor_rnn_target = copy.deepcopy(self.actor_rnn)
        self.actor = Actor(self.actor_rnn.feat_dim, action_dim, args.hidden_dims)
        self.actor_target = copy.deepcopy(self.actor)
        self.critics = Critics(obs_dim, action_dim, args)
        self.critics_target = copy.deepcopy(self.critics)
        self.exploration_noise, self.device = args.exploration_noise, args.device
        # The networks that act in training: the learner itself, or a copy that stays the same
        # for a whole episode, so that its hidden state stems from one set of weights.
        self.policy = self.behaviour = nn.ModuleList([self.actor_rnn, self.actor])
        if args.behaviour_refresh == "episode":
            self.behaviour = copy.deepcopy(self.policy)
        self.to(args.device)
        online = [self.actor, self.actor_rnn, self.critics]
        targets = [self.actor_target, self.actor_rnn_target, self.critics_target]
        self.online = [param for net in online for param in net.parameters()]
        self.targets = [param for net in targets for param in net.parameters()]

    def refresh_behaviour(self):
        self.behaviour.load_state_dict(self.policy.state_dict())

    @torch.no_grad()
    def act(self, history, hidden=None, deterministic=False):
        """The next action, in [-1, 1], and the hidden state after `history`.

        history: last step's (obs | last action | last reward), (.,) or (N, .) as NumPy.
        """
        rnn, actor = self.policy if deterministic else self.behaviour
        history = torch.as_tensor(history, device=self.device)
        feat, hidden = rnn(history.reshape(-1, 1, history.shape[-1]), hidden)
        feat = feat.reshape(*history.shape[:-1], -1)
        action = actor(feat)
        if not deterministic:
            noise = self.exploration_noise * torch.randn_like(action)
            action = (action + noise).clamp(-1, 1)
        return action.cpu().numpy(), hidden


def forget(hidden, ended):
    """Clears the hidden state of the environments whose episode has ended; ended: bool or (N,)."""
    for h in hidden if isinstance(hidden, tuple) else [hidden]:
        h[:, np.flatnonzero(ended)] = 0


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
    """Both critics' squared errors (arXiv:1802.09477v3, Algorithm 1), per element."""
    return (q1 - y).square() + (q2 - y).square()


def actor_loss(q1, u, tanh_penalty):
    """-Q1(o, tanh(u)): its slope is the policy gradient (arXiv:1802.09477v3, Eq. 1), per element.

    Plus tanh_penalty |u|^2, which is not in the paper: far from 0 tanh is flat, so that no value
    of any other action could bring the actor back.  u: (..., action_dim), the action before tanh
    """
    loss = -q1
    if tanh_penalty:
        loss = loss + tanh_penalty * u.square().sum(dim=-1, keepdim=True)
    return loss


def masked_mean(x, mask):
    """Mean over real steps: padding touches neither the sum nor the count.  x, mask: (B, T, 1)"""
    return torch.where(mask > 0, x, 0).sum() / mask.sum()


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
        "actor": adam(agent.policy),
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


def update(agent, optimizers, batch, args, delayed_too):
    """One gradient step for the critics; with `delayed_too` for the actor, then the targets.

    Features of o_0 .. o_T come from one pass over the window; steps 0..T-1 are learned from and
    steps 1..T give the next values. Features are (B, T + 1, .), all else is (B, T, .).
    """
    history, action, reward, terminated, mask = zero_padding(*batch)
    burn_in = history.shape[1] - action.shape[1] - 1
    qf_feat = agent.critics.remember(history, burn_in)
    with torch.no_grad():
        actor_rnn, feat_target = agent.actor_rnn, qf_feat
        if args.rnn_target:
            actor_rnn = agent.actor_rnn_target
            feat_target = agent.critics_target.remember(history, burn_in)
        actor_feat_target = actor_rnn.window(history, burn_in)  # (B, T + 1, feat_dim)
        # Close actions should have close values: noise averages over narrow peaks of the critics,
        # which the actor would climb although they are errors (arXiv:1802.09477v3, Section 5.3).
        noise = args.target_noise * torch.randn_like(action)
        noise = noise.clamp(-args.noise_clip, args.noise_clip)
        next_action = (agent.actor_target(actor_feat_target[:, 1:]) + noise).clamp(-1, 1)
        next_q = torch.min(*agent.critics_target(feat_target[:, 1:], next_action))
        y = td_target(reward, terminated, next_q, args.gamma)
    qf_loss = masked_mean(critics_loss(*agent.critics(qf_feat[:, :-1], action), y), mask)
    step(optimizers["critics"], qf_loss)
    if not delayed_too:  # the critics are to settle before the actor trusts them (Section 5.2)
        return {"qf_loss": qf_loss}

    actor_feat = agent.actor_rnn.window(history[:, :-1], burn_in)
    u = agent.actor.net(actor_feat)  # the action before tanh
    # The critics only judge here: `step` computes nothing for their weights.
    # Their memories have just learned, so they remember anew: old features do not fit new heads.
    with torch.no_grad():
        qf_feat = agent.critics.rnns[0].window(history[:, :-1], burn_in)
    q1 = agent.critics.qf1(qf_feat, torch.tanh(u))
    pi_loss = masked_mean(actor_loss(q1, u, args.tanh_penalty), mask)
    step(optimizers["actor"], pi_loss)

    soft_update(agent.targets, agent.online, args.tau)
    return {"qf_loss": qf_loss, "actor_loss": pi_loss}


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

SCRIPT = "rtd3"


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

    agent = Agent(obs_dim, action_dim, args)
    optimizers = make_optimizers(agent, args)
    check_memory(4 * args.buffer_size * (obs_dim + action_dim + 4), args)
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim, args.num_envs)
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
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
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
            if num_updates == 0 and args.rescale:
                start_memory(agent, buffer)
            if args.lr_schedule == "linear":
                scale_lr(optimizers, max(0, 1 - global_step / args.total_steps))
            sample = buffer.sample(args.batch_size, args.sequence_length, args.burn_in, rng)
            batch = [x.to(args.device) for x in sample]
            delayed_too = (num_updates + 1) % args.policy_delay == 0
            run.add_losses(global_step, **update(agent, optimizers, batch, args, delayed_too))
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
