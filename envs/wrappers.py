"""What several families share: checked actions and frame stacks."""

import math

import numpy as np
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
