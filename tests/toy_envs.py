"""Environments for tests: cheap, with short episodes, and some that go wrong on purpose.

A script makes one with `--env-id toy_envs:Toy-v0`.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, Sequence, Tuple

LIMIT = 7  # steps of an episode


class Toy(gym.Env):
    """A point moved by the action; terminates in about one of ten episodes.

    wrong: what goes wrong at the `at`-th step of an instance, counted over its episodes.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, wrong="", at=40, render_mode=None):
        self.render_mode, self.wrong, self.at, self.count = render_mode, wrong, at, 0
        self.action_space = Box(-1, 2, (2,), np.float32)  # not symmetric
        self.observation_space = Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.np_random.normal(size=3)
        return self.x.copy(), {}

    def step(self, action):
        self.count += 1
        wrong = self.wrong if self.count == self.at else ""
        self.x = 0.9 * self.x + 0.1 * self.np_random.normal(size=3)
        self.x[:2] += 0.3 * np.asarray(action, np.float64)
        obs, reward, ended = (
            self.x.copy(),
            -float(np.square(self.x).sum()),
            self.x[0] > 3 and self.wrong != "endless",
        )
        if wrong == "raise":
            raise KeyError("the gearbox fell off")
        if wrong == "nan":
            obs[1] = np.nan
        if wrong == "inf reward":
            reward = np.inf
        if wrong == "no reward":
            reward = None
        if wrong == "shape":
            obs = obs[:2]
        return obs, reward, bool(ended), False, {"is_success": bool(ended)}

    def render(self):
        picture = np.full((65, 67, 3), 200, np.uint8)  # odd sides
        picture[: int(10 + 5 * abs(self.x[0])) % 65] = (20, 60, 120)
        return picture


class Strict(Toy):
    """Refuses actions outside of its bounds, and tells things of another size at each step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.action_space = Box(np.float32([0.3, 0.2]), np.float32([3.1, 0.8]))

    def step(self, action):
        assert self.action_space.contains(action), action
        *results, info = super().step(action)
        count = int(self.np_random.integers(9))
        told = {
            "episode": "the third",
            "hits": np.arange(count),
            "hit": {"force": 1.0} if count > 4 else None,
        }
        return *results, info | told


class Pictures(Toy):
    """The same point, seen as a picture."""

    def __init__(self, size=84, **kwargs):
        super().__init__(**kwargs)
        self.observation_space = Box(0, 255, (size, size, 3), np.uint8)

    def _draw(self):
        size = self.observation_space.shape[0]
        picture = np.zeros(self.observation_space.shape, np.uint8)
        i, j = (np.clip(self.x[:2] / 6 + 0.5, 0, 0.99) * size).astype(int)
        picture[i, :, 0], picture[:, j, 1] = 255, 255
        return picture

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self._draw(), {}

    def step(self, action):
        obs, *rest = super().step(action)
        return (self._draw() if obs.shape == (3,) else obs), *rest


class Spaces(Toy):
    """An environment whose spaces no script can use."""

    def __init__(self, which, **kwargs):
        super().__init__(**kwargs)
        if which == "discrete":
            self.action_space = Discrete(3)
        if which == "whole":
            self.action_space = Box(0, 5, (2,), np.int64)
        if which == "unbounded":
            self.action_space = Box(-np.inf, np.inf, (2,), np.float32)
        if which == "mixed":
            self.observation_space = Dict(
                a=Box(0, 1, (2,)), b=Tuple([Box(0, 255, (4, 5), np.uint8)])
            )
        if which == "sequence":
            self.observation_space = Sequence(Box(0, 1, (2,)))
        if which == "raises":
            raise RuntimeError("no licence\nfor this simulator")


class Parts(Toy):
    """The same point, seen as a dictionary, a tuple or a table."""

    def __init__(self, which, **kwargs):
        super().__init__(**kwargs)
        one, two = (Box(-np.inf, np.inf, (size,), np.float64) for size in (1, 2))
        self.which = which
        self.observation_space = {
            "dict": Dict(place=two, right=Discrete(2), rest=one),
            "tuple": Tuple([two, Dict(rest=one)]),
            "table": Box(-np.inf, np.inf, (2, 3), np.float64),
        }[which]

    def _parts(self):
        place, rest = self.x[:2], self.x[2:]
        return {
            "dict": {"place": place, "right": int(self.x[0] > 0), "rest": rest},
            "tuple": (place, {"rest": rest}),
            "table": np.array([self.x, -self.x]),
        }[self.which]

    def reset(self, **kwargs):
        super().reset(**kwargs)
        return self._parts(), {}

    def step(self, action):
        _, *rest = super().step(action)
        return self._parts(), *rest


class Bytes(Toy):
    """The same point in whole numbers from 0 to 255."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.observation_space = Box(0, 255, (3,), np.uint8)

    def reset(self, **kwargs):
        obs, info = super().reset(**kwargs)
        return np.uint8(128 + 9 * np.clip(obs, -9, 9)), info

    def step(self, action):
        obs, *rest = super().step(action)
        return np.uint8(128 + 9 * np.clip(obs, -9, 9)), *rest


class Noise(Toy):
    """Observations that tell nothing about each other."""

    def step(self, action):
        self.x = self.np_random.normal(size=3)
        return self.x.copy(), 0.0, bool(self.x[0] > 1.3), False, {}


def register(env_id, entry_point=Toy, limit=LIMIT, **kwargs):
    gym.register(env_id, entry_point=entry_point, max_episode_steps=limit, kwargs=kwargs)


register("Toy-v0")
register("ToyNoise-v0", Noise)
register("ToyStrict-v0", Strict)
register("ToyBytes-v0", Bytes)
register("ToyEndless-v0", limit=None, wrong="endless")
register("ToyPictures-v0", Pictures)
register("ToyThumbnails-v0", Pictures, size=29)
WRONG = {"nan": "ToyNan-v0", "inf reward": "ToyInf-v0", "no reward": "ToyNone-v0"}
WRONG |= {"shape": "ToyShape-v0", "raise": "ToyRaise-v0"}
for _wrong, _id in WRONG.items():
    register(_id, wrong=_wrong)
    register(_id.replace("Toy", "ToyPictures"), Pictures, wrong=_wrong)
register("ToyNanAtOnce-v0", wrong="nan", at=1)
for _which in ("discrete", "whole", "unbounded", "mixed", "sequence", "raises"):
    register(f"Toy{_which.title()}-v0", Spaces, which=_which)
for _which in ("dict", "tuple", "table"):
    register(f"Toy{_which.title()}-v0", Parts, which=_which)
