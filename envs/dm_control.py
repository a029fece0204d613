"""The dm_control suite through shimmy: states, parts of states, and pictures.

    dmc-<domain>-<task>-v0                    the whole observation of the task
    dmc-<domain>-<task>-p-v0                  without velocities
    dmc-<domain>-<task>-va-v0                 velocities and the last action
    dmc-<domain>-<task>-mdp-img-concat3-v0    the last three grey pictures of 84 x 84
    dmc-<domain>-<task>-img-v0                one picture, which shows no velocity

`-concat<N>` stacks N observations, `-rgb` after `-img` keeps the colours, `-skip<K>` before `-v0`
holds an action for K control steps. An episode is 1000 control steps.
"""

import difflib
import re
from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import FrameStackObservation, ReshapeObservation

from common.errors import UserError
from envs import gl
from envs.wrappers import check_action, concat

# domain -> tasks, copied so that an id is checked without importing dm_control (a test compares).
SUITE = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": (
        *("balance", "balance_sparse", "swingup", "swingup_sparse"),
        *("two_poles", "three_poles"),
    ),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
# Velocities are mixed with other entries there, so no `-p` and no `-va`.
MIXED = ("dog", "quadruped")
# Control steps of 0.01 s (and the pendulum, as in the paper's code): 5 make one decision. Elsewhere
# a control step is 0.015 to 0.04 s and 2 make one.
FINE = ("acrobot", "cartpole", "cheetah", "manipulator", "pendulum", "stacker")
CONTROL_STEPS = 1000  # per episode, dm_control's own limit for all tasks but lqr, which has none

# Observation keys whose entries are components of unit vectors.
UNIT = ("orientation", "orientations", "torso_vertical", "upright", "torso_upright", "arm_pos")

GREY = np.array([2989, 5870, 1140])  # weights of R, G, B in 1/10,000
# One sample per pixel and no shadows or reflections: 84 x 84 pixels hardly show them, and Mesa
# spends nine tenths of its time on them.
FLAT = {"shadow": False, "reflection": False}

_ID = re.compile(
    r"dmc-(?P<domain>\w+)-(?P<task>\w+?)"
    r"(?:-(?P<view>p|va|mdp-img|img))?(?P<rgb>-rgb)?(?:-concat(?P<stack>[1-9]\d?))?"
    r"(?:-skip(?P<skip>[1-9]\d?))?-v0"
)


def describe(env_id):
    """The arguments of `envs.table.EnvInfo` for an id that follows the patterns above, or None.

    Imports no simulator.
    """
    match = _ID.fullmatch(env_id)
    domain = match and _domain(match["domain"])
    if not domain or match["task"] not in SUITE[domain]:
        return None
    view, stack = match["view"] or "full", int(match["stack"] or 1)
    pixels = view.endswith("img")
    if (match["rgb"] and not pixels) or match["stack"] == "1":
        return None
    if pixels and (view == "mdp-img") != (stack > 1):  # one picture is no Markov state
        return None
    if domain in MIXED and view in ("p", "va"):
        return None
    skip = int(match["skip"] or (5 if domain in FINE and not pixels else 2))
    kwargs = {"domain": domain, "task": match["task"], "stack": stack, "frame_skip": skip}
    kwargs |= {"rgb": bool(match["rgb"])} if pixels else {"observed": view}
    frames = f"{stack} frames of " if stack > 1 else ""
    seen, hidden, skill = _TEXTS["img" if pixels else view]
    return {
        "entry_point": f"envs.dm_control:{'make_pixels' if pixels else 'make_state'}",
        "max_episode_steps": CONTROL_STEPS // skip,
        "kwargs": kwargs,
        "observed": f"{frames}{'colour ' if match['rgb'] else ''}{seen}",
        "hidden": hidden if stack == 1 else "-",
        "action": "controls",
        "skill": skill if stack == 1 else "none (stacked)",
        "oracle": f"dmc-{match['domain']}-{match['task']}-v0",
    }


_TEXTS = {
    "full": ("state", "-", "none"),
    "p": ("positions", "velocities", "differentiate (2 frames)"),
    "va": ("velocities, last action", "positions", "integrate"),
    "img": ("84 x 84 pictures", "velocities", "differentiate (2 frames)"),
}


def near(env_id):
    """Up to three ids of tasks that are written much like `env_id`, best first."""
    ids = [
        f"dmc-{domain.lower()}-{task}{suffix}-v0"
        for domain, tasks in SUITE.items()
        for task in tasks
        for suffix in ("", *(() if domain in MIXED else ("-p", "-va")), "-mdp-img-concat3")
    ]
    return difflib.get_close_matches(env_id.lower(), ids, n=3)


def _domain(name):
    """The suite's own spelling of a domain in lower case, or None."""
    return next((domain for domain in SUITE if domain.lower() == name), None)


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
            hint = ", ".join(near(f"dmc-{domain}-{task}-v0")) or ", ".join(SUITE)
            raise UserError(f"dm_control has no task {task} in a domain {domain}; close: {hint}")
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

    metadata: ClassVar[dict] = {}

    def __init__(self, env, rgb=False, size=84):
        super().__init__(env)
        camera = gl.load("dm_control.mujoco").Camera
        # Kept, as making one for each picture costs twice the picture.
        self._camera = camera(env.physics, height=size, width=size, camera_id=0)
        self._rgb = rgb
        self.metadata = env.metadata
        self.observation_space = Box(0, 255, (3 if rgb else 1, size, size), np.uint8)

    def observation(self, obs):
        frame = self._camera.render(render_flag_overrides=FLAT)  # (size, size, 3), reused buffer
        if self._rgb:
            return np.ascontiguousarray(np.moveaxis(frame, -1, 0))
        return ((frame @ GREY + 5000) // 10000).astype(np.uint8)[None]
