"""Balancing a pole on a cart with a continuous force: episodes of varying length.

The equations of Gymnasium's `CartPole-v1` with a force of 30 N at full action in place of +-10 N.
Entries of the full list [x (m), x' (m/s), th (rad), th' (rad/s)]; th = 0 is upright.
"""

import math
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from envs.drawing import BLACK, BLUE, GREY, ORANGE, PALE, RED, Canvas
from envs.wrappers import check_action, concat

OBSERVED = {"full": [0, 1, 2, 3], "p": [0, 2], "v": [1, 3]}

GRAVITY = 9.8
POLE_MASS, TOTAL_MASS = 0.1, 1.1  # kg
HALF_LENGTH = 0.5  # m
FORCE = 30.0  # N at full action
DT = 0.02  # s
X_LIMIT, TH_LIMIT = 2.4, math.radians(12)
# The state that ends an episode lies outside of the limits, but never by as much again.
BOUNDS = (2 * X_LIMIT, math.inf, 2 * TH_LIMIT, math.inf)


def make_cartpole(observed="full", stack=1, render_mode=None):
    """observed: a key of OBSERVED.  stack: observations joined into one."""
    env = ContinuousCartPole(observed, render_mode)
    return concat(env, stack) if stack > 1 else env


class ContinuousCartPole(gym.Env):
    """Action: force / 30 N in [-1, 1].  Reward: 1 a step.  Ends when pole or cart are out."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 50}

    def __init__(self, observed="full", render_mode=None):
        self.render_mode = render_mode
        self._observed = OBSERVED[observed]
        high = np.array([BOUNDS[i] for i in self._observed], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)
        self.action = 0.0  # the last one, for the drawing

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = tuple(self.np_random.uniform(-0.05, 0.05, 4).tolist())
        self.action = 0.0
        return self._obs(), {}

    def step(self, action):
        self.action = min(max(check_action(action, 1)[0], -1.0), 1.0)
        x, xdot, th, thdot = self.state
        sin, cos = math.sin(th), math.cos(th)
        pull = (FORCE * self.action + POLE_MASS * HALF_LENGTH * thdot**2 * sin) / TOTAL_MASS
        inertia = HALF_LENGTH * (4 / 3 - POLE_MASS * cos**2 / TOTAL_MASS)
        thacc = (GRAVITY * sin - cos * pull) / inertia
        xacc = pull - POLE_MASS * HALF_LENGTH * thacc * cos / TOTAL_MASS
        # Explicit Euler: the positions move with the old velocities.
        x, xdot = x + DT * xdot, xdot + DT * xacc
        th, thdot = th + DT * thdot, thdot + DT * thacc
        self.state = x, xdot, th, thdot
        return self._obs(), 1.0, abs(x) > X_LIMIT or abs(th) > TH_LIMIT, False, {}

    def _obs(self):
        return np.array([self.state[i] for i in self._observed], np.float32)

    def render(self):
        """Cart, pole, the ends of the track and the force.  Returns (200, 600, 3) uint8."""
        x, _, th, _ = self.state
        canvas = Canvas(600, 200, scale=110, center=(0, 0.5))
        canvas.line((-X_LIMIT, 0), (X_LIMIT, 0), 0.02, GREY)
        for end in (-X_LIMIT, X_LIMIT):
            canvas.line((end, -0.1), (end, 0.1), 0.04, RED)
        for tilt in (-TH_LIMIT, TH_LIMIT):
            canvas.line((x, 0), (x + math.sin(tilt), math.cos(tilt)), 0.015, PALE)
        canvas.rectangle(x - 0.2, -0.1, x + 0.2, 0.1, BLACK)
        canvas.line((x, 0), (x + math.sin(th), math.cos(th)), 0.07, ORANGE)
        canvas.arrow((x, -0.22), (x + 0.5 * self.action, -0.22), 0.03, BLUE)
        return canvas.rgb()
