"""Push-r-bump: compliance, layouts, rules, independence, and what is hidden.

Rules and geometry are computed here from the positions of bodies; scripted players show that the
task can be solved, with and without knowing the layout. What holds for all environments is in
`test_envs_all.py`.
"""

import math
import multiprocessing
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor

import gymnasium as gym
import numpy as np
import pytest

import envs  # noqa: F401  (registers the environments)
from common.errors import UserError
from envs.wrappers import make_seeds

pytest.importorskip("pybullet")

TEST, TEST_MDP = "bumps-normal-test-v0", "bumps-normal-test-mdp-v0"
FREE, FREE_MDP = "pbc-bumps-normal-pomdp-v0", "pbc-bumps-normal-mdp-v0"
IDS = [TEST, TEST_MDP, FREE, FREE_MDP]
TEST_TIMED, FREE_TIMED = "bumps-normal-test-timed-v0", "pbc-bumps-normal-timed-v0"
SOFT, HARD = -1.0, 1.0


def make(env_id, seed=0, **options):
    """The environment after a reset, with positions or layout chosen by `options`."""
    env = gym.make(env_id)
    env.reset(seed=seed, options=options or None)
    return env


def trajectory(env, seed, actions):
    """All that an agent sees of one episode, as rows of numbers; stops at the episode's end."""
    obs, _ = env.reset(seed=seed)
    rows = [[*obs, 0, 0, 0]]
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        rows.append([*obs, reward, terminated, info["is_success"]])
        if terminated or truncated:
            break
    return np.array(rows)


def random_actions(n, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (n, 2)).astype(np.float32)


def gripper_y(obs):
    return obs[0] - 0.15 * math.sin(obs[1])


def play(env, player, **reset):
    """Plays one episode; returns its is_success and its length."""
    obs, _ = env.reset(**reset)
    n, ended = 0, False
    while not ended:
        obs, _, terminated, truncated, info = env.step(np.array(player(obs), np.float32))
        n, ended = n + 1, terminated or truncated
    return info["is_success"], n


# ---- Compliance: the table of the original scene; tolerance 4 mm and 0.03 rad ----


@pytest.mark.parametrize(
    ("stiffness", "angle", "push"),
    [
        (-1.0, -0.315, 0.0),
        (-0.5, -0.315, 0.0),
        (-0.1, -0.315, 0.00004),
        (0.0, -0.314, 0.00009),
        (0.05, -0.280, 0.0075),
        (0.1, -0.233, 0.0122),
        (0.2, -0.159, 0.0230),
        (0.5, -0.002, 0.0453),
        (1.0, 0.000, 0.0454),
    ],
)
def test_two_decisions_onto_a_bump_bend_and_push_as_in_the_original(stiffness, angle, push):
    env = make(TEST, bumps=(-0.2, 0.08), gripper=0.0)
    start = env.unwrapped.bumps_y()
    for _ in range(2):
        obs, _, _, _, info = env.step(np.array([1.0, stiffness], np.float32))
    moved = env.unwrapped.bumps_y() - start
    assert obs[1] == pytest.approx(angle, abs=0.03)
    assert moved[1] == pytest.approx(push, abs=0.001 if stiffness <= 0 else 0.004)
    assert abs(moved[0]) < 1e-6
    assert info["is_success"] == (push > 0.010)


def test_soft_finger_passes_over_a_bump_as_in_the_original():
    env = make(TEST, bumps=(-0.2, 0.08), gripper=0.0)
    start = env.unwrapped.bumps_y()
    original = [
        (0.051, 0.051, 0.0),
        (0.101, 0.055, -0.315),
        (0.151, 0.068, -0.591),
        (0.201, 0.159, -0.282),
    ]
    for gripper, tip, angle in original:
        obs, _, terminated, _, _ = env.step(np.array([1.0, SOFT], np.float32))
        assert gripper_y(obs) == pytest.approx(gripper, abs=0.004)
        assert obs[0] == pytest.approx(tip, abs=0.004)
        assert obs[1] == pytest.approx(angle, abs=0.03)
        assert not terminated
    assert np.abs(env.unwrapped.bumps_y() - start).max() < 0.0001


@pytest.mark.parametrize("stroke", [1.0, 0.5, 0.01, -0.3, -1.0])
def test_gripper_moves_by_five_centimetres_times_the_stroke(stroke):
    env = make(TEST, bumps=(-0.3, 0.3), gripper=0.0)
    obs, *_ = env.step(np.array([stroke, HARD], np.float32))
    # It stops at the first inner step past its target: at most 0.1 m/s for 1/240 s too far.
    assert -1e-5 <= (obs[0] - 0.05 * stroke) * np.sign(stroke) <= 0.1 / 240


def test_stroke_zero_stops_time_for_a_bent_finger():
    env = make(TEST_MDP, bumps=(-0.2, 0.08), gripper=0.0)
    for _ in range(2):
        before, *_ = env.step(np.array([1.0, SOFT], np.float32))
    assert before[1] < -0.2
    for stiffness in (SOFT, HARD):
        obs, reward, terminated, _, _ = env.step(np.array([0.0, stiffness], np.float32))
        np.testing.assert_array_equal(obs, before)
        assert (reward, terminated) == (0.0, False)


# ---- Layout and start ----


def starts(env_id, n):
    env = gym.make(env_id)
    rows = []
    for seed in range(n):
        obs, _ = env.reset(seed=seed)
        assert obs[1] == pytest.approx(0.0, abs=1e-6)  # the finger starts straight
        rows.append([*env.unwrapped.bumps_y(), obs[0]])
    return np.array(rows).T  # bump 1, bump 2, gripper


def test_layouts_of_the_test_task_are_equally_likely_and_jittered():
    n = 300
    bump1, bump2, gripper = starts(TEST, n)
    k = np.round((bump1 + 0.4) / 0.16)
    sigma = math.sqrt(1 / 3 * 2 / 3 / n)
    for layout in (1, 2, 3):
        assert abs((k == layout).mean() - 1 / 3) < 4 * sigma
    jitter = np.concatenate([bump1 + 0.4 - 0.16 * k, bump2 + 0.4 - 0.16 * (k + 1), gripper])
    assert 0.028 < np.abs(jitter).max() < 0.030001
    assert jitter.std() == pytest.approx(0.03 / math.sqrt(3), rel=0.1)
    gap = bump2 - bump1
    assert gap.min() >= 0.10 - 1e-6
    assert gap.mean() == pytest.approx(0.16, abs=4 * 0.06 / math.sqrt(6) / math.sqrt(n))


def test_the_100_episodes_of_the_docs_have_the_layouts_that_they_say():
    env = gym.make(TEST_MDP)  # docs/environments/bumps.md: --seed 1000 --eval-episodes 100
    bump1 = [env.reset(seed=seed)[0][2] for seed in make_seeds("test", 1000, count=100)]
    k = np.round((np.array(bump1) + 0.4) / 0.16).astype(int)
    assert np.bincount(k).tolist() == [0, 24, 28, 48]


def test_free_layout_has_its_gaps_and_starts_clear_of_bumps_and_limits():
    n = 300
    bump1, bump2, gripper = starts(FREE, n)
    gap = bump2 - bump1
    assert 0.12 - 1e-6 <= gap.min() < 0.13
    assert 0.27 < gap.max() <= 0.32 + 1e-6
    assert bump1.min() >= -0.28 - 1e-6
    assert bump2.max() <= 0.28 + 1e-6
    assert abs(bump1.mean() + bump2.mean()) < 0.04  # the coin makes it symmetric
    assert np.minimum(abs(gripper - bump1), abs(gripper - bump2)).min() >= 0.04 - 1e-6
    assert abs(gripper).max() <= 0.36 + 1e-6
    # Each of the three intervals is chosen in proportion to its length.
    lengths = np.array([bump1 - 0.04 + 0.36, gap - 0.08, 0.36 - bump2 - 0.04])
    expected = lengths / lengths.sum(0)
    counts = [gripper < bump1, (gripper > bump1) & (gripper < bump2), gripper > bump2]
    for p, chosen in zip(expected, counts, strict=True):
        assert abs(chosen.sum() - p.sum()) < 4 * math.sqrt((p * (1 - p)).sum())


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_layout_can_be_chosen_at_reset(layout):
    env = gym.make(TEST)
    for seed in range(5):
        env.reset(seed=seed, options={"layout": layout})
        nominal = np.array([-0.4 + 0.16 * layout, -0.4 + 0.16 * (layout + 1)])
        assert np.abs(env.unwrapped.bumps_y() - nominal).max() <= 0.03 + 1e-6


@pytest.mark.parametrize(
    ("env_id", "options", "message"),
    [
        (TEST, {"layout": 4}, "layout is 1, 2 or 3"),
        (TEST, {"seed": 4}, "reset options are"),
        (FREE, {"layout": 1}, "reset options are"),
        (TEST, {"bumps": (0.2, 0.1)}, "bump 1 on the left"),
        (TEST, {"gripper": math.nan}, "positions must lie within"),
    ],
)
def test_bad_reset_options_are_named(env_id, options, message):
    with pytest.raises(UserError, match=message):
        gym.make(env_id).reset(options=options)


def test_finger_never_starts_inside_a_bump():
    env = gym.make(TEST).unwrapped
    for seed in range(3000):  # without a second draw this happens once in a thousand starts
        env.np_random = np.random.default_rng(seed)
        bump1, bump2, gripper = env._draw({})
        assert min(abs(gripper - bump1), abs(gripper - bump2)) > 0.0225


# ---- Reward, termination, time limit ----


@pytest.mark.parametrize(("env_id", "wrong_push"), [(TEST, -1.0), (FREE, 0.0)])
def test_reward_and_end_follow_from_the_positions_of_the_bodies(env_id, wrong_push):
    env = gym.make(env_id)
    seen = set()
    for seed in range(40):
        env.reset(seed=seed)
        start = env.unwrapped.bumps_y()
        for action in random_actions(50, seed):
            obs, reward, terminated, truncated, info = env.step(action)
            bumps = env.unwrapped.bumps_y()
            d1, d2 = bumps - start
            wrong = abs(d1) > 0.001 or d2 < -0.001
            right = d2 > 0.010 and obs[0] < bumps[1] and not wrong
            assert reward == (wrong_push if wrong else float(right))
            assert terminated == (wrong or right or abs(obs[0]) >= 0.38)
            assert info["is_success"] == right
            seen.add((wrong, right))
            if terminated or truncated:
                break
    assert seen == {(False, False), (True, False), (False, True)}


@pytest.mark.parametrize("direction", [-1.0, 1.0])
def test_episode_ends_without_reward_where_the_tip_reaches_the_limit(direction):
    env = make(TEST, bumps=(-0.06, 0.06), gripper=0.3 * direction)
    for _ in range(2):
        obs, reward, terminated, _, info = env.step(np.array([direction, HARD], np.float32))
        assert reward == 0.0
        assert not info["is_success"]
        assert terminated == (abs(obs[0]) >= 0.38)
    assert terminated


@pytest.mark.parametrize("env_id", IDS)
def test_time_limit_truncates_after_fifty_decisions(env_id):
    env = make(env_id)
    for n in range(1, 51):
        _, _, terminated, truncated, _ = env.step(np.zeros(2, np.float32))
        assert not terminated
        assert truncated == (n == 50)


@pytest.mark.parametrize(("timed", "untimed"), [(TEST_TIMED, TEST), (FREE_TIMED, FREE)])
def test_timed_task_is_the_same_but_ends_after_fifty_decisions(timed, untimed):
    still = np.zeros((50, 2), np.float32)
    for actions in (still, random_actions(50)):
        rows, expected = (trajectory(make(i), 3, actions) for i in (timed, untimed))
        expected[50:, -2] = 1  # terminated
        np.testing.assert_array_equal(rows, expected)
    env = make(timed)
    for _ in range(2):  # counted anew in each episode
        assert len(trajectory(env, 3, still)) == 51


# ---- Players ----


def knowing_player(env):
    """Gets between the bumps softly, straightens the finger, pushes; it is told where bumps are."""

    def act(obs):
        tip, angle = obs[:2]
        bump1, bump2 = env.unwrapped.bumps_y()
        if tip > bump2 - 0.02:
            return -1.0, SOFT
        if tip < bump1 + 0.02:
            return 1.0, SOFT
        if abs(angle) < 0.05:
            return 1.0, HARD
        return np.clip((tip - gripper_y(obs)) / 0.05, -1, 1), SOFT

    return act


class FeelingPlayer:
    """Knows only what it felt: passes everything to the right, comes back over one bump, pushes it.

    `held`: the bend grows, so a bump is in the way; once the finger slips off, the bend shrinks.
    """

    def __init__(self):
        self.phase, self.held, self.last_angle = "right", False, 0.0

    def __call__(self, obs):
        angle, lag = obs[1], 0.15 * math.sin(obs[1])  # lag: of the tip behind the gripper (m)
        if self.phase == "right":
            if abs(angle - self.last_angle) > 0.01:
                self.held = angle < self.last_angle
            # A turn with the tip on top of a bump would drag it along.
            if gripper_y(obs) > 0.30 and angle > -0.5:
                self.phase = "straighten" if self.held else "left"
        elif self.phase == "left" and self.last_angle > 0.3 and angle < self.last_angle - 0.02:
            self.phase = "straighten"
        elif self.phase == "straighten" and abs(angle) < 0.02:
            self.phase = "push"
        self.last_angle = angle
        pace = 1.0 if abs(angle) < 0.02 else 0.4
        if self.phase == "straighten":
            towards_tip = lag / 0.05 if abs(lag) > 0.01 else 0.2 * np.sign(lag)
            return np.clip(towards_tip, -1, 1), SOFT
        return {"right": (pace, SOFT), "left": (-pace, SOFT), "push": (1.0, HARD)}[self.phase]


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_player_that_knows_the_layout_always_succeeds(layout):
    env = gym.make(TEST)
    for seed in range(8):
        success, n = play(env, knowing_player(env), seed=seed, options={"layout": layout})
        assert success
        assert n <= 15


@pytest.mark.parametrize("layout", [1, 2, 3])
def test_player_that_only_remembers_touches_always_succeeds(layout):
    env = gym.make(TEST)
    for seed in range(8):
        assert play(env, FeelingPlayer(), seed=seed, options={"layout": layout})[0]


def test_player_that_only_remembers_touches_solves_the_free_layout():
    env = gym.make(FREE)
    for seed in range(25):
        assert play(env, FeelingPlayer(), seed=seed)[0]


def test_pushing_always_to_the_right_serves_one_layout_of_three():
    env = gym.make(TEST)
    wins = [
        [play(env, lambda _: (1.0, HARD), seed=s, options={"layout": k})[0] for s in range(5)]
        for k in (1, 2, 3)
    ]
    np.testing.assert_array_equal(wins, [[False] * 5, [True] * 5, [False] * 5])


# ---- Hidden means hidden ----


def test_layouts_look_the_same_before_the_first_touch():
    seen = []
    for bumps in [(-0.24, -0.08), (-0.08, 0.08), (0.08, 0.24)]:
        env = make(TEST, bumps=bumps, gripper=0.0)
        seen.append([env.step(np.array([a, HARD], np.float32))[0] for a in (0.5, -1.0, 1.0, -0.3)])
    np.testing.assert_array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[0], seen[2])


@pytest.mark.parametrize("felt", [0.05, 0.08, 0.093])
def test_first_touch_does_not_tell_which_bump_it_is(felt):
    seen = []
    for bumps in [(felt - 0.16, felt), (felt, felt + 0.16)]:
        env = make(TEST, bumps=bumps, gripper=0.0)
        seen.append([env.step(np.array([1.0, SOFT], np.float32))[0] for _ in range(3)])
    assert seen[0][-1][1] < -0.4  # the bump is felt
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-4)


@pytest.mark.parametrize("bump", [0.05, 0.08, 0.11, 0.20])
def test_first_touch_tells_where_the_bump_is(bump):
    env = make(TEST, bumps=(-0.2, bump), gripper=0.0)
    for _ in range(50):
        obs, *_ = env.step(np.array([0.2, SOFT], np.float32))
        if obs[1] < -0.02:
            break
    # Held back by the cylinder (radius 20 mm) at half the blade's thickness (2.5 mm).
    assert obs[0] + 0.0225 == pytest.approx(bump, abs=0.005)


@pytest.mark.parametrize(("env_id", "oracle"), [(TEST, TEST_MDP), (FREE, FREE_MDP)])
def test_oracle_is_the_same_task_with_the_bumps_in_view(env_id, oracle):
    env, full = gym.make(env_id), gym.make(oracle)
    for seed in range(4):
        obs, seen = env.reset(seed=seed)[0], full.reset(seed=seed)[0]
        for action in random_actions(50, seed):
            np.testing.assert_array_equal(seen[:2], obs)
            np.testing.assert_allclose(seen[2:], env.unwrapped.bumps_y(), rtol=1e-6)
            obs, *outcome = env.step(action)
            seen, *full_outcome = full.step(action)
            assert outcome == full_outcome
            if outcome[1] or outcome[2]:
                break


# ---- Bounds ----


@pytest.mark.parametrize("env_id", IDS)
def test_observations_stay_within_their_space(env_id):
    env = gym.make(env_id)
    rng = np.random.default_rng(1)
    policies = [
        lambda: rng.uniform(-1, 1, 2),
        lambda: rng.choice([-1.0, 1.0], 2),
        lambda: np.array([rng.choice([-1.0, 1.0]), HARD]),
        lambda: np.array([1.0, rng.uniform(-1, 1)]),
        lambda: np.array([-1.0, SOFT]),
    ]
    for seed in range(20):
        obs, _ = env.reset(seed=seed)
        assert env.observation_space.contains(obs)
        for _ in range(50):
            obs, _, terminated, _, _ = env.step(policies[seed % 5]().astype(np.float32))
            assert env.observation_space.contains(obs)
            if terminated:
                break


def test_gripper_stays_within_its_limits_while_the_finger_is_held_back():
    env = make(TEST, bumps=(0.2, 0.34), gripper=0.28)
    for _ in range(50):
        obs, _, terminated, _, _ = env.step(np.array([1.0, SOFT], np.float32))
        assert gripper_y(obs) < 0.38 + 0.1 / 240 + 1e-6
        if terminated:
            break


def test_actions_are_clipped():
    rows = [
        trajectory(gym.make(TEST), 3, scale * np.array([[1, -1], [-1, 1], [1, 1]], np.float32))
        for scale in (1, 1000)
    ]
    np.testing.assert_array_equal(*rows)


# ---- Seeds and several instances ----


@pytest.mark.parametrize("env_id", IDS)
def test_seed_determines_the_episode_whatever_came_before(env_id):
    env, actions = gym.make(env_id), random_actions(50, 9)
    first = trajectory(env, 5, actions)
    for other_seed in (6, 7):
        other = trajectory(env, other_seed, random_actions(50, other_seed))
        assert not np.array_equal(other[0], first[0])
        np.testing.assert_array_equal(trajectory(env, 5, actions), first)
    np.testing.assert_array_equal(trajectory(gym.make(env_id), 5, actions), first)


def test_instances_never_touch_each_other():
    alone = {seed: trajectory(gym.make(TEST), seed, random_actions(50, seed)) for seed in range(4)}
    rng = np.random.default_rng(0)
    closing = gym.make(TEST)
    runs = {}
    for seed in alone:
        env = gym.make(TEST)
        obs, _ = env.reset(seed=seed)
        runs[seed] = (env, list(random_actions(50, seed)), [[*obs, 0, 0, 0]])
    closing.reset(seed=0)
    closing.close()
    running = list(runs)
    while running:
        seed = int(rng.choice(running))  # any order of steps
        env, actions, rows = runs[seed]
        obs, reward, terminated, truncated, info = env.step(actions.pop(0))
        rows.append([*obs, reward, terminated, info["is_success"]])
        if terminated or truncated:
            running.remove(seed)
            if seed % 2:
                env.close()
            else:
                env.reset(seed=100)
    for seed, rows in alone.items():
        np.testing.assert_array_equal(runs[seed][2], rows)


def _in_another_process(seed):
    return trajectory(gym.make(TEST), seed, random_actions(50, seed))


def test_processes_never_touch_each_other():
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        theirs = list(pool.map(_in_another_process, range(4)))
    for seed in range(4):
        np.testing.assert_array_equal(theirs[seed], _in_another_process(seed))


def test_copy_by_pickle_is_an_environment_of_its_own():
    env = make(TEST_MDP)
    copy = pickle.loads(pickle.dumps(env.unwrapped))
    actions = random_actions(50)
    expected = trajectory(env, 2, actions)
    env.close()
    np.testing.assert_array_equal(trajectory(copy, 2, actions), expected)


def test_close_releases_the_simulation():
    for _ in range(1100):  # pybullet has room for 1,024
        env = gym.make(TEST).unwrapped
        assert env.client.isConnected()
        env.close()
    env.close()  # twice does no harm


# ---- Pictures and packages ----


def test_picture_shows_both_bumps_and_the_finger():
    env = gym.make(TEST, render_mode="rgb_array")
    env.reset(seed=0, options={"bumps": (-0.08, 0.08), "gripper": 0.0})
    frame = env.render()
    assert frame.shape == (256, 640, 3)
    assert frame.dtype == np.uint8
    red, green, blue = np.moveaxis(frame.astype(int), -1, 0)
    bump2 = np.argwhere((green > red + 40) & (green > blue + 40))
    finger = np.argwhere((red > blue + 60) & (green > blue + 60))
    assert len(bump2) > 200
    assert len(finger) > 100
    assert finger[:, 1].mean() < bump2[:, 1].mean()  # larger y is further right
    env.step(np.array([-1.0, SOFT], np.float32))
    assert (env.render() != frame).any()


def test_drawing_changes_nothing():
    drawn = gym.make(TEST, render_mode="rgb_array")
    drawn.reset(seed=4)
    drawn.render()
    actions = random_actions(50)
    np.testing.assert_array_equal(
        trajectory(drawn, 4, actions), trajectory(gym.make(TEST), 4, actions)
    )


def test_missing_pybullet_is_named_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(UserError, match=r"pybullet is not installed.*Python 3\.11.*conda-forge"):
        gym.make(TEST)
