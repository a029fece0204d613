"""Replay of the feed-forward scripts against a list that forgets nothing; its size for all."""

import importlib
from argparse import Namespace

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from script_runs import SCRIPTS, tiny

import sac
from common.errors import UserError


def add_steps(buffer, num_steps, num_envs=1):
    """Adds steps whose numbers are all different; returns them, oldest first."""
    rows = np.arange(buffer.num_added, buffer.num_added + num_steps * num_envs)
    terminated = rows % 3 == 0
    for k in rows.reshape(num_steps, num_envs):
        buffer.add(k[:, None], -k[:, None], k + 0.25, k[:, None] + 0.5, k % 3 == 0)
    return list(zip(rows, -rows, rows + 0.25, rows + 0.5, terminated, strict=True))


@settings(max_examples=60, deadline=None)
@given(capacity=st.integers(3, 12), num_steps=st.integers(1, 30), num_envs=st.integers(1, 3))
def test_sampling_finds_exactly_the_youngest_steps_each_with_its_own_numbers(
    capacity, num_steps, num_envs
):
    buffer = sac.ReplayBuffer(capacity, 1, 1)
    steps = add_steps(buffer, num_steps, num_envs)
    batch = buffer.sample(1000, np.random.default_rng(0))
    drawn = set(zip(*(x[:, 0].tolist() for x in batch), strict=True))
    assert drawn == set(steps[-capacity:])


def test_every_step_is_equally_likely():
    buffer = sac.ReplayBuffer(64, 1, 1)
    add_steps(buffer, 100)
    obs = buffer.sample(100_000, np.random.default_rng(0))[0].numpy()[:, 0]
    counts = np.unique(obs, return_counts=True)[1]
    expected = 100_000 / 64
    assert len(counts) == 64
    assert abs(counts - expected).max() < 5 * expected**0.5


def test_batches_have_the_shapes_that_the_losses_expect():
    buffer = sac.ReplayBuffer(10, 3, 2)
    buffer.add(np.zeros((4, 3)), np.zeros((4, 2)), np.ones(4), np.ones((4, 3)), np.zeros(4, bool))
    shapes = [tuple(x.shape) for x in buffer.sample(5, np.random.default_rng(0))]
    assert shapes == [(5, 3), (5, 2), (5, 1), (5, 3), (5, 1)]


@pytest.mark.parametrize("script", SCRIPTS)
def test_memory_that_cannot_fit_is_refused_before_a_run_folder_is_made(
    script, tmp_path, monkeypatch
):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Namespace(available=0))
    module = importlib.import_module(script)
    args = module.parse_args(tiny(script, "--run-dir", tmp_path / "run"))
    with pytest.raises(UserError, match=r"--buffer-size 40 needs .* choose a smaller one"):
        module.main(args)
    assert not list(tmp_path.iterdir())
