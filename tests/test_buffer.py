"""The replay buffer of the feed-forward scripts against a list that forgets nothing."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ddpg
import sac
import td3
from common.errors import UserError

ROOT = Path(__file__).parent.parent
SCRIPTS = [ddpg, td3, sac]
ENDS = {"no": (False, False), "terminated": (True, False), "truncated": (False, True)}
ENDS["both"] = (True, True)


def fill(capacity, ends):
    """Plays episodes into a buffer; ends: for each step, how it ended for each environment.

    Returns the buffer and, for each environment, the transitions that must still be there: of a
    list of all steps and all last observations, the youngest `capacity` entries.
    """
    num_envs = len(ends[0])
    buffer = sac.ReplayBuffer(capacity * num_envs, 1, 1, num_envs)
    logs, open_entry = [[] for _ in range(num_envs)], [[] for _ in range(num_envs)]
    clock = 0
    obs = np.arange(num_envs, dtype=np.float32)[:, None] + 0.25
    for kinds in ends:
        clock += 10
        next_obs = obs * 0 + clock + np.arange(num_envs)[:, None]  # told apart by its value
        action, reward = -obs, obs[:, 0] + 0.5
        terminated, truncated = np.transpose([ENDS[kind] for kind in kinds])
        step = (obs, action, reward, next_obs, terminated, truncated)
        buffer.add(*(x[0] for x in step) if num_envs == 1 else step)
        obs = next_obs.astype(np.float32)
        for e, kind in enumerate(kinds):
            logs[e].append(tuple(float(np.ravel(x)[e]) for x in step[:5]))
            open_entry[e] = [None]
            if kind != "no":
                logs[e].append(None)
                open_entry[e] = []
                obs[e] = clock + 0.25 + e  # another episode, another start
    alive = [(log + more)[-capacity:] for log, more in zip(logs, open_entry, strict=True)]
    return buffer, [[x for x in entries if x is not None] for entries in alive]


@st.composite
def histories(draw):
    num_envs = draw(st.integers(1, 3))
    kinds = st.sampled_from(["no", "no", "no", *ENDS])
    steps = st.lists(kinds, min_size=num_envs, max_size=num_envs)
    return draw(st.integers(2, 12)), draw(st.lists(steps, min_size=1, max_size=40))


@settings(max_examples=60, deadline=None)
@given(histories())
def test_sampling_finds_exactly_the_steps_that_are_still_there(history):
    buffer, alive = fill(*history)
    batch = buffer.sample(2000, np.random.default_rng(0))
    obs, action, reward, next_obs, terminated = (x.numpy()[:, 0].tolist() for x in batch)
    drawn = set(zip(obs, action, reward, next_obs, terminated, strict=True))
    assert drawn == {step for steps in alive for step in steps}


def test_every_step_is_equally_likely():
    ends = [["truncated" if k % 7 == 6 else "no"] for k in range(100)]
    buffer, alive = fill(64, ends)
    obs = buffer.sample(100_000, np.random.default_rng(0))[0].numpy()[:, 0]
    counts = np.unique(obs, return_counts=True)[1]
    expected = 100_000 / len(alive[0])
    assert len(counts) == len(alive[0])
    assert abs(counts - expected).max() < 5 * expected**0.5


def test_an_observation_takes_one_row_and_the_last_of_an_episode_one_more():
    ends = [["truncated" if k % 10 == 9 else "no"] for k in range(30)]
    buffer, _ = fill(100, ends)
    assert buffer.next_row[0] == 30 + 3
    assert buffer.rows.nbytes == 100 * (1 + 1 + 2) * 4


def test_batches_have_the_shapes_that_the_losses_expect():
    buffer = sac.ReplayBuffer(10, 3, 2)
    buffer.add(np.zeros(3), np.zeros(2), 1.0, np.ones(3), False, False)
    shapes = [tuple(x.shape) for x in buffer.sample(5, np.random.default_rng(0))]
    assert shapes == [(5, 3), (5, 2), (5, 1), (5, 3), (5, 1)]


def seconds_per_add(capacity):
    buffer = sac.ReplayBuffer(capacity, 4, 2)
    obs, action = np.zeros(4, np.float32), np.zeros(2, np.float32)
    times = []
    for _ in range(10):
        start = time.process_time()
        for k in range(200):
            buffer.add(obs, action, 0.0, obs, False, k == 199)
        times.append(time.process_time() - start)
    return min(times)


def test_the_cost_of_adding_does_not_depend_on_the_capacity():
    # Anything that touches all rows would take thousands of times longer.
    assert seconds_per_add(1_000_000) < 10 * seconds_per_add(1000)


def test_a_buffer_restored_from_its_checkpoint_gives_the_same_batches(tmp_path):
    ends = [["truncated" if k % 7 == 6 else "no"] * 2 for k in range(50)]
    buffer, _ = fill(20, ends)
    other = sac.ReplayBuffer(40, 1, 1, 2)
    other.load_state_dict(buffer.state_dict(tmp_path), tmp_path)
    ours, theirs = (b.sample(500, np.random.default_rng(1)) for b in (buffer, other))
    for a, b in zip(ours, theirs, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("script", SCRIPTS)
def test_memory_that_cannot_fit_is_refused_before_a_run_folder_is_made(script, tmp_path):
    args = ["--buffer-size", "1e13", "--env-id", "pendulum-v0", "--log-dir", str(tmp_path)]
    with pytest.raises(UserError, match=r"--buffer-size 10000000000000 needs \S+ GiB"):
        script.main(script.parse_args(args))
    assert not list(tmp_path.iterdir())


def test_the_refusal_is_one_line_of_error_and_exit_code_2(tmp_path):
    command = [sys.executable, ROOT / "ddpg.py", "--buffer-size", "1e13", "--log-dir", tmp_path]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    errors = [line for line in result.stderr.splitlines() if "error" in line.lower()]
    assert result.returncode == 2
    assert len(errors) == 1
    assert "choose a smaller one" in errors[0]
    assert "Traceback" not in result.stderr
