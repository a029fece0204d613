"""Replay memory on disk: each step is written once, at the first checkpoint after it.

A ring has NumPy arrays of `capacity` rows and `num_added`: row number k of the run lies at k %
capacity. A buffer of episodes has a list `episodes` (dicts of arrays), `num_finished`, their number
since the start of the run, `open`, the steps of those under way, and a method `append`.
"""

import io
import zlib
from pathlib import Path

import numpy as np
import torch

from common.checkpoint import write_file
from common.errors import UserError


class ReplayFiles:
    """The files replay/<first>-<end>.npz of a run: rows or episodes number first .. end - 1.

    Files that belong to neither of the last two checkpoints are deleted. A file newer than the
    loaded checkpoint is never read: a resumed agent must not learn from its own future.
    """

    def __init__(self, run_folder):
        self.folder = Path(run_folder) / "replay"
        self.kept = [[], []]  # [file name, first, end, CRC-32] of each file, for two checkpoints

    def save(self, buffer):
        """Writes what is new and returns what the checkpoint has to know."""
        state = {}
        if hasattr(buffer, "episodes"):
            end, size, take = buffer.num_finished, len(buffer.episodes), _take_episodes
            state["open"] = [
                {name: torch.from_numpy(np.array(steps)) for name, steps in episode.items()}
                for episode in buffer.open
            ]
        else:
            end, size, take = buffer.num_added, min(buffer.num_added, buffer.capacity), _take_rows
        files = [file for file in self.kept[-1] if file[2] > end - size]
        if not all((self.folder / name).exists() for name, *_ in files):
            files = []  # somebody deleted some: write everything again
        first = files[-1][2] if files else end - size
        if first < end:
            data = io.BytesIO()
            np.savez(data, **take(buffer, first, end))
            name = f"{first:012d}-{end:012d}.npz"
            self.folder.mkdir(exist_ok=True)
            write_file(self.folder / name, data.getbuffer())
            files.append([name, first, end, zlib.crc32(data.getbuffer())])
        self.kept = [self.kept[-1], files]
        names = {file[0] for files in self.kept for file in files}
        for path in [*self.folder.glob("*.npz"), *self.folder.glob(".*.tmp")]:
            if path.name not in names:
                path.unlink(missing_ok=True)
        return state | {"files": files, "end": end, "size": size}

    def load(self, buffer, state):
        """Puts back exactly what the checkpoint knew. Raises UserError on damaged files."""
        for name, first, end, checksum in state["files"]:
            data = (self.folder / name).read_bytes()
            if zlib.crc32(data) != checksum:
                raise UserError(f"{self.folder / name} is damaged: its checksum does not match")
            with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                if "open" in state:
                    _put_episodes(buffer, arrays, max(0, state["end"] - state["size"] - first))
                else:
                    _put_rows(buffer, arrays, first, end)
        self.kept = [state["files"], state["files"]]
        if "open" not in state:
            buffer.num_added = state["end"]
            return
        buffer.num_finished = state["end"]
        for episode, saved in zip(buffer.open, state["open"], strict=True):
            episode.update((name, list(steps.cpu().numpy())) for name, steps in saved.items())


def _take_rows(buffer, first, end):
    rows = np.arange(first, end) % buffer.capacity
    return {name: x[rows] for name, x in vars(buffer).items() if isinstance(x, np.ndarray)}


def _put_rows(buffer, arrays, first, end):
    rows = np.arange(first, end) % buffer.capacity
    for name in arrays:
        getattr(buffer, name)[rows] = arrays[name]


def _take_episodes(buffer, first, end):
    """All episodes one after another in one array for each name, and their lengths."""
    arrays = {}
    for name in buffer.episodes[-1]:
        parts = [episode[name] for episode in buffer.episodes[first - end :]]
        arrays[name] = np.concatenate(parts)
        arrays[f"{name} lengths"] = np.array([len(part) for part in parts])
    return arrays


def _put_episodes(buffer, arrays, num_too_old):
    names = [name for name in arrays if not name.endswith(" lengths")]
    columns = [np.split(arrays[n], np.cumsum(arrays[f"{n} lengths"])[:-1]) for n in names]
    for parts in list(zip(*columns, strict=True))[num_too_old:]:
        # Copies: the parts are views, which would keep all episodes of the file in memory.
        buffer.append({name: part.copy() for name, part in zip(names, parts, strict=True)})
