"""Episodes: how each one starts, what a memory reads in it, and how it is played again."""

import importlib

import gymnasium as gym
import numpy as np
import pytest
import toy_envs  # noqa: F401  (registers the environments)
from script_runs import SCRIPTS, run, tiny, train

from common.envs import make_env
from common.errors import RunError
from envs.wrappers import SeededEpisodes, make_seeds

TOY = "toy_envs:Toy-v0"


# ---- Seeds ----


def test_training_evaluation_and_tests_share_no_seed():
    seeds = range(20)
    starts = {
        "training": [make_seeds("training", s, k, n)[0] for s in seeds for k in range(4)
                     for n in range(100)],
        "evaluation": [x for s in seeds for step in range(0, 10_000, 500)
                       for x in make_seeds("evaluation", s, step, count=10)],
        "test": [x for s in seeds for x in make_seeds("test", s, count=100)],
    }  # fmt: skip
    every = [seed for some in starts.values() for seed in some]
    assert len(every) == 8000 + 4000 + 2000
    assert len(set(every)) == len(every)
    assert 0 <= min(every) <= max(every) < 2**31


def test_a_run_uses_each_kind_of_seed_for_its_purpose(tmp_path, monkeypatch):
    used, real = {"training": [], "evaluation": [], "left over": []}, SeededEpisodes.reset
    module = importlib.import_module("sac")

    def watched(env, *, seed=None, options=None):
        evaluated = env not in module_envs
        result = real(env, seed=seed, options=options)
        if seed is None:
            used["left over" if evaluated else "training"].append((*env.seed, env.episode))
        else:
            used["evaluation"].append(seed)
            assert evaluated
        return result

    module_envs, make = [], module.make_envs

    def watched_make(*args):
        envs = make(*args)
        module_envs.extend(envs.envs)
        return envs

    monkeypatch.setattr(module, "make_envs", watched_make)
    monkeypatch.setattr(SeededEpisodes, "reset", watched)
    argv = tiny("sac", "--run-dir", tmp_path / "run", "--seed", 3, "--num-envs", 2)
    assert not module.main(module.parse_args(argv))
    episodes = [sum(k == env for _, k, _ in used["training"]) for env in range(2)]
    assert sorted(used["training"]) == [(3, k, n) for k in range(2) for n in range(episodes[k])]
    steps = (0, 26, 50, 60)
    assert used["evaluation"] == [x for k in steps for x in make_seeds("evaluation", 3, k, count=2)]


# ---- What a memory reads ----


@pytest.mark.parametrize("memory_input", ["obs", "obs-action", "obs-action-reward"])
def test_a_memory_reads_the_observation_and_what_came_before_it(memory_input):
    plain, env = make_env(TOY, seed=5), make_env(TOY, seed=5, memory_input=memory_input)
    rng, parts = np.random.default_rng(0), memory_input.split("-")
    for _ in range(3):
        (obs, _), (joined, _) = plain.reset(), env.reset()
        action, reward, ended = np.zeros(2), 0.0, False  # at the first step of each episode
        while True:
            before = {"obs": obs, "action": action, "reward": [reward]}
            expected = np.concatenate([before[part] for part in parts], dtype=np.float32)
            np.testing.assert_array_equal(joined, expected)
            assert joined.dtype == np.float32
            assert env.observation_space.contains(joined)
            if ended:
                break
            action = rng.uniform(-1, 1, 2).astype(np.float32)
            obs, reward, terminated, truncated, _ = plain.step(action)
            joined, *rest = env.step(action)
            assert rest[:3] == [reward, terminated, truncated]
            ended = terminated or truncated


# ---- Playing again ----


def test_an_episode_depends_on_its_number_alone():
    env = make_env(TOY, seed=5)
    firsts = [env.reset()[0] for _ in range(3)]
    other = make_env(TOY, seed=5)
    other.reset(), other.reset(seed=77)
    for _ in range(4):
        other.step(np.ones(2))
    np.testing.assert_array_equal(other.reset()[0], firsts[1])
    assert len({obs.tobytes() for obs in firsts}) == 3


@pytest.mark.parametrize("memory_input", [None, "obs-action-reward"])
def test_an_episode_is_played_again_to_where_it_was(memory_input):
    env, other = (make_env(TOY, seed=5, memory_input=memory_input) for _ in range(2))
    env.reset(), env.reset()
    for k in range(4):
        env.step(np.array([0.1 * k, -1]))
    other.load_state_dict(env.state_dict())
    for k in range(3):
        one, two = env.step(np.full(2, 0.3 * k)), other.step(np.full(2, 0.3 * k))
        np.testing.assert_equal(one[:4], two[:4])
    assert one[3]
    assert one[4]["episode"]["r"] == two[4]["episode"]["r"]
    np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


def test_an_environment_that_has_changed_is_refused(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    for mode in ("--resume", "--evaluate"):
        ended = run("sac", [mode, folder, "--env-id", TOY], tmp_path, "another_environment")
        assert ended.code == 2
        assert "Toy-v0 has changed since the checkpoint" in ended.err


def test_an_environment_that_does_not_repeat_is_named_and_the_run_goes_on(tmp_path):
    folder = train("sac", tiny("sac"), tmp_path)
    ended = run("sac", ["--resume", folder, "--total-steps", 80], tmp_path, "own_randomness")
    assert ended.code == 0, ended.err
    assert "this episode differs when played again" in ended.err


# ---- Observations and actions ----


def test_an_environment_may_reuse_its_array():
    env = make_env(TOY)
    inner, shared = env.unwrapped, np.zeros(3, np.float32)
    inner.observation_space.dtype = np.dtype(np.float32)

    def step(action):
        shared[:] += 1
        return shared, 0.0, False, False, {}

    inner.step = step
    env.reset()
    first, *_ = env.step(np.zeros(2))
    env.step(np.zeros(2))
    assert first.tolist() == [1, 1, 1]


def test_actions_reach_the_environment_in_its_own_bounds():
    env, seen = make_env(TOY), []
    env.reset()
    inner = env.unwrapped
    inner.step = lambda action: (seen.append(action), type(inner).step(inner, action))[1]
    for action in (-1, 0, 1):
        env.step(np.full(2, action))
    np.testing.assert_allclose(seen, [[-1, -1], [0.5, 0.5], [2, 2]])


@pytest.mark.parametrize("which", ["Dict", "Tuple", "Table"])
def test_parts_of_an_observation_are_joined_in_gymnasiums_order(which):
    env, plain = make_env(f"toy_envs:Toy{which}-v0", seed=5), make_env(TOY, seed=5)
    space = env.unwrapped.observation_space
    for _ in range(2):
        (obs, _), (x, _) = env.reset(), plain.reset()
        for k in range(4):
            expected = gym.spaces.flatten(space, env.unwrapped._parts())
            np.testing.assert_array_equal(obs, expected.astype(np.float32))
            assert set(x) <= set(obs)  # nothing is lost
            assert env.observation_space.contains(obs)
            obs, x = (e.step(np.full(2, 0.2 * k))[0] for e in (env, plain))


@pytest.mark.parametrize("script", [name for name in ("sac", "rsac") if name in SCRIPTS])
@pytest.mark.parametrize(("which", "words"), [("Dict", "a Dict, are flattened to 5 numbers")])
def test_a_run_says_first_that_observations_are_flattened(script, which, words, tmp_path):
    env_id = f"toy_envs:Toy{which}-v0"
    ended = run(script, tiny(script, env=env_id), tmp_path)
    assert ended.code == 0, ended.err
    assert ended.err.splitlines()[0] == f"{env_id}: its observations, {words}"
    assert ended.err.count("flattened") == 1


@pytest.mark.parametrize("script", [name for name in ("sac", "rdpg", "rsac") if name in SCRIPTS])
def test_flat_observations_of_whole_numbers_are_learned_from_as_numbers(script, tmp_path):
    train(script, tiny(script, env="toy_envs:ToyBytes-v0"), tmp_path)


class Made(Exception):
    pass


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_seed_sets_episodes_random_steps_and_first_weights(script, monkeypatch):
    module, seen = importlib.import_module(script), []

    def track(run, agent, envs, rng, **others):
        weights = next(agent.actor.parameters()).detach().numpy()
        seen.append((envs.reset()[0].tobytes(), rng.random(), weights.tobytes()))
        raise Made

    monkeypatch.setattr(module.Run, "track", track)
    for seed in (0, 1, 1):
        with pytest.raises(Made):
            module.main(module.parse_args(tiny(script, "--seed", seed)))
    for zero, one, again in zip(*seen, strict=True):
        assert zero != one
        assert one == again


def test_a_first_observation_that_is_not_finite_is_noticed():
    env = make_env("toy_envs:Toy-v0")
    env.unwrapped.reset = lambda **kwargs: (np.full(3, np.nan), {})
    with pytest.raises(RunError, match=r"episode 0, with seed \d+, step 0: the observation is not"):
        env.reset()
