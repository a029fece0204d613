"""Checkpoint files: whole, verified, never any code in them; replay rows are written once."""

import hashlib
import io
import os
import pickle
import shutil

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from common import checkpoint
from common.checkpoint import RowFiles, load_checkpoint, save_checkpoint
from common.errors import RunError, UserError


def make_state(step):
    return {
        "script": "sac",
        "global_step": step,
        "agent": {"weight": torch.arange(6.0).reshape(2, 3) * step},
        "pending": ([1.5], {"qf_loss": torch.tensor(2.0)}),
        "rng": {"numpy": np.random.default_rng(step).bit_generator.state},
    }


def write_signed(path, data):
    """A file whose checksum is right, whatever is in it."""
    path.write_bytes(data + b"sha256:" + hashlib.sha256(data).hexdigest().encode())


def test_what_is_loaded_is_what_was_saved(tmp_path):
    save_checkpoint(tmp_path, make_state(7))
    state = load_checkpoint(tmp_path, "sac")
    assert torch.equal(state["agent"]["weight"], torch.arange(6.0).reshape(2, 3) * 7)
    assert state["pending"][0] == [1.5]
    assert state["rng"]["numpy"] == np.random.default_rng(7).bit_generator.state


def test_pytorch_alone_opens_a_checkpoint(tmp_path):
    save_checkpoint(tmp_path, make_state(7))
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["global_step"] == 7


def test_the_last_two_checkpoints_are_kept_and_no_more(tmp_path):
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, make_state(step))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint.previous.pt",
        "checkpoint.pt",
    ]
    assert load_checkpoint(tmp_path, "sac")["global_step"] == 3
    assert load_checkpoint(tmp_path / "checkpoint.previous.pt", "sac")["global_step"] == 2


def test_a_missing_newest_falls_back_to_the_previous(tmp_path):
    save_checkpoint(tmp_path, make_state(1))
    save_checkpoint(tmp_path, make_state(2))
    (tmp_path / "checkpoint.pt").unlink()
    assert load_checkpoint(tmp_path, "sac")["global_step"] == 1


def test_a_damaged_newest_is_refused_and_the_previous_is_named(tmp_path):
    save_checkpoint(tmp_path, make_state(1))
    save_checkpoint(tmp_path, make_state(2))
    data = bytearray((tmp_path / "checkpoint.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "checkpoint.pt").write_bytes(data)
    with pytest.raises(UserError, match=r"damaged.*checkpoint\.previous\.pt"):
        load_checkpoint(tmp_path, "sac")


@pytest.mark.parametrize("fails", ["fsync", "replace"])
def test_a_failed_write_keeps_what_was_there(fails, tmp_path, monkeypatch):
    save_checkpoint(tmp_path, make_state(1))

    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, fails, fail)
        with pytest.raises(RunError, match="No space left on device"):
            save_checkpoint(tmp_path, make_state(2))
    assert load_checkpoint(tmp_path, "sac")["global_step"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


# ---- What is refused ----


class Attack:
    """Unpickling this makes a folder, if anything lets it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("how", ["plain pickle", "torch, old format", "torch"])
@pytest.mark.parametrize("signed", [True, False])
def test_code_in_a_checkpoint_is_refused_and_not_run(how, signed, tmp_path):
    victim, buffer = str(tmp_path / "pwned"), io.BytesIO()
    content = {"script": "sac", "version": checkpoint.VERSION, "agent": Attack(victim)}
    if how == "plain pickle":
        pickle.dump(content, buffer)
    else:
        torch.save(content, buffer, _use_new_zipfile_serialization=how == "torch")
    path = tmp_path / "checkpoint.pt"
    if signed:
        write_signed(path, buffer.getvalue())
    else:
        path.write_bytes(buffer.getvalue())
    with pytest.raises(UserError, match="refused" if signed else "not a complete checkpoint"):
        load_checkpoint(path, "sac")
    assert not os.path.exists(victim)
    if how == "plain pickle":
        pickle.loads(buffer.getvalue())
    else:
        torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)
    assert os.path.exists(victim), "the attack does not work, so the test shows nothing"


def saved(path, **change):
    save_checkpoint(path, make_state(1) | change)


def signed(path, content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_signed(path / "checkpoint.pt", buffer.getvalue())


BAD = {
    "missing": (lambda path: None, "holds no checkpoint"),
    "empty": (lambda path: (path / "checkpoint.pt").write_bytes(b""), "not a complete checkpoint"),
    "text": (lambda path: (path / "checkpoint.pt").write_text("hello" * 99), "not a complete"),
    "a folder": (lambda path: (path / "checkpoint.pt").mkdir(), "cannot read checkpoint"),
    "another script": (lambda path: saved(path, script="rsac"), "written by rsac.py; use: python"),
    "future version": (lambda path: signed(path, {"script": "sac", "version": 99}), "version 99"),
    "no version": (lambda path: signed(path, {"script": "sac"}), "version None"),
    "a list": (lambda path: signed(path, [1, 2]), "not a checkpoint of this project"),
    "a tensor": (lambda path: signed(path, torch.zeros(3)), "not a checkpoint of this project"),
    "noise": (lambda path: write_signed(path / "checkpoint.pt", b"x" * 500), "refused"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_checkpoint_gets_one_clear_line(case, tmp_path):
    make, message = BAD[case]
    make(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        load_checkpoint(tmp_path, "sac")
    assert "\n" not in str(caught.value)


# ---- Replay rows ----

CAPACITY = 10


class Ring:
    """A ring buffer as the scripts have it: `total` is the number of the open row."""

    def __init__(self, rings=1):
        self.files, self.total = RowFiles(), np.zeros(rings, np.int64)
        self.arrays = {
            "rows": np.zeros((rings, CAPACITY, 2), np.float32),
            "t": np.full((rings, CAPACITY), -1, np.int32),
        }

    def add(self, count, ring=0):
        for _ in range(count):
            total = self.total[ring]
            self.arrays["rows"][ring, total % CAPACITY] = [total + 0.5, ring]
            self.arrays["t"][ring, total % CAPACITY] = total
            self.total[ring] += 1
            self.arrays["rows"][ring, self.total[ring] % CAPACITY] = -self.total[ring]
            self.arrays["t"][ring, self.total[ring] % CAPACITY] = -1

    def save(self, folder):
        segments = self.files.save(folder, self.arrays, self.total)
        save_checkpoint(folder, make_state(int(self.total[0])) | {"files": segments})

    @classmethod
    def load(cls, folder, rings=1):
        ring = cls(rings)
        ring.files.load(folder, ring.arrays, load_checkpoint(folder, "sac")["files"])
        return ring

    def equals(self, other):
        return all(np.array_equal(self.arrays[key], other.arrays[key]) for key in self.arrays)


@given(steps=st.lists(st.tuples(st.integers(0, 25), st.integers(0, 1)), min_size=1, max_size=8))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_checkpoint_gives_back_its_rows_also_after_the_ring_wraps(steps, tmp_path):
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    ring = Ring(rings=2)
    for count, which in steps:
        ring.add(count, which)
        ring.save(folder)
        assert ring.equals(Ring.load(folder, rings=2))


def test_a_row_is_written_once(tmp_path):
    ring, sizes = Ring(), []
    for _ in range(4):
        ring.add(2)
        before = set((tmp_path / "replay").glob("*.npz"))
        ring.save(tmp_path)
        new = set((tmp_path / "replay").glob("*.npz")) - before
        with np.load(next(iter(new))) as stored:
            sizes.append(len(stored["t"]))
    assert sizes == [3, 3, 3, 3]  # two new rows and the open one


def test_files_that_no_checkpoint_needs_are_deleted(tmp_path):
    ring = Ring()
    for _ in range(20):
        ring.add(3)
        ring.save(tmp_path)
        (tmp_path / "replay" / ".half.npz.tmp").write_bytes(b"of a killed process")
    # The ring's ten rows lie in four or five files; two older checkpoints add one each.
    names = [path.name for path in (tmp_path / "replay").iterdir()]
    assert len(names) <= 8
    assert ring.equals(Ring.load(tmp_path))
    ring.save(tmp_path)
    assert not (tmp_path / "replay" / ".half.npz.tmp").exists()


def test_the_previous_checkpoint_finds_its_rows(tmp_path):
    ring, copies = Ring(), []
    for _ in range(12):
        ring.add(4)
        ring.save(tmp_path)
        copies.append({key: array.copy() for key, array in ring.arrays.items()})
    (tmp_path / "checkpoint.pt").unlink()
    loaded = Ring.load(tmp_path)
    assert all(np.array_equal(loaded.arrays[key], copies[-2][key]) for key in copies[-2])


def test_rows_from_the_future_are_not_read(tmp_path):
    ring = Ring()
    ring.add(3)
    ring.save(tmp_path)
    known = {key: array.copy() for key, array in ring.arrays.items()}
    ring.add(3)
    ring.files.save(tmp_path, ring.arrays, ring.total)  # killed before its checkpoint
    loaded = Ring.load(tmp_path)
    assert all(np.array_equal(loaded.arrays[key], known[key]) for key in known)


def test_deleted_row_files_are_written_again(tmp_path):
    ring = Ring()
    ring.add(8)
    ring.save(tmp_path)
    shutil.rmtree(tmp_path / "replay")
    ring.add(1)
    ring.save(tmp_path)
    assert ring.equals(Ring.load(tmp_path))


def test_a_missing_row_file_is_named(tmp_path):
    ring = Ring()
    ring.add(8)
    ring.save(tmp_path)
    path = next((tmp_path / "replay").iterdir())
    path.unlink()
    with pytest.raises(UserError, match=f"cannot read replay memory .*{path.name}"):
        Ring.load(tmp_path)


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_gives_the_exact_state_or_a_clear_refusal(data, tmp_path):
    folder = tmp_path / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    ring = Ring()
    for _ in range(3):
        ring.add(5)
        ring.save(folder)
    expected = torch.load(folder / "checkpoint.pt", weights_only=True)
    files = [folder / "checkpoint.pt", *sorted((folder / "replay").iterdir())]
    path = data.draw(st.sampled_from(files), label="file")
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1), label="position")
    how = data.draw(st.sampled_from(["flip", "cut", "append", "zero", "swap", "repeat"]))
    if how == "flip":
        content[position] ^= data.draw(st.integers(1, 255), label="bits")
    elif how == "cut":
        content = content[:position]
    elif how == "append":
        content += data.draw(st.binary(min_size=1, max_size=20))
    elif how == "zero":
        content[position : position + 100] = bytes(len(content[position : position + 100]))
    elif how == "swap":
        content = bytearray(data.draw(st.sampled_from(files), label="other").read_bytes())
    else:
        content[position:position] = content[position : position + 50]
    path.write_bytes(content)
    try:
        loaded, state = Ring.load(folder), load_checkpoint(folder, "sac")
    except UserError:
        return
    assert ring.equals(loaded)
    assert torch.equal(state["agent"]["weight"], expected["agent"]["weight"])
    assert state["rng"] == expected["rng"]
