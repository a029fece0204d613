"""What holds for every environment of the table, whatever its family."""

import gc
import os
import pickle
import subprocess
import sys
import warnings
from contextlib import closing
from itertools import islice
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from common.errors import UserError
from envs.suite import IDS
from envs.table import ENVS, find

# dm_control's tasks that are not in the table.
OTHERS = [env_id for env_id in IDS if env_id not in ENVS]
# One id per kind of code, and how often it is made and closed: models of MuJoCo and scenes of
# pybullet take 10 to 200 ms and megabytes to build, the others a millisecond.
LIGHT = dict.fromkeys(
    [
        "pendulum-va-v0",
        "pendulum-p-concat5-v0",
        "cartpole-continuous-v0",
        "car-v0",
        "water-maze-simple-pomdp-v0",
        "pendulum-flicker-v0",
    ],
    1000,
)
KINDS = LIGHT | {
    "reacher-pomdp-v0": 200,
    "dmc-cartpole-balance-va-v0": 200,
    "dmc-cartpole-balance-mdp-img-concat3-v0": 100,
    "bumps-normal-test-v0": 200,
    "HalfCheetahBulletEnv-v0": 200,
    "mujoco-hopper-p-v0": 200,
}


def slow(env_id):
    return pytest.param(env_id, marks=pytest.mark.slow)


# Of each kind one is in the fast tests.
EVERY = pytest.mark.parametrize("env_id", [i if i in KINDS else slow(i) for i in ENVS])
PARTIAL = pytest.mark.parametrize("env_id", [i for i, info in ENVS.items() if info.hidden != "-"])


def make(env_id, **kwargs):
    """gym.make; skips where an optional package or OpenGL is missing."""
    try:
        env = gym.make(env_id, disable_env_checker=True, **kwargs)
    except ImportError as error:
        pytest.skip(str(error))
    except UserError as error:
        if "not installed" not in str(error) and "OpenGL" not in str(error):
            raise
        pytest.skip(str(error))
    return closing(env)


def actions_of(env, n, seed=0):
    space = env.action_space
    rng = np.random.default_rng(seed)
    return rng.uniform(space.low, space.high, (n, *space.shape)).astype(space.dtype)


def play(env, seed, steps=12):
    """Yields what the agent gets in one episode, in a form that compares exactly."""
    obs, _ = env.reset(seed=seed)
    yield obs.tobytes(), 0.0, False, False
    for action in actions_of(env, steps, seed):
        obs, reward, terminated, truncated, _ = env.step(action)
        yield obs.tobytes(), float(reward), bool(terminated), bool(truncated)
        if terminated or truncated:
            return


@pytest.mark.parametrize(
    "env_id", [*ENVS, *(pytest.param(env_id, marks=pytest.mark.slow) for env_id in OTHERS)]
)
def test_gymnasiums_checker_finds_nothing(env_id):
    with make(env_id) as env, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)  # drawing has a test of its own
    # True, and meant: natural action ranges, velocities without bounds, checked as it is used.
    known = ("normalized space", "infinity", "different from the unwrapped version")
    messages = [str(warning.message) for warning in caught]
    assert [m for m in messages if not any(text in m for text in known)] == []


@EVERY
def test_same_seed_gives_the_same_episode_whatever_came_before(env_id):
    with make(env_id) as fresh, make(env_id) as used:
        for seed in (1, 2):
            for _ in play(used, seed):
                pass
        assert list(play(used, 5)) == list(play(fresh, 5))


@EVERY
def test_another_seed_gives_another_episode(env_id):
    with make(env_id) as env:
        first, second = list(play(env, 5)), list(play(env, 6))
    assert first != second


@EVERY
def test_two_instances_never_touch_each_other(env_id):
    with make(env_id) as env:
        alone = list(play(env, 5))
        playing, mixed = play(env, 5), []
        with make(env_id) as other:  # comes in mid-episode, plays twice, and goes
            for seed in (1, 2):
                for _ in islice(play(other, seed), 4):
                    mixed += islice(playing, 1)
        mixed += playing
    assert mixed == alone


@EVERY
def test_observations_stay_in_their_space(env_id):
    with make(env_id) as env:
        space, (low, high) = env.observation_space, (env.action_space.low, env.action_space.high)
        for seed in range(2):
            obs, _ = env.reset(seed=seed)
            assert space.contains(obs)
            corners = np.sign(actions_of(env, 4, seed + 2))
            held = np.repeat(np.where(corners > 0, high, low), 8, axis=0)  # full action for 8 steps
            for action in [*actions_of(env, 10, seed), *held]:
                obs, _, terminated, truncated, _ = env.step(action)
                assert space.contains(obs), obs
                if terminated or truncated:
                    break


@EVERY
@pytest.mark.parametrize("bad", ["nan", "shape"])
def test_bad_action_is_refused_in_one_line(env_id, bad):
    with make(env_id) as env:
        env.reset(seed=0)
        (size,) = env.action_space.shape
        action = np.full(size, np.nan) if bad == "nan" else np.zeros(size + 1)
        with pytest.raises(UserError, match="finite" if bad == "nan" else "shape") as caught:
            env.step(action.astype(np.float32))
        assert "\n" not in str(caught.value)


@EVERY
def test_renders_pictures_that_move(env_id):
    with make(env_id, render_mode="rgb_array") as env:
        assert env.render_mode == "rgb_array"
        env.reset(seed=0)
        first = env.render()
        for action in actions_of(env, 10):
            *_, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                break
        last = env.render()
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.shape[2] == 3
    assert min(first.shape[:2]) >= 64
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 2
    assert not np.array_equal(first, last)


@PARTIAL
def test_oracle_sees_what_is_hidden(env_id):
    chain = [env_id]
    while find(chain[-1]) and (oracle := find(chain[-1]).oracle) != chain[-1]:
        assert oracle in gym.registry, f"{chain[-1]} names {oracle}"
        assert oracle not in chain
        chain.append(oracle)
    last = find(chain[-1])  # None: one of Gymnasium's own
    assert last is None or last.hidden == "-"


@pytest.mark.slow
@PARTIAL
def test_oracle_plays_the_same_task(env_id):
    with make(env_id) as env, make(find(env_id).oracle) as oracle:
        assert env.action_space == oracle.action_space
        assert env.spec.max_episode_steps == oracle.spec.max_episode_steps
        ours, theirs = ([entry[1:] for entry in play(e, 3)] for e in (env, oracle))
    assert ours == theirs  # rewards and ends


@pytest.mark.slow
def test_every_environment_is_built_from_its_spec_in_another_process(tmp_path):
    ids, specs, expected = [], [], []
    for env_id in ENVS:
        try:
            with make(env_id) as env:
                expected.append(list(play(env, 4, steps=3)))
        except pytest.skip.Exception:
            continue
        ids.append(env_id)
        specs.append(gym.spec(env_id))
    code = (
        "import pickle, sys\n"
        "sys.path.insert(0, 'tests')\n"
        "import gymnasium as gym\n"
        "from test_envs_all import play\n"
        "specs = pickle.load(sys.stdin.buffer)\n"
        "made = [list(play(gym.make(spec), 4, steps=3)) for spec in specs]\n"
        "pickle.dump(made, open(sys.argv[1], 'wb'))\n"
    )
    answer = tmp_path / "made.pickle"
    command = [sys.executable, "-W", "ignore", "-c", code, answer]
    subprocess.run(command, input=pickle.dumps(specs), check=True, capture_output=True)
    made = pickle.loads(answer.read_bytes())
    assert [i for i, a, b in zip(ids, made, expected, strict=True) if a != b] == []


def test_importing_envs_is_all_that_gymnasium_needs(tmp_path):
    """The conventions of Gymnasium, in a program that lies elsewhere."""
    code = (
        "import gymnasium as gym\n"
        "print(gym.make('envs:pendulum-p-v0').spec.id, 'torch' in __import__('sys').modules)\n"
        "import envs\n"
        "print(gym.make('water-maze-simple-pomdp-v0').spec.id)\n"
        "envs.register('dmc-walker-walk-p-skip4-v0')\n"
        "print(gym.spec('dmc-walker-walk-p-skip4-v0').max_episode_steps)\n"
        "print(all(env_id in gym.registry for env_id in [*envs.ENVS, *envs.IDS]))\n"
    )
    place = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=place, capture_output=True, text=True
    )
    answers = ["pendulum-p-v0", "False", "water-maze-simple-pomdp-v0", "250", "True"]
    assert run.stdout.split() == answers, run.stderr


def test_nothing_heavy_is_imported_before_an_environment_is_made():
    heavy = ["pybullet", "dm_control", "mujoco", "matplotlib", "pygame", "torch", "shimmy"]
    code = (
        "import sys; from envs.table import find; "
        f"find('dmc-walker-walk-v0'); print([m for m in {heavy} if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def _usage():
    gc.collect()
    with open("/proc/self/statm") as file:
        megabytes = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return len(os.listdir("/proc/self/fd")), megabytes


def _make_and_close(env_id, times, **kwargs):
    for _ in range(times):
        with make(env_id, **kwargs) as env:
            env.reset(seed=0)
            env.step(env.action_space.low)
            if kwargs:
                env.render()


def _settled(env_id, **kwargs):
    """The least usage after one more environment: a heap breathes, a leak stays."""
    seen = []
    for _ in range(4):
        _make_and_close(env_id, 1, **kwargs)
        seen.append(_usage())
    return [min(values) for values in zip(*seen, strict=True)]


def _assert_flat(env_id, times, **kwargs):
    _make_and_close(env_id, 3 + times // 10, **kwargs)  # caches fill
    handles, megabytes = _settled(env_id, **kwargs)
    _make_and_close(env_id, times, **kwargs)
    handles_after, megabytes_after = _settled(env_id, **kwargs)
    assert handles_after <= handles
    # One environment holds 5 kB in the light kinds, 3 to 70 MB in the others.
    assert megabytes_after - megabytes < (2 if KINDS[env_id] == 1000 else 50)


linux = pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads /proc")


@linux
@pytest.mark.timeout(3600)  # pixels: minutes
@pytest.mark.parametrize("env_id", [i if i in LIGHT else slow(i) for i in KINDS])
def test_make_and_close_leaves_nothing_behind(env_id):
    _assert_flat(env_id, KINDS[env_id])


@linux
@pytest.mark.slow
@pytest.mark.parametrize("env_id", KINDS)
def test_drawing_leaves_nothing_behind(env_id):
    _assert_flat(env_id, KINDS[env_id] // 5, render_mode="rgb_array")


def test_table_covers_every_module_that_makes_environments():
    used = {info.entry_point.partition(":")[0] for info in ENVS.values()}
    families = ["pendulum", "cartpole", "car", "water_maze"]
    families += ["reacher", "dm_control", "bumps", "locomotion", "mujoco"]
    assert used == {f"envs.{family}" for family in families}
