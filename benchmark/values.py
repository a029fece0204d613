"""Compares what the critics predict with the returns that follow.

    python -m benchmark.values runs/reacher
    python -m benchmark.values runs/reacher --at 0 10 30 --episodes 200

Plays episodes with the policy of a run, without exploration. At each step --at it compares, over
the episodes, the critics' mean prediction with the discounted sum of the rewards from there on.
Where a time limit ends an episode, the prediction for the last step stands for what would have
followed. Columns of the table:

    predicted    mean of the predictions [reward]
    followed     mean of the discounted returns [reward]
    beyond       the part of `followed` that is no reward, but the prediction for the last step
    error        root of the mean squared difference of predicted and followed [reward]
    correlation  of predicted and followed, both less `beyond`, so that the critics are not compared
                 with themselves: 1 if they know how the rest of an episode will go

Predictions far above what follows are overestimates. SAC and RSAC also count the entropy of later
actions, so theirs differ by about alpha x entropy / (1 - gamma), in RSAC times reward_scale. A
negative entropy makes them lower.
"""

import numpy as np

from benchmark import open_run
from common.cli import SEED, Parser, integer, number, run_cli
from common.errors import UserError


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("run", help="run folder or checkpoint")
    add("--env-id", metavar="ID", help="of the run; needed if the environment is your own")
    add("--episodes", type=integer(2), default=100, help="episodes to play")
    add("--at", type=integer(0), nargs="+", default=[0, 1, 5, 10, 20, 40], help="steps to look at")
    add("--gamma", type=number(0, 1), help="discount of the returns; that of the run if not set")
    add("--seed", type=SEED, default=0, help="seed of the start states")
    return parser.parse_args(argv)


def play(agent, envs, seeds):
    """One episode for each environment.

    Returns obs (T, N, obs_dim), action (T, N, action_dim), reward (T, N), terminated (N,) and
    lengths (N,). After the end of an episode its rows mean nothing.
    """
    obs, _ = envs.reset(seed=seeds)
    hidden, steps = None, []
    terminated, lengths = np.zeros(len(seeds), bool), np.zeros(len(seeds), int)
    while (lengths == 0).any():
        action, hidden = agent.act(obs, hidden, deterministic=True)
        next_obs, reward, term, trunc, _ = envs.step(action)
        steps.append((obs.copy(), action, reward))
        ended = term | trunc
        terminated[ended & (lengths == 0)] = term[ended & (lengths == 0)]
        lengths[ended & (lengths == 0)] = len(steps)
        obs = next_obs
        if ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
    return (*(np.stack(x) for x in zip(*steps, strict=True)), terminated, lengths)


def predict(agent, obs, action):
    """The critics' mean prediction.  obs (T, N, obs_dim), action (T, N, action_dim) -> (T, N)"""
    import torch  # takes seconds

    if not hasattr(agent, "critics") or obs.ndim != 3:
        raise UserError("this tool needs observations that are vectors, and an agent with critics")
    feat = torch.as_tensor(obs, device=agent.device)
    if hasattr(agent.critics, "rnn"):
        feat, _ = agent.critics.rnn((feat / agent.obs_scale).transpose(0, 1))
        feat = feat.transpose(0, 1)
    q = agent.critics(feat, torch.as_tensor(action, device=agent.device))
    q = sum(q) / len(q) if isinstance(q, tuple) else q
    return (q * getattr(agent, "reward_scale", 1)).squeeze(-1).detach().cpu().numpy()


def returns_to_go(reward, gamma):
    """Discounted returns of one episode.  reward (T,) -> (T,)"""
    returns = np.array(reward, np.float64)
    for t in range(len(returns) - 2, -1, -1):
        returns[t] += gamma * returns[t + 1]
    return returns


def main(args):
    agent, envs = open_run(args.run, "--seed", args.seed, env_id=args.env_id)
    from common.checkpoint import load_checkpoint
    from common.evaluate import batches
    from envs.wrappers import make_seeds

    state = load_checkpoint(args.run, script=None)
    if "progress" not in state:
        raise UserError(f"{args.run} is an exported policy; its critics were left out")
    gamma = state["args"]["gamma"] if args.gamma is None else args.gamma
    seeds = make_seeds("test", args.seed, count=args.episodes)
    predicted, earned, beyond = [], [], []  # of each episode, (length,)
    for batch, count in batches(seeds, envs.num_envs):
        obs, action, reward, terminated, lengths = play(agent, envs, batch)
        q = predict(agent, obs, action)
        for i in range(count):
            n = lengths[i]
            last = np.zeros(n)
            if not terminated[i]:  # its last prediction has the last reward in it
                last[-1], reward[n - 1, i] = q[n - 1, i], 0
            predicted.append(q[:n, i])
            earned.append(returns_to_go(reward[:n, i], gamma))
            beyond.append(returns_to_go(last, gamma))
    envs.close()

    print(f"{args.episodes} episodes, gamma {gamma:g}\n")
    print("| step | predicted | followed | beyond | error | correlation |")
    print("|---|---|---|---|---|---|")
    for at in args.at:
        episodes = zip(predicted, earned, beyond, strict=True)
        steps = [(p[at], e[at], b[at]) for p, e, b in episodes if at < len(p)]
        if len(steps) < 2:
            raise UserError(f"{len(steps)} episodes have a step {at}; ask for an earlier one")
        p, e, b = np.transpose(steps)
        error = np.sqrt(np.square(p - e - b).mean())
        varies = min((p - b).std(), e.std()) > 1e-8
        correlation = f"{np.corrcoef(p - b, e)[0, 1]:.2f}" if varies else "-"
        means = f"{p.mean():.4g} | {(e + b).mean():.4g} | {b.mean():.4g}"
        print(f"| {at} | {means} | {error:.4g} | {correlation} |")


if __name__ == "__main__":
    run_cli(main, parse_args())
