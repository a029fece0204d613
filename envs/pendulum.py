"""Pendulum swing-up: Gymnasium's `Pendulum-v1` with parts of the state hidden.

Dynamics, reward and start are Gymnasium's own code. Entries of the full list
[cos th, sin th, th' (rad/s), last torque (N m, 0 after reset)]; th = 0 is upright.
"""

import math
from typing import ClassVar

import numpy as np
from gymnasium.envs.classic_control.pendulum import PendulumEnv
from gymnasium.spaces import Box
from gymnasium.wrappers import DelayObservation

from envs.drawing import BLACK, BLUE, PALE, RED, Canvas
from envs.wrappers import DropObservation, NoisyObservation, check_action, concat

BOUNDS = (1.0, 1.0, 8.0, 2.0)
OBSERVED = {"full": [0, 1, 2], "p": [0, 1], "v": [2], "va": [2, 3]}


def make_pendulum(observed="full", stack=1, drop=0, noise=0, delay=0, render_mode=None):
    """observed: a key of OBSERVED.  stack: observations joined into one.

    drop: probability of zeros in the place of an observation.  noise: standard deviation for each
    entry.  delay: age of what is shown [env steps], with zeros before there is any.
    """
    env = Pendulum(observed, render_mode)
    if drop:
        env = DropObservation(env, drop)
    if noise:
        env = NoisyObservation(env, noise)
    if delay:
        env = DelayObservation(env, delay)
    return concat(env, stack) if stack > 1 else env


class Pendulum(PendulumEnv):
    """Action: torque in [-2, 2] N m.  Reward: -(th^2 + 0.1 th'^2 + 0.001 u^2), before the move."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, observed="full", render_mode=None):
        super().__init__(render_mode)
        self._observed = OBSERVED[observed]
        high = np.array([BOUNDS[i] for i in self._observed], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)

    def step(self, action):
        check_action(action, 1)
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, float(reward), terminated, truncated, info

    def _get_obs(self):
        th, thdot = self.state
        torque = 0.0 if self.last_u is None else self.last_u
        entries = (math.cos(th), math.sin(th), thdot, torque)
        return np.array([entries[i] for i in self._observed], np.float32)

    def render(self):
        """Rod and motor; the arrow is the last torque.  Returns (300, 300, 3) uint8."""
        th = self.state[0]
        canvas = Canvas(300, 300, scale=110)
        canvas.circle((0, 0), 1.0, PALE, width=0.01)
        canvas.line((0, 0), (-math.sin(th), math.cos(th)), 0.16, RED)
        canvas.circle((0, 0), 0.05, BLACK)
        # A positive torque turns the rod to the left, as th grows counter-clockwise.
        torque = 0.0 if self.last_u is None else float(self.last_u)
        canvas.arrow((0, -1.2), (-0.3 * torque, -1.2), 0.04, BLUE)
        return canvas.rgb()
