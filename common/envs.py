"""Registering and making environments."""

import difflib
import importlib
import zlib
from functools import cache, partial

import gymnasium as gym
import numpy as np

import envs
from common import cli
from common.errors import RunError, UserError

LONGEST_EPISODE = 10_000  # [steps] where no time limit is registered
SIDE_BY_SIDE = 10  # environments of an evaluation, at most


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
        drawing = {"render_mode": render_mode} if render_mode else {}  # not every class takes it
        env = gym.make(name, disable_env_checker=True, **drawing)
    except gym.error.DependencyNotInstalled as error:
        raise UserError(f"{env_id} needs a package that is not here: {error}") from error
    except ImportError as error:
        hint = (
            f"try: pip install {error.name}" if error.name else "see the README's install section"
        )
        if module and error.name == module.split(".")[0]:  # no advice to install a stranger's
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
    try:
        _check_spaces(env_id, env)
    except UserError:
        env.close()
        raise
    if not _has_time_limit(env):
        # An episode that never ends would never be evaluated either.
        _say(f"{env_id} has no time limit: its episodes are cut after {LONGEST_EPISODE} steps")
        env = gym.wrappers.TimeLimit(env, LONGEST_EPISODE)
    env = gym.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    env = gym.wrappers.RecordEpisodeStatistics(env)
    return SeededEpisodes(env, seed)


def make_envs(env_id, episodes, video=False):
    """Environments that play `episodes` of an evaluation side by side; with video the first draws.

    A list and not a vector environment: one whose last episode has ended rests.
    """
    count = min(episodes, SIDE_BY_SIDE)
    return [make_env(env_id, 0, "rgb_array" if video and k == 0 else None) for k in range(count)]


def check_flat(env):
    """(obs_dim, action_dim) of an environment; UserError if its observations are not flat."""
    shape = env.observation_space.shape
    if len(shape) != 1:
        raise UserError(
            f"{env.spec.id} has observations of shape {shape}; pictures are for conv_sac.py, "
            "other shapes need gymnasium.wrappers.FlattenObservation"
        )
    return shape[0], env.action_space.shape[0]


def check_sequences(env, args):
    """UserError if the arguments of a recurrent script do not fit the episodes."""
    name, limit, length = env.spec.id, env.spec.max_episode_steps, args.sequence_length
    if length > limit:
        raise UserError(f"--sequence-length {length} is longer than {name}, at most {limit} steps")
    if length == 0 and limit >= LONGEST_EPISODE:
        raise UserError(f"{name} has no time limit; choose a --sequence-length, not whole episodes")
    if args.behaviour_refresh == "episode" and args.num_envs > 1:
        raise UserError(
            "--behaviour-refresh episode needs --num-envs 1: episodes side by side end at "
            "different times"
        )
    if length == 0 and args.burn_in and "burn_in" in args.typed:
        raise UserError(
            "--burn-in leads up to a window; give a --sequence-length too, or no burn-in"
        )
    if args.buffer_size < (limit + 2) * args.num_envs:
        raise UserError(
            f"--buffer-size {args.buffer_size} cannot hold an episode of {name}; "
            f"choose at least {(limit + 2) * args.num_envs}"
        )


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


def _has_time_limit(env):
    while isinstance(env, gym.Wrapper):
        if isinstance(env, gym.wrappers.TimeLimit):
            return True
        env = env.env
    return False


@cache  # once for all environments of a run
def _say(text):
    cli.notes.append(text)


def _check_spaces(env_id, env):
    action, obs = env.action_space, env.observation_space
    if not isinstance(action, gym.spaces.Box):
        raise UserError(
            f"{env_id} has the action space {action}; continuous actions (Box) are needed here"
        )
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
    episode that is under way as (k, actions so far), and `restore` plays it again, exactly.
    The wrapper's own randomness is nil. Observations become float32 (pictures stay uint8).
    """

    def __init__(self, env, seed):
        super().__init__(env)
        self.seed, self.episode = seed, -1  # the episode under way, -1 before the first reset
        self.tape, self.steps = bytearray(), 0  # its actions so far, as float32
        self.checksum = 0  # of the last observation
        space = env.observation_space
        if space.dtype != np.uint8 or len(space.shape) == 1:
            low, high = space.low.astype(np.float32), space.high.astype(np.float32)
            self.observation_space = gym.spaces.Box(low, high, dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        """The next episode, or with a seed the first one of another sequence.

        options: {"episode": k} gives number k of the sequence.
        """
        if seed is not None:
            self.seed, self.episode = seed, -1
        self.episode = int((options or {}).get("episode", self.episode + 1))
        self.tape, self.steps = bytearray(), 0
        sequence = np.random.SeedSequence([self.seed, self.episode])
        obs, info = self._guard(self.env.reset, seed=int(sequence.generate_state(1)[0] >> 1))
        return self._checked(obs), info

    def step(self, action):
        """One step; RunError names episode and step where something is wrong."""
        action = np.asarray(action, np.float32)
        if not np.isfinite(action).all():
            raise RunError(
                f"{self._where()}: the policy's action is {action}, learning has diverged"
            )
        self.tape += action.tobytes()
        self.steps += 1
        obs, reward, terminated, truncated, info = self._guard(self.env.step, action)
        reward = self._guard(float, reward)
        if not np.isfinite(reward):
            raise RunError(f"{self._where()}: the reward is {reward}")
        return self._checked(obs), reward, bool(terminated), bool(truncated), info

    def state_dict(self):
        """Position in the sequence of episodes, in types that torch.save keeps without pickle."""
        return {
            "seed": self.seed,
            "episode": self.episode,
            "tape": np.frombuffer(self.tape, np.float32).tolist(),
            "checksum": self.checksum,
            "shapes": self._shapes(),
        }

    def restore(self, state):
        """Plays the saved episode again up to where it was; returns the observation there."""
        self.check_shapes(state)
        self.seed, self.episode = state["seed"], state["episode"] - 1
        obs, _ = self.reset()
        for action in np.array(state["tape"], np.float32).reshape(-1, *self.action_space.shape):
            obs, *_ = self.step(action)
        if self.checksum != state["checksum"]:
            _say(
                f"{self._where()}: not repeated to the last bit (another machine or version?); "
                "the run goes on, but is not the same as without the break"
            )
        return obs

    def check_shapes(self, state):
        """UserError if the environment is not the one that a checkpoint was made with."""
        if state["shapes"] != self._shapes():
            raise UserError(
                f"{self._name()} has changed since the checkpoint: the shapes of observation and "
                f"action were {state['shapes']}, now they are {self._shapes()}"
            )

    def _shapes(self):
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
