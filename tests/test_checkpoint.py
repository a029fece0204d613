"""Checkpoint files: whole, verified, never any code in them; replay buffer is written once."""

import copy
import hashlib
import io
import os
import pickle
import shutil
import zlib

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import conv_sac
import sac
from common import checkpoint
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import RunError, UserError
from common.replay_files import ReplayFiles


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
    alone = torch.load(tmp_path / "checkpoint.pt", weights_only=True)  # without any code of ours
    assert alone["global_step"] == 7


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    """Such as a hidden state of NumPy arrays, in a copy of a script."""
    save_checkpoint(tmp_path, make_state(1))
    with pytest.raises(UserError, match="is there a NumPy array in the agent's state"):
        save_checkpoint(tmp_path, make_state(2) | {"progress": [0, (np.zeros(3), np.zeros(3))]})
    assert load_checkpoint(tmp_path, "sac")["global_step"] == 1


def test_a_checkpoint_takes_the_place_of_the_one_before(tmp_path):
    for step in (1, 2):
        save_checkpoint(tmp_path, make_state(step))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert load_checkpoint(tmp_path, "sac")["global_step"] == 2


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
    with pytest.raises(UserError, match="refused" if signed else "or it is damaged"):
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


def flip(path):
    saved(path)
    data = bytearray((path / "checkpoint.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "checkpoint.pt").write_bytes(data)


BAD = {
    "missing": (lambda path: None, r"checkpoint\.pt is not there"),
    "empty": (
        lambda path: (path / "checkpoint.pt").write_bytes(b""),
        "no checkpoint of this project",
    ),
    "text": (
        lambda path: (path / "checkpoint.pt").write_text("hello" * 99),
        "no checkpoint of this project",
    ),
    "another script": (lambda path: saved(path, script="rsac"), "written by rsac.py; use: python"),
    "future version": (
        lambda path: signed(path, {"script": "sac", "version": 99}),
        "another version",
    ),
    "no version": (lambda path: signed(path, {"script": "sac"}), "another version"),
    "a list": (lambda path: signed(path, [1, 2]), "another version"),
    "a tensor": (lambda path: signed(path, torch.zeros(3)), "another version"),
    "damaged": (flip, "or it is damaged"),
    "noise": (lambda path: write_signed(path / "checkpoint.pt", b"x" * 500), "refused"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_checkpoint_gets_one_clear_line(case, tmp_path):
    make, message = BAD[case]
    make(tmp_path)
    with pytest.raises(UserError, match=message) as caught:
        load_checkpoint(tmp_path, "sac")
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_no_fault_of_the_file(tmp_path, monkeypatch):
    saved(tmp_path)

    def full(*args, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch, "load", full)
    with pytest.raises(torch.OutOfMemoryError):
        load_checkpoint(tmp_path, "sac")


# ---- Replay buffer ----


class Replay:
    """A small replay buffer, its files, and steps that are told apart by their values."""

    def __init__(self, script):
        self.script, self.clock = script, 0
        self.buffer = BUFFERS[script]()

    def add(self, count):
        """Steps of two environments; episodes of three steps in one and of two in the other."""
        for _ in range(count):
            self.clock += 1
            number = self.clock + np.array([0.0, 0.5])
            ended = self.clock % np.array([3, 2]) == 0
            if self.script == "sac":
                obs = number[:, None] + np.array([0.0, 0.25])
                self.buffer.add(obs, -obs[:, :1], number, obs + 1, ended)
            else:
                frames = np.arange(3) + np.array([[0], [100]]) + self.clock  # (N, 3)
                stacks = np.stack([frames[:, :2], frames[:, 1:]])[..., None, None]
                self.buffer.add(stacks[0], -number[:, None], number, stacks[1], ended, ended)

    def save(self, folder, whole=True):
        self.files = getattr(self, "files", None) or ReplayFiles(folder)
        state = self.files.save(self.buffer)
        if whole:
            save_checkpoint(folder, {"script": "sac", "buffer": state})

    def content(self):
        """All that decides what is sampled, now and later; a copy."""
        arrays = {k: x for k, x in vars(self.buffer).items() if isinstance(x, np.ndarray)}
        return copy.deepcopy(arrays | {"num_added": self.buffer.num_added})

    @classmethod
    def load(cls, folder, script):
        loaded = cls(script)
        loaded.files = ReplayFiles(folder)
        loaded.files.load(loaded.buffer, load_checkpoint(folder, "sac")["buffer"])
        return loaded


BUFFERS = {
    "sac": lambda: sac.ReplayBuffer(10, 2, 1),
    "conv_sac": lambda: conv_sac.ReplayBuffer(20, (2, 1, 1), 1, frame_stack=2),
}
scripts = pytest.mark.parametrize("script", BUFFERS)


@scripts
def test_replay_memory_comes_back_exactly(script, tmp_path):
    replay = Replay(script)
    for k in range(25):
        replay.add(k % 4)
        replay.save(tmp_path)
        loaded = Replay.load(tmp_path, script)
        np.testing.assert_equal(loaded.content(), replay.content())
        loaded.clock = replay.clock
        if k % 3 == 0:  # as a resumed run does: it learns and saves on
            replay = loaded


@scripts
def test_what_is_stored_is_written_once_and_deleted_when_no_checkpoint_needs_it(script, tmp_path):
    replay, written = Replay(script), {}
    for _ in range(20):
        replay.add(3)
        replay.save(tmp_path)
        (tmp_path / "replay" / ".half.npz.tmp").write_bytes(b"of a killed process")
        there = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "replay").glob("*.npz")}
        assert len(there) <= 4
        for name, when in there.items():
            assert written.setdefault(name, when) == when
    numbers = [int(number) for name in sorted(written) for number in name[:-4].split("-")]
    assert numbers[1:-1:2] == numbers[2::2], "each file goes on where the one before ends"
    assert (numbers[0], numbers[-1]) == (0, replay.buffer.num_added)
    replay.save(tmp_path)
    assert not (tmp_path / "replay" / ".half.npz.tmp").exists()


@scripts
def test_steps_from_the_future_of_a_checkpoint_are_not_read(script, tmp_path):
    replay = Replay(script)
    for _ in range(12):
        replay.add(4)
        before = replay.content()
        replay.save(tmp_path)
    replay.add(4)
    replay.save(tmp_path, whole=False)  # killed before the checkpoint was written
    np.testing.assert_equal(Replay.load(tmp_path, script).content(), before)


@scripts
def test_files_that_somebody_deleted_are_written_again(script, tmp_path):
    replay = Replay(script)
    replay.add(8)
    replay.save(tmp_path)
    shutil.rmtree(tmp_path / "replay")
    with pytest.raises(FileNotFoundError):
        Replay.load(tmp_path, script)
    replay.add(1)
    replay.save(tmp_path)
    np.testing.assert_equal(Replay.load(tmp_path, script).content(), replay.content())


@scripts
def test_code_in_a_replay_file_is_refused_and_not_run(script, tmp_path):
    replay, data = Replay(script), io.BytesIO()
    attack = np.array([Attack(str(tmp_path / "pwned"))], object)
    np.savez(data, reward=attack)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "a.npz").write_bytes(data.getvalue())
    files = [["a.npz", 0, 1, zlib.crc32(data.getvalue())]]
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        ReplayFiles(tmp_path).load(replay.buffer, {"files": files, "end": 1})
    assert not (tmp_path / "pwned").exists()


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_damage_gives_the_exact_state_or_a_clear_refusal(data, tmp_path):
    folder, script = tmp_path / "run", data.draw(st.sampled_from(list(BUFFERS)))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    replay = Replay(script)
    for _ in range(3):
        replay.add(5)
        replay.save(folder)
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
        loaded = Replay.load(folder, script)
    except (UserError, FileNotFoundError):
        return
    np.testing.assert_equal(loaded.content(), replay.content())


@scripts
def test_a_resumed_run_keeps_the_files_of_its_checkpoint_until_the_next(script, tmp_path):
    replay = Replay(script)
    for _ in range(3):
        replay.add(2)
        replay.save(tmp_path)
    before, loaded = replay.content(), Replay.load(tmp_path, script)
    loaded.clock = replay.clock
    loaded.add(1)
    loaded.save(tmp_path, whole=False)  # killed before the checkpoint was written
    np.testing.assert_equal(Replay.load(tmp_path, script).content(), before)
