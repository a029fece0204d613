"""Draws environments side by side, for the docs; of pixel environments, the frames the agent sees.

python -m benchmark.env_pictures reacher-mdp-v0 --out docs/environments/reacher.png
"""

import numpy as np

from common.cli import Parser, run_cli
from common.envs import make_env


def picture(env_ids, steps=8, height=240, seed=0):
    """Draws environments side by side after a few random actions.  Returns (height, W, 3) uint8."""
    from PIL import Image

    frames = []
    for env_id in env_ids:
        env = make_env(env_id, seed, render_mode="rgb_array")
        env.action_space.seed(seed)
        obs, _ = env.reset()
        for _ in range(steps):
            obs, *_ = env.step(env.action_space.sample())
        channels = 3 if "-rgb" in env_id else 1
        pixels = obs.dtype == np.uint8
        views = np.split(obs, len(obs) // channels) if pixels else [env.render()]
        env.close()
        for view in views:
            rgb = np.broadcast_to(np.moveaxis(view, 0, -1), (84, 84, 3)) if pixels else view
            size = (round(rgb.shape[1] * height / rgb.shape[0]), height)
            frames.append(np.asarray(Image.fromarray(rgb).resize(size)))
            frames.append(np.full((height, 8, 3), 255, np.uint8))
    return np.concatenate(frames[:-1], axis=1)


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.add_argument("ids", nargs="+", metavar="ID", help="environments, from left to right")
    parser.add_argument("--out", required=True, metavar="PATH", help="picture to write, .png")
    args = parser.parse_args(argv)
    if not args.out.endswith(".png"):
        parser.error(f"--out {args.out} must end with .png")
    return args


def main(args):
    import imageio.v3 as imageio

    imageio.imwrite(args.out, picture(args.ids))


if __name__ == "__main__":
    run_cli(main, parse_args())
