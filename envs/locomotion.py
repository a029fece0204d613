"""Running robots in pybullet, with positions only or velocities only.

Dynamics and reward are those of the package pybullet-envs-gymnasium (HalfCheetahBulletEnv and its
siblings). Which entries are hidden is taken from arXiv:2110.05038 (pomdp-baselines, "-P" and "-V").
"""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import EzPickle

from common.errors import UserError
from envs.bullet import connect, picture
from envs.wrappers import check_action

# robot: (class in the package, joints, feet whose contact is observed)
ROBOTS = {
    "halfcheetah": ("HalfCheetahBulletEnv", 6, 6),
    "ant": ("AntBulletEnv", 8, 4),
    "hopper": ("HopperBulletEnv", 3, 1),
    "walker2d": ("Walker2DBulletEnv", 6, 2),
}
BOUND = 5.0  # the package clips observations to +-5 but declares infinity


def observed_entries(robot, observed):
    """Indices into the package's observation, for observed "full", "p" or "v".

    That observation is: 8 body numbers (height since the start, sin and cos of the angle to the
    target, velocity in 3 entries, roll, pitch), position and speed per joint, contact per foot.
    """
    _, joints, feet = ROBOTS[robot]
    first_contact = 8 + 2 * joints
    contacts = list(range(first_contact, first_contact + feet))
    return {
        "full": list(range(first_contact + feet)),
        "p": [0, 1, 2, 6, 7, *range(8, first_contact, 2), *contacts],
        "v": [3, 4, 5, *range(9, first_contact, 2)],
    }[observed]


class Locomotion(gym.Env, EzPickle):
    """Run towards the target; reward and end of an episode as in the package.

    robot: a key of ROBOTS.  observed: "full", "p" (positions, contacts) or "v" (velocities).
    Observation: entries of the package's, in [-5, 5].  Action: joint torques in [-1, 1] (clipped).
    `base` is the package's environment; nobody else has a part in it, and it has no time limit.
    Raises UserError if a package is missing, or on an action of the wrong shape or not finite.
    """

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 60}

    def __init__(self, robot, observed="full", render_mode=None):
        EzPickle.__init__(self, robot, observed, render_mode)
        self.render_mode = render_mode
        self.base = _import_base(ROBOTS[robot][0])()
        # Left alone, the package would first look for a simulation shared with other processes.
        self.base._p = connect()
        self.base.physicsClientId, self.base.ownsPhysicsClient = self.base._p._client, True
        self.base._p.setPhysicsEngineParameter(deterministicOverlappingPairs=1)
        # The first reset builds the scene, and its episode differs: the floor joins the parts whose
        # mean position is the progress only after it. All others restore the snapshot taken then.
        self.base.reset(seed=0)
        self._entries = observed_entries(robot, observed)
        self.observation_space = Box(-BOUND, BOUND, (len(self._entries),), np.float32)
        self.action_space = Box(-1, 1, self.base.action_space.shape, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.base.np_random = self.base.robot.np_random = self.np_random
        obs, info = self.base.reset()
        return obs[self._entries], info

    def step(self, action):
        action = check_action(action, self.action_space.shape[0])
        torques = np.clip(np.array(action, np.float32), -1, 1)
        obs, reward, terminated, truncated, info = self.base.step(torques)
        return obs[self._entries], float(reward), terminated, truncated, info

    def render(self):
        """(240, 320, 3) uint8, the camera moves along with the robot."""
        if self.render_mode != "rgb_array":
            return None
        x, y, _ = self.base.robot.body_real_xyz
        return picture(self.base._p, [x + 0.8, y - 3.5, 1.4], [x, y, 0.6], 40, 320, 240)

    def close(self):
        self.base.close()


def _import_base(name):
    own = {f"{entry[0]}-v0" for entry in ROBOTS.values()}
    # On import the package registers the same four ids; ours must stay.
    kept = {env_id: gym.registry.pop(env_id) for env_id in own if env_id in gym.registry}
    try:
        from pybullet_envs_gymnasium import gym_locomotion_envs
    except ImportError as error:
        connect().disconnect()  # says so if it is pybullet that is missing
        raise UserError(
            "pybullet-envs-gymnasium is not installed: pip install pybullet-envs-gymnasium "
            "(with a pybullet from conda-forge: pip install --no-deps ...)"
        ) from error
    finally:
        gym.registry.update(kept)
    return getattr(gym_locomotion_envs, name)
