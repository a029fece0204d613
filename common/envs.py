"""Registering and making environments."""

import difflib
import importlib

import gymnasium as gym
import numpy as np

import envs
from common.errors import RunError, UserError

MAX_TAPE = 100_000  # steps of one episode that a checkpoint remembers, see SeededEpisodes


def register_envs():
    """Hands the table of `envs` to Gymnasium, by string: nothing is imported until it is made."""
    for env_id in envs.ENVS:
        _register(env_id)


def _register(env_id):
    info = envs.find(env_id)
    if info is not None:
        gym.register(
            env_id,
            entry_point=info.entry_point,
            max_episode_steps=info.max_episode_steps,
            kwargs=info.kwargs,
        )
    return info is not None


def make_env(env_id, seed=0, render_mode=None):
    """A continuous-control environment with actions in [-1, 1] and one seed per episode.

    env_id: one of ours, any other Gymnasium id, or "module:Id-v0" for a user's own.
    seed: of the sequence of episode seeds, see `SeededEpisodes`.
    Raises UserError if the id is unknown, a package is missing or the spaces do not fit.
    """
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        if name not in gym.registry:
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
    return SeededEpisodes(env, seed)


def _check_spaces(env_id, env):
    action, obs = env.action_space, env.observation_space
    if not isinstance(action, gym.spaces.Box):
        raise UserError(
            f"{env_id} has the action space {action}; these algorithms need continuous actions (Box)"
        )
    if len(action.shape) != 1 or not np.isfinite([action.low, action.high]).all():
        raise UserError(f"{env_id} needs a flat action Box with finite bounds, not {action}")
    if not isinstance(obs, gym.spaces.Box):
        raise UserError(
            f"{env_id} has observations of type {type(obs).__name__}; wrap it so that they are a Box "
            "(gymnasium.wrappers.FlattenObservation)"
        )


class SeededEpisodes(gym.Wrapper):
    """Starts episode k with a seed made from (seed, k), and stops a run at values that are not finite.

    An episode then depends on nothing but its number and its actions. So a checkpoint can hold an
    episode that is under way as (k, actions so far), and `restore` plays it again, exactly.
    The wrapper's own randomness is nil. Observations become float32 (pixels stay uint8).
    """

    def __init__(self, env, seed):
        super().__init__(env)
        self.seed, self.episode = seed, -1  # the episode under way, -1 before the first reset
        self.tape = []  # its actions so far
        self._shape = env.observation_space.shape
        self._dtype = np.uint8 if env.observation_space.dtype == np.uint8 else np.float32

    def reset(self, *, seed=None, options=None):
        if seed is not None:  # starts another sequence of episodes
            self.seed, self.episode = seed, -1
        self.episode += 1
        self.tape = []
        sequence = np.random.SeedSequence([self.seed, self.episode])
        obs, info = self._guard(self.env.reset, seed=int(sequence.generate_state(1)[0] >> 1))
        return self._checked(obs), info

    def step(self, action):
        if len(self.tape) < MAX_TAPE:
            self.tape.append(np.array(action, np.float32))
        obs, reward, terminated, truncated, info = self._guard(self.env.step, action)
        if not np.isfinite(reward):
            raise RunError(f"{self._where()}: the reward is {reward}")
        return self._checked(obs), float(reward), bool(terminated), bool(truncated), info

    def state_dict(self):
        """Position in the sequence of episodes, in types that torch.save keeps without pickle."""
        full = len(self.tape) >= MAX_TAPE
        tape = [] if full else [action.tolist() for action in self.tape]
        return {"seed": self.seed, "episode": self.episode, "tape": tape, "tape_full": full}

    def restore(self, state):
        """Plays the saved episode up to where it was; returns (obs, True).

        Returns (None, False) if that is not possible because the episode was longer than MAX_TAPE.
        """
        self.seed, self.episode = state["seed"], state["episode"] - 1
        obs, _ = self.reset()
        for action in state["tape"]:
            obs, *_ = self.step(np.array(action, np.float32))
        return (None, False) if state["tape_full"] else (obs, True)

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
            raise RunError(f"{self._where()}: the observation has values that are not finite: {obs}")
        return obs

    def _where(self):
        name = self.spec.id if self.spec else type(self.unwrapped).__name__
        return f"{name}, episode {self.episode}, step {len(self.tape)}"
