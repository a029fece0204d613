"""Small 2-D drawings without a window or a display, and films."""

import os
from contextlib import closing, contextmanager

import numpy as np

from common.errors import RunError, UserError

# The prompt would land in the output of every command that draws.
os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")

SMOOTH = 2  # drawn that much larger and averaged, which takes the steps out of the lines

WHITE, BLACK, GREY, PALE = (255, 255, 255), (30, 30, 30), (150, 150, 150), (226, 229, 233)
RED, GREEN, BLUE, ORANGE = (204, 77, 77), (61, 145, 92), (58, 108, 180), (226, 145, 46)


class Canvas:
    """A white picture in world coordinates (x to the right, y up), `scale` pixels per unit.

    center: the world point in the middle.  All sizes are in world units.
    Only surfaces in memory are used, never pygame's display or its `init` and `quit`, which belong
    to the whole process: closing one environment cannot harm another.
    """

    def __init__(self, width, height, scale, center=(0.0, 0.0)):
        try:
            import pygame  # only when something is drawn
        except ImportError as error:
            raise UserError("drawing needs pygame: pip install -r requirements.txt") from error

        self._draw, self._transform, self._array = pygame.draw, pygame.transform, pygame.surfarray
        self._size = (width, height)
        self._surface = pygame.Surface((width * SMOOTH, height * SMOOTH), depth=24)
        self._surface.fill(WHITE)
        self._scale, self._center = scale * SMOOTH, center

    def _pixel(self, point):
        x = self._size[0] * SMOOTH / 2 + (point[0] - self._center[0]) * self._scale
        y = self._size[1] * SMOOTH / 2 - (point[1] - self._center[1]) * self._scale
        return round(x), round(y)

    def circle(self, center, radius, color, width=0.0):
        """A disc, or a ring of the given line width."""
        line = max(1, round(width * self._scale)) if width else 0
        self._draw.circle(self._surface, color, self._pixel(center), radius * self._scale, line)

    def polygon(self, points, color):
        self._draw.polygon(self._surface, color, [self._pixel(p) for p in points])

    def rectangle(self, left, bottom, right, top, color):
        self.polygon([(left, bottom), (left, top), (right, top), (right, bottom)], color)

    def line(self, start, end, width, color):
        """A line with round ends; a polygon, since pygame's own thick lines get slanted ends."""
        (x0, y0), (x1, y1) = start, end
        length = np.hypot(x1 - x0, y1 - y0)
        if length > 0:
            dx, dy = -(y1 - y0) / length * width / 2, (x1 - x0) / length * width / 2
            corners = [
                (x0 + dx, y0 + dy),
                (x1 + dx, y1 + dy),
                (x1 - dx, y1 - dy),
                (x0 - dx, y0 - dy),
            ]
            self.polygon(corners, color)
        self.circle(start, width / 2, color)
        self.circle(end, width / 2, color)

    def arrow(self, start, end, width, color):
        """A line with a head of three times its width; nothing if it has no length."""
        (x0, y0), (x1, y1) = start, end
        length = np.hypot(x1 - x0, y1 - y0)
        if length < 1e-6:
            return
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        self.line(start, end, width, color)
        tip = (x1 + 2.5 * width * ux, y1 + 2.5 * width * uy)
        side = 1.5 * width
        self.polygon(
            [tip, (x1 - side * uy, y1 + side * ux), (x1 + side * uy, y1 - side * ux)], color
        )

    def rgb(self):
        """The picture as (height, width, 3) uint8."""
        small = self._transform.smoothscale(self._surface, self._size)
        return np.ascontiguousarray(self._array.array3d(small).swapaxes(0, 1))


def write_film(path, frames, fps):
    """Writes an iterable of pictures (H, W, 3) as `film_writer` does."""
    with film_writer(path, fps) as add:
        for frame in frames:
            add(frame)


@contextmanager
def film_writer(path, fps):
    """Gives a function that adds a picture (H, W, 3) to an .mp4 or .gif, and raises UserError if it
    is none. The file has a temporary name until it is complete."""
    import imageio.v2 as imageio  # only when something is drawn

    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    gif = {"duration": 1000 / fps, "loop": 0}
    mp4 = {"fps": fps, "macro_block_size": 2}  # H.264 asks for even sides
    options = gif if path.suffix.lower() == ".gif" else mp4
    open(temporary, "wb").close()  # if this fails, in one line: imageio would write many
    try:
        # imageio itself would leave the file open after an error, and write it again later.
        with closing(imageio.get_writer(temporary, **options)) as writer:
            shapes = set()

            def add(frame):
                shape = getattr(frame, "shape", ())
                if len(shape) != 3:
                    words = "this environment does not draw pictures"
                    raise UserError(f"{words} (render_mode 'rgb_array')")
                shapes.add(shape)
                if len(shapes) > 1:
                    raise UserError(f"this environment's pictures change their shape: {shapes}")
                writer.append_data(frame)

            yield add
        # imageio does not tell whether ffmpeg could write: it ends a film with the box `moov`.
        if path.suffix.lower() == ".mp4" and b"moov" not in temporary.read_bytes():
            raise RunError(f"cannot write {path}: the film is not complete; is the disk full?")
        temporary.replace(path)
    except OSError as error:
        reason = str(error).strip().partition("\n")[0]
        raise RunError(f"cannot write {path}: {reason}") from error
    finally:
        temporary.unlink(missing_ok=True)
