"""Tiny environments that ask for memory and nothing else: what is observed never shows the answer.

An episode is a sequence of observations drawn at its start, which no action changes, and of answers
in {-1, 0, 1}. A step's reward is action * answer, so the best return is the number of answers that
are not 0. In every probe the answer of a step is +1 or -1 with equal chance whatever is observed at
that step, so the mean return of every policy without memory is exactly 0.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box


class Probe(gym.Env):
    """Subclasses have `steps`, `obs_dim` and `draw() -> observations (steps + 1, .), answers`."""

    def __init__(self, render_mode=None, **kwargs):
        self.__dict__.update(kwargs)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.observation_space = Box(-np.inf, np.inf, (self.obs_dim,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.obs, self.answers = self.draw()
        self.t = 0
        return np.asarray(self.obs[0], np.float32), {}

    def step(self, action):
        reward = float(action[0] * self.answers[self.t])
        self.t += 1
        return np.asarray(self.obs[self.t], np.float32), reward, self.t == self.steps, False, {}


class CueRecall(Probe):
    """[cue, time to answer?]: the cue, +1 or -1, is shown at the first step alone and asked for
    `delay` steps later, four times. Then the observation is (0, 1) for both cues."""

    obs_dim = 2
    steps = property(lambda self: self.delay + 4)

    def draw(self):
        obs, answers = np.zeros((self.steps + 1, 2)), np.zeros(self.steps)
        obs[0, 0] = answers[self.delay :] = self.np_random.choice([-1, 1])
        obs[self.delay :, 1] = 1
        return obs, answers


class Velocity(Probe):
    """(cos, sin) of an angle that turns at a constant speed; the answer is which way. The angle of
    a single step is uniform on the circle for both."""

    obs_dim, steps = 2, 8

    def draw(self):
        way = self.np_random.choice([-1, 1])
        angle = self.np_random.uniform(-np.pi, np.pi) + 0.8 * way * np.arange(self.steps + 1)
        answers = np.full(self.steps, way)
        answers[0] = 0  # nobody can know yet
        return np.stack([np.cos(angle), np.sin(angle)], axis=1), answers


class Position(Probe):
    """A velocity, drawn anew at each step; the answer is the side of 0 on which the sum of the
    velocities before this one lies."""

    obs_dim, steps = 1, 8

    def draw(self):
        velocity = self.np_random.uniform(-1, 1, self.steps + 1)
        return velocity[:, None], np.sign(np.cumsum(velocity) - velocity)[: self.steps]


class HiddenConstant(Probe):
    """x' = c x + noise, where c is 0.9 or -0.9 for the whole episode; the answer is its sign.
    Start and noise are symmetric, so a single x is as likely with either c."""

    obs_dim, steps = 1, 10

    def draw(self):
        sign, x = self.np_random.choice([-1, 1]), [self.np_random.normal()]
        for _ in range(self.steps):
            x.append(0.9 * sign * x[-1] + 0.1 * self.np_random.normal())
        answers = np.full(self.steps, sign)
        answers[0] = 0  # nobody can know yet
        return np.array(x)[:, None], answers


class Varied(Probe):
    """Random observations in an episode of 1 to `longest` steps, to test loops with."""

    obs_dim, longest = 3, 7

    def draw(self):
        self.steps = self.np_random.integers(1, self.longest + 1)
        return self.np_random.normal(size=(self.steps + 1, 3)), np.ones(self.steps)


for _name, _probe, _limit, _kwargs in [
    *[(f"CueRecall{delay}", CueRecall, delay + 4, {"delay": delay}) for delay in (5, 10, 20, 50)],
    ("Velocity", Velocity, 8, {}),
    ("Position", Position, 8, {}),
    ("HiddenConstant", HiddenConstant, 10, {}),
    ("Varied", Varied, 8, {}),
    ("Short", Varied, 8, {"longest": 2}),
]:
    gym.register(f"{_name}-v0", _probe, max_episode_steps=_limit, kwargs=_kwargs)
