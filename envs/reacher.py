"""Reacher: Gymnasium's two-link arm, with the target shown always or only at the start.

Layout: cos th1, cos th2, sin th1, sin th2, target x, y (m), w1, w2 (rad/s), fingertip minus target
x, y (m). Dynamics, reward and start are `Reacher-v5`'s: the reward, -|fingertip - target| - |u|^2,
takes the distance after the move.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box

from envs import gl
from envs.wrappers import check_action

TARGET = [4, 5, 8, 9]  # entries that tell where the target is
REACH, DISC = 0.21, 0.2  # m: of the fingertip, and of the disc of targets


def make_reacher(hide_target=False, render_mode=None):
    """hide_target: zeros in the TARGET entries of all observations but an episode's first."""
    view = {"trackbodyid": 0, "distance": 0.75, "elevation": -90.0}  # from above
    size = {"width": 320, "height": 320}
    base = gl.load_gymnasium(
        "reacher_v5:ReacherEnv", render_mode, default_camera_config=view, **size
    )
    return Reacher(base, hide_target)


class Reacher(gym.Wrapper):
    """float32 observations with true bounds, the target hidden if asked for.

    Action: two torques in [-1, 1], clipped. Never terminates.
    """

    def __init__(self, env, hide_target=False):
        super().__init__(env)
        self._hide_target = hide_target
        high = [1, 1, 1, 1, DISC, DISC, np.inf, np.inf, REACH + DISC, REACH + DISC]
        high = np.array(high, np.float32)
        self.observation_space = Box(-high, high)

    def reset(self, *, seed=None, options=None):
        obs, _ = self.env.reset(seed=seed, options=options)
        return obs.astype(np.float32), {}

    def step(self, action):
        action = np.clip(check_action(action, 2), -1, 1)
        obs, reward, _, _, info = self.env.step(action)
        obs = obs.astype(np.float32)
        if self._hide_target:
            obs[TARGET] = 0
        return obs, float(reward), False, False, info
