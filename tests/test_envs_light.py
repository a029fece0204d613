"""Pendulum, continuous cart-pole, car and water maze against their formulas.

Expected values come from the equations written here, or from Gymnasium's own environments.
"""

import math

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs  # noqa: F401  (registers the environments)
from common.errors import UserError

PENDULUM = ["pendulum-v0", "pendulum-p-v0", "pendulum-v-v0", "pendulum-va-v0"]
CARTPOLE = ["cartpole-continuous-v0", "cartpole-continuous-p-v0", "cartpole-continuous-v-v0"]
CAR = ["car-v0", "car-p-v0", "car-mdp-v0", "car-episodic-v0", "car-episodic-mdp-v0"]
MAZE = [f"water-maze-simple-{kind}-v0" for kind in ("pomdp", "mdp", "state")]
STACKS = {
    "pendulum-p-concat5-v0": ("pendulum-p-v0", 5),
    "pendulum-v-concat10-v0": ("pendulum-v-v0", 10),
    "pendulum-va-concat10-v0": ("pendulum-va-v0", 10),
    "cartpole-continuous-p-concat5-v0": ("cartpole-continuous-p-v0", 5),
    "cartpole-continuous-v-concat10-v0": ("cartpole-continuous-v-v0", 10),
    "car-concat20-v0": ("car-v0", 20),
    "car-episodic-concat20-v0": ("car-episodic-v0", 20),
}
SINGLE = PENDULUM + CARTPOLE + CAR + MAZE


def started(env_id, seed=0, **hidden):
    """An environment after reset, with attributes of its core (the hidden state) overwritten."""
    env = gym.make(env_id)
    env.reset(seed=seed)
    for name, value in hidden.items():
        assert hasattr(env.unwrapped, name)
        setattr(env.unwrapped, name, value)
    return env


def random_actions(env, n, seed=0, scale=1.0):
    space = env.action_space
    rng = np.random.default_rng(seed)
    return (scale * rng.uniform(space.low, space.high, (n, *space.shape))).astype(np.float32)


def observation(env):
    """The observation of the state that the core is in now."""
    core = env.unwrapped
    return core._get_obs() if hasattr(core, "_get_obs") else core._obs()


# ---- Pendulum ----


def test_pendulum_gives_the_worked_numbers():
    env = started("pendulum-v0", state=np.array([0.5, -1.0]))
    obs, reward, *_ = env.step(np.array([1.5], np.float32))
    np.testing.assert_allclose(obs, [0.88735094, 0.46109468, -0.41543085], rtol=1e-6)
    assert reward == pytest.approx(-0.35225)


def test_pendulum_clips_the_velocity_before_it_moves():
    env = started("pendulum-v0", state=np.array([1.0, 7.9]))
    obs, reward, *_ = env.step(np.array([2.0], np.float32))
    np.testing.assert_allclose(obs, [math.cos(1.4), math.sin(1.4), 8.0], rtol=1e-6)
    assert reward == pytest.approx(-7.245)


@pytest.mark.parametrize("env_id", PENDULUM)
def test_pendulum_is_a_view_on_gymnasiums(env_id):
    env, theirs = gym.make(env_id), gym.make("Pendulum-v1")
    obs, full = env.reset(seed=3)[0], theirs.reset(seed=3)[0]
    torque = 0.0
    pick = {"pendulum-v0": [0, 1, 2], "pendulum-p-v0": [0, 1], "pendulum-v-v0": [2]}
    for action in [None, *random_actions(env, 200, scale=1.5)]:  # some beyond +-2
        if action is not None:
            obs, reward, _, truncated, _ = env.step(action)
            full, their_reward, _, their_truncated, _ = theirs.step(action)
            assert (reward, truncated) == (their_reward, their_truncated)
            torque = min(max(float(action[0]), -2.0), 2.0)
        expected = [*full, torque]
        np.testing.assert_array_equal(obs, [expected[i] for i in pick.get(env_id, [2, 3])])


def test_pendulum_p_hides_the_velocity():
    slow = started("pendulum-p-v0", state=np.array([0.4, -1.0]))
    fast = started("pendulum-p-v0", state=np.array([0.4, 5.0]))
    np.testing.assert_array_equal(observation(slow), observation(fast))


def test_pendulum_p_shows_the_velocity_in_two_frames():
    env = started("pendulum-p-v0")
    before = env.unwrapped._get_obs()
    for action in random_actions(env, 50):
        after = env.step(action)[0]
        moved = math.atan2(after[1], after[0]) - math.atan2(before[1], before[0])
        moved = (moved + math.pi) % (2 * math.pi) - math.pi
        assert moved / 0.05 == pytest.approx(env.unwrapped.state[1], abs=1e-3)
        before = after


@pytest.mark.parametrize("env_id", ["pendulum-v-v0", "pendulum-va-v0"])
def test_pendulum_v_hides_the_angle(env_id):
    up = started(env_id, state=np.array([0.0, 0.5]))
    down = started(env_id, state=np.array([math.pi, 0.5]))
    np.testing.assert_array_equal(observation(up), observation(down))


def test_pendulum_va_shows_the_angle_in_three_frames():
    # thdot' = thdot + 0.75 sin th + 0.15 u gives two sines; th' = th + 0.05 thdot' joins them.
    env = started("pendulum-va-v0", state=np.array([2.0, 1.0]))
    frames = [env.step(np.array([u], np.float32))[0] for u in (0.0, 0.7, -1.1)]
    th = env.unwrapped.state[0]
    (w0, _), (w1, u0), (w2, u1) = np.float64(frames)
    sin0, sin1 = (w1 - w0 - 0.15 * u0) / 0.75, (w2 - w1 - 0.15 * u1) / 0.75
    turn = 0.05 * w1
    cos0 = (sin1 - sin0 * math.cos(turn)) / math.sin(turn)
    assert math.atan2(sin0, cos0) + 0.05 * (w1 + w2) == pytest.approx(th, abs=1e-3)


def test_pendulum_v_does_not_show_the_own_action():
    # A heavier push at a smaller sine gives the same velocity: only who knows u can tell.
    left = started("pendulum-v-v0", state=np.array([math.asin(0.3), 0.0]))
    right = started("pendulum-v-v0", state=np.array([0.0, 0.0]))
    first = left.step(np.array([0.0], np.float32))[0]
    second = right.step(np.array([0.75 * 0.3 / 0.15], np.float32))[0]
    np.testing.assert_allclose(first, second, atol=1e-6)


# ---- Continuous cart-pole ----


def test_cartpole_gives_the_worked_numbers():
    env = started("cartpole-continuous-v0", state=(0.1, -0.2, 0.05, 0.3))
    obs, reward, terminated, *_ = env.step(np.array([0.5], np.float32))
    np.testing.assert_allclose(obs, [0.096, 0.09191808, 0.056, -0.12263601], rtol=1e-6)
    assert (reward, terminated) == (1.0, False)


@pytest.mark.parametrize("seed", range(5))
def test_cartpole_at_full_force_is_gymnasiums_with_30_newton(seed):
    env, theirs = started("cartpole-continuous-v0", seed), gym.make("CartPole-v1")
    theirs.reset(seed=0)
    theirs.unwrapped.force_mag = 30.0
    theirs.unwrapped.state = env.unwrapped.state
    rng = np.random.default_rng(seed)
    terminated = False
    while not terminated:  # within some 20 steps
        push = int(rng.integers(2))
        obs, _, terminated, *_ = env.step(np.array([2.0 * push - 1], np.float32))
        their_obs, _, their_terminated, *_ = theirs.step(push)
        np.testing.assert_allclose(obs, their_obs, rtol=1e-6)
        assert terminated == their_terminated


@pytest.mark.parametrize("env_id", CARTPOLE)
def test_cartpole_variants_show_their_entries_of_one_state(env_id):
    env = started(env_id, state=(1.0, 2.0, 0.1, 4.0))
    expected = {"p": [1.0, 0.1], "v": [2.0, 4.0]}.get(env_id[-4], [1.0, 2.0, 0.1, 4.0])
    np.testing.assert_array_equal(observation(env), np.float32(expected))


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ((2.39, 0.4, 0.0, 0.0), False),  # 2.398
        ((2.39, 0.6, 0.0, 0.0), True),  # 2.402
        ((-2.39, -0.6, 0.0, 0.0), True),
        ((0.0, 0.0, 0.2, 0.4), False),  # 0.208 rad
        ((0.0, 0.0, 0.2, 0.5), True),  # 0.210 rad, 12 degrees are 0.2094
        ((0.0, 0.0, -0.2, -0.5), True),
    ],
)
def test_cartpole_ends_outside_of_its_limits_and_pays_that_step_too(state, ends):
    env = started("cartpole-continuous-v0", state=state)
    _, reward, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
    assert (reward, terminated, truncated) == (1.0, ends, False)


def test_cartpole_starts_within_a_twentieth():
    env = gym.make("cartpole-continuous-v0")
    starts = np.array([env.reset(seed=seed)[0] for seed in range(300)])
    assert 0.045 < np.abs(starts).max() <= 0.05
    assert np.all(np.abs(starts.mean(0)) < 0.01)


def test_cartpole_p_hides_the_velocities():
    still = started("cartpole-continuous-p-v0", state=(0.1, 0.0, 0.05, 0.0))
    moving = started("cartpole-continuous-p-v0", state=(0.1, 1.0, 0.05, -2.0))
    np.testing.assert_array_equal(observation(still), observation(moving))


def test_cartpole_p_shows_the_velocities_in_two_frames():
    env = started("cartpole-continuous-p-v0", state=(0.1, 1.0, 0.05, -2.0))
    before = observation(env)
    after = env.step(np.array([0.3], np.float32))[0]
    # Explicit Euler: the difference is the velocity before the step.
    np.testing.assert_allclose((after - before) / 0.02, [1.0, -2.0], atol=1e-5)


def test_cartpole_v_hides_the_positions():
    left = started("cartpole-continuous-v-v0", state=(-1.0, 0.2, 0.1, 0.3))
    right = started("cartpole-continuous-v-v0", state=(1.0, 0.2, -0.1, 0.3))
    np.testing.assert_array_equal(observation(left), observation(right))


def test_cartpole_v_shows_the_angle_in_two_frames():
    env = started("cartpole-continuous-v-v0", state=(0.5, 0.2, 0.13, 0.3))
    before = np.float64(observation(env))
    after = np.float64(env.step(np.array([0.4], np.float32))[0])
    measured = (after - before)[1] / 0.02

    def acceleration(th):
        sin, cos = math.sin(th), math.cos(th)
        pull = (30 * 0.4 + 0.05 * before[1] ** 2 * sin) / 1.1
        return (9.8 * sin - cos * pull) / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))

    grid = np.linspace(-0.2, 0.2, 4001)
    errors = [abs(acceleration(th) - measured) for th in grid]
    assert grid[int(np.argmin(errors))] == pytest.approx(0.13, abs=1e-3)


def test_cartpole_v_never_shows_where_the_cart_is():
    left = started("cartpole-continuous-v-v0", state=(-1.0, 0.2, 0.1, 0.3))
    right = started("cartpole-continuous-v-v0", state=(1.0, 0.2, 0.1, 0.3))
    for action in random_actions(left, 10, scale=0.1):
        np.testing.assert_array_equal(left.step(action)[0], right.step(action)[0])


def test_cartpole_v_is_balanced_for_1000_steps_without_memory_and_then_truncated():
    env = gym.make("cartpole-continuous-v-v0")
    (xdot, thdot), _ = env.reset(seed=1)
    for step in range(1, 1001):
        push = math.tanh(2.22 * xdot + 2.88 * thdot - 3.78 * xdot**3 + 6.16 * thdot**3)
        (xdot, thdot), _, terminated, truncated, _ = env.step(np.array([push], np.float32))
        assert (terminated, truncated) == (False, step == 1000)


# ---- Car ----


def drive(env, push, steps=200):
    """Steps until the end with push(obs); returns rewards and the last step's flags and info."""
    obs, rewards = observation(env), []
    for _ in range(steps):
        obs, reward, terminated, truncated, info = env.step(np.array([push(obs)], np.float32))
        rewards.append(reward)
        if terminated or truncated:
            break
    return rewards, terminated, truncated, info


def test_car_gives_the_worked_numbers():
    env = started("car-v0", position=0.0)
    for _ in range(5):
        obs, reward, *_ = env.step(np.array([1.0], np.float32))
    np.testing.assert_allclose(obs, [0.0225, 0.0075, 0.0], rtol=1e-6)
    assert reward == 0.0


def test_car_clips_the_thrust():
    env = started("car-v0", position=0.0)
    assert env.step(np.array([7.0], np.float32))[0][1] == pytest.approx(0.0015)


@pytest.mark.parametrize("position", [0.29, 0.31, 0.5, 0.69, 0.71, -0.5])
@pytest.mark.parametrize("heaven", [1.0, -1.0])
def test_car_hears_the_priest_only_beside_him(position, heaven):
    env = started("car-v0", position=position, heaven=heaven)
    obs = env.step(np.zeros(1, np.float32))[0]
    assert obs[2] == (heaven if 0.3 <= position <= 0.7 else 0.0)


@pytest.mark.parametrize("env_id", ["car-v0", "car-p-v0"])
def test_car_hides_the_side_of_heaven_elsewhere(env_id):
    right, left = (started(env_id, position=0.1, heaven=side) for side in (1.0, -1.0))
    np.testing.assert_array_equal(observation(right), observation(left))


def test_car_p_hides_the_velocity_that_would_store_the_bit():
    coming, going = (started("car-p-v0", position=0.1, velocity=v) for v in (0.02, -0.02))
    np.testing.assert_array_equal(observation(coming), observation(going))


@pytest.mark.parametrize("env_id", ["car-v0", "car-p-v0"])
@pytest.mark.parametrize("heaven", [1.0, -1.0])
def test_car_learns_the_side_of_heaven_on_the_way(env_id, heaven):
    env = started(env_id, heaven=heaven)
    heard = {env.step(np.array([1.0], np.float32))[0][-1] for _ in range(30)}
    assert heard == {0.0, heaven}


@pytest.mark.parametrize("env_id", ["car-mdp-v0", "car-episodic-mdp-v0"])
def test_car_mdp_shows_the_side_of_heaven_from_the_start(env_id):
    env = gym.make(env_id)
    for seed in range(10):
        obs, _ = env.reset(seed=seed)
        assert obs[2] == env.unwrapped.heaven


def test_car_tosses_a_fair_coin_and_starts_at_rest():
    env = gym.make("car-mdp-v0")
    starts = np.array([env.reset(seed=seed)[0] for seed in range(400)])
    assert abs(starts[:, 2].mean()) < 0.15
    assert 0.18 < np.abs(starts[:, 0]).max() <= 0.2
    assert np.all(starts[:, 1] == 0)


@pytest.mark.parametrize("heaven", [1.0, -1.0])
@pytest.mark.parametrize("side", [1.0, -1.0])
def test_car_is_paid_at_heaven_only(heaven, side):
    env = started("car-v0", heaven=heaven)
    rewards, terminated, truncated, info = drive(env, lambda obs: side)
    assert sum(rewards) == rewards[-1] == float(heaven == side)
    assert (terminated, truncated) == (True, False)
    assert info["is_success"] == (heaven == side)


def test_car_episodic_pays_minus_one_a_step_to_heaven():
    rewards, *_ = drive(started("car-episodic-v0", heaven=1.0), lambda obs: 1.0)
    assert rewards == [-1.0] * len(rewards)


def test_car_episodic_makes_hell_cost_160_in_all():
    rewards, terminated, *_ = drive(started("car-episodic-v0", heaven=-1.0), lambda obs: 1.0)
    assert sum(rewards) == -160
    assert rewards[:-1] == [-1.0] * (len(rewards) - 1)
    assert terminated


@pytest.mark.parametrize("env_id", CAR)
def test_car_is_truncated_after_160_steps(env_id):
    env = started(env_id, position=0.0)
    rewards, terminated, truncated, info = drive(env, lambda obs: 0.0)
    assert (len(rewards), terminated, truncated) == (160, False, True)
    assert sum(rewards) == (-160 if "episodic" in env_id else 0)
    assert info["is_success"] is False


def test_car_leaks_since_its_velocity_solves_it_without_memory():
    def push(obs):
        _, velocity, direction = obs
        if direction:
            return direction
        return -1.0 if velocity < -0.001 else float(velocity < 0.02)

    env = gym.make("car-v0")
    for seed in range(40):
        env.reset(seed=seed)
        assert drive(env, push)[-1]["is_success"]


# ---- Water maze ----


def maze_step(env, ax, ay):
    return env.step(np.array([ax, ay], np.float32))


def test_water_maze_gives_the_worked_numbers():
    env = started("water-maze-simple-state-v0", platform=(0.7, 0.0))
    steps = [maze_step(env, 0.03, 0.0) for _ in range(11)]
    x = [obs[0] for obs, *_ in steps]
    np.testing.assert_allclose(
        x, [0.03, 0.09, 0.18, 0.28, 0.38, 0.48, 0.58, 0.68, 0.78, 0.0, 0.03], atol=1e-6
    )
    assert [reward for _, reward, *_ in steps] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    assert [obs[2] for obs, *_ in steps] == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    visits = [obs[7] for obs, *_ in steps]
    np.testing.assert_allclose(visits, [0, 0, 0, 0, 0, 0.2, 0.4, 0.6, 0.8, 0, 0])
    assert steps[9][0][5] == 0.0  # at rest after the teleport
    final = [info["final_pos"] for *_, info in steps]
    np.testing.assert_allclose(final[9], [0.88, 0.0], atol=1e-6)
    assert all(place is None for place in final[:9] + final[10:])


def test_water_maze_limits_acceleration_and_speed_per_axis():
    env = started("water-maze-simple-state-v0", platform=(0.7, 0.0))
    np.testing.assert_allclose(maze_step(env, 1.0, -1.0)[0][5:7], [0.03, -0.03])
    for _ in range(3):
        obs, *_ = maze_step(env, 0.03, -0.03)
    np.testing.assert_allclose(obs[5:7], [0.1, -0.1])


def test_water_maze_wall_undoes_the_move_and_stops():
    env = started(
        "water-maze-simple-state-v0",
        platform=(0.7, 0.0),
        position=(-0.95, 0.0),
        velocity=(-0.04, 0.05),
    )
    np.testing.assert_allclose(maze_step(env, -0.03, 0.0)[0][[0, 1, 5, 6]], [-0.95, 0, 0, 0])


@pytest.mark.parametrize(("distance", "reward"), [(0.299, 1.0), (0.301, 0.0)])
def test_water_maze_platform_has_radius_three_tenths(distance, reward):
    env = started("water-maze-simple-pomdp-v0", platform=(0.7, 0.0), position=(0.7, -distance))
    obs, got, *_ = maze_step(env, 0.0, 0.0)
    assert got == reward == obs[2]


def test_water_maze_counts_visits_in_total():
    env = started("water-maze-simple-state-v0", platform=(0.7, 0.0))
    for visit in range(4):
        env.unwrapped.position = (0.7, 0.0)
        maze_step(env, 0.0, 0.0)
        env.unwrapped.position = (0.0, 0.0)
        obs, *_ = maze_step(env, 0.0, 0.0)
        assert obs[7] == pytest.approx((visit + 1) / 5)
    env.unwrapped.position = (0.7, 0.0)
    obs, reward, *_ = maze_step(env, 0.0, 0.0)
    np.testing.assert_array_equal(obs[[0, 1, 2, 7]], [0, 0, 1, 0])
    assert reward == 1.0


def test_water_maze_puts_the_platform_on_a_circle_and_keeps_it():
    env = gym.make("water-maze-simple-mdp-v0")
    centres = np.array([env.reset(seed=seed)[0][3:5] for seed in range(400)])
    np.testing.assert_allclose(np.hypot(*centres.T), 0.7, rtol=1e-6)
    quadrants = np.unique(np.sign(centres), axis=0, return_counts=True)[1]
    assert len(quadrants) == 4
    assert quadrants.min() > 60
    moved = [env.step(action)[0][3:5] for action in random_actions(env, 50)]
    np.testing.assert_array_equal(moved, np.tile(centres[-1], (50, 1)))


def test_water_maze_variants_show_leading_entries_of_one_state():
    full = gym.make("water-maze-simple-state-v0")
    for env_id, size in zip(MAZE, (3, 5, 8), strict=True):
        env = gym.make(env_id)
        pairs = [(env.reset(seed=4)[0], full.reset(seed=4)[0])]
        for action in random_actions(env, 100):
            pairs.append((env.step(action)[0], full.step(action)[0]))
        for obs, expected in pairs:
            np.testing.assert_array_equal(obs, expected[:size])


def test_water_maze_pomdp_hides_platform_velocity_and_visits():
    one = started("water-maze-simple-pomdp-v0", platform=(0.7, 0.0))
    other = started(
        "water-maze-simple-pomdp-v0", platform=(0.0, -0.7), velocity=(0.1, 0.0), visits=3
    )
    np.testing.assert_array_equal(observation(one), observation(other))


def test_water_maze_mdp_hides_velocity_and_visits():
    one = started("water-maze-simple-mdp-v0", platform=(0.7, 0.0))
    other = started("water-maze-simple-mdp-v0", platform=(0.7, 0.0), velocity=(0.1, 0.0), visits=3)
    np.testing.assert_array_equal(observation(one), observation(other))


def test_water_maze_pomdp_shows_velocity_and_visits_in_its_history():
    env = started("water-maze-simple-pomdp-v0", platform=(0.7, 0.0))
    before, visits = observation(env), 0
    for action in random_actions(env, 200, seed=2) + np.float32([0.01, 0]):
        obs, *_ = env.step(action)
        visits = (visits + int(obs[2])) % 5
        assert env.unwrapped.visits == visits
        moved = (obs - before)[:2] * (obs[2] == 0 or visits != 0)  # not over a teleport
        np.testing.assert_allclose(env.unwrapped.velocity, moved, atol=1e-6)
        before = obs


def remembering(env, seed):
    """Circles until the platform is found, then goes straight to where; sees the pomdp only."""
    obs, _ = env.reset(seed=seed)
    before, found, total = obs, None, 0.0
    for _ in range(200):
        position, moved = obs[:2], (obs - before)[:2]
        if obs[2] and not position.any():  # a teleport, which leaves the point at rest
            moved = np.zeros(2)
        elif obs[2] and found is None:
            found = position + 2 * moved
        if found is None:
            radius = max(np.hypot(*position), 1e-6)
            outward = position / radius if radius > 0.01 else np.array([1.0, 0.0])
            around = np.array([-outward[1], outward[0]])
            wanted = 0.3 * (0.55 - radius) * outward + 0.08 * around * (radius > 0.3)
        else:
            wanted = np.clip(found - position, -0.1, 0.1)
        before = obs
        obs, reward, *_ = env.step(np.clip(wanted - moved, -0.03, 0.03).astype(np.float32))
        total += reward
    return total


def test_water_maze_pomdp_pays_for_remembering_the_place():
    env = gym.make("water-maze-simple-pomdp-v0")
    returns = [remembering(env, seed) for seed in range(30)]
    assert min(returns) > 45  # found from every side, where a memoryless search got 14 at worst
    assert np.mean(returns) > 70  # and 45 on average


# ---- All of them ----


@pytest.mark.parametrize("env_id", PENDULUM + MAZE)
def test_time_limit_truncates_after_200_steps_and_never_terminates(env_id):
    env = started(env_id)
    flags = [env.step(action)[2:4] for action in random_actions(env, 200)]
    assert flags == [(False, False)] * 199 + [(False, True)]


@pytest.mark.parametrize("env_id", STACKS)
def test_stack_joins_frames_oldest_first_after_zeros(env_id):
    base_id, n = STACKS[env_id]
    env, base = gym.make(env_id), gym.make(base_id)
    stacked, frame = env.reset(seed=6)[0], base.reset(seed=6)[0]
    frames = [np.zeros_like(frame)] * (n - 1) + [frame]
    np.testing.assert_array_equal(stacked, np.concatenate(frames))
    for action in random_actions(env, 12, scale=0.1):
        stacked, frame = env.step(action)[0], base.step(action)[0]
        frames = [*frames[1:], frame]
        np.testing.assert_array_equal(stacked, np.concatenate(frames))
    stacked, frame = (
        env.reset(seed=7)[0],
        base.reset(seed=7)[0],
    )  # nothing left of the first episode
    np.testing.assert_array_equal(stacked, np.concatenate([*[0 * frame] * (n - 1), frame]))


@pytest.mark.parametrize("env_id", STACKS)
def test_stack_repeats_the_bounds_of_its_frames(env_id):
    base_id, n = STACKS[env_id]
    space, base = gym.make(env_id).observation_space, gym.make(base_id).observation_space
    np.testing.assert_array_equal(space.low, np.tile(base.low, n))
    np.testing.assert_array_equal(space.high, np.tile(base.high, n))
    assert space.dtype == np.float32


BOUNDS = {
    "pendulum-v0": ([-1, -1, -8], [1, 1, 8]),
    "pendulum-v-v0": ([-8], [8]),
    "pendulum-va-v0": ([-8, -2], [8, 2]),
    "cartpole-continuous-v0": (
        [-4.8, -np.inf, -0.41887902, -np.inf],
        [4.8, np.inf, 0.41887902, np.inf],
    ),
    "car-v0": ([-2.4, -0.2, -1], [2.4, 0.2, 1]),
    "car-p-v0": ([-2.4, -1], [2.4, 1]),
    "water-maze-simple-state-v0": (
        [-1, -1, 0, -0.7, -0.7, -0.1, -0.1, 0],
        [1, 1, 1, 0.7, 0.7, 0.1, 0.1, 1],
    ),
}


@pytest.mark.parametrize("env_id", BOUNDS)
def test_declared_bounds_are_the_documented_ones(env_id):
    space = gym.make(env_id).observation_space
    low, high = BOUNDS[env_id]
    np.testing.assert_array_equal(space.low, np.float32(low))
    np.testing.assert_array_equal(space.high, np.float32(high))


# Held actions reach the ends of the state space, where single random ones never get.
POLICIES = st.lists(
    st.tuples(
        st.sampled_from([-10.0, -1.0, 0.0, 1.0, 10.0]) | st.floats(-1, 1),
        st.sampled_from([-10.0, -1.0, 0.0, 1.0, 10.0]) | st.floats(-1, 1),
        st.integers(1, 60),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("env_id", SINGLE)
@settings(max_examples=25, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31 - 1), policy=POLICIES)
def test_no_policy_leaves_the_declared_bounds(env_id, seed, policy):
    env = gym.make(env_id, disable_env_checker=True)
    space, size = env.observation_space, env.action_space.shape[0]
    obs, _ = env.reset(seed=seed)
    assert space.contains(obs)
    for *entries, steps in policy:
        action = np.float32(entries[:size]) * env.action_space.high
        for _ in range(steps):
            obs, _, terminated, truncated, _ = env.step(action)
            assert space.contains(obs), obs
            if terminated or truncated:
                return


@pytest.mark.parametrize("env_id", [PENDULUM[0], CARTPOLE[0], CAR[0], MAZE[0]])
@pytest.mark.parametrize(
    ("action", "words"),
    [
        ([math.nan], "not finite"),
        ([math.inf], "not finite"),
        ([0.0, 0.0, 0.0], "shape"),
        ([], "shape"),
        (0.0, "shape"),
    ],
)
def test_bad_action_is_refused_in_one_line_and_leaves_the_state_alone(env_id, action, words):
    env, twin = started(env_id), started(env_id)
    if np.shape(action) == (1,):
        action = action * env.action_space.shape[0]
    with pytest.raises(UserError, match=words) as caught:
        env.step(np.array(action, np.float32))
    assert "\n" not in str(caught.value)
    good = random_actions(env, 1)[0]
    np.testing.assert_array_equal(env.step(good)[0], twin.step(good)[0])
