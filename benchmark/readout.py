"""Tests what a memory holds: predicts what was seen, or is hidden, linearly from the hidden state.

    python -m benchmark.readout runs/reacher
    python -m benchmark.readout runs/reacher --of 0 --at 1 10 40
    python -m benchmark.readout runs/bumps --full-state --at 1 10 40

Plays episodes with the recurrent policy of a run (without noise) and fits, on half of them, each
entry of its input at step --of (the observation, then the previous action) as a linear function of
its hidden state at step --at; with --full-state each entry of the full state at step --at. The
table has the share of the variance that the fit explains in the other half (R^2): 1 is all, 0 or
less is nothing. What a line does not find may still be there, and what it finds need not be used.
"""

from argparse import Namespace

import numpy as np

from benchmark import open_run
from common.cli import SEED, Parser, integer, run_cli
from common.errors import UserError

RIDGE = 1e-3  # of the fit, per episode: entries of a hidden state can be nearly equal


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("run", help="run folder or checkpoint")
    add("--env-id", metavar="ID", help="of the run; needed if the environment is your own")
    add("--episodes", type=integer(20), default=400, help="half of them to fit, half to test")
    add("--of", type=integer(0), help="step whose observation is predicted; 0 if not set")
    add("--full-state", action="store_true", help="predict what the full state is at the same step")
    add(
        "--at",
        type=integer(-1),
        nargs="+",
        default=[0, 1, 5, 10, 20, 40],
        help="steps to look at; -1 is the last one of each episode",
    )
    add("--seed", type=SEED, default=0, help="seed of the start states")
    args = parser.parse_args(argv)
    if args.full_state and args.of is not None:
        parser.error("--full-state predicts the state at the same step; leave --of out")
    args.of = args.of or 0
    return args


class Recorder:
    """An agent that also notes what it saw and did, and what it then held in memory."""

    def __init__(self, agent):
        self.agent = agent
        self.obs, self.hidden = [], []  # per step (N, obs_dim), (N, layers x hidden_dim)
        self.actions = []  # per step (N, action_dim)

    def act(self, obs, hidden=None, deterministic=False):
        """As the agent's."""
        action, hidden = self.agent.act(obs, hidden, deterministic)
        if hidden is None:
            raise UserError("this policy has no memory to look into")
        h = hidden[0] if isinstance(hidden, tuple) else hidden  # (layers, N, hidden_dim)
        self.obs.append(obs.copy())
        self.hidden.append(h.transpose(0, 1).flatten(1).cpu().numpy().copy())
        self.actions.append(action.copy())
        return action, hidden


class Repeat:
    """Does again what was done before, and notes what it sees meanwhile."""

    def __init__(self, actions):
        self.actions, self.obs = iter(actions), []

    def act(self, obs, hidden=None, deterministic=False):
        """As an agent's; no hidden state."""
        self.obs.append(obs.copy())
        return next(self.actions), None


def make_full_state(run, num_envs):
    """Environments of the same task that show the full state. UserError if there are none."""
    from common.checkpoint import load_checkpoint
    from common.envs import make_envs
    from envs.table import find

    env_id = load_checkpoint(run, script=None)["args"]["env_id"]
    info = find(env_id)
    if info is None or not info.oracle:
        raise UserError(f"{env_id} has no version that shows the full state; use --of")
    return make_envs(Namespace(env_id=info.oracle), num_envs)


def fit(hidden, values):
    """The line that tells values from hidden states.  hidden (N, H), values (N, D) -> (H + 1, D)"""
    x = with_one(hidden)
    ridge = RIDGE * len(x) * np.eye(x.shape[1])
    ridge[-1, -1] = 0  # the mean costs nothing
    return np.linalg.solve(x.T @ x + ridge, x.T @ values.astype(np.float64))


def with_one(hidden):
    """Adds the column that the last row of a fit belongs to."""
    return np.concatenate([hidden, np.ones((len(hidden), 1))], axis=1).astype(np.float64)


def explained(hidden, values):
    """R^2 of a linear fit on the first half of the rows, in the second; NaN where nothing varies.

    hidden (N, H), values (N, D) -> (D,)
    """
    half = len(hidden) // 2
    weights = fit(hidden[:half], values[:half])
    rest = values[half:] - with_one(hidden[half:]) @ weights
    variance = values[half:].var(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(variance > 1e-8, 1 - np.square(rest).mean(axis=0) / variance, np.nan)


def main(args):
    agent, envs = open_run(args.run, "--seed", args.seed, env_id=args.env_id)
    full = make_full_state(args.run, envs.num_envs) if args.full_state else None
    from common.evaluate import evaluate
    from envs.wrappers import make_seeds

    seeds = make_seeds("test", args.seed, count=args.episodes)
    played, returns = [], []  # (what is predicted (T, N, D), hidden (T, N, H), lengths), each round
    for first in range(0, args.episodes, envs.num_envs):
        recorder, batch = Recorder(agent), seeds[first : first + envs.num_envs]
        results = evaluate(recorder, envs, batch)
        seen = recorder
        if full:
            seen = Repeat(recorder.actions)  # from the same starts: the same episodes
            evaluate(seen, full, batch)
        played.append((np.stack(seen.obs), np.stack(recorder.hidden), results["lengths"]))
        returns += results["returns"]
    envs.close()
    if full:
        full.close()
    print(f"{args.episodes} episodes, mean return {np.mean(returns):.6g}\n")

    columns, heads = [], ["last step" if at < 0 else f"step {at}" for at in args.at]
    for at in args.at:
        pairs = []
        for values, hidden, lengths in played:
            for i, length in enumerate(lengths):
                step = length - 1 if at < 0 else at
                if max(step, args.of) < length:
                    pairs.append((hidden[step, i], values[step if full else args.of, i]))
        if len(pairs) < 20:
            raise UserError(f"{len(pairs)} episodes have a step {max(at, args.of)}; ask for less")
        columns.append(explained(*(np.stack(x) for x in zip(*pairs, strict=True))))
    what = "the full state" if full else f"observation {args.of}"
    print(f"| entry of {what} | {' | '.join(heads)} |")
    print("|---|" + "---|" * len(args.at))
    for k, row in enumerate(np.transpose(columns)):
        cells = ["-" if np.isnan(r2) else f"{r2:.2f}" for r2 in row]
        print(f"| {k} | {' | '.join(cells)} |")


if __name__ == "__main__":
    run_cli(main, parse_args())
