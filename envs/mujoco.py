"""Gymnasium's running robots in MuJoCo (version 5), with positions only or velocities only.

Dynamics, reward, start and end of an episode are those of `Hopper-v5` and its siblings. Their
observation is [positions without x (the ant: x, y) | velocities], then for the ant the forces of
contacts, which neither version shows.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from envs import gl
from envs.wrappers import KeepEntries, check_action

# robot: (class of Gymnasium's, positions, velocities) in the observation
ROBOTS = {
    "hopper": ("hopper_v5:HopperEnv", 5, 6),
    "halfcheetah": ("half_cheetah_v5:HalfCheetahEnv", 8, 9),
    "walker2d": ("walker2d_v5:Walker2dEnv", 8, 9),
    "ant": ("ant_v5:AntEnv", 13, 14),
}


def observed_entries(robot, observed):
    """Indices into the observation of version 5, for observed "p" or "v"."""
    _, positions, velocities = ROBOTS[robot]
    return {
        "p": list(range(positions)),
        "v": list(range(positions, positions + velocities)),
    }[observed]


def make_runner(robot, observed, render_mode=None):
    """robot: a key of ROBOTS.  observed: "p" (positions) or "v" (velocities)."""
    base = gl.load_gymnasium(ROBOTS[robot][0], render_mode, width=320, height=240)
    return KeepEntries(Runner(base), observed_entries(robot, observed))


class Runner(gym.Wrapper):
    """float32 observations.  Action: joint torques in [-1, 1], clipped, also for their cost."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = Box(-np.inf, np.inf, env.observation_space.shape, np.float32)

    def reset(self, *, seed=None, options=None):
        obs, info = self.env.reset(seed=seed, options=options)
        return obs.astype(np.float32), info

    def step(self, action):
        action = check_action(action, self.action_space.shape[0])
        torques = np.clip(np.array(action, np.float32), -1, 1)
        obs, reward, terminated, truncated, info = self.env.step(torques)
        return obs.astype(np.float32), float(reward), terminated, truncated, info
