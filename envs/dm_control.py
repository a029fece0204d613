"""The dm_control suite through shimmy: states, parts of states, and pictures.

`envs/suite.py` has the ids and what they mean.
"""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation, ReshapeObservation

from common.errors import UserError
from envs import gl
from envs.suite import SUITE, near
from envs.wrappers import check_action, concat

# Observation keys whose entries are components of unit vectors.
UNIT = ("orientation", "orientations", "torso_vertical", "upright", "torso_upright", "arm_pos")

GREY = np.array([2989, 5870, 1140])  # weights of R, G, B in 1/10,000
# One sample per pixel and no shadows or reflections: 84 x 84 pixels hardly show them, and Mesa
# spends nine tenths of its time on them.
FLAT = {"shadow": False, "reflection": False}


def make_state(domain, task, observed="full", stack=1, frame_skip=5, render_mode=None):
    """observed: "full", "p" (no velocities) or "va" (velocities, last action)."""
    env = StateView(Task(domain, task, frame_skip, render_mode), observed)
    return concat(env, stack) if stack > 1 else env


def make_pixels(domain, task, rgb=False, stack=3, frame_skip=2, size=84, render_mode=None):
    """Observations uint8 (stack * channels, size, size), oldest first, zeros before the start.

    rgb: three channels a frame instead of one grey one.
    """
    env = PixelView(Task(domain, task, frame_skip, render_mode, pixels=True), rgb, size)
    if stack == 1:
        return env
    env = FrameStackObservation(env, stack, padding_type="zero")  # (stack, channels, size, size)
    return ReshapeObservation(env, (stack * (3 if rgb else 1), size, size))


class Task(gym.Wrapper):
    """A task of the suite through shimmy, whose observation is a dict of float64 arrays.

    An action is held for `frame_skip` control steps and their rewards are summed, at most
    `frame_skip` a decision. Never truncates, as dm_control's time limit is off (the registered one
    counts); only lqr terminates. Actions beyond the bounds are clipped.
    """

    def __init__(self, domain, task, frame_skip, render_mode=None, pixels=False):
        if task not in SUITE.get(domain, ()):
            ids = " or ".join(near(f"dmc-{domain}-{task}-v0"))
            hint = f"did you mean {ids}?" if ids else f"its domains are {', '.join(SUITE)}"
            raise UserError(f"dm_control has no task {task} in a domain {domain}; {hint}")
        if render_mode not in (None, "rgb_array"):
            raise UserError(f"render mode {render_mode} is not offered; use rgb_array")
        gl.load("mujoco")
        suite = gl.load("dm_control.suite")
        adapter = gl.load("shimmy.dm_control_compatibility").DmControlCompatibilityV0
        # quadruped escape sends its terrain to the graphics card at each reset.
        if render_mode or pixels or (domain, task) == ("quadruped", "escape"):
            gl.use_gl()
        # lqr draws its model's stiffness when it is built: from a fixed seed, so that the id is one
        # task. Episodes are seeded by `reset`.
        base = suite.load(domain, task, task_kwargs={"random": 0, "time_limit": float("inf")})
        if pixels:
            base.physics.model.vis.quality.offsamples = 0  # read when the first picture is drawn
        view = {"height": 240, "width": 320, "camera_id": 0}
        super().__init__(adapter(base, render_mode=render_mode, render_kwargs=view))
        self.unwrapped.np_random = np.random.RandomState()
        self.physics, self.frame_skip = base.physics, frame_skip
        spec = base.action_spec()
        # lqr's controls have no limit, and "the whole range" of a policy would be 1e10.
        limit = 1.0 if domain == "lqr" else np.inf
        low, high = np.maximum(spec.minimum, -limit), np.minimum(spec.maximum, limit)
        self.action_space = Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        self._low, self._high = low, high
        self.last_action = np.zeros(spec.shape)  # clipped; 0 after reset
        fps = round(1 / (base.control_timestep() * frame_skip))
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": fps}

    def reset(self, *, seed=None, options=None):
        # NumPy's RandomState, which dm_control draws from, takes seeds of 32 bits.
        obs, _ = self.env.reset(seed=None if seed is None else seed % 2**32, options=options)
        self.last_action = np.zeros_like(self._low)
        return obs, {}

    def step(self, action):
        action = np.array(check_action(action, len(self._low)))
        # np.clip does the same and takes three times as long.
        self.last_action = action = np.minimum(np.maximum(action, self._low), self._high)
        total = 0.0
        for _ in range(self.frame_skip):
            obs, reward, terminated, _, _ = self.env.step(action)
            total += reward
            if terminated:
                break
        return obs, total, terminated, False, {}


class StateView(gym.ObservationWrapper):
    """Flat float32 observations: dm_control's entries in its own order, whole or in part.

    observed: "full"; "p": without the keys of velocities; "va": these keys alone, then the last
    action, clipped, in the task's own units (0 after reset).
    """

    def __init__(self, env, observed="full"):
        super().__init__(env)
        spec = env.unwrapped.observation_spec()
        # Gymnasium's Dict space sorts its keys, so the layout comes from dm_control's own dict.
        # "velocites" is one of its spellings.
        keep = {"full": lambda key: True, "p": lambda key: "vel" not in key}
        self._keys = [key for key in spec if keep.get(observed, lambda key: "vel" in key)(key)]
        self._with_action = observed == "va"
        high = [_bound(env.unwrapped.physics, key, spec[key].shape) for key in self._keys]
        actions = env.action_space
        low = np.concatenate([*(-b for b in high), actions.low if self._with_action else []])
        high = np.concatenate([*high, actions.high if self._with_action else []])
        self.observation_space = Box(low.astype(np.float32), high.astype(np.float32))

    def observation(self, obs):
        parts = [obs[key].ravel() for key in self._keys]
        if self._with_action:
            parts.append(self.env.last_action)
        return np.concatenate(parts, dtype=np.float32)


def _bound(physics, key, shape):
    """The largest magnitude of each entry of one key: 1 for parts of unit vectors, else unknown."""
    bound = np.full(int(np.prod(shape)), 1.0 if key in UNIT else np.inf)
    if key == "position" and type(physics).__module__.endswith("suite.cartpole"):
        bound[1:] = 1.0  # after the cart's place: cosines and sines
    return bound


class PixelView(gym.ObservationWrapper):
    """What camera 0 of the task sees, as uint8 (channels, size, size).

    rgb: three channels; else one, 0.2989 R + 0.5870 G + 0.1140 B, rounded.
    """

    def __init__(self, env, rgb=False, size=84):
        super().__init__(env)
        camera = gl.load("dm_control.mujoco").Camera
        # Kept, as making one for each picture costs twice the picture.
        self._camera = camera(env.physics, height=size, width=size, camera_id=0)
        self._rgb = rgb
        self.observation_space = Box(0, 255, (3 if rgb else 1, size, size), np.uint8)

    def observation(self, obs):
        frame = self._camera.render(render_flag_overrides=FLAT)  # (size, size, 3), reused buffer
        if self._rgb:
            return np.ascontiguousarray(np.moveaxis(frame, -1, 0))
        return ((frame @ GREY + 5000) // 10000).astype(np.uint8)[None]
