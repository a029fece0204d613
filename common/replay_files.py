"""Replay buffer on disk: each step is written once, at the first checkpoint after it.

A buffer is a ring: NumPy arrays of `capacity` rows and `num_added`. Row number k of the run lies at
k % capacity. Nothing else of a buffer is kept, and no change to a row that was written before, such
as a new priority.
"""

import io
import zlib
from pathlib import Path

import numpy as np

from common.errors import UserError
from common.files import write_file


def arrays_of(buffer):
    """Name -> array of everything that a buffer holds."""
    return {name: x for name, x in vars(buffer).items() if isinstance(x, np.ndarray)}


class ReplayFiles:
    """The files replay/<first>-<end>.npz of a run: rows number first .. end - 1.

    Files that belong to neither of the last two checkpoints are deleted. A file newer than the
    loaded checkpoint is never read: a resumed agent must not learn from its own future.
    """

    def __init__(self, run_folder):
        self.folder = Path(run_folder) / "replay"
        self.kept = [[], []]  # [file name, first, end, CRC-32] of each file, for two checkpoints

    def save(self, buffer):
        """Writes what is new and returns what the checkpoint has to know."""
        end, size = buffer.num_added, min(buffer.num_added, buffer.capacity)
        files = [file for file in self.kept[-1] if file[2] > end - size]
        if not all((self.folder / name).exists() for name, *_ in files):
            files = []  # somebody deleted some: write everything again
        first = files[-1][2] if files else end - size
        if first < end:
            data = io.BytesIO()
            rows = np.arange(first, end) % buffer.capacity
            np.savez(data, **{name: x[rows] for name, x in arrays_of(buffer).items()})
            name = f"{first:012d}-{end:012d}.npz"
            self.folder.mkdir(exist_ok=True)
            write_file(self.folder / name, data.getbuffer())
            files.append([name, first, end, zlib.crc32(data.getbuffer())])
        self.kept = [self.kept[-1], files]
        names = {file[0] for files in self.kept for file in files}
        for path in [*self.folder.glob("*.npz"), *self.folder.glob(".*.tmp")]:
            if path.name not in names:
                path.unlink(missing_ok=True)
        return {"files": files, "end": end}

    def load(self, buffer, state):
        """Puts back exactly what the checkpoint knew. Raises UserError on files that are damaged,
        or of a buffer that holds something else."""
        shapes = {name: x.shape[1:] for name, x in arrays_of(buffer).items()}
        for name, first, end, checksum in state["files"]:
            data = (self.folder / name).read_bytes()
            if zlib.crc32(data) != checksum:
                raise UserError(f"{self.folder / name} is damaged: its checksum does not match")
            rows = np.arange(first, end) % buffer.capacity
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                arrays = dict(file)
            if {key: x.shape[1:] for key, x in arrays.items()} != shapes:
                words = "does not fit the present script: its replay buffer differs"
                raise UserError(f"{self.folder / name} {words}")
            for key, x in arrays.items():
                getattr(buffer, key)[rows] = x
        self.kept = [state["files"], state["files"]]
        buffer.num_added = state["end"]
