"""Evaluation: whole episodes with the deterministic policy, in their own environments."""

import statistics
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import torch

from common.checkpoint import check_device, load_checkpoint
from common.cli import refuse_conflicts
from common.envs import make_envs
from common.errors import UserError
from envs.drawing import film_writer
from envs.table import foreign_module
from envs.wrappers import make_seeds

SIDE_BY_SIDE = 10  # environments of an evaluation, at most
MOST_THREADS = 1024  # with far more, PyTorch ends in a traceback


def set_up_torch(args):
    """Sets the threads and the seed of PyTorch."""
    check_device(args.device)
    # Treat numbers below 1e-38 as 0: a CPU is many times slower with them, and for a dead ReLU unit
    # Adam's running mean shrinks to the smallest one and stays there.
    torch.set_flush_denormal(True)
    if args.num_threads > MOST_THREADS:
        raise UserError(f"--num-threads {args.num_threads} is more than {MOST_THREADS}")
    torch.set_num_threads(args.num_threads)
    torch.manual_seed(args.seed)


def make_eval_envs(args, film=False):
    """Environments that play `args.eval_episodes` side by side; the first can draw."""
    count = min(args.eval_episodes, SIDE_BY_SIDE)
    return make_envs(args, count, render_mode="rgb_array" if film else None)


def evaluate(agent, envs, seeds, film=None):
    """One episode for each seed.  Returns a dict of lists: returns, lengths, successes.

    agent: `act(obs, hidden, deterministic=True)` answers observations (N, .) with actions
    (N, action_dim) and the recurrent state to hand back, None at the start.
    film: a path; the first episode is written there as a video.
    """
    if film is None:
        return play(agent, envs, seeds)
    with film_writer(film, envs.envs[0].metadata.get("render_fps") or 30) as show:
        return play(agent, envs, seeds, show)


def batches(seeds, size):
    """Seeds for `size` environments at a time, and how many of them count; spare ones play, too."""
    for first in range(0, len(seeds), size):
        batch = seeds[first : first + size]
        yield batch + batch[:1] * (size - len(batch)), len(batch)


def play(agent, envs, seeds, show=None):
    """As `evaluate`; show(picture) is called at each step of the first episode."""
    results = {"returns": [], "lengths": [], "successes": []}
    for batch, count in batches(seeds, envs.num_envs):
        obs, _ = envs.reset(seed=batch)
        playing = np.arange(envs.num_envs) < count
        returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
        successes, hidden = {}, None
        while playing.any():
            if show and not results["returns"] and playing[0]:
                show(envs.envs[0].render())
            action, hidden = agent.act(obs, hidden, deterministic=True)
            obs, reward, terminated, truncated, info = envs.step(action)
            returns += reward * playing
            lengths += playing
            ended = terminated | truncated
            if ended.any():
                for k in np.flatnonzero(ended & playing & info.get("_is_success", False)):
                    successes[k] = float(info["is_success"][k])
                playing &= ~ended
                obs, _ = envs.reset(options={"reset_mask": ended})
        results["returns"] += returns[:count].tolist()
        results["lengths"] += lengths[:count].tolist()
        results["successes"] += [successes[k] for k in sorted(successes)]
    return results


def evaluate_checkpoint(args, script, make_agent):
    """--evaluate: rebuilds the agent from a checkpoint, plays episodes and prints the returns.

    make_agent(obs_dim or the shape of pictures, action_dim, args): the script's `Agent`.
    """
    agent, envs = load_agent(args, script, make_agent)
    folder = Path(args.evaluate)
    folder = folder if folder.is_dir() else folder.parent
    film = folder / f"evaluation-seed{args.seed}.mp4" if args.video else None
    seeds = make_seeds("test", args.seed, count=args.eval_episodes)
    results = evaluate(agent, envs, seeds, film)
    envs.close()
    print(summary(results))
    if film:
        print(f"film: {film}", file=sys.stderr)


def summary(results):
    """One line of text from what `evaluate` returns."""
    returns = results["returns"]
    numbers = {"episodes": len(returns), "return_mean": statistics.fmean(returns)}
    numbers |= {"return_std": statistics.pstdev(returns), "return_min": min(returns)}
    numbers |= {"return_max": max(returns), "length_mean": statistics.fmean(results["lengths"])}
    if results["successes"]:
        numbers["success_rate"] = statistics.fmean(results["successes"])
    return "  ".join(f"{name} {number:.6g}" for name, number in numbers.items())


def load_agent(args, script, make_agent):
    """The agent of the checkpoint `args.evaluate` and environments for it."""
    state = load_checkpoint(args.evaluate, script, args.device)
    free = ("evaluate", "eval_episodes", "video", "seed", "device", "num_threads")
    try:
        refuse_conflicts(args, state["args"], free)
        env_id = state["args"]["env_id"]
        if foreign_module(env_id) and "env_id" not in args.typed:
            words = f"{args.evaluate} would import a module that is not part of this repository"
            raise UserError(f"{words}; to allow that, add --env-id {env_id}")
        saved = Namespace(**state["args"] | {name: getattr(args, name) for name in free})
        set_up_torch(saved)
        envs = make_eval_envs(saved, film=args.video)
        envs.envs[0].check_shapes(state["envs"][0])
        shape, (action_dim,) = envs.single_observation_space.shape, envs.single_action_space.shape
        agent = make_agent(shape[0] if len(shape) == 1 else shape, action_dim, saved)
        agent.load_state_dict(state["agent"])
    except (AttributeError, LookupError, RuntimeError, TypeError) as error:
        words = f"{type(error).__name__}: {error!s:.200}"
        raise UserError(f"{args.evaluate} does not fit the present {script}.py: {words}") from error
    return agent, envs
