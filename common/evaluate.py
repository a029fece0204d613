"""Evaluation: whole episodes with the deterministic policy, in environments of their own."""

import statistics
import sys
from argparse import Namespace
from pathlib import Path

import imageio.v2 as imageio
import numpy as np

from common.checkpoint import load_checkpoint
from common.cli import refuse_conflicts
from common.device import set_up_torch
from common.envs import make_envs, make_seeds
from common.errors import RunError, UserError

SIDE_BY_SIDE = 10  # environments of an evaluation, at most


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
    results = {"returns": [], "lengths": [], "successes": []}
    frames = []
    for first in range(0, len(seeds), envs.num_envs):
        batch = seeds[first : first + envs.num_envs]
        # One environment for each episode. Those that are left over play on, uncounted.
        seed_of_each = batch + batch[:1] * (envs.num_envs - len(batch))
        obs, _ = envs.reset(seed=seed_of_each)
        playing = np.arange(envs.num_envs) < len(batch)
        returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, int)
        successes, hidden = {}, None
        while playing.any():
            if film and first == 0 and playing[0]:
                frames.append(draw(envs.envs[0]))
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
        results["returns"] += returns[: len(batch)].tolist()
        results["lengths"] += lengths[: len(batch)].tolist()
        results["successes"] += successes.values()
    if film:
        write_film(film, frames, envs.envs[0].metadata.get("render_fps") or 30)
    return results


def draw(env):
    """A picture of an environment, (H, W, 3) uint8."""
    try:
        frame = env.render()
    except Exception as error:  # of the simulator or the graphics driver
        hint = "without a display, MuJoCo draws with MUJOCO_GL=egl or osmesa"
        raise RunError(f"cannot draw {env}: {error}; {hint}") from error
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise UserError(f"{env} does not draw pictures (render_mode 'rgb_array')")
    # Even sides, which H.264 asks for, by repeating the last row or column.
    return np.pad(frame, ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)), "edge")


def write_film(path, frames, fps):
    """Writes (H, W, 3) pictures as .mp4 or .gif, under a temporary name until it is complete."""
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    how = {"duration": 1000 / fps, "loop": 0}
    if path.suffix != ".gif":
        how = {"fps": fps, "macro_block_size": 1}
    try:
        imageio.mimwrite(temporary, frames, **how)
        temporary.replace(path)
    except (OSError, RuntimeError) as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {str(error).splitlines()[0]}") from error


def evaluate_checkpoint(args, script, make_agent):
    """--evaluate: rebuilds environment and networks from a checkpoint and prints the returns.

    make_agent(obs_dim or the shape of pictures, action_dim, args): the script's `Agent`.
    """
    agent, envs = load_agent(args, script, make_agent)
    folder = Path(args.evaluate)
    folder = folder if folder.is_dir() else folder.parent
    film = folder / f"evaluation-seed{args.seed}.mp4" if args.video else None
    seeds = make_seeds("test", args.seed, count=args.eval_episodes)
    results = evaluate(agent, envs, seeds, film)
    envs.close()
    summary = {
        "episodes": len(seeds),
        "return_mean": statistics.fmean(results["returns"]),
        "return_std": statistics.pstdev(results["returns"]),
        "return_min": min(results["returns"]),
        "return_max": max(results["returns"]),
        "length_mean": statistics.fmean(results["lengths"]),
    }
    if results["successes"]:
        summary["success_rate"] = statistics.fmean(results["successes"])
    print("  ".join(f"{name} {value:.6g}" for name, value in summary.items()))
    if film:
        print(f"film: {film}", file=sys.stderr)


def load_agent(args, script, make_agent):
    """The agent of the checkpoint `args.evaluate` and environments for it."""
    state = load_checkpoint(args.evaluate, script)
    free = ("evaluate", "eval_episodes", "video", "seed", "device", "num_threads")
    refuse_conflicts(args, state["args"], free)
    saved = Namespace(**state["args"] | {name: getattr(args, name) for name in free})
    set_up_torch(saved)
    envs = make_eval_envs(saved, film=args.video)
    envs.envs[0].check_shapes(state["envs"][0])
    obs_shape, (action_dim,) = envs.envs[0].shapes()
    agent = make_agent(obs_shape[0] if len(obs_shape) == 1 else tuple(obs_shape), action_dim, saved)
    agent.load_state_dict(state["agent"])
    return agent, envs
