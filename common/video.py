"""Films of policies: mp4 (H.264, plays everywhere) or GIF.

python -m common.video evaluation.mp4 film.gif --every 2
"""

from pathlib import Path

import numpy as np

from common.errors import RunError, UserError

SHOWN = 200  # steps of the past in the panel, one pixel column pair each
INK, PAPER = (40, 40, 40), (255, 255, 255)
COLOURS = [(31, 119, 180), (214, 96, 20), (44, 140, 60), (170, 60, 60), (130, 90, 170), INK]


class Film:
    """Writes an episode picture by picture, beside it what the agent saw, did and remembers.

    path: of the file, ending in .mp4 or .gif.
    """

    def __init__(self, path):
        self.path, self.writer, self.panel = Path(path), None, Panel()

    def add(self, env, obs, action, hidden=None):
        """Takes a picture before `action` answers `obs`.

        hidden: recurrent state, (layers, 1, hidden_dim) or a tuple that begins with it, or None.
        """
        try:
            frame = env.render()
        except Exception as error:  # of the simulator or the graphics driver
            hint = "without a display, MuJoCo draws with MUJOCO_GL=egl or osmesa"
            raise RunError(f"cannot draw {env}: {error}; {hint}") from error
        if not isinstance(frame, np.ndarray) or frame.ndim != 3:
            raise UserError(f"{env} does not draw pictures (render_mode 'rgb_array')")
        if hidden is not None:
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
            hidden = hidden[:, 0].flatten().cpu().numpy()
            frame = self.panel.beside(frame, obs, action, hidden)
        if self.writer is None:
            self.writer = FilmWriter(self.path, env.metadata.get("render_fps") or 30)
        self.writer.add(frame)

    def save(self):
        """Completes the film and returns its path."""
        self.writer.close()
        return self.path


class Panel:
    """Draws observation and action as lines and the hidden state as a map, time to the right."""

    def __init__(self):
        self.past = [[], [], []]  # observations, actions, hidden states
        self.largest = [1e-6, 1e-6, 1e-6]  # absolute value seen in each

    def beside(self, frame, *values):
        """frame (H, W, 3), values: three vectors -> (max(H, 300), W + 2 SHOWN + 20, 3) uint8"""
        from PIL import Image, ImageDraw

        height = max(frame.shape[0], 300)
        width = frame.shape[1] + 2 * SHOWN + 20
        picture = Image.new("RGB", (width, height), PAPER)
        picture.paste(Image.fromarray(frame), (0, (height - frame.shape[0]) // 2))
        draw = ImageDraw.Draw(picture)
        left, third = frame.shape[1] + 10, height // 4
        boxes = [(16, third), (third + 16, 2 * third), (2 * third + 16, height - 6)]
        names = ["observation", "action", "memory"]
        for k, (value, name, (top, bottom)) in enumerate(zip(values, names, boxes, strict=True)):
            value = np.array(value, np.float32).ravel()[:256]  # a copy: some reuse theirs
            self.past[k] = [*self.past[k][1 - SHOWN :], value]
            self.largest[k] = max(self.largest[k], float(np.abs(value).max()))
            text = f"{name}, {value.size} value{'s' * (value.size > 1)}, +-{self.largest[k]:.3g}"
            draw.text((left, top - 14), text, INK)
            scaled = np.array(self.past[k]) / self.largest[k]  # (steps, size) in [-1, 1]
            if name == "memory":
                image = Image.fromarray(blue_white_red(scaled.T))
                size = (2 * len(scaled), bottom - top)
                picture.paste(image.resize(size, Image.Resampling.NEAREST), (left, top))
            else:
                middle, half = (top + bottom) / 2, (bottom - top) / 2 - 2
                draw.line([(left, middle), (left + 2 * SHOWN, middle)], (220, 220, 220))
                for j, line in enumerate(scaled.T[:12]):
                    points = [(left + 2 * i, middle - half * y) for i, y in enumerate(line)]
                    draw.line(points * (1 + (len(points) == 1)), COLOURS[j % len(COLOURS)], 2)
            draw.rectangle([left - 1, top - 1, left + 2 * SHOWN, bottom], outline=(160, 160, 160))
        return np.asarray(picture)


def blue_white_red(values):
    """(H, W) in [-1, 1] -> (H, W, 3) uint8: -1 blue, 0 white, 1 red"""
    fade = 1 - np.abs(values)
    red, blue = np.where(values > 0, 1, fade), np.where(values < 0, 1, fade)
    return (255 * np.stack([red, fade, blue], axis=-1)).astype(np.uint8)


class FilmWriter:
    """Encodes pictures as they come, under a temporary name that `close` moves into place."""

    def __init__(self, path, fps):
        self.path, self.fps, self.writer = Path(path), fps, None
        self.temporary = self.path.with_name(f".{self.path.stem}.tmp{self.path.suffix}")

    def add(self, frame):
        """frame: (H, W, 3) uint8, the same size every time."""
        import imageio.v2 as imageio

        # Even sides, which H.264 asks for, by repeating the last row or column.
        frame = np.pad(frame, ((0, frame.shape[0] % 2), (0, frame.shape[1] % 2), (0, 0)), "edge")
        gif = self.path.suffix == ".gif"
        how = {"duration": 1000 / self.fps, "loop": 0} if gif else {"macro_block_size": 1}
        try:
            if self.writer is None:
                how = how if gif else how | {"fps": self.fps}
                self.writer = imageio.get_writer(self.temporary, mode="I", **how)
            self.writer.append_data(frame)
        except (OSError, RuntimeError) as error:
            raise self._failed(error) from error

    def close(self):
        """Completes the file."""
        try:
            self.writer.close()
            self.temporary.replace(self.path)
        except (OSError, RuntimeError) as error:
            raise self._failed(error) from error

    def _failed(self, error):
        self.temporary.unlink(missing_ok=True)
        return RunError(f"cannot write {self.path}: {str(error).splitlines()[0]}")


def main(args):
    """Copies a film to another format, every k-th picture of it."""
    import imageio.v2 as imageio

    try:
        film = imageio.get_reader(args.source)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {args.source}: {str(error).splitlines()[0]}") from error
    if Path(args.target).suffix not in (".gif", ".mp4"):
        raise UserError(f"{args.target} must end in .gif or .mp4")
    data = film.get_meta_data()
    fps = data["fps"] if "fps" in data else 1000 / data["duration"]  # of a GIF [ms]
    writer = FilmWriter(args.target, fps / args.every)
    for k, frame in enumerate(film):
        if k % args.every == 0:
            writer.add(frame)
    writer.close()


if __name__ == "__main__":
    from common.cli import Parser, integer, run_cli

    parser = Parser(__doc__)
    parser.add_argument("source", help="a film")
    parser.add_argument("target", help="ends in .gif or .mp4")
    parser.add_argument("--every", type=integer(1), default=1, help="keep each k-th picture")
    run_cli(main, parser.parse())
