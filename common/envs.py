"""Registering and making environments."""

import difflib
import importlib
from functools import partial

import gymnasium as gym
import numpy as np

import envs
from common.errors import RunError, UserError


def register_envs():
    """Hands the table of `envs` to Gymnasium, by string: nothing is imported until it is made."""
    for env_id in envs.ENVS:
        _register(env_id)


def _register(env_id):
    info, known = envs.find(env_id), gym.registry.get(env_id)
    if info is not None and (known is None or known.entry_point != info.entry_point):
        gym.registry.pop(env_id, None)  # a package may have taken one of our ids with it
        gym.register(
            env_id,
            entry_point=info.entry_point,
            max_episode_steps=info.max_episode_steps,
            kwargs=info.kwargs,
        )


def make_env(env_id, seed=0, render_mode=None, num_envs=1):
    """A continuous-control environment with actions in [-1, 1] and one seed per episode.

    env_id: one of ours, any other Gymnasium id, or "module:Id-v0" for a user's own.
    seed: of the sequence of episode seeds, see `SeededEpisodes`.
    num_envs: more than one gives a vector environment that never resets by itself: `step` returns
    the true last observation, and `reset(options={"reset_mask": ended})` starts the next episodes.
    Raises UserError if the id is unknown, a package is missing or the spaces do not fit.
    """
    if num_envs > 1:
        makers = [partial(make_env, env_id, seed + (k << 40), render_mode) for k in range(num_envs)]
        return gym.vector.SyncVectorEnv(makers, autoreset_mode=gym.vector.AutoresetMode.DISABLED)
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        _register(name)
        # The passive checker repeats on every step what SeededEpisodes checks.
        env = gym.make(name, render_mode=render_mode, disable_env_checker=True)
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{env_id} needs a package that is not here: {error}") from error
    except ImportError as error:
        hint = f"pip install {error.name}" if error.name else "see the README's install section"
        raise UserError(f"{env_id} cannot be imported ({error}); try: {hint}") from error
    except (gym.error.UnregisteredEnv, gym.error.Error) as error:
        register_envs()
        near = difflib.get_close_matches(name, gym.registry, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m envs` lists ours"
        raise UserError(f"unknown environment '{env_id}'; {hint}") from error
    try:
        _check_spaces(env_id, env)
    except UserError:
        env.close()
        raise
    env = gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    return SeededEpisodes(env, seed)


def check_flat(env):
    """(obs_dim, action_dim) of an environment; UserError if its observations are not flat."""
    shape = env.observation_space.shape
    if len(shape) != 1:
        raise UserError(
            f"{env.spec.id} has observations of shape {shape}; pictures are for conv_sac.py, "
            "other shapes need gymnasium.wrappers.FlattenObservation"
        )
    return shape[0], env.action_space.shape[0]


def env_state(env):
    """For a checkpoint: where each environment stands in its sequence of episodes, and in which."""
    if isinstance(env, gym.vector.VectorEnv):
        return list(env.call("state_dict"))
    return [env.state_dict()]


def restore_env(env, states):
    """Plays every saved episode up to where it was; returns the observations there."""
    if isinstance(env, gym.vector.VectorEnv):
        env.reset()
        return np.stack([e.restore(state) for e, state in zip(env.envs, states, strict=True)])
    return env.restore(states[0])


def _check_spaces(env_id, env):
    action, obs = env.action_space, env.observation_space
    if not isinstance(action, gym.spaces.Box):
        raise UserError(
            f"{env_id} has the action space {action}; continuous actions (Box) are needed here"
        )
    if len(action.shape) != 1 or not np.isfinite([action.low, action.high]).all():
        raise UserError(f"{env_id} needs a flat action Box with finite bounds, not {action}")
    if not isinstance(obs, gym.spaces.Box):
        raise UserError(
            f"{env_id} has observations of type {type(obs).__name__}; make them a Box with "
            "gymnasium.wrappers.FlattenObservation"
        )


class SeededEpisodes(gym.Wrapper):
    """Starts episode k with a seed made from (seed, k); stops at values that are not finite.

    An episode then depends on nothing but its number and its actions. So a checkpoint can hold an
    episode that is under way as (k, actions so far), and `restore` plays it again, exactly.
    The wrapper's own randomness is nil. Observations become float32 (pixels stay uint8).
    """

    def __init__(self, env, seed):
        super().__init__(env)
        self.seed, self.episode = seed, -1  # the episode under way, -1 before the first reset
        self.tape, self.steps = bytearray(), 0  # its actions so far, as float32
        self._shape = env.observation_space.shape
        self._dtype = np.uint8 if env.observation_space.dtype == np.uint8 else np.float32

    def reset(self, *, seed=None, options=None):
        if seed is not None:  # starts another sequence of episodes
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.tape, self.steps = bytearray(), 0
        sequence = np.random.SeedSequence([self.seed, self.episode])
        obs, info = self._guard(self.env.reset, seed=int(sequence.generate_state(1)[0] >> 1))
        return self._checked(obs), info

    def step(self, action):
        action = np.asarray(action, np.float32)
        if not np.isfinite(action).all():
            raise RunError(
                f"{self._where()}: the policy's action is {action}, learning has diverged"
            )
        self.tape += action.tobytes()
        self.steps += 1
        obs, reward, terminated, truncated, info = self._guard(self.env.step, action)
        if not np.isfinite(reward):
            raise RunError(f"{self._where()}: the reward is {reward}")
        return self._checked(obs), float(reward), bool(terminated), bool(truncated), info

    def state_dict(self):
        """Position in the sequence of episodes, in types that torch.save keeps without pickle."""
        tape = np.frombuffer(self.tape, np.float32).tolist()
        return {"seed": self.seed, "episode": self.episode, "tape": tape}

    def restore(self, state):
        """Plays the saved episode again up to where it was; returns the observation there."""
        self.seed, self.episode = state["seed"], state["episode"] - 1
        obs, _ = self.reset()
        for action in np.array(state["tape"], np.float32).reshape(-1, *self.action_space.shape):
            obs, *_ = self.step(action)
        return obs

    def _guard(self, call, *args, **kwargs):
        try:
            return call(*args, **kwargs)
        except (UserError, RunError):
            raise
        except Exception as error:
            raise RunError(f"{self._where()} raised {type(error).__name__}: {error}") from error

    def _checked(self, obs):
        obs = np.asarray(obs, self._dtype)
        if obs.shape != self._shape:
            raise RunError(
                f"{self._where()}: observation of shape {obs.shape} instead of {self._shape}"
            )
        if self._dtype is np.float32 and not np.isfinite(obs).all():
            raise RunError(
                f"{self._where()}: the observation has values that are not finite: {obs}"
            )
        return obs

    def _where(self):
        name = self.spec.id if self.spec else type(self.unwrapped).__name__
        return f"{name}, episode {self.episode}, step {self.steps}"
