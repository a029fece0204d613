"""Tests what a memory still holds: predicts an earlier observation linearly from the hidden state.

    python -m benchmark.readout runs/reacher
    python -m benchmark.readout runs/reacher --of 0 --at 1 10 40

Plays episodes with the recurrent policy of a run (without noise) and fits, on half of them, each
entry of its input at step --of (the observation, then the previous action) as a linear function of
its hidden state at step --at. The table has the share of the variance that the fit explains in the
other half (R^2): 1 is all, 0 or less is nothing. What a line does not find may still be there, and
what it finds need not be used.
"""

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
    add("--of", type=integer(0), default=0, help="step whose observation is predicted")
    add("--at", type=integer(0), nargs="+", default=[0, 1, 5, 10, 20, 40], help="steps to look at")
    add("--seed", type=SEED, default=0, help="seed of the start states")
    return parser.parse_args(argv)


class Recorder:
    """An agent that also notes what it saw and what it then held in memory."""

    def __init__(self, agent):
        self.agent = agent
        self.obs, self.hidden = [], []  # per step (N, obs_dim), (N, layers x hidden_dim)

    def act(self, obs, hidden=None, deterministic=False):
        """As the agent's."""
        action, hidden = self.agent.act(obs, hidden, deterministic)
        if hidden is None:
            raise UserError("this policy has no memory to look into")
        h = hidden[0] if isinstance(hidden, tuple) else hidden  # (layers, N, hidden_dim)
        self.obs.append(obs.copy())
        self.hidden.append(h.transpose(0, 1).flatten(1).cpu().numpy().copy())
        return action, hidden


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
    from common.evaluate import evaluate
    from envs.wrappers import make_seeds

    seeds = make_seeds("test", args.seed, count=args.episodes)
    played, returns = [], []  # (obs (T, N, obs_dim), hidden (T, N, H), lengths) of each round
    for first in range(0, args.episodes, envs.num_envs):
        recorder = Recorder(agent)
        results = evaluate(recorder, envs, seeds[first : first + envs.num_envs])
        played.append((np.stack(recorder.obs), np.stack(recorder.hidden), results["lengths"]))
        returns += results["returns"]
    envs.close()
    print(f"{args.episodes} episodes, mean return {np.mean(returns):.6g}\n")

    columns = []
    for at in args.at:
        pairs = [
            (hidden[at, i], obs[args.of, i])
            for obs, hidden, lengths in played
            for i, length in enumerate(lengths)
            if max(at, args.of) < length
        ]
        if len(pairs) < 20:
            raise UserError(f"{len(pairs)} episodes have a step {max(at, args.of)}; ask for less")
        columns.append(explained(*(np.stack(x) for x in zip(*pairs, strict=True))))
    print(f"| entry of observation {args.of} | {' | '.join(f'step {at}' for at in args.at)} |")
    print("|---|" + "---|" * len(args.at))
    for k, row in enumerate(np.transpose(columns)):
        cells = ["-" if np.isnan(r2) else f"{r2:.2f}" for r2 in row]
        print(f"| {k} | {' | '.join(cells)} |")


if __name__ == "__main__":
    run_cli(main, parse_args())
