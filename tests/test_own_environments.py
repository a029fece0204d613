"""Environments of users that go wrong: the one line says what, when and where."""

import argparse
import linecache
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box

from common.envs import make_env, make_envs
from common.errors import RunError, UserError


class Own(gym.Env):
    """Returns what it is told to; spaces by name."""

    def __init__(self, render_mode=None, **told):
        self.observation_space, self.action_space = Box(-1, 1, (2,)), Box(-1, 1, (1,))
        self.told = {"obs": np.zeros(2, np.float32), "reward": 1.0, "info": {}} | told
        for name in told:
            if name.endswith("_space"):
                setattr(self, name, told[name])

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.told.get("reset", (self.told["obs"], {}))

    def step(self, action):
        if "fails" in self.told:
            raise ArithmeticError
        assert self.action_space.contains(action)
        result = self.told["obs"], self.told["reward"], False, False, self.told["info"]
        return self.told.get("step", result)


@pytest.fixture
def make():
    def register_and_make(memory_input=None, **told):
        gym.register("Own-v0", entry_point=Own, max_episode_steps=2, kwargs=told)
        return make_env("Own-v0", memory_input=memory_input)

    yield register_and_make
    gym.registry.pop("Own-v0", None)


def play(env):
    """Both steps of an episode; the last `info`."""
    env.reset()
    env.step(np.zeros(1, np.float32))
    return env.step(np.zeros(1, np.float32))[-1]


WRONG = {
    "step 0: observation of shape (2, 1) instead of (2,)": {"obs": np.zeros((2, 1))},
    "step 0: observation of shape () instead of (2,)": {"obs": {"place": np.zeros(2)}},
    "step 0: `reset` returned [0.0, 0.0], not a tuple of": {"reset": [0.0, 0.0]},
    "step 1 raised ValueError: not enough values to unpack (expected 5, got 4) "
    "(gymnasium/wrappers/common.py, line": {"step": (np.zeros(2), 1.0, False, {})},
    "step 1: the reward is array([1.]), not a number": {"reward": np.ones(1)},
    "step 1: the reward is None, not a number": {"reward": None},
    "step 1: the reward is nan, which is not finite": {"reward": np.nan},
    "step 1: the reward is 1e+39, which is not finite as a 32-bit": {"reward": 1e39},
    "step 2: `info[\"is_success\"]` is 'yes', not True or False": {"info": {"is_success": "yes"}},
    'step 2: `info["is_success"]` is array([ True]), not': {
        "info": {"is_success": np.ones(1, bool)}
    },
}


@pytest.mark.parametrize("memory_input", [None, "obs-action-reward"])
@pytest.mark.parametrize("says", WRONG)
def test_a_wrong_value_is_named(says, memory_input, make):
    env = make(memory_input, **WRONG[says])
    with pytest.raises(RunError, match=rf"^Own-v0, episode 0, with seed \d+, {re.escape(says)}"):
        play(env)


def test_a_step_as_in_the_old_gym_is_told_what_to_return(make):
    with pytest.raises(RunError, match="`step` must return observation, reward, terminated, trunc"):
        play(make(step=(np.zeros(2), 1.0, False, {})))


def test_what_may_be_returned(make):
    """Whatever else is in `info`, such as the statistics of a wrapper of the user's own."""
    info = {"episode": {"r": 9.0}, "is_success": np.True_, "text": "none"}
    env = make(obs=[0.5, 0.5], reward=np.float32(0.5), info=info)
    told = play(env)
    assert told["is_success"] == 1
    assert told["episode"]["r"] == 1.0  # ours


@pytest.mark.filterwarnings("ignore")  # Gymnasium's, of bounds that are made less precise
def test_actions_have_the_type_of_their_space(make):
    for dtype in (np.float16, np.float32, np.float64):
        play(make(action_space=Box(-0.5, 2, (1,), dtype)))  # asserts it


def test_an_error_of_the_environment_comes_with_its_line(make):
    env = make(fails=True)
    with pytest.raises(RunError, match=r"step 1 raised ArithmeticError \(") as raised:
        play(env)
    name, line = re.search(r"\((\S+), line (\d+)\)", str(raised.value)).groups()
    assert __file__.endswith(name)
    assert linecache.getline(__file__, int(line)).strip() == "raise ArithmeticError"


SPACES = {
    "has no observation_space": {"observation_space": None},
    "has no action_space": {"action_space": "left or right"},
    "there are none": {"action_space": Box(-1, 1, (0,))},
    "some lower bound is not below its upper bound": {"action_space": Box(0, 0, (1,))},
    "or too far from it": {"action_space": Box(-3e38, 3e38, (1,))},
}


@pytest.mark.parametrize("says", SPACES)
def test_spaces_that_no_script_can_use_are_refused(says, make):
    with pytest.raises(UserError, match=f"^Own-v0 .*{says}"):
        make(**SPACES[says])


def test_spaces_that_differ_between_instances_are_refused():
    rng = np.random.default_rng(0)
    make = lambda: Own(observation_space=Box(-1, rng.uniform(1, 2), (2,)))  # noqa: E731
    gym.register("Own-v0", make, max_episode_steps=1)
    with pytest.raises(UserError, match=r"^Own-v0 has other spaces in each instance"):
        make_envs(argparse.Namespace(env_id="Own-v0"), 2)
    gym.registry.pop("Own-v0")


def test_an_environment_that_takes_no_render_mode_is_not_filmed():
    gym.register("Own-v0", lambda: Own(), max_episode_steps=1)
    make_env("Own-v0")
    with pytest.raises(UserError, match=r"^Own-v0 does not draw: it takes no render_mode$"):
        make_env("Own-v0", render_mode="rgb_array")
    gym.registry.pop("Own-v0")


def test_an_id_that_a_module_does_not_register_is_told_with_the_one_it_does(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "has_one.py").write_text("import gymnasium\ngymnasium.register('One-v0', int)\n")
    with pytest.raises(UserError, match=r"did you mean has_one:One-v0\?"):
        make_env("has_one:Onne-v0")
    gym.registry.pop("One-v0")


def test_an_error_of_ones_own_is_not_taken_for_a_step_of_the_old_gym(make, monkeypatch):
    def unpack(self, action):
        _a, _b, _c, _d, _e = (1, 2, 3, 4)

    monkeypatch.setattr(Own, "step", unpack)
    with pytest.raises(
        RunError, match=r"expected 5, got 4\) \(test_own_environments.py, line \d+\)$"
    ):
        play(make())
