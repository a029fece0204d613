"""Wrappers for all environments: to hide a part of the state, and what several families share."""

import math
import sys
import zlib
from functools import cache

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformObservation

from common.errors import RunError, UserError, describe

LARGEST = float(np.finfo(np.float32).max)


def check_action(action, size):
    """Returns the `size` entries of `action` as Python floats, which step faster than NumPy's.

    Raises UserError on another shape and on values that are not finite: a NaN would otherwise
    stay in the state for the rest of the episode.
    """
    values = np.asarray(action, np.float64)
    if values.shape != (size,):
        raise UserError(f"action of shape {values.shape}; this environment needs shape ({size},)")
    values = values.tolist()
    if not all(map(math.isfinite, values)):
        raise UserError(f"action {values} is not finite; look for NaN in the policy's output")
    return values


def concat(env, n):
    """Joins the last `n` observations, oldest first, with zeros in the slots before the start.

    env: observations of shape (obs_dim,) whose bounds contain 0.  Returns one with (n * obs_dim,).
    """
    if not env.observation_space.contains(np.zeros_like(env.observation_space.low)):
        raise ValueError(f"zero padding lies outside {env.observation_space}")
    return FlattenObservation(FrameStackObservation(env, n, padding_type="zero"))


def flatten(env, env_id):
    """The environment with observations of shape (obs_dim,); pictures stay as they are.

    Says so once where something had to be flattened.  env_id: as the user wrote it.
    Raises UserError where pictures are a part of an observation, or its size is not fixed.
    """
    space = env.observation_space
    pictures = _has_pictures(space)
    if isinstance(space, Box) and (pictures or len(space.shape) == 1):
        return env
    if pictures:
        hint = "a picture must be the whole observation"
        raise UserError(f"{env_id} has observations {space}; {hint}")
    if not space.is_np_flattenable:
        raise UserError(f"{env_id} has observations {space}, which have no fixed size")
    env = FlattenObservation(env)
    kind, size = type(space).__name__, env.observation_space.shape[0]
    say_once(f"{env_id}: its observations, a {kind}, are flattened to {size} numbers")
    return env


def _has_pictures(space):
    parts = getattr(space, "spaces", ())  # of a Dict or a Tuple
    parts = parts.values() if isinstance(parts, dict) else parts
    picture = space.dtype == np.uint8 and len(space.shape) > 1
    return picture or any(map(_has_pictures, parts))


# ---- Hiding a part of the state ----
# For a delay there is gymnasium.wrappers.DelayObservation: zeros in the first steps.


class KeepEntries(TransformObservation):
    """Shows only some entries of a flat observation.

    entries: their indices, in the order in which they are shown.
    Raises UserError if the observation is not flat or has no such entry.
    """

    def __init__(self, env, entries):
        space, entries = _box(env), list(entries)
        if len(space.shape) != 1:
            hint = "use gymnasium.wrappers.FlattenObservation first"
            raise UserError(f"observations of shape {space.shape} are not flat; {hint}")
        size = space.shape[0]
        if not entries or not all(0 <= entry < size for entry in entries):
            raise UserError(f"entries {entries} do not exist; there are entries 0 to {size - 1}")
        RecordConstructorArgs.__init__(self, entries=entries)
        kept = Box(space.low[entries], space.high[entries], dtype=space.dtype)
        TransformObservation.__init__(self, env, lambda obs: obs[entries], kept)


class _RandomView(gym.ObservationWrapper, RecordConstructorArgs):
    """An observation changed at random, by a generator that `reset(seed=)` seeds.

    The environment's own generator is left alone: a seed gives the episode that it gives without
    the wrapper.
    """

    def __init__(self, env, **arguments):
        RecordConstructorArgs.__init__(self, **arguments)
        gym.ObservationWrapper.__init__(self, env)
        self.rng = np.random.default_rng()

    def reset(self, *, seed=None, options=None):
        if seed is not None:  # no two wrappers draw the same numbers, nor two of the same class
            inside, alike = self.env, 0
            while isinstance(inside, gym.Wrapper):
                inside, alike = inside.env, alike + (type(inside) is type(self))
            name = zlib.crc32(type(self).__name__.encode())
            self.rng = np.random.default_rng([seed, name, alike])
        return super().reset(seed=seed, options=options)


class DropObservation(_RandomView):
    """Hides whole observations, each with the same probability (arXiv:1507.06527: flickering).

    probability: in [0, 1].  hold: instead of zeros, show again the last one that was shown; then
    the first of an episode is always shown.
    """

    def __init__(self, env, probability, hold=False):
        if not 0 <= probability <= 1:
            raise UserError(f"a probability must be from 0 to 1, not {probability}")
        super().__init__(env, probability=probability, hold=hold)
        self.probability, self.hold, self.shown = probability, hold, None
        space = _box(env)
        if not hold:
            low, high = np.minimum(space.low, 0), np.maximum(space.high, 0)
            self.observation_space = Box(low, high, dtype=space.dtype)

    def reset(self, *, seed=None, options=None):
        self.shown = None
        return super().reset(seed=seed, options=options)

    def observation(self, obs):
        """`obs`, or what takes its place."""
        dropped = self.rng.random() < self.probability
        if not self.hold:
            return np.zeros_like(obs) if dropped else obs
        if not dropped or self.shown is None:
            self.shown = obs.copy()
        return self.shown.copy()


class NoisyObservation(_RandomView):
    """Adds Gaussian noise to every entry.

    std: its standard deviation, a number or one for each entry, at least 0.
    Raises UserError if it does not fit to the observation, or the observation is whole numbers.
    """

    def __init__(self, env, std):
        space = _box(env)
        if not np.issubdtype(space.dtype, np.floating):
            raise UserError(f"noise is added to real numbers, not to {space.dtype}")
        std = np.asarray(std, np.float64)
        if std.shape not in ((), space.shape) or not (std >= 0).all():
            words = f"one number, or an array of shape {space.shape}, at least 0"
            raise UserError(f"the standard deviation of noise must be {words}, not {std.tolist()}")
        super().__init__(env, std=std.tolist())
        self.std = std
        self.observation_space = Box(-np.inf, np.inf, space.shape, space.dtype)

    def observation(self, obs):
        """`obs` with fresh noise."""
        return (obs + self.std * self.rng.standard_normal(obs.shape)).astype(obs.dtype)


def _box(env):
    if not isinstance(env.observation_space, Box):
        hint = "use gymnasium.wrappers.FlattenObservation first"
        raise UserError(f"observations {env.observation_space} are not a Box; {hint}")
    return env.observation_space


# ---- What the scripts put around an environment ----


class WrongValue(Exception):
    """Of an environment. `SeededEpisodes` adds the episode and the step to the message."""


class Checked(gym.Wrapper):
    """Raises WrongValue where the environment returns what no other wrapper could read.

    Of `info` only the success at the last step is left, since environments side by side cannot
    join all that others may contain.
    """

    def reset(self, *, seed=None, options=None):
        """As the environment's, with an empty `info`."""
        result = self.env.reset(seed=seed, options=options)
        if not isinstance(result, tuple) or len(result) != 2:
            raise WrongValue(f"`reset` returned {result}, not a tuple of observation and info")
        self._check(result[0])
        return result[0], {}

    def step(self, action):
        """As the environment's; the reward is a float."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._check(obs)
        reward = _number(reward, "the reward", "a number")
        if not abs(reward) <= LARGEST:  # nor if it is NaN
            raise WrongValue(f"the reward is {reward}, which is not finite as a 32-bit number")
        known = {}
        if (terminated or truncated) and "is_success" in info:
            success, name = info["is_success"], '`info["is_success"]`'
            known["is_success"] = _number(success, name, "True or False")
        return obs, reward, terminated, truncated, known

    def _check(self, obs):
        shape, expected = np.shape(obs), self.observation_space.shape
        if shape != expected:
            raise WrongValue(f"observation of shape {shape} instead of {expected}")


def _number(value, name, what):
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise WrongValue(f"{name} is {value!r}, not {what}") from error


class RnnInput(gym.Wrapper):
    """What a recurrent network reads at each step: [observation | previous action | reward].

    memory_input: "obs", "obs-action" or "obs-action-reward"; which of the previous action and its
    reward are there. Both are 0 at the first step of an episode.
    """

    def __init__(self, env, memory_input):
        super().__init__(env)
        self.with_action = "action" in memory_input
        self.with_reward = "reward" in memory_input
        obs, action = env.observation_space, env.action_space
        self.num_observed = len(obs.low)  # what comes before the action and the reward
        low, high = [obs.low], [obs.high]
        if self.with_action:
            low, high = [*low, action.low], [*high, action.high]
        if self.with_reward:
            low, high = [*low, [-np.inf]], [*high, [np.inf]]
        low, high = np.concatenate(low), np.concatenate(high)
        self.observation_space = Box(low.astype(np.float32), high.astype(np.float32))

    def reset(self, *, seed=None, options=None):
        """As the environment's; the previous action and reward are 0."""
        obs, info = self.env.reset(seed=seed, options=options)
        return self._join(obs, np.zeros(self.action_space.shape), 0.0), info

    def step(self, action):
        """As the environment's; the observation comes with this action and its reward."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._join(obs, action, reward), reward, terminated, truncated, info

    def _join(self, obs, action, reward):
        parts = [obs]
        if self.with_action:
            parts.append(action)
        if self.with_reward:
            parts.append([reward])
        return np.concatenate(parts, dtype=np.float32)


class Pictures(gym.Wrapper):
    """Pictures, or stacks of them, as uint8 (channels, height, width), oldest frame first.

    `frame_stack`: frames in an observation, as Gymnasium's FrameStackObservation has it, else 1.
    Replay keeps each frame once. So `step` raises UserError where a stack is not the one before
    without its oldest frame and with a new one.
    """

    def __init__(self, env):
        super().__init__(env)
        shape = _channels_first(np.zeros(env.observation_space.shape, np.uint8)).shape
        self.observation_space = Box(0, 255, shape, np.uint8)
        stacked = env.has_wrapper_attr("stack_size")
        frame_stack = env.get_wrapper_attr("stack_size") if stacked else 1
        self.frame_stack = 1 if shape[0] % frame_stack else frame_stack

    def reset(self, *, seed=None, options=None):
        """As the environment's."""
        obs, info = self.env.reset(seed=seed, options=options)
        self.obs = _channels_first(np.array(obs))  # a copy: some reuse theirs
        return self.obs, info

    def step(self, action):
        """As the environment's; UserError where its frames do not move on by one."""
        obs, *others = self.env.step(action)
        before, self.obs = self.obs, _channels_first(np.array(obs))
        channels = len(before) // self.frame_stack  # of one frame
        if self.frame_stack > 1 and (self.obs[:-channels] != before[channels:]).any():
            hint = "put FrameStackObservation around the other wrappers"
            raise UserError(f"{self.spec.id}: observations are not stacks of frames; {hint}")
        return self.obs, *others


def _channels_first(picture):
    """(C, H, W), (H, W, C) or (H, W), or a stack of them, as (channels, H, W)"""
    if picture.ndim > 2 and picture.shape[-1] < picture.shape[-3]:
        picture = np.moveaxis(picture, -1, -3)
    return picture.reshape(-1, *picture.shape[-2:])


def make_seeds(purpose, *numbers, count=1):
    """`count` seeds for `purpose`: "training", "evaluation" during it, or a "test" of a policy.

    The purpose is part of what the seeds are made from, so training and evaluation never share
    a start by accident.
    """
    words = [("training", "evaluation", "test").index(purpose) + 1, *numbers]
    return [int(seed) >> 1 for seed in np.random.SeedSequence(words).generate_state(count)]


@cache
def say_once(text):
    """Prints a line on stderr, once in a process."""
    print(text, file=sys.stderr)


class RescaledAction(gym.wrappers.RescaleAction):
    """Takes actions in [-1, 1] and gives the environment actions within its bounds."""

    def __init__(self, env):
        super().__init__(env, np.float32(-1), np.float32(1))

    def action(self, action):
        """(action_dim,) in [-1, 1] -> the same between the bounds; clipped, since it is rounded"""
        space = self.env.action_space
        return np.clip(super().action(action), space.low, space.high).astype(space.dtype)


class SeededEpisodes(gym.Wrapper):
    """Starts episode k with a seed made from (seed, k); stops at values that are not finite.

    An episode then depends on nothing but its number and its actions. So a checkpoint can hold an
    episode that is under way as (k, actions so far), and `load_state_dict` plays it again, exactly.
    Observations become float32 (pictures stay uint8).

    seed: of the run, or (seed of the run, number of the environment).
    """

    def __init__(self, env, seed):
        super().__init__(env)
        self.seed = seed if isinstance(seed, tuple) else (seed, 0)
        self.episode = -1  # the one under way, -1 before the first reset
        self.started = "before the first episode"
        self.actions, self.steps = bytearray(), 0  # of this episode, as float32
        self.checksum = 0  # of the last observation
        space = env.observation_space
        if space.dtype != np.uint8 or len(space.shape) == 1:
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
            self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        """The next episode of the sequence, or one with exactly the `seed` given."""
        self.started = f"episode with seed {seed}"
        if seed is None:
            self.episode += 1
            seed = make_seeds("training", *self.seed, self.episode)[0]
            self.started = f"episode {self.episode}, with seed {seed}"
        self.actions, self.steps = bytearray(), 0
        obs, _ = self._guard(self.env.reset, seed=seed, options=options)
        return self._checked(obs), {}

    def step(self, action):
        """One step; RunError names episode and step where something is wrong."""
        action = np.asarray(action, np.float32)
        if not np.isfinite(action).all():
            raise RunError(f"{self._where()}: the policy's action is {action}, learning diverges")
        self.actions += action.tobytes()
        self.steps += 1
        obs, reward, terminated, truncated, info = self._guard(self.env.step, action)
        return self._checked(obs), reward, bool(terminated), bool(truncated), info

    def render(self):
        """As the environment's; UserError where it cannot draw."""
        try:
            return self.env.render()
        except NotImplementedError as error:
            raise UserError(f"{self._name()} does not draw pictures") from error
        except gym.error.DependencyNotInstalled as error:
            raise UserError(f"{self._name()} needs a package to draw with: {error}") from error

    def state_dict(self):
        """Position in the sequence of episodes, in types that torch.save keeps without pickle."""
        return {
            "episode": self.episode,
            "actions": np.frombuffer(self.actions, np.float32).tolist(),
            "checksum": self.checksum,
            "shapes": self.shapes(),
        }

    def load_state_dict(self, state):
        """Plays the saved episode again up to where it was."""
        self.check_shapes(state)
        self.episode = state["episode"] - 1
        self.reset()
        for action in np.array(state["actions"], np.float32).reshape(-1, *self.action_space.shape):
            self.step(action)
        if self.checksum != state["checksum"]:
            say_once(
                f"{self._where()}: this episode differs when played again (another machine or "
                "version?); the run goes on, but not exactly as without the break"
            )

    def check_shapes(self, state):
        """UserError if the environment is not the one that a checkpoint was made with."""
        if state["shapes"] != self.shapes():
            raise UserError(
                f"{self._name()} has changed since the checkpoint: the shapes of observation and "
                f"action were {state['shapes']}, now they are {self.shapes()}"
            )

    def shapes(self):
        """The shapes of observation and action."""
        return [list(self.observation_space.shape), list(self.action_space.shape)]

    def _guard(self, call, *args, **kwargs):
        try:
            return call(*args, **kwargs)
        except (UserError, RunError):
            raise
        except WrongValue as error:
            raise RunError(f"{self._where()}: {error}") from error
        except Exception as error:
            words = describe(error, __file__)
            if "expected 5, got 4) (gymnasium/" in words:  # a `step` as in the old Gym
                words += "; `step` must return observation, reward, terminated, truncated, info"
            raise RunError(f"{self._where()} raised {words}") from error

    def _checked(self, obs):
        obs = self._guard(np.array, obs, self.observation_space.dtype)  # a copy: some reuse theirs
        if not np.isfinite(obs).all():
            raise RunError(f"{self._where()}: the observation is not finite: {obs}")
        self.checksum = zlib.crc32(obs.tobytes())
        return obs

    def _name(self):
        return self.spec.id if self.spec else type(self.unwrapped).__name__

    def _where(self):
        return f"{self._name()}, {self.started}, step {self.steps}"


class Envs(gym.vector.SyncVectorEnv):
    """N environments side by side that never reset by themselves.

    `step` returns the true last observations; `reset(options={"reset_mask": ended})` then starts
    the next episode where one has ended.
    """

    def __init__(self, makers):
        super().__init__(makers, autoreset_mode=gym.vector.AutoresetMode.DISABLED)

    def state_dict(self):
        """Where each environment stands in its sequence of episodes."""
        return [env.state_dict() for env in self.envs]

    def load_state_dict(self, states):
        """Plays every saved episode again, up to the step where it was."""
        self.reset()
        for env, state in zip(self.envs, states, strict=True):
            env.load_state_dict(state)
