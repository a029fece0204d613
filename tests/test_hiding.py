"""The wrappers that hide a part of the state: what is shown, from which seed, after a resume."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation
from script_runs import resume, tiny, train
from test_resume import assert_same_run

from common.envs import make_env
from common.errors import UserError
from envs.wrappers import DropObservation, KeepEntries, NoisyObservation

HIDDEN = ["pendulum-flicker-v0", "pendulum-noise-v0", "pendulum-delay-v0"]


def pendulum():
    return gym.make("pendulum-v0")


def play(env, seed=3, steps=150):
    """The observations of one episode, (1 + steps, obs_dim)."""
    seen = [env.reset(seed=seed)[0]]
    for k in range(steps):
        action = 2 * np.sin(0.1 * np.float32([k]))
        seen.append(env.step(action)[0])
        assert env.observation_space.contains(seen[-1])
    return np.array(seen)


# ---- Entries ----


def test_kept_entries_come_in_the_order_asked_for():
    np.testing.assert_array_equal(
        play(KeepEntries(pendulum(), [2, 0])), play(pendulum())[:, [2, 0]]
    )


def test_kept_entries_keep_their_bounds():
    space = KeepEntries(pendulum(), range(1, 3)).observation_space
    assert space == gym.spaces.Box(np.float32([-1, -8]), np.float32([1, 8]))


@pytest.mark.parametrize("entries", [[3], [-1], []])
def test_entries_that_are_not_there_are_refused(entries):
    with pytest.raises(UserError, match="entries 0 to 2"):
        KeepEntries(pendulum(), entries)


# ---- Whole observations ----


def test_a_dropped_observation_is_zeros_and_the_others_are_true():
    shown, true = play(DropObservation(pendulum(), 0.3)), play(pendulum())
    dropped = ~shown.any(axis=1)
    assert 0.15 < dropped.mean() < 0.45
    np.testing.assert_array_equal(shown[~dropped], true[~dropped])


def test_a_held_observation_is_the_last_one_that_was_shown():
    shown, true = play(DropObservation(pendulum(), 0.5, hold=True)), play(pendulum())
    fresh = (shown == true).all(axis=1)
    assert fresh[0]
    assert 0.3 < fresh.mean() < 0.7
    for k in np.flatnonzero(~fresh):
        np.testing.assert_array_equal(shown[k], shown[k - 1])


def test_nothing_is_held_over_a_reset():
    env = DropObservation(pendulum(), 1, hold=True)
    for seed in (1, 2):
        first = play(env, seed, steps=5)
        np.testing.assert_array_equal(first, np.tile(pendulum().reset(seed=seed)[0], (6, 1)))


def test_zeros_are_in_the_space_also_where_they_were_not():
    env = gym.wrappers.RescaleObservation(pendulum(), np.float32(1), np.float32(2))
    space = DropObservation(env, 0.5).observation_space
    np.testing.assert_array_equal(space.low, 0)
    np.testing.assert_array_equal(space.high, 2)


@pytest.mark.parametrize("probability", [-0.1, 1.1, np.nan])
def test_no_probability_is_refused(probability):
    with pytest.raises(UserError, match="probability"):
        DropObservation(pendulum(), probability)


def test_pictures_can_be_dropped():
    env = gym.make("toy_envs:ToyPictures-v0", disable_env_checker=True)
    env = DropObservation(env, 1)
    obs, _ = env.reset(seed=0)
    assert not obs.any()
    assert env.observation_space.contains(obs)


# ---- Noise ----


def test_noise_has_the_standard_deviation_of_each_entry():
    std = [0.0, 0.5, 2.0]
    noise = play(NoisyObservation(pendulum(), std)) - play(pendulum())
    np.testing.assert_allclose(noise.std(axis=0), std, rtol=0.25)
    assert np.abs(noise.mean(axis=0)).max() < 0.5


def test_noise_is_fresh_in_each_entry_and_step():
    noise = play(NoisyObservation(pendulum(), 1.0)) - play(pendulum())
    together = np.corrcoef(noise.T) - np.eye(3)
    later = [np.corrcoef(entry[:-1], entry[1:])[0, 1] for entry in noise.T]
    assert np.abs([*together.ravel(), *later]).max() < 0.35


def test_two_wrappers_of_noise_do_not_draw_the_same():
    noise = play(NoisyObservation(NoisyObservation(pendulum(), 1.0), 1.0)) - play(pendulum())
    assert noise.std() == pytest.approx(2**0.5, rel=0.2)  # 2 if they were the same


@pytest.mark.parametrize("std", [-1, [1, 2], np.nan, [[1, 2, 3]]])
def test_noise_that_does_not_fit_is_refused(std):
    with pytest.raises(UserError, match="standard deviation"):
        NoisyObservation(pendulum(), std)


def test_noise_on_whole_numbers_is_refused():
    with pytest.raises(UserError, match="not to uint8"):
        NoisyObservation(gym.make("toy_envs:ToyPictures-v0"), 1)


# ---- Delay ----


def test_delayed_observations_are_true_and_five_steps_old():
    shown, true = play(gym.make("pendulum-delay-v0")), play(pendulum())
    np.testing.assert_array_equal(shown[:5], 0)
    np.testing.assert_array_equal(shown[5:], true[:-5])


# ---- All of them ----

WRAPPERS = {
    "keep": lambda env: KeepEntries(env, [0]),
    "drop": lambda env: DropObservation(env, 0.5),
    "hold": lambda env: DropObservation(env, 0.5, hold=True),
    "noise": lambda env: NoisyObservation(env, [0.1, 0.2, 0.3]),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_a_seed_gives_the_same_observations_whatever_came_before(wrap):
    used, fresh = wrap(pendulum()), wrap(pendulum())
    before = play(used, seed=1)
    again = play(used, seed=5)
    np.testing.assert_array_equal(again, play(fresh, seed=5))
    assert not np.array_equal(before, again)


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_gymnasium_makes_a_wrapped_environment_again_from_its_spec(wrap):
    env = wrap(pendulum())
    np.testing.assert_array_equal(play(gym.make(env.spec)), play(env))


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_dictionaries_are_refused_until_they_are_flattened(wrap):
    env = gym.make("toy_envs:ToyTuple-v0")
    with pytest.raises(UserError, match="FlattenObservation first"):
        wrap(env)
    wrap(FlattenObservation(env))


@pytest.mark.parametrize("env_id", HIDDEN)
def test_an_episode_of_a_hidden_version_is_played_again_to_where_it_was(env_id):
    env, other = (make_env(env_id, seed=5, memory_input="obs-action") for _ in range(2))
    env.reset(), env.reset()
    for k in range(9):
        env.step(np.float32([0.1 * k]))
    other.load_state_dict(env.state_dict())
    for k in range(20):
        one, two = env.step(np.float32([0.05 * k])), other.step(np.float32([0.05 * k]))
        np.testing.assert_equal(one[:4], two[:4])


@pytest.mark.parametrize("env_id", HIDDEN)
def test_a_resumed_run_of_a_hidden_version_is_the_run_without_the_break(env_id, tmp_path):
    argv = tiny("sac", "--eval-every", 1000, "--eval-episodes", 1, env=env_id, total=50)
    whole = train("sac", [*argv, "--total-steps", 90], tmp_path, "whole")
    cut = train("sac", argv, tmp_path, "cut")  # in the middle of an episode
    resume("sac", cut, tmp_path, 90)
    assert_same_run(whole, cut)


def test_the_flickering_pendulum_hides_half_and_the_noisy_one_adds_three_tenths():
    true, shown = play(pendulum()), play(gym.make("pendulum-flicker-v0"))
    dropped = ~shown.any(axis=1)
    assert 0.35 < dropped.mean() < 0.65
    np.testing.assert_array_equal(shown[~dropped], true[~dropped])
    noise = play(gym.make("pendulum-noise-v0")) - true
    np.testing.assert_allclose(noise.std(axis=0), 0.3, rtol=0.25)


@pytest.mark.parametrize("name", ["drop", "noise"])
def test_without_a_seed_every_episode_is_hidden_in_another_way(name):
    env, drawn = WRAPPERS[name](pendulum()), []
    for seed in (4, None, None):
        env.reset(seed=seed)
        drawn.append(env.rng.random())
    assert len(set(drawn)) == 3


def test_wrappers_of_two_classes_do_not_draw_the_same():
    env = DropObservation(NoisyObservation(pendulum(), 1.0), 0.5)
    env.reset(seed=3)
    one, two = (x.rng.bit_generator.seed_seq.entropy for x in (env, env.env))
    assert one != two


def test_what_is_held_stays_where_an_environment_reuses_its_array():
    env, obs = DropObservation(pendulum(), 1, hold=True), np.ones(3, np.float32)
    env.observation(obs)
    obs[:] = 5
    assert env.observation(obs).tolist() == [1, 1, 1]
