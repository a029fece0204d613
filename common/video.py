"""Films of policies: mp4 (H.264, plays everywhere) or GIF."""

from pathlib import Path

import numpy as np

from common.errors import RunError, UserError


class Film:
    """Collects the frames of one episode and writes them when it is over.

    path: of the file, ending in .mp4 or .gif.
    """

    def __init__(self, path):
        self.path, self.frames, self.fps = Path(path), [], 30

    def add(self, env, obs, action, hidden=None):
        """Takes a picture before `action` answers `obs`."""
        frame = env.render()
        if frame is None:
            raise UserError(f"{env} does not draw pictures (render_mode 'rgb_array')")
        self.fps = env.metadata.get("render_fps") or 30
        self.frames.append(np.asarray(frame, np.uint8))

    def save(self):
        """Writes the film and returns its path."""
        write_film(self.path, self.frames, self.fps)
        return self.path


def write_film(path, frames, fps):
    """frames: list of (H, W, 3) uint8.  Written under a temporary name, then moved into place."""
    import imageio.v2 as imageio

    path = Path(path)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        if path.suffix == ".gif":
            imageio.mimsave(temporary, frames, duration=1000 / fps, loop=0)
        else:
            # Even sides, which H.264 asks for, by repeating the last row or column.
            frames = [
                np.pad(f, ((0, f.shape[0] % 2), (0, f.shape[1] % 2), (0, 0)), "edge")
                for f in frames
            ]
            imageio.mimsave(temporary, frames, fps=fps, macro_block_size=1)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(f"cannot write {path}: {error}") from error
