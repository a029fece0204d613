"""A point in a round pool looks for a platform that it cannot see, again and again.

Entries of the full list
[x, y, on the platform (0 or 1), platform x, platform y, vx, vy, visits / 5].
"""

import math
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from envs.drawing import BLACK, BLUE, GREEN, GREY, PALE, WHITE, Canvas
from envs.wrappers import check_action

OBSERVED = {"pomdp": 3, "mdp": 5, "state": 8}  # leading entries
MAX_ACCELERATION, MAX_SPEED = 0.03, 0.1  # per axis and step
PLATFORM_DISTANCE, PLATFORM_RADIUS = 0.7, 0.3  # the pool has radius 1
VISITS = 5  # steps on the platform, in total, until the way back to the centre
LOW = (-1, -1, 0, -PLATFORM_DISTANCE, -PLATFORM_DISTANCE, -MAX_SPEED, -MAX_SPEED, 0)
HIGH = (1, 1, 1, PLATFORM_DISTANCE, PLATFORM_DISTANCE, MAX_SPEED, MAX_SPEED, 1)


class WaterMaze(gym.Env):
    """Action: acceleration (2,), each in [-0.03, 0.03].  Reward: 1 per step on the platform.
    observed: a key of OBSERVED.

    After five rewarded steps (not necessarily in a row) the point is put back to the centre, at
    rest. The only sign of it is an observation at the centre with the flag still at 1;
    `info["final_pos"]` has the place it was taken from, None on all other steps.
    """

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self, observed="pomdp", render_mode=None):
        self.render_mode = render_mode
        self._observed = n = OBSERVED[observed]
        self.observation_space = Box(np.float32(LOW[:n]), np.float32(HIGH[:n]), dtype=np.float32)
        self.action_space = Box(-MAX_ACCELERATION, MAX_ACCELERATION, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * math.pi)
        self.platform = PLATFORM_DISTANCE * math.cos(angle), PLATFORM_DISTANCE * math.sin(angle)
        self.position = self.velocity = 0.0, 0.0
        self.flag, self.visits = 0.0, 0
        return self._obs(), {"final_pos": None}

    def step(self, action):
        ax, ay = check_action(action, 2)
        (x, y), (vx, vy) = self.position, self.velocity
        vx, vy = (
            _clip(vx + _clip(ax, MAX_ACCELERATION), MAX_SPEED),
            _clip(vy + _clip(ay, MAX_ACCELERATION), MAX_SPEED),
        )
        if math.hypot(x + vx, y + vy) < 1:
            x, y = x + vx, y + vy
        else:  # the wall: no move, and all speed is lost
            vx = vy = 0.0
        inside = math.hypot(x - self.platform[0], y - self.platform[1]) < PLATFORM_RADIUS
        self.flag = float(inside)
        self.visits += inside
        final_pos = None
        if inside and self.visits == VISITS:
            final_pos = np.array([x, y], np.float32)
            x = y = vx = vy = 0.0
            self.visits = 0
        self.position, self.velocity = (x, y), (vx, vy)
        return self._obs(), self.flag, False, False, {"final_pos": final_pos}

    def _obs(self):
        entries = (*self.position, self.flag, *self.platform, *self.velocity, self.visits / VISITS)
        return np.array(entries[: self._observed], np.float32)

    def render(self):
        """Pool, platform (filled when visited), point, velocity.  Returns (300, 300, 3) uint8."""
        canvas = Canvas(300, 300, scale=140)
        canvas.circle((0, 0), 1.0, PALE)
        canvas.circle(self.platform, PLATFORM_RADIUS, GREEN if self.flag else WHITE)
        canvas.circle(self.platform, PLATFORM_RADIUS, GREEN, width=0.015)
        canvas.circle((0, 0), 1.0, GREY, width=0.015)
        canvas.circle((0, 0), 0.015, GREY)
        (x, y), (vx, vy) = self.position, self.velocity
        canvas.arrow((x, y), (x + 3 * vx, y + 3 * vy), 0.025, BLUE)
        canvas.circle((x, y), 0.05, BLACK)
        return canvas.rgb()


def _clip(value, limit):
    return min(max(value, -limit), limit)
