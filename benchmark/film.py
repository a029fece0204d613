"""Films one episode of a policy with what it observes, does and remembers.

    python -m benchmark.film runs/NAME film.gif --seed 2 --every 2

The episode is the first that `--evaluate runs/NAME --seed 2` plays. Observation and action are
drawn as lines, each number in a colour of its own, the hidden state of the memory as a map, one row
for each of its numbers. The previous action, which a memory also reads, is that of the panel below.
"""

from pathlib import Path

import numpy as np

from benchmark import open_run
from common.cli import SEED, Parser, integer, run_cli
from common.errors import UserError

SHOWN, STEP = 200, 2  # steps of the past in a panel, and the pixels of one
MARGIN, HEADING, LEAST_HEIGHT = 10, 16, 300  # pixels
INK, GREY, PAPER = (40, 40, 40), (200, 200, 200), (255, 255, 255)
COLOURS = [(31, 119, 180), (214, 96, 20), (44, 140, 60), (170, 60, 60), (130, 90, 170), INK]


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("run", help="run folder or checkpoint")
    add("--env-id", metavar="ID", help="of the run; needed if the environment is your own")
    add("out", type=Path, help="film to write, .gif or .mp4")
    add("--seed", type=SEED, default=0, help="seed of the start state")
    add("--every", type=integer(1), default=1, help="keep every k-th picture")
    args = parser.parse_args(argv)
    if args.out.suffix not in (".gif", ".mp4"):
        parser.error(f"{args.out} must end in .gif or .mp4")
    return args


def play(agent, envs, seed, every):
    """One episode: every k-th picture, and of each step the vectors to draw beside the pictures,
    name -> (steps, .)"""
    from envs.wrappers import make_seeds

    env = envs.envs[0]
    recurrent = env.has_wrapper_attr("num_observed")
    num_observed = env.get_wrapper_attr("num_observed") if recurrent else None
    obs, _ = envs.reset(seed=make_seeds("test", seed, count=1))
    pictures, steps, hidden, ended = [], [], None, False
    while not ended:
        action, hidden = agent.act(obs, hidden, deterministic=True)
        if len(steps) % every == 0:
            pictures.append(draw(env))
        seen = {"observation": obs[0, :num_observed]}
        step = seen if obs.ndim == 2 else {}  # no pictures of pictures
        step["action"] = action[0]
        if hidden is not None:
            state = hidden[0] if isinstance(hidden, tuple) else hidden  # (layers, 1, dim)
            step["memory"] = state.flatten().cpu().numpy()
        steps.append({name: value.copy() for name, value in step.items()})
        obs, _, terminated, truncated, _ = envs.step(action)
        ended = terminated[0] or truncated[0]
    return pictures, {name: np.stack([step[name] for step in steps]) for name in steps[0]}


def draw(env):
    """A picture of an environment, (H, W, 3) uint8; UserError if it makes none."""
    picture = env.render()
    if picture is None or picture.ndim != 3:
        raise UserError(f"{env.spec.id} does not draw pictures (render_mode 'rgb_array')")
    return picture


def beside(picture, values, step):
    """The picture with one panel for each of `values` up to `step`, (H, W, 3) uint8."""
    from PIL import Image, ImageDraw

    height = max(picture.shape[0], LEAST_HEIGHT)
    left, right = picture.shape[1] + MARGIN, picture.shape[1] + MARGIN + STEP * SHOWN
    page = Image.new("RGB", (right + MARGIN, height), PAPER)
    page.paste(Image.fromarray(picture), (0, (height - picture.shape[0]) // 2))
    pen, panel = ImageDraw.Draw(page), height // len(values)
    for k, (name, all_steps) in enumerate(values.items()):
        top, bottom = k * panel + HEADING, (k + 1) * panel - 4
        largest = max(1e-6, float(np.abs(all_steps).max()))
        past = all_steps[max(0, step + 1 - SHOWN) : step + 1] / largest  # (steps, .) in [-1, 1]
        count = f"{past.shape[1]} number{'s' * (past.shape[1] > 1)}"
        pen.text((left, top - 14), f"{name}, {count}, within +-{largest:.3g}", INK)
        if name == "memory":
            size = (STEP * len(past), bottom - top)
            page.paste(Image.fromarray(blue_white_red(past.T)).resize(size, 0), (left, top))
        else:
            middle, half = (top + bottom) / 2, (bottom - top) / 2 - 2
            pen.line([(left, middle), (right, middle)], GREY)
            for j, line in enumerate(past.T):
                points = [(left + STEP * i, middle - half * y) for i, y in enumerate(line)]
                pen.line([*points, points[-1]], COLOURS[j % len(COLOURS)], 2)
        pen.rectangle([left - 1, top - 1, right, bottom], outline=GREY)
    return np.asarray(page)


def blue_white_red(values):
    """(H, W) in [-1, 1] -> (H, W, 3) uint8: -1 blue, 0 white, 1 red"""
    fade = 1 - np.abs(values)
    red, blue = np.where(values > 0, 1, fade), np.where(values < 0, 1, fade)
    return (255 * np.stack([red, fade, blue], axis=-1)).astype(np.uint8)


def main(args):
    if not args.out.parent.is_dir():
        raise UserError(f"there is no folder {args.out.parent}")
    options = ["--seed", args.seed, "--eval-episodes", 1, "--video"]
    agent, envs = open_run(args.run, *options, env_id=args.env_id)
    from envs.drawing import write_film

    pictures, values = play(agent, envs, args.seed, args.every)
    frames = (beside(picture, values, args.every * k) for k, picture in enumerate(pictures))
    fps = envs.envs[0].metadata.get("render_fps") or 30
    write_film(args.out, frames, fps / args.every)
    envs.close()


if __name__ == "__main__":
    run_cli(main, parse_args())
