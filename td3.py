"""Twin Delayed DDPG (TD3): deterministic actor-critic that does not believe its own promises.

An actor that climbs a learned critic finds the critic's errors first. Three remedies: the lower of
two critics, noise on the target's action, and an actor that moves less often than the critics.
Extends ddpg.py: `Critics`, the noise in `update`, `--policy-delay`; nothing else.

Papers: Fujimoto et al. 2018, arXiv:1802.09477v3 (TD3). Lillicrap et al. 2015, arXiv:1509.02971v6
(DDPG).

    python td3.py --env-id Pendulum-v1

Docs: docs/td3.md.  With memory: rtd3.py.  With entropy: sac.py.
"""

from common.cli import Parser, integer, number, run_cli

# ---- 1. Arguments ----


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument_group("run").add_argument
    add("--env-id", default="Pendulum-v1", help="environment; `python -m envs` lists ours")
    add("--seed", type=integer(0, 2**31 - 1), default=0, help="of everything random")
    add("--total-steps", type=integer(1), default=20_000, help="length of the run [env steps]")
    add("--device", default="cpu", help="cpu, cuda or cuda:N; small networks like the cpu")
    add("--num-threads", type=integer(1), default=2, help="of PyTorch on the cpu")
    add("--compile", action="store_true", help="faster updates on cuda; see docs/speed.md")
    add("--log-dir", default="runs", help="where run folders go")
    add("--run-name", help="of the folder, not <env>__<script>__<seed>__<time>")
    add("--resume", metavar="FOLDER", help="go on with this run, with its arguments")
    add("--track", action="store_true", help="also log to Weights & Biases")

    add = parser.add_argument_group("schedule").add_argument
    add("--num-envs", type=integer(1), default=1, help="environments stepped together")
    add("--learning-starts", type=integer(1), default=1000, help="random before [env steps]")
    add("--update-every", type=integer(1), default=1, help="period of learning [env steps]")
    add("--updates-per-step", type=number(0), default=1.0, help="mean number per env step")
    add("--batch-size", type=integer(1), default=256, help="B [transitions]")
    add("--buffer-size", type=integer(2), default=1_000_000, help="rows: [env steps] + episodes")

    add = parser.add_argument_group("networks").add_argument
    add("--hidden-dims", type=integer(1), nargs="+", default=[256, 256], help="of the MLPs")

    add = parser.add_argument_group("algorithm").add_argument
    add("--gamma", type=number(0, 1), default=0.99, help="discount per env step")
    add("--tau", type=number(0, 1), default=0.005, help="step of targets towards online networks")
    add("--lr", type=number(0), default=3e-4, help="learning rate (Adam)")
    add("--lr-schedule", choices=["constant", "linear"], default="constant", help="linear: to 0")

    add = parser.add_argument_group("exploration").add_argument
    add("--exploration-noise", type=number(0), default=0.1, help="std [half action range]")
    add("--tanh-penalty", type=number(0), default=0.0, help="weight of u^2, see actor_loss")

    add = parser.add_argument_group("targets").add_argument
    add("--target-noise", type=number(0), default=0.2, help="std [half action range]")
    add("--noise-clip", type=number(0), default=0.5, help="largest of it [half action range]")
    add("--policy-delay", type=integer(1), default=2, help="critic updates per other [updates]")

    add = parser.add_argument_group("evaluation and logging").add_argument
    add("--eval-every", type=integer(1), default=1000, help="period [env steps]")
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
from torch import nn

from common.adam import Adam
from common.checkpoint import RowFiles, get_rng_state, set_rng_state
from common.compile import compile_update
from common.envs import check_flat, env_state, make_env, make_envs, restore_env
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
        ended = np.logical_or(terminated, truncated)
        self.next_row += 1 + ended
        self.next_t = np.where(ended, 0, self.next_t + 1)

    def sample(self, batch_size, rng):
        """Steps drawn uniformly: obs (B, obs_dim), action (B, action_dim), reward (B, 1), next_obs,
        terminated."""
        n, capacity = self.t.shape
        size = min(self.next_row.max(), capacity)
        env, row = rng.integers(n, size=batch_size), rng.integers(size, size=batch_size)
        while (bad := self.t[env, row] < 0).any():
            row[bad] = rng.integers(size, size=bad.sum())
        index = env * capacity + np.stack([row, (row + 1) % capacity])  # (2, B)
        rows = self.rows.reshape(n * capacity, -1).take(index, axis=0)
        rows, next_rows = torch.from_numpy(rows)
        split = [self.obs_dim, self.action_dim, 1, 1]
        obs, action, reward, terminated = rows.split(split, dim=-1)
        return obs, action, reward, next_rows[:, : self.obs_dim], terminated

    def state_dict(self, folder):
        """For a checkpoint; rows that are not on disk yet go to files in `folder`."""
        files = self.files.save(folder, {"rows": self.rows, "t": self.t}, self.next_row)
        return {"next_row": self.next_row.tolist(), "next_t": self.next_t.tolist(), "files": files}

    def load_state_dict(self, state, folder):
        """Puts back exactly the rows that the checkpoint knew."""
        self.files.load(folder, {"rows": self.rows, "t": self.t}, state["files"])
        self.next_row[:], self.next_t[:] = state["next_row"], state["next_t"]


# ---- 3. Networks ----


def mlp(input_dim, hidden_dims, output_dim):
    layers = []
    for hidden_dim in hidden_dims:
        layers += [nn.Linear(input_dim, hidden_dim), nn.ReLU(inplace=True)]
        input_dim = hidden_dim
    return nn.Sequential(*layers, nn.Linear(input_dim, output_dim))


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
        self.qf1 = QNetwork(obs_dim, action_dim, args.hidden_dims)
        self.qf2 = QNetwork(obs_dim, action_dim, args.hidden_dims)

    def forward(self, obs, action):
        """(B, obs_dim), (B, action_dim) -> q1, q2, both (B, 1)"""
        x = torch.cat([obs, action], dim=-1)
        return self.qf1.net(x), self.qf2.net(x)


class Agent(nn.Module):
    """All networks of one agent."""

    def __init__(self, obs_dim, action_dim, args):
        super().__init__()
        self.actor = Actor(obs_dim, action_dim, args.hidden_dims)
        self.actor_target = copy.deepcopy(self.actor)
        self.critics = Critics(obs_dim, action_dim, args)
        self.critics_target = copy.deepcopy(self.critics)
        self.exploration_noise, self.device = args.exploration_noise, args.device
        self.to(args.device)
        self.online = [*self.actor.parameters(), *self.critics.parameters()]
        self.targets = [*self.actor_target.parameters(), *self.critics_target.parameters()]

    @torch.no_grad()
    def act(self, obs, deterministic=False):
        """obs (obs_dim,) or (N, obs_dim) as NumPy -> action in [-1, 1], likewise."""
        action = self.actor(torch.as_tensor(obs, device=self.device))
        if not deterministic:
            noise = self.exploration_noise * torch.randn_like(action)
            action = (action + noise).clamp(-1, 1)
        return action.cpu().numpy()


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
    """One gradient step for the critics; with `delayed_too` for the actor, then the targets."""
    obs, action, reward, next_obs, terminated = batch

    with torch.no_grad():
        # Close actions should have close values: noise averages over narrow peaks of the critics,
        # which the actor would climb although they are errors (arXiv:1802.09477v3, Section 5.3).
        noise = args.target_noise * torch.randn_like(action)
        noise = noise.clamp(-args.noise_clip, args.noise_clip)
        next_action = (agent.actor_target(next_obs) + noise).clamp(-1, 1)
        next_q = torch.min(*agent.critics_target(next_obs, next_action))
        y = td_target(reward, terminated, next_q, args.gamma)
    qf_loss = critics_loss(*agent.critics(obs, action), y).mean()
    step(optimizers["critics"], qf_loss)
    if not delayed_too:  # the critics are to settle before the actor trusts them (Section 5.2)
        return {"qf_loss": qf_loss}

    # The critics only judge here: `step` computes nothing for their weights.
    u = agent.actor.net(obs)  # the action before tanh
    q1 = agent.critics.qf1(obs, torch.tanh(u))
    pi_loss = actor_loss(q1, u, args.tanh_penalty).mean()
    step(optimizers["actor"], pi_loss)

    soft_update(agent.targets, agent.online, args.tau)
    return {"qf_loss": qf_loss, "actor_loss": pi_loss}


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

SCRIPT = "td3"


def main(args):
    if args.evaluate:
        return evaluate_checkpoint(args, SCRIPT, Agent, evaluate)
    state, args = load_resumed(args, SCRIPT) if args.resume else (None, args)
    set_up_torch(args)
    rng = np.random.default_rng(args.seed)
    env = make_env(args.env_id, args.seed, num_envs=args.num_envs)
    eval_envs = make_envs(args.env_id, args.eval_episodes, args.video)
    obs_dim, action_dim = check_flat(eval_envs[0])

    agent = Agent(obs_dim, action_dim, args)
    optimizers = make_optimizers(agent, args)
    learn = compile_update(update, optimizers, args.device) if args.compile else update
    check_memory(4 * args.buffer_size * (obs_dim + action_dim + 3), args)
    buffer = ReplayBuffer(args.buffer_size, obs_dim, action_dim, args.num_envs)
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
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        ended = np.logical_or(terminated, truncated)
        run.add_returns(info, ended)
        obs = next_obs
        if ended.any():
            obs, _ = env.reset(options={"reset_mask": ended} if args.num_envs > 1 else None)
        global_step += args.num_envs

        # Learn
        periods = (global_step - args.learning_starts) // args.update_every
        while num_updates < int(periods * args.update_every * args.updates_per_step):
            if args.lr_schedule == "linear":
                scale_lr(optimizers, max(0, 1 - global_step / args.total_steps))
            batch = [x.to(args.device) for x in buffer.sample(args.batch_size, rng)]
            delayed_too = (num_updates + 1) % args.policy_delay == 0
            run.add_losses(global_step, **learn(agent, optimizers, batch, args, delayed_too))
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
