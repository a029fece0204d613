"""Evaluation: each episode is as if it were played alone, from its own seed, and reported as is."""

import importlib
from argparse import Namespace

import numpy as np
import probes  # noqa: F401  (registers the environments)
import pytest
import torch
from script_runs import RECURRENT, SCRIPTS, checkpoint, env_id, progress, run, tiny, train

from common.checkpoint import save_checkpoint
from common.envs import make_envs
from common.errors import RunError, UserError
from common.evaluate import (
    SIDE_BY_SIDE,
    evaluate,
    load_agent,
    make_eval_envs,
    play,
    set_up_torch,
)
from envs.wrappers import make_seeds

SEEDS = make_seeds("test", 3, count=6)


def make_agent(script):
    """An agent that has learned nothing, and its arguments."""
    module = importlib.import_module(script)
    name = "toy_envs:ToyPictures-v0" if script == "conv_sac" else "probes:Varied-v0"
    args = module.parse_args(
        ["--env-id", name, *(["--rnn-dim", "5"] if script in RECURRENT else [])]
    )
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape, (action_dim,) = make_envs(args, 1).envs[0].shapes()
    return module.Agent(shape[0] if len(shape) == 1 else tuple(shape), action_dim, args), args


def play_alone(agent, args, seed, remember=True):
    """Return and length of one episode."""
    envs = make_envs(args, 1)
    obs, _ = envs.reset(seed=[seed])
    hidden, rewards, ended = None, [], False
    while not ended:
        action, hidden = agent.act(obs, hidden if remember else None, deterministic=True)
        obs, reward, terminated, truncated, _ = envs.step(action)
        rewards.append(reward[0])
        ended = terminated[0] or truncated[0]
    return sum(rewards), len(rewards)


@pytest.mark.parametrize("script", SCRIPTS)
def test_episodes_side_by_side_are_those_played_alone(script):
    agent, args = make_agent(script)
    returns, lengths = zip(*[play_alone(agent, args, seed) for seed in SEEDS], strict=True)
    assert len(set(returns)) == len(SEEDS)
    for count in (1, 2, 4, 6):
        results = evaluate(agent, make_envs(args, count), SEEDS)
        np.testing.assert_allclose(results["returns"], returns, rtol=1e-5, atol=1e-6)
        assert results["lengths"] == list(lengths)
    if script in RECURRENT:  # else a hidden state that goes astray would not be seen
        assert [play_alone(agent, args, seed, remember=False)[0] for seed in SEEDS] != list(returns)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_policy_of_nan_weights_ends_in_one_line(script, deterministic):
    agent, args = make_agent(script)
    for param in agent.parameters():
        param.data.fill_(float("nan"))
    envs = make_envs(args, 1)
    obs, _ = envs.reset(seed=[0])
    action, _ = agent.act(obs, None, deterministic=deterministic)
    with pytest.raises(RunError, match=r"the policy's action is .* learning diverges"):
        envs.step(action)


def test_success_is_reported_for_each_episode():
    class Lucky:
        """Succeeds in episodes with an even seed, at the last of one to three steps."""

        num_envs = 2

        def reset(self, seed=None, options=None):
            if seed is not None:
                self.seed, self.t = np.array(seed), 0
            return np.zeros((2, 3), np.float32), {}

        def step(self, action):
            self.t += 1
            ended, none = self.t == 1 + self.seed % 3, np.zeros(2, bool)
            info = {"is_success": ended & (self.seed % 2 == 0), "_is_success": ended}
            return np.zeros((2, 3), np.float32), self.seed / (1 + self.seed % 3), ended, none, info

    agent = importlib.import_module("sac").Agent
    agent = agent(3, 2, importlib.import_module("sac").parse_args([]))
    results = evaluate(agent, Lucky(), list(range(7)))
    np.testing.assert_allclose(results["returns"], range(7))
    assert results["lengths"] == [1, 2, 3, 1, 2, 3, 1]
    assert results["successes"] == [1, 0, 1, 0, 1, 0, 1]


def test_there_are_no_more_environments_than_episodes_and_never_many_and_one_draws():
    args = importlib.import_module("sac").parse_args(["--env-id", "pendulum-p-v0"])
    for episodes, expected in ((3, 3), (1000, SIDE_BY_SIDE)):
        args.eval_episodes = episodes
        draws = [env.render_mode for env in make_eval_envs(args, film=True).envs]
        assert draws == ["rgb_array"] + [None] * (expected - 1)


# ---- --evaluate ----


@pytest.fixture(scope="module", params=SCRIPTS)
def trained(request, tmp_path_factory):
    return request.param, train(
        request.param, tiny(request.param), tmp_path_factory.mktemp(request.param)
    )


def test_a_loaded_policy_does_what_it_did_before_it_was_saved(trained):
    script, folder = trained
    module = importlib.import_module(script)
    argv = ["--evaluate", str(folder), "--env-id", env_id(script)]
    argv += ["--eval-episodes", "2", "--num-threads", "1"]
    agent, envs = load_agent(module.parse_args(argv), script, module.Agent)
    results = evaluate(agent, envs, make_seeds("evaluation", 0, 60, count=2))
    row = progress(folder)[-1]
    assert float(row["eval_return_mean"]) == sum(results["returns"]) / 2
    assert float(row["eval_length_mean"]) == sum(results["lengths"]) / 2


def evaluated(script, folder, tmp_path, *more):
    """What --evaluate prints, by name."""
    ended = run(script, ["--evaluate", folder, "--env-id", env_id(script), *more], tmp_path)
    assert ended.code == 0, ended.err
    words = ended.out.split()
    assert ended.out.count("\n") == 1
    return dict(zip(words[::2], map(float, words[1::2]), strict=True))


def test_the_line_says_what_the_episodes_were(trained, tmp_path):
    script, folder = trained
    module = importlib.import_module(script)
    argv = ["--evaluate", str(folder), "--env-id", env_id(script)]
    count = SIDE_BY_SIDE + 2  # more than fit beside each other
    argv += ["--eval-episodes", str(count), "--num-threads", "1", "--seed", "7"]
    agent, envs = load_agent(module.parse_args(argv), script, module.Agent)
    returns = evaluate(agent, envs, make_seeds("test", 7, count=count))["returns"]
    before = checkpoint(folder)["progress"]
    told = evaluated(script, folder, tmp_path, *argv[4:])
    expected = {"episodes": count, "return_mean": np.mean(returns)}
    expected |= {"return_std": np.std(returns), "return_min": min(returns)}
    expected |= {"return_max": max(returns)}
    assert told.keys() == expected.keys() | {"length_mean", "success_rate"}
    for name, value in expected.items():
        assert told[name] == pytest.approx(value, rel=1e-5), name
    again, other = (evaluated(script, folder, tmp_path, *argv[4:8], "--seed", s) for s in (7, 8))
    assert told == again != other
    assert checkpoint(folder)["progress"][0] == before[0]


def test_the_module_of_an_environment_is_imported_only_if_its_id_is_typed(tmp_path, monkeypatch):
    folder, module = train("sac", tiny("sac"), tmp_path), importlib.import_module("sac")
    imported, real = [], importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda x: imported.append(x) or real(x))
    with pytest.raises(UserError, match="add --env-id toy_envs:Toy-v0"):
        load_agent(module.parse_args(["--evaluate", str(folder)]), "sac", module.Agent)
    assert imported == []
    argv = ["--evaluate", str(folder), "--env-id", env_id("sac")]
    load_agent(module.parse_args(argv), "sac", module.Agent)
    assert set(imported) == {"toy_envs"}


def change(state, **args):
    state["args"] |= args


MISFITS = {
    "networks of another size": lambda state: change(state, hidden_dims=[9]),
    "an argument that is missing": lambda state: state["args"].pop("hidden_dims"),
    "a network that is missing": lambda state: state["agent"].popitem(),
    "no networks": lambda state: state.pop("agent"),
    "no arguments": lambda state: state.pop("args"),
    "arguments that are none": lambda state: state.update(args=[1, 2]),
    "no environment": lambda state: state["args"].pop("env_id"),
    "an environment that is none": lambda state: change(state, env_id=5),
    "an environment that nobody has": lambda state: change(state, env_id="nope-v0"),
    "an environment of other shapes": lambda state: change(state, env_id="pendulum-v0"),
    "no state of the environments": lambda state: state.update(envs=[]),
    "no script": lambda state: state.pop("script"),
    "another version": lambda state: state.update(version=1),
}


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    return train("sac", tiny("sac", env="pendulum-p-v0"), tmp_path_factory.mktemp("pendulum"))


@pytest.mark.parametrize("what", MISFITS)
def test_a_checkpoint_that_does_not_fit_the_script_gives_one_line(what, pendulum, tmp_path):
    state = checkpoint(pendulum)
    MISFITS[what](state)
    save_checkpoint(tmp_path, state)
    ended = run("sac", ["--evaluate", tmp_path], tmp_path)
    assert ended.code == 2
    (line,) = [x for x in ended.err.splitlines() if "threads, seed" not in x]
    assert line.startswith("sac.py: error: ")


def test_a_film_shows_the_first_episode_and_nothing_else():
    agent, args = make_agent("sac")
    envs, shown = make_envs(args, 2), []
    lengths = play(agent, envs, SEEDS)["lengths"]
    short, long = (SEEDS[lengths.index(pick(lengths))] for pick in (min, max))
    for k, env in enumerate(envs.envs):
        env.render = lambda k=k, env=env: (k, env.started, env.steps)
    play(agent, envs, [short, long, long], shown.append)  # in two batches
    assert min(lengths) < max(lengths)
    assert shown == [(0, f"episode with seed {short}", t) for t in range(min(lengths))]


def test_a_run_has_its_threads_and_rounds_the_smallest_numbers_to_zero():
    threads = torch.get_num_threads()
    small = torch.full((99,), 1e-30)
    assert (small * 1e-10).all(), "else nothing is shown"
    set_up_torch(Namespace(device="cpu", num_threads=threads + 1, seed=0))
    try:
        assert torch.get_num_threads() == threads + 1
        assert not (small * 1e-10).any()
    finally:
        torch.set_num_threads(threads)
