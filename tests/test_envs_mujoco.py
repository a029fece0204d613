"""dm_control states, Reacher and runners against their formulas and the original tasks."""

import functools
import importlib
import sys

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import UserError
from envs import dm_control, gl, suite
from envs.table import ENVS, find, register

try:
    gl.load("dm_control.suite")
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

BALANCE = "dmc-cartpole-balance"
VELOCITY_KEYS = {"velocity", "com_velocity", "body_velocities", "arm_vel", "object_vel", "box_vel"}


def make(env_id):
    """An id of the table or of a pattern, with the time limit, without Gymnasium's checker."""
    register(env_id)
    return gym.make(env_id, disable_env_checker=True)


def put(env, qpos, qvel):
    """Puts the simulator into a state and returns what the agent would see of it."""
    physics = env.unwrapped.physics
    with physics.reset_context():
        physics.data.qpos[:], physics.data.qvel[:] = qpos, qvel
    view = env
    while not isinstance(view, dm_control.StateView):
        view = view.env
    return view.observation(env.unwrapped.task.get_observation(physics))


# ---- dm_control's cart-pole ----


def derivative(state, u):
    """Equations of motion away from the stops: 1 kg cart, 0.1 kg pole with its centre at 0.5 m."""
    _, th, xdot, thdot = state
    mass = np.array([[1.1, 0.05 * np.cos(th)], [0.05 * np.cos(th), 0.0344246]])
    force = [
        10 * u + 0.05 * np.sin(th) * thdot**2 - 5e-4 * xdot,
        0.4905 * np.sin(th) - 2e-6 * thdot,
    ]
    return np.array([xdot, thdot, *np.linalg.solve(mass, force)])


def runge_kutta(state, u, dt=0.01):
    k1 = derivative(state, u)
    k2 = derivative(state + dt / 2 * k1, u)
    k3 = derivative(state + dt / 2 * k2, u)
    k4 = derivative(state + dt * k3, u)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def cartpole_reward(state, u):
    x, th, _, thdot = state
    upright = (1 + np.cos(th)) / 2
    centred = (1 + 0.1 ** ((x / 2) ** 2)) / 2
    small_control = (4 + max(0, 1 - u**2)) / 5
    small_velocity = (1 + 0.1 ** ((thdot / 5) ** 2)) / 2
    return upright * centred * small_control * small_velocity


def test_one_control_step_gives_the_worked_numbers():
    env = make(f"{BALANCE}-skip1-v0")
    env.reset(seed=0)
    put(env, [0.3, 0.7], [0.5, -1.2])
    obs, reward, *_ = env.step([0.6])
    x, th, xdot, thdot = 0.30526931, 0.68815661, 0.55386781, -1.16899791
    np.testing.assert_allclose(obs, [x, np.cos(th), np.sin(th), xdot, thdot], atol=2e-7)
    assert reward == pytest.approx(0.75356375, abs=1e-8)


def test_frame_skip_holds_the_action_and_sums_the_rewards():
    env = make(f"{BALANCE}-v0")
    env.reset(seed=0)
    put(env, [-0.4, 2.0], [0.3, 1.5])
    state, total = np.array([-0.4, 2.0, 0.3, 1.5]), 0.0
    for _ in range(5):
        state = runge_kutta(state, -0.8)
        total += cartpole_reward(state, -0.8)
    obs, reward, *_ = env.step([-0.8])
    x, th, xdot, thdot = state
    np.testing.assert_allclose(obs, [x, np.cos(th), np.sin(th), xdot, thdot], atol=2e-6)
    assert reward == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize(
    ("env_id", "domain", "task", "skip"),
    [
        ("dmc-cartpole-swingup-v0", "cartpole", "swingup", 5),
        ("dmc-walker-walk-v0", "walker", "walk", 2),
    ],
)
def test_episode_equals_dm_controls_own(env_id, domain, task, skip):
    original = gl.load("dm_control.suite").load(domain, task, task_kwargs={"random": 11})
    expected = original.reset().observation
    env = make(env_id)
    obs, _ = env.reset(seed=11)
    rng = np.random.default_rng(0)
    for _ in range(30):
        np.testing.assert_array_equal(
            obs, np.concatenate([np.ravel(v) for v in expected.values()], dtype=np.float32)
        )
        action = rng.uniform(-1, 1, env.action_space.shape)
        steps = [original.step(action) for _ in range(skip)]
        expected = steps[-1].observation
        obs, reward, *_ = env.step(action)
        assert reward == pytest.approx(sum(step.reward for step in steps), abs=1e-12)


def test_action_beyond_the_range_is_clipped():
    rewards = []
    for action in (1.0, 3.0):
        env = make(f"{BALANCE}-v0")
        env.reset(seed=3)
        rewards.append(env.step([action])[1])
    assert rewards[0] == rewards[1]


# ---- layouts, and what is hidden ----


def test_cartpole_layouts_follow_the_simulator():
    x, th, xdot, thdot = 0.4, 2.1, -0.7, 1.3
    full = [x, np.cos(th), np.sin(th), xdot, thdot]
    expected = {"": full, "-p": full[:3], "-va": [xdot, thdot, 0.0]}
    for suffix, entries in expected.items():
        env = make(f"{BALANCE}{suffix}-v0")
        env.reset(seed=0)
        np.testing.assert_allclose(put(env, [x, th], [xdot, thdot]), entries, atol=1e-6)


def test_walker_layout_is_orientations_then_height_then_velocity():
    env = make("dmc-walker-walk-v0")
    obs, _ = env.reset(seed=4)
    physics = env.unwrapped.physics
    matrices = physics.data.xmat[1:]  # of the seven bodies, row by row: xx is entry 0, xz entry 2
    np.testing.assert_allclose(obs[:14], matrices[:, [0, 2]].ravel(), atol=1e-6)
    assert obs[14] == pytest.approx(physics.named.data.xpos["torso", "z"], abs=1e-6)
    np.testing.assert_allclose(obs[15:], physics.data.qvel, atol=1e-6)


def test_walker_reward_follows_the_formula():
    def formula(height, upright, speed):
        tall = 1.0 if height >= 1.2 else 0.1 ** (((1.2 - height) / 0.6) ** 2)
        stand = (3 * tall + (1 + upright) / 2) / 4
        return stand * (5 * min(max(speed, 0.0), 1.0) + 1) / 6

    assert formula(1.2, 1, 0.5) == pytest.approx(0.58333, abs=1e-5)
    assert formula(0.6, 0, 0) == pytest.approx(0.03333, abs=1e-5)
    env = make("dmc-walker-walk-skip1-v0")
    env.reset(seed=1)
    data, rng = env.unwrapped.physics.named.data, np.random.default_rng(1)
    for _ in range(40):
        _, reward, *_ = env.step(rng.uniform(-1, 1, 6))
        state = data.xpos["torso", "z"], data.xmat["torso", "zz"]
        speed = data.sensordata["torso_subtreelinvel"][0]
        assert reward == pytest.approx(formula(*state, speed), abs=1e-9)


def test_partial_views_are_the_full_task_with_entries_left_out():
    full, positions, velocities = (make(f"{BALANCE}{s}-v0") for s in ("", "-p", "-va"))
    actions = np.random.default_rng(2).uniform(-1.5, 1.5, (30, 1))
    seen = [env.reset(seed=8)[0] for env in (full, positions, velocities)]
    last = [0.0]
    for action in actions:
        np.testing.assert_array_equal(seen[1], seen[0][:3])
        np.testing.assert_array_equal(seen[2][:2], seen[0][3:])
        np.testing.assert_array_equal(seen[2][2:], np.float32(last))
        steps = [env.step(action) for env in (full, positions, velocities)]
        assert steps[0][1] == steps[1][1] == steps[2][1]
        seen, last = [step[0] for step in steps], np.clip(action, -1, 1)


def test_last_action_is_forgotten_at_reset():
    env = make(f"{BALANCE}-va-v0")
    env.reset(seed=0)
    assert env.step([0.5])[0][2] == 0.5
    assert env.reset(seed=0)[0][2] == 0.0


def test_positions_of_one_frame_say_nothing_about_velocities():
    env = make(f"{BALANCE}-p-v0")
    env.reset(seed=0)
    still, moving = (put(env, [0.2, 0.5], velocity) for velocity in ([0, 0], [2, -3]))
    np.testing.assert_array_equal(still, moving)


def test_velocities_are_recovered_by_differencing_positions():
    env = make("dmc-cartpole-swingup-p-v0")
    obs, _ = env.reset(seed=0)
    errors, speeds, rng = [], [], np.random.default_rng(0)
    for _ in range(60):
        before, (x, c, s) = env.unwrapped.physics.data.qvel.copy(), obs
        obs, *_ = env.step(rng.uniform(-1, 1, 1))
        turn = np.arctan2(obs[2] * c - obs[1] * s, obs[1] * c + obs[2] * s)
        mean = (before + env.unwrapped.physics.data.qvel) / 2  # over the 0.05 s between frames
        errors.append(np.array([obs[0] - x, turn]) / 0.05 - mean)
        speeds.append(mean)
    assert np.abs(errors).max() < 0.1 * np.abs(speeds).max()


def test_velocities_of_one_frame_say_nothing_about_positions():
    env = make(f"{BALANCE}-va-v0")
    env.reset(seed=0)
    here, there = (put(env, position, [0.3, 0.4]) for position in ([0, 0], [1, 2.5]))
    np.testing.assert_array_equal(here, there)


def test_positions_are_recovered_by_integrating_velocities():
    env = make(f"{BALANCE}-va-v0")
    obs, _ = env.reset(seed=0)
    position = np.zeros(2)  # the start is within 0.1 m and 0.034 rad of it
    rng = np.random.default_rng(0)
    for _ in range(20):
        before = obs
        obs, *_ = env.step(rng.uniform(-1, 1, 1))
        position += 0.05 * (before[:2] + obs[:2]) / 2
    error = position - env.unwrapped.physics.data.qpos
    assert abs(error[0]) < 0.12
    assert abs(error[1]) < 0.1
    assert abs(env.unwrapped.physics.data.qpos[1]) > 0.3  # it fell, so zero would be no answer


@pytest.mark.parametrize("domain", [d for d in suite.SUITE if d not in suite.MIXED])
def test_position_version_hides_the_velocity_keys_and_no_others(domain):
    env = make(f"dmc-{domain.lower()}-{suite.SUITE[domain][0]}-p-v0")
    env.reset(seed=0)
    physics = env.unwrapped.physics
    obs = env.unwrapped.task.get_observation(physics)
    hidden = VELOCITY_KEYS & set(obs)
    assert hidden
    left = [np.ravel(value) for key, value in obs.items() if key not in hidden]
    first = env.reset(seed=0)[0]
    np.testing.assert_array_equal(first, np.concatenate(left, dtype=np.float32))
    physics.data.qvel[:] += 1  # positions and contacts stay as they were computed
    left = {k: v for k, v in env.unwrapped.task.get_observation(physics).items() if k not in hidden}
    moved = np.concatenate([np.ravel(value) for value in left.values()], dtype=np.float32)
    np.testing.assert_array_equal(first, moved)
    env.close()


@pytest.mark.parametrize(("suffix", "n"), [("-p", 5), ("-va", 10)])
def test_stack_is_zeros_then_frames_oldest_first(suffix, n):
    single, stacked = make(f"{BALANCE}{suffix}-v0"), make(f"{BALANCE}{suffix}-concat{n}-v0")
    obs, _ = single.reset(seed=6)
    frames = [np.zeros(3)] * (n - 1) + [obs]
    got, _ = stacked.reset(seed=6)
    for action in np.linspace(-1, 1, n + 2)[:, None]:
        np.testing.assert_array_equal(got, np.concatenate(frames[-n:], dtype=np.float32))
        frames.append(single.step(action)[0])
        got, *_ = stacked.step(action)


# ---- episodes ----


@pytest.mark.parametrize(
    ("env_id", "steps", "seconds"),
    [
        (f"{BALANCE}-va-v0", 200, 10),
        ("dmc-pendulum-swingup-v0", 200, 20),
        ("dmc-point_mass-easy-v0", 500, 20),
        ("reacher-pomdp-v0", 50, 1),
    ],
)
def test_time_limit_truncates_and_never_terminates(env_id, steps, seconds):
    env = make(env_id)
    env.reset(seed=0)
    action = np.zeros(env.action_space.shape, np.float32)
    ends = [env.step(action)[2:4] for _ in range(steps)]
    assert ends == [(False, False)] * (steps - 1) + [(False, True)]
    data = env.unwrapped.data if env_id.startswith("reacher") else env.unwrapped.physics.data
    assert data.time == pytest.approx(seconds)  # so nothing was reset on the way


@pytest.mark.parametrize(
    "task",
    ["cheetah-run", "lqr-lqr_2_1", "finger-turn_hard", "fish-swim", "manipulator-bring_ball"],
)
def test_seed_determines_the_third_episode_too(task):
    def episode(env):
        rng = np.random.default_rng(0)
        seen = [env.reset(seed=5)[0]]
        for _ in range(5):
            obs, reward, *_ = env.step(rng.uniform(-1, 1, env.action_space.shape))
            seen += [obs, [reward]]
        return np.concatenate(seen)

    used, fresh = make(f"dmc-{task}-v0"), make(f"dmc-{task}-v0")
    for seed in (1, 2):
        used.reset(seed=seed)
        used.step(used.action_space.high)
    np.testing.assert_array_equal(episode(used), episode(fresh))
    used.close(), fresh.close()


def test_episodes_without_a_seed_differ_between_instances():
    starts = [make(f"{BALANCE}-v0").reset()[0] for _ in range(2)]
    assert not np.array_equal(*starts)


def test_seeds_of_more_than_32_bits_are_taken():
    env = make(f"{BALANCE}-v0")
    assert env.reset(seed=2**40)[0] in env.observation_space


def test_lqr_terminates_at_the_goal_and_takes_actions_of_one():
    env = make("dmc-lqr-lqr_2_1-v0")
    env.reset(seed=0)
    assert env.action_space == gym.spaces.Box(-1, 1, (1,), np.float32)
    put(env, [0, 0], [0, 0])
    assert env.step([0.0])[2:4] == (True, False)


def test_variants_made_in_one_process_differ():
    suffixes = ["", "-p", "-va", "-p-concat5", "-va-concat10"]
    shapes = [make(f"{BALANCE}{s}-v0").observation_space.shape for s in suffixes]
    assert shapes == [(5,), (3,), (3,), (15,), (30,)]
    times = []
    for env_id in (f"{BALANCE}-v0", f"{BALANCE}-skip2-v0"):
        env = make(env_id)
        env.reset(seed=0)
        env.step([0.0])
        times.append(env.unwrapped.physics.time())
    assert times == pytest.approx([0.05, 0.02])


made_once = functools.cache(make)
EXTREME = st.lists(st.sampled_from([-1.0, 0.0, 1.0]), min_size=2, max_size=12)


@settings(max_examples=15, deadline=None)
@given(actions=EXTREME, seed=st.integers(0, 1000), hold=st.integers(1, 6))
@pytest.mark.parametrize(
    "env_id", ["dmc-cartpole-swingup-va-v0", f"{BALANCE}-v0", "reacher-mdp-v0"]
)
def test_no_policy_leaves_the_observation_space(env_id, actions, seed, hold):
    env = made_once(env_id)
    obs, _ = env.reset(seed=seed)
    for action in np.repeat(actions, hold):
        assert obs in env.observation_space
        obs, *_ = env.step(np.full(env.action_space.shape, action, np.float32))
    assert obs in env.observation_space


# ---- ids ----


def test_table_of_tasks_is_dm_controls():
    ours = {(domain, task) for domain, tasks in suite.SUITE.items() for task in tasks}
    assert ours == set(gl.load("dm_control.suite").ALL_TASKS)


def test_the_papers_tasks_are_in_the_table():
    rows = {i: info for i, info in ENVS.items() if i.startswith("dmc-")}
    names = {f"cartpole-{task}": task for task in ("balance", "swingup")}
    views = {"": ("full", 1), "-p": ("p", 1), "-va": ("va", 1)}
    views |= {"-p-concat5": ("p", 5), "-va-concat10": ("va", 10)}
    for name, task in names.items():
        for view, (observed, stack) in views.items():
            row = rows.pop(f"dmc-{name}{view}-v0")
            kwargs = {"domain": "cartpole", "task": task, "observed": observed}
            assert row.kwargs == kwargs | {"stack": stack, "frame_skip": 5}
            assert (row.max_episode_steps, row.oracle) == (200, f"dmc-{name}-v0")
    assert list(rows) == [
        f"dmc-{x}-mdp-img-concat3-v0" for x in ("cartpole-balance", "walker-walk")
    ]
    for row in rows.values():
        assert (row.kwargs["stack"], row.kwargs["frame_skip"], row.kwargs["rgb"]) == (3, 2, False)
        assert row.max_episode_steps == 500


@pytest.mark.parametrize(
    ("env_id", "skip", "steps"),
    [
        ("dmc-cheetah-run-v0", 5, 200),
        ("dmc-walker-walk-v0", 2, 500),
        ("dmc-humanoid_cmu-run-p-v0", 2, 500),
        ("dmc-cheetah-run-skip4-v0", 4, 250),
        ("dmc-walker-walk-mdp-img-concat3-v0", 2, 500),
        ("dmc-walker-walk-img-rgb-skip4-v0", 4, 250),
    ],
)
def test_patterned_ids_have_a_thousand_control_steps(env_id, skip, steps):
    info = find(env_id)
    assert (info.kwargs["frame_skip"], info.max_episode_steps) == (skip, steps)


@pytest.mark.parametrize(
    "env_id",
    [
        "dmc-cartpole-balanc-v0",
        "dmc-dog-run-p-v0",  # velocities there are mixed with other entries
        "dmc-cartpole-balance-rgb-v0",
        "dmc-cartpole-balance-mdp-img-v0",  # one picture is no Markov state
        "dmc-cartpole-balance-p-concat1-v0",
        "dmc-cartpole-balance",
    ],
)
def test_other_ids_are_not_found(env_id):
    assert find(env_id) is None


def test_what_a_task_hides_is_said():
    def hidden(env_id):
        return suite.describe(env_id)["hidden"]

    assert hidden("dmc-walker-walk-v0") == hidden("dmc-walker-walk-p-concat5-v0") == "-"
    assert hidden("dmc-walker-walk-va-concat10-v0") == "positions, in part"
    assert hidden("dmc-point_mass-hard-v0").startswith("what each action does")
    starts = [gym.make(f"dmc-point_mass-{kind}-v0") for kind in ("easy", "hard")]
    for env, varies in zip(starts, (False, True), strict=True):
        gains = []
        for seed in (1, 2):
            env.reset(seed=seed)
            gains.append(env.unwrapped.physics.model.wrap_prm.copy())
        assert (gains[0] != gains[1]).any() == varies


def test_the_full_state_holds_actions_as_long():
    for view in ("-p", "-va", ""):
        found = suite.describe(f"dmc-walker-walk{view}-skip7-v0")
        assert (found["oracle"], found["max_episode_steps"]) == ("dmc-walker-walk-skip7-v0", 142)


def test_near_ids_are_offered():
    assert "dmc-cartpole-balance-v0" in suite.near("dmc-cartpol-balanc-v0")
    with pytest.raises(UserError, match="dmc-walker-walk-v0"):
        dm_control.make_state("walker", "wlak")


# ---- Reacher ----


def test_reacher_equals_gymnasiums_own():
    env, original = make("reacher-mdp-v0"), gym.make("Reacher-v5")
    obs, _ = env.reset(seed=7)
    expected, _ = original.reset(seed=7)
    for action in np.random.default_rng(0).uniform(-1, 1, (50, 2)):
        np.testing.assert_array_equal(obs, expected.astype(np.float32))
        obs, reward, *_ = env.step(action)
        expected, expected_reward, *_ = original.step(action)
        assert reward == expected_reward


def test_one_push_of_reacher_gives_the_worked_speed():
    env = make("reacher-mdp-v0")
    env.reset(seed=0)
    obs, *_ = env.step([1.0, 0.5])
    np.testing.assert_allclose(obs[6:8], [3.955, 1.982], atol=0.02)  # at rest to within 0.005


def test_reacher_reward_is_distance_after_the_move_and_effort():
    env = make("reacher-mdp-v0")
    env.reset(seed=2)
    for action in np.random.default_rng(2).uniform(-1, 1, (10, 2)):
        obs, reward, *_ = env.step(action)
        th1, th2 = np.arctan2(obs[2], obs[0]), np.arctan2(obs[3], obs[1])
        tip = 0.1 * np.array([np.cos(th1), np.sin(th1)])
        tip += 0.11 * np.array([np.cos(th1 + th2), np.sin(th1 + th2)])
        # Gymnasium reads the tip from the integrator's last stage, off by some 1e-6 m.
        np.testing.assert_allclose(obs[8:10], tip - obs[4:6], atol=1e-4)
        assert reward == pytest.approx(-np.hypot(*(tip - obs[4:6])) - action @ action, abs=1e-4)


def test_reacher_shows_the_target_at_the_first_step_only():
    full, partial = make("reacher-mdp-v0"), make("reacher-pomdp-v0")
    for seed in (3, 4):  # the second episode shows its target again
        shown, _ = full.reset(seed=seed)
        np.testing.assert_array_equal(partial.reset(seed=seed)[0], shown)
        for _ in range(3):
            (shown, reward, *_), (obs, same_reward, *_) = (
                env.step([0.3, -0.2]) for env in (full, partial)
            )
            np.testing.assert_array_equal(obs[[0, 1, 2, 3, 6, 7]], shown[[0, 1, 2, 3, 6, 7]])
            np.testing.assert_array_equal(obs[[4, 5, 8, 9]], 0)
            assert reward == same_reward


def test_remembered_target_of_reacher_stays_true():
    env = make("reacher-pomdp-v0")
    first, _ = env.reset(seed=5)
    for action in np.random.default_rng(5).uniform(-1, 1, (50, 2)):
        env.step(action)
    np.testing.assert_allclose(env.unwrapped.data.qpos[2:], first[4:6], atol=1e-7)


# ---- running robots ----

RUNNERS = {"hopper": "Hopper", "halfcheetah": "HalfCheetah", "walker2d": "Walker2d", "ant": "Ant"}


@pytest.mark.parametrize(("robot", "full"), RUNNERS.items())
def test_runners_show_the_entries_that_gymnasium_documents(robot, full):
    positions, velocities = (make(f"mujoco-{robot}-{view}-v0") for view in "pv")
    original = gym.make(f"{full}-v5", disable_env_checker=True)
    sizes = original.unwrapped.observation_structure  # entries in this order
    seen = [env.reset(seed=7)[0] for env in (positions, velocities, original)]
    for action in np.random.default_rng(0).uniform(-1, 1, (30, *original.action_space.shape)):
        p, v, everything = seen
        assert len(p) == sizes["qpos"]
        assert len(v) == sizes["qvel"]
        left = everything[len(p) + len(v) :]
        assert len(left) == (sizes["cfrc_ext"] if robot == "ant" else 0)
        np.testing.assert_array_equal([*p, *v], np.float32(everything[: len(p) + len(v)]))
        qpos, qvel = positions.unwrapped.data.qpos, positions.unwrapped.data.qvel
        np.testing.assert_array_equal(p, np.float32(qpos[sizes["skipped_qpos"] :]))
        limit = 10 if robot in ("hopper", "walker2d") else np.inf
        np.testing.assert_array_equal(v, np.float32(np.clip(qvel, -limit, limit)))
        seen = [env.step(np.float32(action))[0] for env in (positions, velocities, original)]
    for env in (positions, velocities, original):
        env.close()


def test_a_runner_clips_actions_beyond_the_range_for_their_cost_too():
    rewards = []
    for size in (1, 1000):
        env = make("mujoco-hopper-p-v0")
        env.reset(seed=3)
        rewards.append(env.step(size * np.float32([1, -1, 1]))[1])
    assert rewards[0] == rewards[1]


def test_a_runner_that_falls_terminates_and_its_time_limit_truncates():
    fallen = make("mujoco-hopper-v-v0")
    fallen.reset(seed=0)
    assert any(fallen.step(np.float32([1, 1, 1]))[2] for _ in range(200))
    endless = make("mujoco-halfcheetah-v-v0")
    endless.reset(seed=0)
    ends = [endless.step(np.zeros(6, np.float32))[2:4] for _ in range(1000)]
    assert ends == [(False, False)] * 999 + [(False, True)]


# ---- what can be missing ----


@pytest.mark.parametrize(
    ("package", "module"),
    [("mujoco", "mujoco"), ("dm_control", "dm_control.suite"), ("shimmy", "shimmy.registration")],
)
def test_missing_package_is_named_with_the_remedy(monkeypatch, package, module):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)  # Python's own way to block an import
    with pytest.raises(
        UserError, match=f"{package}, which is not installed: pip install"
    ) as caught:
        gl.load(module)
    assert "\n" not in str(caught.value)


def test_mujoco_4_is_refused_with_the_pair_that_works(monkeypatch):
    monkeypatch.setattr(gl, "_version", lambda package: "4.0.1")
    with pytest.raises(UserError, match=r"mujoco 4\.0\.1 .*dm_control 1\.0\.50 with mujoco 3\.17"):
        make(f"{BALANCE}-v0")


def test_packages_that_do_not_fit_name_the_pair_that_works(monkeypatch):
    def broken(name):
        raise AttributeError("module 'mujoco' has no attribute 'mjtObj'")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(UserError, match=r"AttributeError.*dm_control 1\.0\.50 with mujoco 3\.17"):
        gl.load("dm_control.suite")


def test_window_is_refused():
    for env_id in ("reacher-mdp-v0", "mujoco-ant-p-v0", f"{BALANCE}-v0"):
        with pytest.raises(UserError, match="rgb_array"):
            gym.make(env_id, render_mode="human")
