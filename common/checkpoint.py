"""Checkpoint files: written completely or not at all, checked on load, without any code.

A checkpoint is a PyTorch file with its SHA-256 appended; common/replay_files.py has the replay.
"""

import hashlib
import io
import pickle
import warnings
from pathlib import Path

import torch

from common.errors import UserError
from common.files import write_file

VERSION = 3  # of the layout; raised when old files can no longer be read
MAGIC = b"sha256:"
NAME = "checkpoint.pt"


def save_checkpoint(folder, state, name=NAME):
    """Writes `state` as the checkpoint of the run folder, replacing the last one.

    state: a dict of tensors, numbers, strings, lists, tuples and dicts; must name its "script".
    Raises UserError if it contains anything else, which `load_checkpoint` would refuse.
    """
    buffer = io.BytesIO()
    torch.save({"version": VERSION, **state}, buffer)
    data = buffer.getbuffer()
    try:
        torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        words = "a checkpoint holds tensors, numbers, strings, lists, tuples and dicts alone"
        raise UserError(f"{words}; is there a NumPy array in the agent's state?") from error
    write_file(Path(folder) / name, data, MAGIC, hashlib.sha256(data).hexdigest().encode())


def check_device(device):
    """Raises UserError if the device is not available."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"--device {device} is not available ({reason:.80}); try cpu") from error


def load_checkpoint(path, script, device="cpu"):
    """The state saved at `path`, a checkpoint file or a run folder, with tensors on `device`.

    Raises UserError if it is damaged, from another script (None: any will do) or version, or not a
    checkpoint of ours. Nothing in the file is executed, but the environment it names may be.
    """
    check_device(device)
    path = Path(path)
    if path.is_dir():
        path = path / NAME
        if not path.exists():
            raise UserError(f"{path} is not there; a run writes one at each evaluation")
    data = path.read_bytes()
    tail = len(MAGIC) + 64
    body = memoryview(data)[:-tail]
    if data[-tail:] != MAGIC + hashlib.sha256(body).hexdigest().encode():
        raise UserError(f"{path} is no checkpoint of this project, or it is damaged")
    try:
        with warnings.catch_warnings():  # the error says enough
            warnings.simplefilter("ignore")
            state = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except (MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # a crafted file can fail in many ways
        raise UserError(f"{path} is refused: it contains more than plain data") from error
    if not isinstance(state, dict) or state.get("version") != VERSION or "script" not in state:
        raise UserError(f"{path} was written by another version of this repository")
    if script is not None and state["script"] != script:
        name = state["script"]
        raise UserError(f"{path} was written by {name}.py; use: python {name}.py")
    return state
