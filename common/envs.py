"""Making environments: always a vector of them, actions in [-1, 1], one seed for each episode."""

import difflib
import importlib
import sys
import zlib
from functools import cache, partial

import gymnasium as gym
import numpy as np

from common.errors import RunError, UserError
from envs.table import ENVS, find
from envs.wrappers import RnnInput

LONGEST_EPISODE = 10_000  # [steps] where no time limit is registered


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


def make_envs(args, num_envs, seed=0, render_mode=None):
    """`num_envs` environments for a script's arguments: `env_id` and, of a recurrent one,
    `memory_input`.

    render_mode: of the first environment.
    Raises UserError if the id is unknown, a package is missing or the spaces do not fit.
    """
    memory_input = getattr(args, "memory_input", None)
    modes = [render_mode] + [None] * (num_envs - 1)
    return Envs(
        [
            partial(make_env, args.env_id, (seed, k), mode, memory_input)
            for k, mode in enumerate(modes)
        ]
    )


def make_env(env_id, seed=0, render_mode=None, memory_input=None):
    """One environment.

    env_id: one of ours, any other Gymnasium id, or "module:Id-v0" for a user's own.
    seed: of the sequence of episodes, see `SeededEpisodes`.  memory_input: see `RnnInput`.
    """
    env = _make(env_id, render_mode)
    try:
        _check_spaces(env_id, env)
    except UserError:
        env.close()
        raise
    if not _has_time_limit(env):
        # An episode that never ends would never be evaluated either.
        _say_once(f"{env_id} has no time limit: episodes end after {LONGEST_EPISODE} steps")
        env = gym.wrappers.TimeLimit(env, LONGEST_EPISODE)
    env = gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    if memory_input is not None:
        env = RnnInput(env, memory_input)
    return SeededEpisodes(env, seed)


def register_envs():
    """Hands the table of environments to Gymnasium, by string: nothing is imported until used."""
    for env_id in ENVS:
        _register(env_id)


def make_seeds(purpose, *numbers, count=1):
    """`count` seeds for `purpose`: "training", "evaluation" during it, or a "test" of a policy.

    The purpose is part of what the seeds are made from, so training and evaluation never share
    a start by accident.
    """
    words = [("training", "evaluation", "test").index(purpose) + 1, *numbers]
    return [int(seed) >> 1 for seed in np.random.SeedSequence(words).generate_state(count)]


def check_flat(envs):
    """(obs_dim, action_dim) of `make_envs`; UserError if the observations are not flat."""
    shape = envs.single_observation_space.shape
    if len(shape) != 1:
        raise UserError(
            f"{envs.envs[0].spec.id} has observations of shape {shape}; pictures are for "
            "conv_sac.py, other shapes need gymnasium.wrappers.FlattenObservation"
        )
    return shape[0], envs.single_action_space.shape[0]


def _register(env_id):
    info, known = find(env_id), gym.registry.get(env_id)
    if info is not None and (known is None or known.entry_point != info.entry_point):
        gym.registry.pop(env_id, None)  # a package may have taken one of our ids with it
        gym.register(
            env_id,
            entry_point=info.entry_point,
            max_episode_steps=info.max_episode_steps,
            kwargs=info.kwargs,
        )


def _make(env_id, render_mode):
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        _register(name)
        # The passive checker repeats on every step what SeededEpisodes checks.
        drawing = {"render_mode": render_mode} if render_mode else {}  # not every class takes it
        return gym.make(name, disable_env_checker=True, **drawing)
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{env_id} needs a package that is not here: {error}") from error
    except ImportError as error:
        hint = f"try: pip install {error.name}" if error.name else "see the README's install part"
        if module and error.name == module.split(".")[0]:
            hint = f"is {error.name} a module in this folder, or on PYTHONPATH?"
        raise UserError(f"{env_id} cannot be imported ({error}); {hint}") from error
    except gym.error.Error as error:
        register_envs()
        near = difflib.get_close_matches(name, gym.registry, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m envs` lists ours"
        raise UserError(f"unknown environment '{env_id}'; {hint}") from error
    except (UserError, RunError):
        raise
    except Exception as error:  # of the environment's own code
        raise UserError(f"{env_id} cannot be made: {type(error).__name__}: {error}") from error


def _has_time_limit(env):
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False


@cache
def _say_once(text):
    print(text, file=sys.stderr)


def _check_spaces(env_id, env):
    action, obs = env.action_space, env.observation_space
    if not isinstance(action, gym.spaces.Box):
        raise UserError(f"{env_id} has the action space {action}; only continuous ones (Box) work")
    if len(action.shape) != 1 or not np.isfinite([action.low, action.high]).all():
        raise UserError(f"{env_id} needs a flat action Box with finite bounds, not {action}")
    if not np.issubdtype(action.dtype, np.floating):
        raise UserError(f"{env_id} needs actions that are real numbers, not {action.dtype}")
    if not isinstance(obs, gym.spaces.Box):
        raise UserError(
            f"{env_id} has observations of type {type(obs).__name__}; make them a Box with "
            "gymnasium.wrappers.FlattenObservation"
        )


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
        self.actions, self.steps = bytearray(), 0  # of this episode, as float32
        self.checksum = 0  # of the last observation
        space = env.observation_space
        if space.dtype != np.uint8 or len(space.shape) == 1:
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
            self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        """The next episode of the sequence, or one with exactly the `seed` given."""
        if seed is None:
            self.episode += 1
            seed = make_seeds("training", *self.seed, self.episode)[0]
        self.actions, self.steps = bytearray(), 0
        obs, info = self._guard(self.env.reset, seed=seed, options=options)
        return self._checked(obs), info

    def step(self, action):
        """One step; RunError names episode and step where something is wrong."""
        action = np.asarray(action, np.float32)
        if not np.isfinite(action).all():
            raise RunError(f"{self._where()}: the policy's action is {action}, learning diverges")
        self.actions += action.tobytes()
        self.steps += 1
        obs, reward, terminated, truncated, info = self._guard(self.env.step, action)
        reward = self._guard(float, reward)
        if not np.isfinite(reward):
            raise RunError(f"{self._where()}: the reward is {reward}")
        return self._checked(obs), reward, bool(terminated), bool(truncated), info

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
            _say_once(
                f"{self._where()}: not repeated to the last bit (another machine or version?); "
                "the run goes on, but is not the same as without the break"
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
        except Exception as error:
            raise RunError(f"{self._where()} raised {type(error).__name__}: {error}") from error

    def _checked(self, obs):
        obs = self._guard(np.array, obs, self.observation_space.dtype)  # a copy: some reuse theirs
        if obs.shape != self.observation_space.shape:
            shape = self.observation_space.shape
            raise RunError(f"{self._where()}: observation of shape {obs.shape} instead of {shape}")
        if not np.isfinite(obs).all():
            raise RunError(f"{self._where()}: the observation is not finite: {obs}")
        self.checksum = zlib.crc32(obs.tobytes())
        return obs

    def _name(self):
        return self.spec.id if self.spec else type(self.unwrapped).__name__

    def _where(self):
        return f"{self._name()}, episode {self.episode}, step {self.steps}"
