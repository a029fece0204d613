"""Making environments: always a vector of them, actions in [-1, 1], one seed for each episode."""

import difflib
import importlib
from functools import partial

import gymnasium as gym
import numpy as np

from common.errors import RunError, UserError
from envs.table import ENVS, register
from envs.wrappers import RnnInput, SeededEpisodes, say_once

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
    """`num_envs` environments for a script's `args.env_id` (and `args.memory_input`).

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


def make_env(env_id, seed=0, render_mode=None, memory_input=None, env=None):
    """One environment.

    env_id: one of ours, any other Gymnasium id, or "module:Id-v0" for a user's own.
    seed: of the sequence of episodes, see `SeededEpisodes`.  memory_input: see `RnnInput`.
    env: takes the place of the environment inside the wrappers, see common/policy.py.
    """
    env = env or _make(env_id, render_mode)
    try:
        _check_spaces(env_id, env)
    except UserError:
        env.close()
        raise
    if env.spec.max_episode_steps is None:
        # An episode that never ends would never be evaluated either.
        say_once(f"{env_id} registers no time limit: episodes end after {LONGEST_EPISODE} steps")
        env = gym.wrappers.TimeLimit(env, LONGEST_EPISODE)
    env = gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    if memory_input is not None and len(env.observation_space.shape) == 1:
        env = RnnInput(env, memory_input)
    return SeededEpisodes(env, seed)


def check_flat(envs):
    """(obs_dim, action_dim) of `make_envs`; UserError if the observations are not flat."""
    shape = envs.single_observation_space.shape
    if len(shape) != 1:
        raise UserError(
            f"{envs.envs[0].spec.id} has observations of shape {shape}; pictures are for "
            "conv_sac.py, other shapes need gymnasium.wrappers.FlattenObservation"
        )
    return shape[0], envs.single_action_space.shape[0]


def _make(env_id, render_mode):
    module, _, name = env_id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        register(name)
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
        for each in ENVS:
            register(each)
        near = difflib.get_close_matches(name, gym.registry, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m envs` lists ours"
        raise UserError(f"unknown environment '{env_id}'; {hint}") from error
    except (UserError, RunError):
        raise
    except Exception as error:  # of the environment's own code
        raise UserError(f"{env_id} cannot be made: {type(error).__name__}: {error}") from error


def _check_spaces(env_id, env):
    action, obs = env.action_space, env.observation_space
    continuous = isinstance(action, gym.spaces.Box) and np.issubdtype(action.dtype, np.floating)
    if not continuous or len(action.shape) != 1 or not action.is_bounded():
        raise UserError(f"{env_id} has actions {action}; a flat, continuous, bounded Box is needed")
    if not isinstance(obs, gym.spaces.Box):
        hint = "make them a Box with gymnasium.wrappers.FlattenObservation"
        raise UserError(f"{env_id} has observations {obs}; {hint}")
