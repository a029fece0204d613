"""The environments, as one table: id -> how to build it and what it asks of memory.

Nothing is imported from here until an environment is made: an entry point is a string, and
`common.envs.register_envs` hands the table to Gymnasium. `python -m envs` prints it.
"""

import importlib
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EnvInfo:
    """One row of the table.

    entry_point: "module:function" that builds the environment (no time limit inside).
    max_episode_steps: decisions per episode; the one `TimeLimit` wrapper sets `truncated`.
    kwargs: arguments of the entry point (it also takes `render_mode`).
    observed, hidden, action, skill: short texts for the listing.
    oracle: id of the version whose observation is (nearly) the full state, itself if it is one.
    """

    entry_point: str
    max_episode_steps: int
    kwargs: dict = field(default_factory=dict)
    observed: str = ""
    hidden: str = "-"
    action: str = ""
    skill: str = "none"
    oracle: str = ""


ENVS: dict[str, EnvInfo] = {}


def find(env_id):
    """The row of an id, also of the ones that are a pattern (`dmc-<domain>-<task>-v0`), or None."""
    if env_id in ENVS or not env_id.startswith("dmc-"):
        return ENVS.get(env_id)
    try:
        dm_control = importlib.import_module("envs.dm_control")
    except ImportError:
        return None
    return dm_control.find(env_id)


# ---- Pendulum (envs/pendulum.py) ----

_PENDULUM = {
    "entry_point": "envs.pendulum:make_pendulum",
    "max_episode_steps": 200,
    "action": "torque",
    "oracle": "pendulum-v0",
}
ENVS |= {
    "pendulum-v0": EnvInfo(observed="cos, sin, angular velocity", **_PENDULUM),
    "pendulum-p-v0": EnvInfo(
        kwargs={"observed": "p"},
        observed="cos, sin",
        hidden="angular velocity",
        skill="differentiate (2 frames)",
        **_PENDULUM,
    ),
    "pendulum-v-v0": EnvInfo(
        kwargs={"observed": "v"},
        observed="angular velocity",
        hidden="angle, own action",
        skill="integrate; infer the angle from the acceleration",
        **_PENDULUM,
    ),
    "pendulum-va-v0": EnvInfo(
        kwargs={"observed": "va"},
        observed="angular velocity, last torque",
        hidden="angle",
        skill="as pendulum-v, with the action given",
        **_PENDULUM,
    ),
    "pendulum-p-concat5-v0": EnvInfo(
        kwargs={"observed": "p", "stack": 5},
        observed="5 frames of cos, sin",
        skill="none (stacked baseline)",
        **_PENDULUM,
    ),
    "pendulum-v-concat10-v0": EnvInfo(
        kwargs={"observed": "v", "stack": 10},
        observed="10 frames of angular velocity",
        skill="none (stacked baseline)",
        **_PENDULUM,
    ),
    "pendulum-va-concat10-v0": EnvInfo(
        kwargs={"observed": "va", "stack": 10},
        observed="10 frames of angular velocity, last torque",
        skill="none (stacked baseline)",
        **_PENDULUM,
    ),
}

# ---- Continuous cart-pole (envs/cartpole.py) ----

# ---- Car, or heaven-hell (envs/car.py) ----

# ---- Water maze (envs/water_maze.py) ----

# ---- Reacher (envs/reacher.py) ----

# ---- dm_control, states and pixels (envs/dm_control.py) ----

# ---- Push-r-bump (envs/bumps.py) ----

# ---- pybullet locomotion (envs/locomotion.py) ----
