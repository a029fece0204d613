"""Checkpoint files: written whole or not at all, checked on load, never any code in them.

A checkpoint is an ordinary PyTorch file (`torch.load(path, weights_only=True)` opens it) with its
SHA-256 appended. Replay memory can be gigabytes, so `save_rows` writes every row once, in segment
files beside the checkpoint, and the checkpoint lists the segments that belong to it.
"""

import contextlib
import hashlib
import io
import os
import random
import warnings
import zipfile
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
        with contextlib.suppress(OSError):
            temporary.unlink()
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
        found = [path / name for name in (NAME, PREVIOUS) if (path / name).exists()]
        if not found:
            raise UserError(
                f"{path} holds no checkpoint; a run writes one every --save-every steps"
            )
        path = found[0]
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
        with warnings.catch_warnings():  # the error says enough
            warnings.simplefilter("ignore")
            state = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    except Exception as error:  # whatever a crafted file makes the reader stumble over
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
        A segment is [ring, file name, first, end, CRC-32]; it holds about 64 MiB at most.
        """
        folder, segments = Path(folder) / "replay", []
        capacity = next(iter(arrays.values())).shape[1]
        at_most = 1 + 2**26 // sum(array[0, 0].nbytes for array in arrays.values())
        for ring, total in enumerate(np.asarray(next_row).tolist()):
            oldest = max(0, total + 1 - capacity)
            first, end = max(self.saved.get(ring, 0), oldest), total + 1
            before = [s for s in self.history[-1] if s[0] == ring and s[3] > oldest]
            if not all((folder / segment[1]).exists() for segment in before):
                first, before = oldest, []  # somebody deleted files: write all rows again
            segments += before
            for start in range(first, end, at_most):
                stop = min(start + at_most, end)
                rows, buffer = np.arange(start, stop) % capacity, io.BytesIO()
                np.savez(buffer, **{key: array[ring, rows] for key, array in arrays.items()})
                name, data = f"{ring:02d}-{start:012d}-{stop:012d}.npz", buffer.getbuffer()
                write_file(folder / name, data)
                segments.append([ring, name, start, stop, zlib.crc32(data)])
            # The open row comes again in the next segment, when its action is known.
            self.saved[ring] = total
        self.history = [*self.history[-2:], segments]
        keep = {segment[1] for kept in self.history for segment in kept}
        for path in [*folder.glob("*.npz"), *folder.glob(".*.tmp")]:
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
            try:
                with np.load(io.BytesIO(data), allow_pickle=False) as stored:
                    for key, array in arrays.items():
                        array[ring, np.arange(first, end) % array.shape[1]] = stored[key]
            except (ValueError, LookupError, zipfile.BadZipFile) as error:
                raise UserError(f"{path} does not fit this run: {error}") from error
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
    for k, cuda in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(cuda, k)  # there may be fewer devices now
