"""Making environments: always a vector of them, actions in [-1, 1], one seed for each episode."""

import difflib
import importlib
from functools import partial

import gymnasium as gym
import numpy as np

from common.errors import RunError, UserError, describe
from envs import gl
from envs.table import OURS, register
from envs.wrappers import (
    LARGEST,
    Checked,
    Envs,
    Pictures,
    RescaledAction,
    RnnInput,
    SeededEpisodes,
    flatten,
    say_once,
)

LONGEST_EPISODE = 10_000  # [steps] where no time limit is registered
SMALLEST_PICTURE = 30  # [pixels] for the encoder of conv_sac.py
NOT_YOURS = "{} here is a module of this repository; give yours another name"


def make_envs(args, num_envs, seed=0, render_mode=None):
    """`num_envs` environments for a script's `args.env_id` (and `args.memory_input`).

    render_mode: of the first environment.
    Raises UserError if the id is unknown, a package is missing or the spaces do not fit.
    """
    memory_input = getattr(args, "memory_input", None)
    modes = enumerate([render_mode] + [None] * (num_envs - 1))
    makers = [partial(make_env, args.env_id, (seed, k), mode, memory_input) for k, mode in modes]
    try:
        return Envs(makers)
    except RunError:
        raise
    except RuntimeError as error:  # of SyncVectorEnv
        words = f"has other spaces in each instance: {error}"
        raise UserError(f"{args.env_id} {' '.join(words.split())}") from error


def make_env(env_id, seed=0, render_mode=None, memory_input=None, env=None):
    """One environment.

    env_id: one of ours, any other Gymnasium id, or "module:Id-v0" for a user's own. Observations
    are made flat; pictures become (channels, height, width), see `Pictures`.
    seed: of the sequence of episodes, see `SeededEpisodes`.  memory_input: see `RnnInput`.
    env: takes the place of the environment inside the wrappers, see common/policy.py.
    """
    env = env or _make(env_id, render_mode)
    try:
        _check_spaces(env_id, env)
        env = flatten(env, env_id)
    except UserError:
        env.close()
        raise
    if env.spec.max_episode_steps is None:
        # An episode that never ends would never be evaluated either.
        say_once(f"{env_id} registers no time limit: episodes end after {LONGEST_EPISODE} steps")
        env = gym.wrappers.TimeLimit(env, LONGEST_EPISODE)
    env = RescaledAction(Checked(env))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    if len(env.observation_space.shape) > 1:
        env = Pictures(env)
    elif memory_input is not None:
        env = RnnInput(env, memory_input)
    return SeededEpisodes(env, seed)


def check_flat(envs):
    """(obs_dim, action_dim) of `make_envs`; UserError if the observations are pictures."""
    shape = envs.single_observation_space.shape
    if len(shape) != 1:
        words = f"has observations of shape {shape}; pictures are for conv_sac.py"
        raise UserError(f"{envs.envs[0].spec.id} {words}")
    return shape[0], envs.single_action_space.shape[0]


def check_pixels(envs, args):
    """(obs_shape, action_dim, frame_stack) of `make_envs`, frame_stack as in `Pictures`.

    Raises UserError if the observations are no pictures or too small, or `args.buffer_size` rows
    of replay could be without a step: a whole observation of each environment and what follows.
    """
    shape = envs.single_observation_space.shape
    if len(shape) == 1:
        words = f"has no pictures (uint8), but observations of shape {shape}; try sac.py"
        raise UserError(f"{args.env_id} {words}")
    if min(shape[1:]) < SMALLEST_PICTURE:
        words = f"the encoder needs {SMALLEST_PICTURE} x {SMALLEST_PICTURE} at least"
        raise UserError(f"{args.env_id} has pictures of {shape[1]} x {shape[2]} pixels; {words}")
    frame_stack = envs.envs[0].get_wrapper_attr("frame_stack")
    fewest = (frame_stack + 1) * envs.num_envs
    if args.buffer_size < fewest:
        words = f"at least {fewest} are needed for stacks of {frame_stack} frames"
        raise UserError(f"--buffer-size {args.buffer_size} is too small: {words}")
    return shape, envs.single_action_space.shape[0], frame_stack


def _make(env_id, render_mode):
    module, _, name = env_id.rpartition(":")
    package = module.partition(".")[0]
    before = set(gym.registry)
    try:
        if module:
            importlib.import_module(module)
        register(name)
        # The passive checker repeats on every step what SeededEpisodes checks.
        drawing = {"render_mode": render_mode} if render_mode else {}  # not every class takes it
        env = gym.make(name, disable_env_checker=True, **drawing)
        if render_mode and hasattr(env.unwrapped, "mujoco_renderer"):  # of Gymnasium, opened late
            gl.use_gl()
        return env
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{env_id} needs a package that is not installed: {error}") from error
    except ImportError as error:
        missing = (error.name or env_id).partition(".")[0]
        hint = f"is {missing} installed, or a module beside the scripts or on PYTHONPATH?"
        hint = NOT_YOURS.format(missing) if missing in OURS else hint
        hint = f"; {hint}" if isinstance(error, ModuleNotFoundError) else ""
        raise UserError(f"{env_id} cannot be imported ({error}){hint}") from error
    except gym.error.Error as error:
        theirs = set(gym.registry) - before
        near = difflib.get_close_matches(name, theirs or gym.registry, n=3, cutoff=0.5)
        near = [f"{module}:{id}" if id in theirs else id for id in near]
        hint = f"did you mean {' or '.join(near)}?" if near else "`python -m envs` lists ours"
        if module and not theirs:
            hint = f"{module} registers nothing new; is gym.register(...) in it?"
        hint = NOT_YOURS.format(package) if package in OURS - {"envs"} else hint
        raise UserError(f"unknown environment '{env_id}'; {hint}") from error
    except (UserError, RunError):
        raise
    except Exception as error:  # of the environment's own code
        if isinstance(error, TypeError) and "'render_mode'" in str(error):
            raise UserError(f"{env_id} does not draw: it takes no render_mode") from error
        raise UserError(f"{env_id} cannot be made: {describe(error, __file__)}") from error


def _check_spaces(env_id, env):
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), gym.Space):
            raise UserError(f"{env_id} has no {name}")
    space = env.action_space
    continuous = isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if not continuous or len(space.shape) != 1 or not space.is_bounded():
        raise UserError(f"{env_id} has actions {space}; a flat, continuous, bounded Box is needed")
    size = space.high.astype(np.float64) - space.low
    if not len(size) or not ((size > 0) & (size <= LARGEST)).all():
        words = "some lower bound is not below its upper bound, or too far from it"
        raise UserError(f"{env_id} has actions {space}; {words if len(size) else 'there are none'}")
