"""Lists the environments; draws a picture or a video of one under random actions.

python -m envs                                          our ids; of dm_control the paper's
python -m envs car-v0 --video car.mp4 --seed 3          one episode (or .gif)
python -m envs car-v0 --picture car.png --steps 40      the frame after 40 steps
"""

import logging
import warnings
from collections import deque
from contextlib import closing
from itertools import chain
from pathlib import Path

from common.cli import Parser, integer, run_cli
from common.errors import UserError

HEADER = ("id", "obs", "act", "steps", "observed", "hidden", "memory skill")


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.add_argument("id", nargs="?", help="environment; all are listed if not given")
    parser.add_argument("--video", metavar="PATH", help="film to write, .mp4 or .gif")
    parser.add_argument("--picture", metavar="PATH", help="picture to write, .png")
    parser.add_argument("--seed", type=integer(0), default=0, help="seed of episode and actions")
    parser.add_argument(
        "--steps",
        type=integer(0),
        help="length of the film (default: an episode) or steps before the picture [env steps]",
    )
    args = parser.parse_args(argv)
    if (args.video or args.picture) and not args.id:
        parser.error("--video and --picture need an id")
    if args.video and args.picture:
        parser.error("--video and --picture cannot go together")
    for path, endings in ((args.video, (".mp4", ".gif")), (args.picture, (".png",))):
        if path and not path.lower().endswith(endings):
            parser.error(f"{path} must end in {' or '.join(endings)}")
    return args


def main(argv=None):
    args = parse_args(argv)
    if args.video:
        write_video(args.id, args.video, args.seed, args.steps)
    elif args.picture:
        write_picture(args.id, args.picture, args.seed, args.steps or 0)
    else:
        print_table([args.id] if args.id else None)


def print_table(env_ids=None):
    """Prints one line for each id (all of ours if None); sizes are read from the environment."""
    from envs.table import ENVS, find

    rows, notes = [], {}
    for env_id in env_ids or ENVS:
        info = find(env_id)
        try:
            sizes = _sizes(env_id)
        except UserError as error:
            if info is None:
                raise
            sizes = ("?", "?")
            notes.setdefault(str(error).removeprefix(f"{env_id} "), []).append(env_id)
        if info is None:  # an id of Gymnasium, or of the user
            rows.append((env_id, *sizes, "", "", "", ""))
        else:
            texts = (str(info.max_episode_steps), info.observed, info.hidden, info.skill)
            rows.append((env_id, *sizes, *texts))
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    for row in (HEADER, *rows):
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    for note, ids in notes.items():
        print(f"?: {', '.join(ids)}: {note}")


def _sizes(env_id):
    with closing(_make(env_id, 0, None)) as env:
        shapes = env.observation_space.shape, env.action_space.shape
    return ["x".join(map(str, shape)) for shape in shapes]


def _make(env_id, seed, render_mode):
    from common.envs import make_env

    with warnings.catch_warnings():  # for example of Gymnasium, about the versions of its own ids
        warnings.simplefilter("ignore")
        return make_env(env_id, seed, render_mode)


def frames(env_id, seed, steps=None):
    """Yields (frame (H, W, 3) uint8, frames per second) of one episode of random actions.

    steps: to take at most; with None only the end of the episode stops it.
    """
    with closing(_make(env_id, seed, "rgb_array")) as env:
        fps = env.metadata.get("render_fps") or 30
        env.action_space.seed(seed)
        env.reset()
        yield env.render(), fps
        ended, taken = False, 0
        while not ended and taken != steps:
            *_, terminated, truncated, _ = env.step(env.action_space.sample())
            ended, taken = terminated or truncated, taken + 1
            yield env.render(), fps


def write_video(env_id, path, seed=0, steps=None):
    """Writes one episode of random actions as .mp4 or .gif.  Raises UserError if it cannot."""
    from envs.drawing import write_film

    logging.getLogger("imageio_ffmpeg").setLevel(logging.ERROR)  # it comments on odd frame sizes
    clip = frames(env_id, seed, steps)
    frame, fps = next(clip)  # makes the environment, so an unknown id leaves no file behind
    try:
        write_film(Path(path), chain([frame], (frame for frame, _ in clip)), fps)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def write_picture(env_id, path, seed=0, steps=0):
    """Writes the frame after `steps` random actions (or the episode's last) as .png."""
    import imageio

    frame, _ = deque(frames(env_id, seed, steps), maxlen=1).pop()
    try:
        imageio.imwrite(path, frame)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


if __name__ == "__main__":
    run_cli(main)
