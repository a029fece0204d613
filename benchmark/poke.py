"""Writes a recurrent policy as JSON for docs/poke.md, the page where it runs in the browser.

    python -m benchmark.poke policies/pendulum-p-v0__rsac.pt --out docs/poke/pendulum.json

The file holds the weights of the actor; a linear readout, as in benchmark.readout, of what the
environment hides; and mean returns: with all of the memory, with a memory that is empty before
each step and then reads the last few frames alone, and, for the pendulum, with one that is filled
with what it usually is at this angle, true velocity and last torque.
"""

import json
from pathlib import Path

import numpy as np

from benchmark import open_run
from benchmark.readout import explained, fit
from common.cli import Parser, integer, run_cli
from common.errors import UserError

ALL, TOLD = 0, -1  # what fills the memory before an action, else a number of frames
FRAMES = (40, 20, 10, 5, 2, 1)
PUSH = 2.0  # rad/s, standard deviation of the pushes in the episodes of the fits
PUSHED = 0.04  # of the steps
DECIMALS = (7, 6)  # of a number: the first with which the file is small enough
LARGEST = 300_000  # bytes of the file


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("run", help="run folder or checkpoint")
    add("--out", type=Path, required=True, help="file to write, .json")
    add("--episodes", type=integer(2), default=50, help="episodes for each mean and each fit")
    add("--seed", type=integer(0, 2**31 - 2), default=0, help="seed of the start states")
    args = parser.parse_args(argv)
    if args.out.suffix != ".json":
        parser.error(f"{args.out} must end in .json")
    return args


# ---- What the page knows of its environments ----


def velocity(env):
    """Of the pendulum, (1,) rad/s."""
    return env.unwrapped.state[1:]


def target(env):
    """Of the reacher, (2,) m."""
    return env.unwrapped.data.qpos[2:]


def push(env, rng):
    """Now and then the pendulum gets a push, as it does from a reader."""
    if rng.random() < PUSHED:
        state = env.unwrapped.state
        state[1] = np.clip(state[1] + rng.normal(0, PUSH), -8, 8)


def situation(obs, truth):
    """Products of two of 1, cos, sin, velocity, last action: (N, 4), (N, 1) -> (N, 15)"""
    x = np.column_stack([np.ones(len(obs)), obs[:, :2], truth / 8, obs[:, 2]])
    first, second = np.triu_indices(x.shape[1])
    return x[:, first] * x[:, second]


HIDDEN = {"pendulum-p-v0": velocity, "reacher-pomdp-v0": target}
PUSHES = {"pendulum-p-v0": push}
SITUATIONS = {"pendulum-p-v0": situation}


# ---- The network ----


def weights(agent, action_dim):
    """What the page computes with: an LSTM and the layers behind it up to the mean.

    A layer has weight and bias, then those of its LayerNorm. Raises UserError if the actor is
    another network than that.
    """
    state = agent.state_dict()
    shared = "rnn_average.weight_ih_l0" in state
    memory = "rnn_average" if shared else "actor_average.rnn"
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ih, hh, *biases = (state.get(f"{memory}.{name}_l0") for name in names)
    if ih is None or len(ih) != 4 * hh.shape[1]:
        raise UserError("the page runs actors with an LSTM; this is another network")
    values = [value for name, value in state.items() if name.startswith("actor_average.net.")]
    layers = [values[k : k + 4] for k in range(0, len(values), 4)]
    # Of a Gaussian the page needs the mean alone, the first half of the last layer.
    layers[-1] = [x[:action_dim] for x in layers[-1]]
    lstm = {"ih": ih, "hh": hh, "bias": sum(biases)}
    return {"obs_scale": state["obs_scale"], **lstm, "layers": layers}


def act(layers, feat):
    """The network behind the memory: (N, feat_dim) -> actions (N, action_dim)"""
    for weight, bias, *norm in layers:
        feat = feat @ weight.numpy().T + bias.numpy()
        if norm:
            centred = feat - feat.mean(axis=1, keepdims=True)
            size = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
            feat = np.maximum(centred / size * norm[0].numpy() + norm[1].numpy(), 0)
    return np.tanh(feat).astype(np.float32)


def rounded(x, decimals):
    """A dict of tensors, arrays and words, with lists of rounded numbers in their place."""
    if isinstance(x, dict):
        return {name: rounded(value, decimals) for name, value in x.items()}
    if isinstance(x, str | int):
        return x
    if isinstance(x, list | tuple) or np.ndim(x):
        return [rounded(row, decimals) for row in x]
    return round(float(x), decimals)


def encode(page):
    """The page as bytes of JSON; UserError if there is too much of it."""
    for decimals in DECIMALS:
        text = json.dumps(rounded(page, decimals), separators=(",", ":"), allow_nan=False)
        if len(text) < LARGEST:
            return text.encode() + b"\n"
    raise UserError(f"{len(text)} bytes are too many for a page; at most {LARGEST}")


# ---- Episodes ----


def play(agent, envs, seeds, frames=ALL, told=None, change=None):
    """Plays whole episodes, one for each seed.

    frames: that the memory reads at each step, from empty; ALL: every one since the start.
    told: (obs, what the environment hides) -> action; it then acts in the agent's place.
    change: called with each environment and a generator before each step.
    Returns the returns (episodes,), and of all steps obs (steps, obs_dim), hidden state of the
    memory (steps, H) and what the environment hides (steps, D).
    """
    from common.evaluate import batches  # takes seconds

    tell = HIDDEN[envs.envs[0].spec.id]
    rng = np.random.default_rng(seeds[0])
    returns, steps = [], []
    for batch, count in batches(seeds, envs.num_envs):
        obs, _ = envs.reset(seed=batch)
        total, seen, hidden, ended = 0, [], None, False
        while not ended:
            truth = np.stack([tell(env) for env in envs.envs])
            seen = [*seen, obs][-max(frames, 1) :]
            if frames:
                hidden = None
                for past in seen[:-1]:
                    _, hidden = agent.act(past, hidden, deterministic=True)
            action, hidden = agent.act(obs, hidden, deterministic=True)
            action = told(obs, truth) if told else action
            steps.append((obs, hidden[0][0].numpy().copy(), truth))
            for env in envs.envs if change else ():
                change(env, rng)
            obs, reward, terminated, truncated, _ = envs.step(action)
            total = total + reward
            ended = (terminated | truncated).all()
        returns += total[:count].tolist()
    return returns, *(np.concatenate(column) for column in zip(*steps, strict=True))


def main(args):
    if not args.out.parent.is_dir():
        raise UserError(f"there is no folder {args.out.parent}")
    agent, envs = open_run(args.run, "--seed", args.seed, "--eval-episodes", args.episodes)
    from common.files import write_file
    from envs.wrappers import make_seeds

    env_id = envs.envs[0].spec.id
    if env_id not in HIDDEN:
        raise UserError(f"the page has {' and '.join(HIDDEN)}, not {env_id}")
    network = weights(agent, envs.single_action_space.shape[0])
    page = {"env": env_id, "weights": network}

    # Both fits are on episodes of their own.
    seeds = make_seeds("test", args.seed + 1, count=args.episodes)
    _, obs, hidden, truth = play(agent, envs, seeds, change=PUSHES.get(env_id))
    r2 = explained(hidden, truth)
    page["readout"] = {"weights": fit(hidden, truth).T, "r2": r2}
    print(f"readout  R2 {' '.join(f'{x:.3f}' for x in r2)}")
    ways = {ALL: {}}
    if env_id in SITUATIONS:
        describe = SITUATIONS[env_id]
        usual = np.linalg.lstsq(describe(obs, truth), hidden, rcond=None)[0]  # (15, H)
        page["usual"] = usual.T

        def told(obs, truth):
            inputs = obs / network["obs_scale"].numpy()
            feat = np.concatenate([describe(obs, truth) @ usual, inputs], axis=1)
            return act(network["layers"], feat)

        ways[TOLD] = {"told": told}
    ways |= {frames: {"frames": frames} for frames in FRAMES}

    seeds = make_seeds("test", args.seed, count=args.episodes)
    page["returns"] = []
    for way, options in ways.items():
        mean = np.mean(play(agent, envs, seeds, **options)[0])
        page["returns"].append([way, float(f"{mean:.3g}")])
        name = {ALL: "all", TOLD: "told"}.get(way, f"{way} frames")
        print(f"memory {name}  return_mean {mean:.6g}", flush=True)
    envs.close()
    write_file(args.out, encode(page))


if __name__ == "__main__":
    run_cli(main, parse_args())
