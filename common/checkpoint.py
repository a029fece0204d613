"""Checkpoint files: written whole or not at all, checked on load, never any code in them.

A checkpoint is an ordinary PyTorch file (`torch.load(path, weights_only=True)` opens it) with its
SHA-256 appended. Replay memory can be gigabytes, so `save_rows` writes every row once, in segment
files beside the checkpoint, and the checkpoint lists the segments that belong to it.
"""

import hashlib
import io
import os
import pickle
import random
import zlib
from pathlib import Path

import numpy as np
import torch

from common.errors import RunError, UserError

VERSION = 1  # of the layout; raised when old files can no longer be read
MAGIC = b"sha256:"
NAME, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


def write_file(path, *chunks):
    """Writes bytes to `path` atomically: temporary name, flush to disk, move into place."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        with open(temporary, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RunError(
            f"cannot write {path}: {error.strerror}; what was there before is kept"
        ) from error


def save_checkpoint(folder, state):
    """Makes `state` the newest checkpoint of the run folder and keeps the one before it.

    state: a dict of tensors, numbers, strings, lists and dicts; must name its "script".
    """
    folder = Path(folder)
    buffer = io.BytesIO()
    torch.save({"version": VERSION, **state}, buffer)
    data = buffer.getbuffer()
    newest = folder / ".checkpoint.new"
    write_file(newest, data, MAGIC, hashlib.sha256(data).hexdigest().encode())
    try:
        if (folder / NAME).exists():
            os.replace(folder / NAME, folder / PREVIOUS)
        os.replace(newest, folder / NAME)
    except OSError as error:
        raise RunError(f"cannot write {folder / NAME}: {error.strerror}") from error


def load_checkpoint(path, script):
    """The state saved at `path` (a checkpoint file, or a run folder for its newest one).

    Raises UserError in one line if it is missing, damaged, of another script or version, or not a
    checkpoint of ours. Nothing in the file is ever executed.
    """
    path = Path(path)
    if path.is_dir():
        # Killed between the two moves of save_checkpoint, a folder has only the previous one.
        path = path / (NAME if (path / NAME).exists() else PREVIOUS)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read checkpoint {path}: {error.strerror}") from error
    tail = len(MAGIC) + 64
    body = memoryview(data)[:-tail]
    if len(data) <= tail or data[-tail:-64] != MAGIC:
        raise UserError(f"{path} is not a complete checkpoint of this project")
    if hashlib.sha256(body).hexdigest().encode() != data[-64:]:
        other = path.with_name(PREVIOUS)
        hint = f"; the one before it is {other}" if other.exists() and other != path else ""
        raise UserError(f"{path} is damaged: its checksum does not match{hint}")
    try:
        state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise UserError(f"{path} is refused: it holds something other than plain data") from error
    if not isinstance(state, dict) or "script" not in state:
        raise UserError(f"{path} is not a checkpoint of this project")
    if state.get("version") != VERSION:
        raise UserError(
            f"{path} has layout version {state.get('version')}, this code reads {VERSION}"
        )
    if state["script"] != script:
        name = state["script"]
        raise UserError(f"{path} was written by {name}.py; use: python {name}.py")
    return state


# ---- Replay memory, append-only ----


class RowFiles:
    """The rows of a ring buffer on disk: each is written once, at the first checkpoint after it.

    Row number k, counted since the start of the run, lies at k % capacity of every array. Files
    that belong to none of the last checkpoints are deleted; newer ones than the loaded checkpoint
    knows are never read, so that a resumed agent does not learn from its own future.
    """

    def __init__(self):
        self.history = [[]]  # the segment lists of the last checkpoints, newest last
        self.saved = {}  # rows on disk, for each ring

    def save(self, folder, arrays, next_row):
        """Writes what is new, up to the open row, and returns the segments in force.

        arrays: name -> array (rings, capacity, ...).  next_row: (rings,) number of the open row.
        A segment is [ring, file name, first, end, CRC-32].
        """
        folder = Path(folder) / "replay"
        segments = []
        for ring, total in enumerate(np.asarray(next_row).tolist()):
            capacity = len(next(iter(arrays.values()))[ring])
            oldest = max(0, total + 1 - capacity)
            first, end = max(self.saved.get(ring, 0), oldest), total + 1
            rows = np.arange(first, end) % capacity
            buffer = io.BytesIO()
            np.savez(buffer, **{key: array[ring, rows] for key, array in arrays.items()})
            name = f"{ring:02d}-{first:012d}-{end:012d}.npz"
            write_file(folder / name, buffer.getbuffer())
            before = [s for s in self.history[-1] if s[0] == ring and s[3] > oldest]
            segments += [*before, [ring, name, first, end, zlib.crc32(buffer.getbuffer())]]
            # The open row comes again in the next segment, when its action is known.
            self.saved[ring] = total
        self.history = [*self.history[-2:], segments]
        keep = {segment[1] for kept in self.history for segment in kept}
        for path in folder.glob("*.npz"):
            if path.name not in keep:
                path.unlink(missing_ok=True)
        return segments

    def load(self, folder, arrays, segments):
        """Fills the arrays from the segments that a checkpoint lists."""
        for ring, name, first, end, checksum in segments:
            path = Path(folder) / "replay" / name
            try:
                data = path.read_bytes()
            except OSError as error:
                raise UserError(f"cannot read replay memory {path}: {error.strerror}") from error
            if zlib.crc32(data) != checksum:
                raise UserError(f"{path} is damaged: its checksum does not match")
            with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                for key, array in arrays.items():
                    array[ring, np.arange(first, end) % array.shape[1]] = stored[key]
            self.saved[ring] = end - 1
        self.history = [list(segments)]


# ---- Random number generators ----


def get_rng_state(generator):
    """Python's, NumPy's (`generator`, the script's own) and PyTorch's states, as plain data."""
    version, numbers, gauss = random.getstate()
    state = {
        "python": [version, list(numbers), gauss],
        "numpy": generator.bit_generator.state,
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state, generator):
    """The reverse of `get_rng_state`."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    generator.bit_generator.state = state["numpy"]
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
