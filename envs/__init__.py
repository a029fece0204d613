"""The environments, as one table: id -> how to build it and what it asks of memory.

Nothing is imported from here until an environment is made: an entry point is a string, and
`common.envs.register_envs` hands the table to Gymnasium. `python -m envs` prints it.
"""

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

# ---- Pendulum (envs/pendulum.py) ----

# ---- Continuous cart-pole (envs/cartpole.py) ----

# ---- Car, or heaven-hell (envs/car.py) ----

# ---- Water maze (envs/water_maze.py) ----

# ---- Reacher (envs/reacher.py) ----

# ---- dm_control, states and pixels (envs/dm_control.py) ----

# ---- Push-r-bump (envs/bumps.py) ----

# ---- pybullet locomotion (envs/locomotion.py) ----
