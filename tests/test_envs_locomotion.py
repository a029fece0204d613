"""pybullet locomotion: views on the package's environments, one time limit, no leaks.

Compared with the package's own environment stepped side by side, and with the reward's formula.
What holds for all environments is in `test_envs_all.py`.
"""

import math
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
import pytest

from common.envs import make_env
from common.errors import UserError

pytest.importorskip("pybullet")

FULL = {
    "halfcheetah": "HalfCheetahBulletEnv-v0",
    "ant": "AntBulletEnv-v0",
    "hopper": "HopperBulletEnv-v0",
    "walker2d": "Walker2DBulletEnv-v0",
}
# The index sets of pomdp-baselines ("-P" and "-V"), written out.
KEPT = {
    "HalfCheetahBulletEnv-v0": list(range(26)),
    "AntBulletEnv-v0": list(range(28)),
    "HopperBulletEnv-v0": list(range(15)),
    "Walker2DBulletEnv-v0": list(range(22)),
    "hopper-p-v0": [0, 1, 2, 6, 7, 8, 10, 12, 14],
    "hopper-v-v0": [3, 4, 5, 9, 11, 13],
    "walker2d-p-v0": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21],
    "walker2d-v-v0": [3, 4, 5, 9, 11, 13, 15, 17, 19],
    "ant-p-v0": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25, 26, 27],
    "ant-v-v0": [3, 4, 5, 9, 11, 13, 15, 17, 19, 21, 23],
    "halfcheetah-p-v0": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21, 22, 23, 24, 25],
    "halfcheetah-v-v0": [3, 4, 5, 9, 11, 13, 15, 17, 19],
}
IDS = list(KEPT)


def full_id(env_id):
    return FULL.get(env_id.split("-")[0], env_id)


def theirs(env_id):
    """The package's own environment, past its first episode, whose first reward is another one."""
    from pybullet_envs_gymnasium import gym_locomotion_envs

    env = getattr(gym_locomotion_envs, full_id(env_id).removesuffix("-v0"))()
    env.reset(seed=0)
    return env


def random_actions(env, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(-1, 1, (n, *env.action_space.shape)).astype(np.float32)


def trajectory(env, seed, actions):
    obs, _ = env.reset(seed=seed)
    rows = [[*obs, 0, 0]]
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append([*obs, reward, terminated])
        if terminated or truncated:
            break
    return np.array(rows)


# ---- Views on the package's environments ----


@pytest.mark.parametrize("env_id", IDS)
def test_environment_shows_the_listed_entries_of_the_packages_and_its_reward(env_id):
    env, base = gym.make(env_id), theirs(env_id)
    for seed in (3, 4):
        obs, full = env.reset(seed=seed)[0], base.reset(seed=seed)[0]
        for action in random_actions(env, 60, seed):
            np.testing.assert_array_equal(obs, full[KEPT[env_id]])
            obs, *outcome, _ = env.step(action)
            full, *expected, _ = base.step(action)
            assert outcome == expected
            if outcome[1]:
                break


def expected_reward(robot, env, before, action, height0):
    """The reward from positions and joint states, and whether the robot has fallen.

    before: distance to the target before the step (m).  Returns (reward, fallen, distance).
    """
    body = env.base.robot
    parts = np.array([part.get_position() for part in body.parts.values()])
    distance = math.hypot(1000 - parts[:, 0].mean(), parts[:, 1].mean())
    if before is None:
        return None, None, distance
    angles, speeds = np.array([joint.get_state() for joint in body.ordered_joints]).T
    low = np.array([joint.lowerLimit for joint in body.ordered_joints])
    high = np.array([joint.upperLimit for joint in body.ordered_joints])
    at_limit = np.sum(np.abs(2 * (angles - low) / (high - low) - 1) > 0.99)
    height = body.robot_body.get_position()[2]
    pitch = env.base._p.getEulerFromQuaternion(body.robot_body.get_orientation())[1]
    if robot == "ant":
        fallen = height <= 0.26
    elif robot == "halfcheetah":  # touched with a knee or a thigh, seen one step late
        fallen = abs(pitch) >= 1 or bool(height0[[1, 2, 4, 5]].any())
    else:
        fallen = height <= 0.8 or abs(pitch) >= 1
    reward = (
        (-1 if fallen else 1)
        + (before - distance) / 0.0165
        - 2.0 * np.mean(np.abs(action * 0.1 * speeds))
        - 0.1 * np.mean(action**2)
        - 0.1 * at_limit
    )
    return reward, fallen, distance


@pytest.mark.parametrize("robot", FULL)
def test_reward_is_life_progress_and_costs(robot):
    env = gym.make(FULL[robot])
    fallen_once = False
    for seed in range(3):
        env.reset(seed=seed)
        _, _, distance = expected_reward(robot, env.unwrapped, None, None, None)
        for action in random_actions(env, 120, seed):
            contacts = env.unwrapped.base.robot.feet_contact.copy()
            _, reward, terminated, _, _ = env.step(action)
            expected, fallen, distance = expected_reward(
                robot, env.unwrapped, distance, action, contacts
            )
            assert reward == pytest.approx(expected, abs=1e-4)
            assert terminated == (fallen and robot != "halfcheetah")
            fallen_once |= fallen
            if terminated:
                break
    assert fallen_once or robot == "ant"  # an ant seldom falls in 120 steps


# ---- One time limit ----


@pytest.mark.parametrize("env_id", ["halfcheetah-p-v0", "HalfCheetahBulletEnv-v0"])
def test_a_thousand_steps_end_by_time_not_by_a_terminal_state(env_id):
    env = gym.make(env_id)
    env.reset(seed=0)
    for n in range(1, 1001):
        _, _, terminated, truncated, _ = env.step(np.zeros(6, np.float32))
        assert not terminated
        assert truncated == (n == 1000)


@pytest.mark.parametrize("env_id", IDS)
def test_exactly_one_wrapper_limits_the_time(env_id):
    env, limits = gym.make(env_id), 0
    base = env.unwrapped.base
    while env is not env.unwrapped:
        limits += isinstance(env, gym.wrappers.TimeLimit)
        env = env.env
    assert limits == 1
    assert not isinstance(base, gym.Wrapper)


# ---- Seeds and several instances ----


@pytest.mark.parametrize("env_id", IDS)
def test_seed_determines_the_episode_whatever_came_before(env_id):
    env = gym.make(env_id)
    actions = random_actions(env, 80, 9)
    first = trajectory(env, 5, actions)
    for other_seed, n in ((6, 3), (7, 200)):
        trajectory(env, other_seed, random_actions(env, n, other_seed))
        np.testing.assert_array_equal(trajectory(env, 5, actions), first)
    other_start = gym.make(env_id)
    other_start.reset(seed=123)
    np.testing.assert_array_equal(trajectory(other_start, 5, actions), first)


@pytest.mark.parametrize("env_id", ["hopper-p-v0", "ant-v-v0"])
def test_instances_never_touch_each_other(env_id):
    probe = gym.make(env_id)
    plans = [random_actions(probe, 40, seed) for seed in range(3)]
    alone = [trajectory(gym.make(env_id), seed, plan) for seed, plan in enumerate(plans)]
    envs = [gym.make(env_id) for _ in plans]
    together = [[[*env.reset(seed=seed)[0], 0, 0]] for seed, env in enumerate(envs)]
    probe.reset()
    probe.close()
    running, rng, steps = [0, 1, 2], np.random.default_rng(0), [0, 0, 0]
    while running:
        k = int(rng.choice(running))
        obs, reward, terminated, _, _ = envs[k].step(plans[k][steps[k]])
        together[k].append([*obs, reward, terminated])
        steps[k] += 1
        if terminated or steps[k] == 40:
            running.remove(k)
            if k == 0:
                envs[k].reset(seed=50)
            else:
                envs[k].close()
    for k in range(3):
        np.testing.assert_array_equal(together[k], alone[k])


def _in_another_process(seed):
    env = gym.make("walker2d-p-v0")
    return trajectory(env, seed, random_actions(env, 60, seed))


def test_processes_never_touch_each_other():
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        theirs = list(pool.map(_in_another_process, range(2)))
    for seed in range(2):
        np.testing.assert_array_equal(theirs[seed], _in_another_process(seed))


def test_copy_by_pickle_is_an_environment_of_its_own():
    env = gym.make("hopper-v-v0")
    copy = pickle.loads(pickle.dumps(env.unwrapped))
    actions = random_actions(env, 30)
    expected = trajectory(env, 2, actions)
    env.close()
    np.testing.assert_array_equal(trajectory(copy, 2, actions), expected)


def test_close_releases_the_simulation():
    import pybullet

    env = gym.make("hopper-p-v0").unwrapped
    client = env.base.physicsClientId
    assert pybullet.isConnected(client)
    env.close()
    assert not pybullet.isConnected(client)
    env.close()  # twice does no harm


# ---- Hidden means hidden ----


@pytest.mark.parametrize("robot", FULL)
def test_p_shows_no_velocity_and_v_no_posture(robot):
    env = gym.make(FULL[robot])
    rest, _ = env.reset(seed=0)
    body = env.unwrapped.base.robot
    for joint in body.ordered_joints:
        joint.set_state(joint.get_position(), 5.0)
    body.robot_body.reset_velocity([1.0, 0.5, 0.2])
    moving = body.calc_state()
    other, _ = env.reset(seed=1)
    p, v = KEPT[f"{robot}-p-v0"], KEPT[f"{robot}-v-v0"]
    np.testing.assert_allclose(moving[p], rest[p], atol=1e-6)
    assert np.abs(moving[v[3:]] - rest[v[3:]]).min() > 0.4  # 0.1 * 5 rad/s
    np.testing.assert_allclose(other[v], rest[v], atol=1e-6)
    assert np.abs(other[p] - rest[p]).max() > 0.01


@pytest.mark.parametrize("robot", FULL)
def test_history_gives_back_what_one_observation_hides(robot):
    env = gym.make(FULL[robot])
    rows = []
    for seed in range(3):
        obs, _ = env.reset(seed=seed)
        rows.append([obs])
        for action in random_actions(env, 60, seed):
            obs, _, terminated, _, _ = env.step(0.3 * action)
            rows[-1].append(obs)
            if terminated:
                break
    joints = len(env.unwrapped.base.robot.ordered_joints)
    span = [
        joint.upperLimit - joint.lowerLimit for joint in env.unwrapped.base.robot.ordered_joints
    ]
    angle_entries, speed_entries = np.arange(8, 8 + 2 * joints, 2), np.arange(9, 8 + 2 * joints, 2)
    differences, speeds = [], []
    for episode in map(np.array, rows):
        angle = episode[:, angle_entries] * np.array(span) / 2  # rad, up to a constant
        differences.append(np.diff(angle, axis=0) / 0.0165)
        speeds.append(10 * episode[:, speed_entries])
    # Differences of angles give speeds ...
    late = np.concatenate([s[1:] for s in speeds]).ravel()
    assert np.corrcoef(np.concatenate(differences).ravel(), late)[0, 1] > 0.8
    # ... and sums of speeds give the angle, from a start known within 0.1 rad.
    for difference, speed in zip(differences, speeds, strict=True):
        n = min(20, len(difference))
        turned = difference[:n].sum(0) * 0.0165
        estimate = (speed[:n] + speed[1 : n + 1]).sum(0) / 2 * 0.0165
        assert np.abs(turned - estimate).mean() < 0.5 * np.abs(turned).mean()


# ---- Bounds ----


@pytest.mark.parametrize("env_id", IDS)
def test_observations_stay_within_their_space(env_id):
    env = gym.make(env_id)
    assert (env.observation_space.low == -5).all()
    assert (env.observation_space.high == 5).all()
    rng = np.random.default_rng(0)
    for policy in ("random", "bang-bang", "push", "pull"):
        obs, _ = env.reset(seed=1)
        for _ in range(150):
            assert env.observation_space.contains(obs)
            shape = env.action_space.shape
            action = {
                "random": rng.uniform(-1, 1, shape),
                "bang-bang": rng.choice([-1.0, 1.0], shape),
                "push": np.ones(shape),
                "pull": -np.ones(shape),
            }[policy]
            obs, _, terminated, _, _ = env.step(action.astype(np.float32))
            if terminated:
                obs, _ = env.reset()


def test_actions_are_clipped():
    env = gym.make("hopper-p-v0")
    signs = np.sign(random_actions(env, 30))
    np.testing.assert_array_equal(trajectory(env, 3, 1000 * signs), trajectory(env, 3, signs))


# ---- Registration, pictures, packages ----


@pytest.mark.parametrize(
    "lines",
    [
        "import pybullet_envs_gymnasium; env = make_env(ID)",
        "make_env('ant-p-v0'); env = make_env(ID)",
        "import pybullet_envs_gymnasium; make_env(ID); env = make_env(ID)",
    ],
)
def test_our_entry_stays_although_the_package_registers_the_same_id(lines):
    code = f"""
from common.envs import make_env
ID = "HopperBulletEnv-v0"
{lines}
assert type(env.unwrapped).__module__ == "envs.locomotion", env
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_scripts_get_the_registered_dimensions():
    env = make_env("ant-p-v0", seed=0)
    obs, _ = env.reset()
    assert obs.shape == (17,)
    assert env.action_space.shape == (8,)
    env.close()


@pytest.mark.parametrize("robot", FULL)
def test_picture_follows_the_robot(robot):
    env = gym.make(f"{robot}-p-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (240, 320, 3)
    assert frame.dtype == np.uint8
    # Robots are the only coloured thing: the floor is white and pale blue, the sky white.
    strong = np.ptp(frame.astype(int), axis=2) > 100
    columns = np.nonzero(strong)[1]
    assert strong.sum() > 300
    assert abs(columns.mean() - 160) < 40
    env.step(np.ones(env.action_space.shape, np.float32))
    assert (env.render() != frame).any()


def test_missing_package_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(UserError, match="pip install pybullet-envs-gymnasium"):
        gym.make("hopper-p-v0")


def test_missing_pybullet_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet", None)
    monkeypatch.setitem(sys.modules, "pybullet_envs_gymnasium", None)
    with pytest.raises(UserError, match=r"pybullet is not installed.*Python 3\.11.*conda-forge"):
        gym.make("hopper-p-v0")
