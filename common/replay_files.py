"""Replay memory on disk: each step is written once, at the first checkpoint after it.

Two kinds of replay buffers are known by their attributes. A ring has NumPy arrays of `capacity`
rows and `num_added`; row number k since the start of the run lies at k % capacity. A buffer of
episodes has a list `episodes` (dicts of arrays), `num_finished`, the number of episodes finished
since the start, `open`, the steps of the ones under way, and a method `append`.
"""

import io
import zipfile
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
        episodic = hasattr(buffer, "episodes")
        end = buffer.num_finished if episodic else buffer.num_added
        oldest = end - (len(buffer.episodes) if episodic else min(end, buffer.capacity))
        files = [file for file in self.kept[-1] if file[2] > oldest]
        if not all((self.folder / name).exists() for name, *_ in files):
            files = []  # somebody deleted some: write everything again
        first = files[-1][2] if files else oldest
        if first < end:
            arrays = (_take_episodes if episodic else _take_rows)(buffer, first, end)
            data = io.BytesIO()
            np.savez(data, **arrays)
            name = f"{first:012d}-{end:012d}.npz"
            write_file(self.folder / name, data.getbuffer())
            files.append([name, first, end, zlib.crc32(data.getbuffer())])
        self.kept = [self.kept[-1], files]
        names = {file[0] for files in self.kept for file in files}
        for path in [*self.folder.glob("*.npz"), *self.folder.glob(".*.tmp")]:
            if path.name not in names:
                path.unlink(missing_ok=True)
        state = {"files": files, "end": end, "oldest": oldest}
        if episodic:
            state["open"] = [
                {name: torch.from_numpy(np.array(steps)) for name, steps in episode.items()}
                for episode in buffer.open
            ]
        return state

    def load(self, buffer, state):
        """Puts back exactly what the checkpoint knew. Raises UserError on damaged files."""
        for name, first, end, checksum in state["files"]:
            path = self.folder / name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise UserError(f"cannot read replay memory {path}: {error.strerror}") from error
            if zlib.crc32(data) != checksum:
                raise UserError(f"{path} is damaged: its checksum does not match")
            try:
                with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
                    put = _put_episodes if hasattr(buffer, "episodes") else _put_rows
                    put(buffer, arrays, first, end, state["oldest"])
            except (ValueError, LookupError, zipfile.BadZipFile) as error:
                raise UserError(f"{path} does not fit this run: {error}") from error
        if hasattr(buffer, "episodes"):
            buffer.num_finished = state["end"]
            for episode, saved in zip(buffer.open, state["open"], strict=True):
                episode.update((name, list(steps.numpy())) for name, steps in saved.items())
        else:
            buffer.num_added = state["end"]
        self.kept = [state["files"], state["files"]]


def _arrays(buffer):
    return {name: x for name, x in vars(buffer).items() if isinstance(x, np.ndarray)}


def _take_rows(buffer, first, end):
    rows = np.arange(first, end) % buffer.capacity
    return {name: array[rows] for name, array in _arrays(buffer).items()}


def _put_rows(buffer, arrays, first, end, oldest):
    rows = np.arange(first, end) % buffer.capacity
    for name, array in _arrays(buffer).items():
        array[rows] = arrays[name]


def _take_episodes(buffer, first, end):
    episodes = buffer.episodes[first - end :]
    arrays = {name: np.concatenate([e[name] for e in episodes]) for name in episodes[0]}
    lengths = {f"{name}_lengths": [len(e[name]) for e in episodes] for name in episodes[0]}
    return arrays | lengths


def _put_episodes(buffer, arrays, first, end, oldest):
    names = [name for name in arrays if f"{name}_lengths" in arrays]
    columns = [np.split(arrays[n], np.cumsum(arrays[f"{n}_lengths"])[:-1]) for n in names]
    for k, episode in enumerate(zip(*columns, strict=True), start=first):
        if k >= oldest:
            # A copy, as np.split gives views, which would keep all episodes of the file in memory.
            buffer.append({name: x.copy() for name, x in zip(names, episode, strict=True)})
