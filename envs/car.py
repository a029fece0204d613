"""Heaven or hell: a car between two flags at -1 and 1, and a priest between 0.3 and 0.7 who knows.

A fair coin decides in each episode which flag is heaven. Entries of the full list
[position, velocity, direction while at the priest (else 0), direction]; direction 1 means that
heaven is on the right. `car-v0` can be solved without memory: its velocity stores the bit.
"""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from envs.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PALE, RED, Canvas
from envs.wrappers import check_action, concat

OBSERVED = {"full": [0, 1, 2], "p": [0, 2], "mdp": [0, 1, 3]}
BOUNDS = (2.4, 0.2, 1.0, 1.0)
THRUST = 0.0015  # change of velocity per step at full action
PRIEST = (0.3, 0.7)
FLAG = 1.0


def make_car(observed="full", episodic_limit=None, stack=1, render_mode=None):
    """observed: a key of OBSERVED.  episodic_limit: see Car.  stack: observations in one."""
    env = Car(observed, episodic_limit, render_mode)
    return concat(env, stack) if stack > 1 else env


class Car(gym.Env):
    """Action: thrust in [-1, 1].  Ends at either flag; `info["is_success"]` tells if it was heaven.

    Reward: 1 at heaven, else 0. With an episodic_limit [steps]: -1 a step, and hell costs the steps
    left until the limit as well, so that it is as bad as never arriving.
    """

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 30}

    def __init__(self, observed="full", episodic_limit=None, render_mode=None):
        self.render_mode = render_mode
        self.episodic_limit = episodic_limit
        self._observed = OBSERVED[observed]
        high = np.array([BOUNDS[i] for i in self._observed], np.float32)
        self.observation_space = Box(-high, high, dtype=np.float32)
        self.action_space = Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = float(self.np_random.uniform(-0.2, 0.2))
        self.velocity = 0.0
        self.heaven = 1.0 if self.np_random.random() < 0.5 else -1.0
        self.steps = 0  # for the price of hell only; the time limit is not ours
        return self._obs(), {"is_success": False}

    def step(self, action):
        thrust = min(max(check_action(action, 1)[0], -1.0), 1.0)
        self.velocity = min(max(self.velocity + THRUST * thrust, -BOUNDS[1]), BOUNDS[1])
        self.position = min(max(self.position + self.velocity, -BOUNDS[0]), BOUNDS[0])
        self.steps += 1
        arrived = abs(self.position) >= FLAG
        success = arrived and (self.position > 0) == (self.heaven > 0)
        if self.episodic_limit is None:
            reward = float(success)
        else:
            left = self.episodic_limit - self.steps
            reward = -1.0 - (left if arrived and not success else 0.0)
        return self._obs(), reward, arrived, False, {"is_success": success}

    def _direction(self):
        return self.heaven if PRIEST[0] <= self.position <= PRIEST[1] else 0.0

    def _obs(self):
        entries = (self.position, self.velocity, self._direction(), self.heaven)
        return np.array([entries[i] for i in self._observed], np.float32)

    def render(self):
        """Green flag: heaven; orange arrow: the priest is heard.  Returns (120, 600, 3) uint8."""
        canvas = Canvas(600, 120, scale=240, center=(0, 0.1))
        canvas.rectangle(PRIEST[0], -0.02, PRIEST[1], 0.3, PALE)
        canvas.line((-1.2, -0.03), (1.2, -0.03), 0.015, GREY)
        for side in (-1, 1):
            color = GREEN if side == self.heaven else RED
            canvas.line((side, 0), (side, 0.28), 0.012, BLACK)
            canvas.polygon([(side, 0.28), (side, 0.16), (side * 1.14, 0.22)], color)
        middle = sum(PRIEST) / 2
        color = ORANGE if self._direction() else GREY
        canvas.arrow(
            (middle - 0.06 * self.heaven, 0.22), (middle + 0.06 * self.heaven, 0.22), 0.03, color
        )
        x = self.position
        canvas.rectangle(x - 0.07, 0.0, x + 0.07, 0.05, BLUE)
        canvas.rectangle(x - 0.035, 0.05, x + 0.035, 0.085, BLUE)
        for wheel in (x - 0.04, x + 0.04):
            canvas.circle((wheel, 0.0), 0.022, BLACK)
        return canvas.rgb()
