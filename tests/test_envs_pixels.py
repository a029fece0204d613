"""Pictures as observations, and the choice of the OpenGL library that draws them."""

import os
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest

from common.envs import make_env
from common.errors import UserError
from envs import dm_control, gl

pytest.importorskip("dm_control")
STACKED = "dmc-cartpole-balance-mdp-img-concat3-v0"

# Makes the OpenGL libraries of this machine invisible to Python, in child processes too.
HIDE_GL = """
import ctypes
load = ctypes.CDLL.__init__
def hidden(self, name, *args, **kwargs):
    if any(part in str(name) for part in ("EGL", "OSMesa", "libGL")):
        raise OSError(f"{name}: hidden by the test")
    load(self, name, *args, **kwargs)
ctypes.CDLL.__init__ = hidden
"""


@pytest.fixture(scope="module")
def library():
    try:
        return gl.use_gl()
    except UserError as error:
        pytest.skip(str(error))


def single(domain="cartpole", task="balance", **kwargs):
    return dm_control.make_pixels(domain, task, stack=1, **kwargs)


def look(env, qpos, qvel=0.0):
    """The picture of a state."""
    physics = env.unwrapped.physics
    with physics.reset_context():
        physics.data.qpos[:], physics.data.qvel[:] = qpos, qvel
    return env.observation(None)


def test_stack_is_black_frames_then_pictures_oldest_first(library):
    stacked, one = gym.make(STACKED), single()
    assert stacked.observation_space == gym.spaces.Box(0, 255, (3, 84, 84), np.uint8)
    obs, _ = stacked.reset(seed=3)
    frames = [np.zeros((1, 84, 84), np.uint8)] * 2 + [one.reset(seed=3)[0]]
    for action in ([1.0], [-0.5], [0.2], [1.0]):
        assert obs.dtype == np.uint8
        np.testing.assert_array_equal(obs, np.concatenate(frames[-3:]))
        obs, reward, *_ = stacked.step(action)
        frame, same_reward, *_ = one.step(action)
        frames.append(frame)
        assert reward == same_reward
    assert not np.array_equal(frames[-1], frames[-2])


def test_colour_stack_keeps_the_three_channels_of_a_frame_together(library):
    stacked, one = dm_control.make_pixels("cartpole", "balance", rgb=True), single(rgb=True)
    assert stacked.observation_space.shape == (9, 84, 84)
    obs, first = stacked.reset(seed=3)[0], one.reset(seed=3)[0]
    np.testing.assert_array_equal(obs, np.concatenate([np.zeros((6, 84, 84)), first]))
    obs, second = stacked.step([1.0])[0], one.step([1.0])[0]
    np.testing.assert_array_equal(obs, np.concatenate([np.zeros((3, 84, 84)), first, second]))


def test_grey_is_the_weighted_sum_of_the_colours_rounded(library):
    for domain, task in (("cartpole", "balance"), ("walker", "walk")):
        grey = single(domain, task).reset(seed=0)[0][0].astype(float)
        red, green, blue = single(domain, task, rgb=True).reset(seed=0)[0].astype(float)
        exact = 0.2989 * red + 0.5870 * green + 0.1140 * blue
        assert np.abs(grey - exact).max() <= 0.5 + 1e-9
        assert np.ptp(grey) > 50


def test_picture_is_upright_and_shows_where_things_are(library):
    env = single()
    env.reset(seed=0)
    pictures = [look(env, state)[0] for state in ([0, 0], [-1, 0], [0, np.pi])]
    # Rows and columns of the brightest part: cart and pole.
    upright, left, fallen = (np.nonzero(x >= np.quantile(x, 0.97)) for x in pictures)
    assert left[1].mean() < upright[1].mean() - 5
    assert fallen[0].mean() > upright[0].mean() + 5


def test_one_picture_does_not_show_velocities_and_two_do(library):
    env = single()
    env.reset(seed=0)
    still, moving = look(env, [0.1, 0.2], 0.0), look(env, [0.1, 0.2], 4.0)
    np.testing.assert_array_equal(still, moving)
    after = {}
    for speed in (0.0, 4.0):
        look(env, [0.1, 0.2], speed)
        after[speed] = env.step([0.0])[0]
    assert not np.array_equal(after[0.0], after[4.0])


def test_reward_is_that_of_two_control_steps(library):
    pixels, states = gym.make(STACKED), dm_control.make_state("cartpole", "balance", frame_skip=2)
    pixels.reset(seed=1), states.reset(seed=1)
    for action in ([0.3], [-1.0], [0.9]):
        assert pixels.step(action)[1] == states.step(action)[1]


def test_time_limit_truncates_and_never_terminates(library):
    env = gym.make(STACKED)
    env.reset(seed=0)
    ends = [env.step([0.0])[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]


def test_drawing_a_video_leaves_observations_alone(library):
    plain, filmed = gym.make(STACKED), gym.make(STACKED, render_mode="rgb_array")
    plain.reset(seed=2), filmed.reset(seed=2)
    for action in ([1.0], [-1.0], [1.0]):
        assert filmed.render().shape == (240, 320, 3)
        np.testing.assert_array_equal(plain.step(action)[0], filmed.step(action)[0])


def test_other_sizes_are_drawn(library):
    assert single("walker", "walk", size=64).reset(seed=0)[0].shape == (1, 64, 64)


# ---- the choice of the library ----


def python(code, tmp_path=None, **environ):
    """Runs code in a new process, with sitecustomize.py taken from tmp_path."""
    clean = {k: v for k, v in os.environ.items() if k not in ("MUJOCO_GL", "PYOPENGL_PLATFORM")}
    if tmp_path:
        (tmp_path / "sitecustomize.py").write_text(HIDE_GL)
        environ["PYTHONPATH"] = str(tmp_path)
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, '.')\n{code}"]
    return subprocess.run(command, env={**clean, **environ}, capture_output=True, text=True)


def test_without_opengl_states_train_and_pictures_give_one_line(tmp_path):
    run = python(
        "from common.cli import run_cli\n"
        "from common.envs import make_env\n"
        "for env_id in ('dmc-cartpole-balance-v0', 'reacher-mdp-v0'):\n"
        "    env = make_env(env_id)\n"
        "    env.reset()\n"
        "    env.step(env.action_space.sample())\n"
        "    print('stepped')\n"
        f"run_cli(make_env, {STACKED!r})\n",
        tmp_path,
    )
    assert run.stdout.split() == ["stepped", "stepped"]
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert "EGL and OSMesa failed; on Debian or Ubuntu: apt-get install" in run.stderr


def test_choice_is_printed_once_and_only_when_something_is_drawn(library):
    run = python(
        "from common.envs import make_env\n"
        "make_env('dmc-cartpole-balance-v0')\n"
        "print('nothing drawn', file=sys.stderr)\n"
        f"for env_id in ({STACKED!r}, 'dmc-walker-walk-img-v0'):\n"
        "    make_env(env_id).reset()\n"
        "env = make_env('reacher-mdp-v0', render_mode='rgb_array')\n"
        "env.reset()\n"
        "assert env.render().any()\n"
        "env.close()\n",
        MUJOCO_GL=library,
    )
    lines = [line for line in run.stderr.splitlines() if "absl" not in line]
    assert lines == ["nothing drawn", f"rendering: MuJoCo draws through {gl.NAMES[library]}"]


def test_gymnasiums_own_tasks_are_drawn_without_a_display(library, tmp_path):
    run = python(
        "from common.envs import make_env\n"
        "env = make_env('Hopper-v5', render_mode='rgb_array')\n"
        "env.reset()\n"
        "assert env.render().any()\n"
        "env.close()\n",
        MUJOCO_GL=library,
    )
    assert run.returncode == 0, run.stderr
    run = python(
        "from common.cli import run_cli\n"
        "from common.envs import make_env\n"
        "run_cli(make_env, 'Hopper-v5', 0, 'rgb_array')\n",
        tmp_path,
    )
    assert run.returncode == 2
    assert "EGL and OSMesa failed" in run.stderr.splitlines()[-1]


def test_triton_is_loaded_before_opengl(library, tmp_path):
    (tmp_path / "triton.py").write_text("import sys\nprint('triton', 'OpenGL' in sys.modules)\n")
    run = python(
        f"sys.path.append({str(tmp_path)!r})\n"
        "from common.envs import make_env\n"
        "make_env('dmc-cartpole-balance-v0').reset()\n"
        "print('states')\n"
        f"make_env({STACKED!r}).reset()\n"
        "print('OpenGL' in sys.modules)\n",
        MUJOCO_GL=library,
    )
    assert run.stdout.splitlines() == ["states", "triton False", "True"]


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not chosen yet."""
    monkeypatch.setattr(gl, "_chosen", None)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    return monkeypatch


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="EGL and OSMesa are Linux's")
@pytest.mark.parametrize(("working", "taken"), [({"egl", "osmesa"}, "egl"), ({"osmesa"}, "osmesa")])
def test_egl_comes_before_osmesa(fresh, working, taken):
    fresh.setattr(gl, "_works", lambda name: name in working)
    assert gl._choose() == taken


def test_own_choice_is_tried_alone(fresh):
    fresh.setenv("MUJOCO_GL", "egl")
    fresh.setattr(gl, "_works", lambda name: name == "osmesa")
    with pytest.raises(UserError, match=r"EGL failed .*MUJOCO_GL asks for it alone"):
        gl._choose()


def test_switched_off_drawing_is_named(fresh):
    fresh.setenv("MUJOCO_GL", "off")
    with pytest.raises(UserError, match="MUJOCO_GL=off rules out drawing"):
        make_env(STACKED)


@pytest.mark.parametrize("probe", ["import time; time.sleep(60)", "import os; os.abort()"])
def test_driver_that_hangs_or_crashes_counts_as_missing(fresh, probe):
    fresh.setattr(gl, "_PROBE", probe)
    fresh.setattr(gl, "PROBE_TIMEOUT", 1)
    assert not gl._works("egl")
