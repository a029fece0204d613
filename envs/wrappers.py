"""What several families share: checked actions, frame stacks, the input of recurrent networks."""

import math

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation, FrameStackObservation

from common.errors import UserError


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


MEMORY_INPUTS = ("obs", "obs-action", "obs-action-reward")


class RnnInput(gym.Wrapper):
    """What a recurrent network reads at each step: [observation | previous action | reward | 1].

    memory_input: one of MEMORY_INPUTS; which of the previous action and its reward are there. Both
    are 0 at the first step of an episode. The 1 is 0 on padding in a batch of sequences, and so
    tells real steps from padding, where a network without biases stays silent.
    """

    def __init__(self, env, memory_input):
        super().__init__(env)
        self.with_action = "action" in memory_input
        self.with_reward = "reward" in memory_input
        obs, action = env.observation_space, env.action_space
        low, high = [obs.low], [obs.high]
        if self.with_action:
            low, high = [*low, action.low], [*high, action.high]
        if self.with_reward:
            low, high = [*low, [-np.inf]], [*high, [np.inf]]
        low, high = np.concatenate([*low, [1]]), np.concatenate([*high, [1]])
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
        return np.concatenate([*parts, [1]], dtype=np.float32)
