"""The environments, as one table: id -> how to build it and what it asks of memory.

Nothing is imported from here until an environment is made: an entry point is a string, and
`import envs` hands the table to Gymnasium. `python -m envs` prints it.
"""

from dataclasses import dataclass, field

import gymnasium as gym

from envs import suite


@dataclass(frozen=True)
class EnvInfo:
    """One row of the table.

    entry_point: "module:function" that builds the environment (no time limit inside, but for timed
        tasks, which end by themselves).
    max_episode_steps: decisions per episode; the one `TimeLimit` wrapper sets `truncated`.
    kwargs: arguments of the entry point (it also takes `render_mode`).
    observed, hidden, skill: short texts for the listing.
    oracle: id of the version whose observation is (nearly) the full state, itself if it is one;
        may be one of Gymnasium's own.
    """

    entry_point: str
    max_episode_steps: int
    kwargs: dict = field(default_factory=dict)
    observed: str = ""
    hidden: str = "-"
    skill: str = "none"
    oracle: str = ""


ENVS: dict[str, EnvInfo] = {}

# Top-level modules of this repository; a module of the user's must have another name.
OURS = {"benchmark", "common", "docs", "envs", "tests"}
OURS |= {"ddpg", "td3", "sac", "rdpg", "rtd3", "rsac", "rsac_sharing", "conv_sac"}


def foreign_module(env_id):
    """The module that "module:id" names, unless it is one of this repository; else ""."""
    module = env_id.rpartition(":")[0]
    return "" if module.partition(".")[0] in OURS else module


def find(env_id):
    """The row of an id, also of dm_control's other tasks (`envs/suite.py`), or None."""
    row = ENVS.get(env_id)
    if row is None and (texts := suite.describe(env_id)):
        row = EnvInfo(**texts)
    return row


def register(env_id):
    """Hands an id of ours to Gymnasium, as strings: nothing is imported until it is made.

    `import envs` has done so, but for dm_control's tasks with options such as `-skip4`.
    """
    info, known = find(env_id), gym.registry.get(env_id)
    if info is not None and (known is None or known.entry_point != info.entry_point):
        gym.registry.pop(env_id, None)  # a package may have taken one of our ids with it
        gym.register(
            env_id,
            entry_point=info.entry_point,
            max_episode_steps=info.max_episode_steps,
            kwargs=info.kwargs,
        )


# ---- Pendulum (envs/pendulum.py) ----

_PENDULUM = {
    "entry_point": "envs.pendulum:make_pendulum",
    "max_episode_steps": 200,
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
        hidden="own actions",
        skill="none (stacked baseline)",
        **_PENDULUM,
    ),
    "pendulum-va-concat10-v0": EnvInfo(
        kwargs={"observed": "va", "stack": 10},
        observed="10 frames of angular velocity, last torque",
        skill="none (stacked baseline)",
        **_PENDULUM,
    ),
    "pendulum-flicker-v0": EnvInfo(
        kwargs={"drop": 0.5},
        observed="cos, sin, angular velocity, or zeros",
        hidden="everything, in half of the steps",
        skill="bridge gaps: predict from the last observation and the actions since",
        **_PENDULUM,
    ),
    "pendulum-noise-v0": EnvInfo(
        kwargs={"noise": 0.3},
        observed="cos, sin, angular velocity, with noise",
        hidden="the true values",
        skill="filter: weigh many observations",
        **_PENDULUM,
    ),
    "pendulum-delay-v0": EnvInfo(
        kwargs={"delay": 5},
        observed="cos, sin, angular velocity, 5 steps ago",
        hidden="the last 5 steps",
        skill="predict from an old observation and the actions since",
        **_PENDULUM,
    ),
}

# ---- Continuous cart-pole (envs/cartpole.py) ----

_CARTPOLE = {
    "entry_point": "envs.cartpole:make_cartpole",
    "max_episode_steps": 1000,
    "oracle": "cartpole-continuous-v0",
}
ENVS |= {
    "cartpole-continuous-v0": EnvInfo(
        observed="x, its velocity, angle, its velocity",
        skill="none; episodes of varying length",
        **_CARTPOLE,
    ),
    "cartpole-continuous-p-v0": EnvInfo(
        kwargs={"observed": "p"},
        observed="x, angle",
        hidden="velocities",
        skill="differentiate (2 frames); varying length",
        **_CARTPOLE,
    ),
    "cartpole-continuous-v-v0": EnvInfo(
        kwargs={"observed": "v"},
        observed="velocities of x and angle",
        hidden="x, angle",
        skill="none: velocities are enough to balance",
        **_CARTPOLE,
    ),
    "cartpole-continuous-p-concat5-v0": EnvInfo(
        kwargs={"observed": "p", "stack": 5},
        observed="5 frames of x, angle",
        skill="none (stacked baseline)",
        **_CARTPOLE,
    ),
    "cartpole-continuous-v-concat10-v0": EnvInfo(
        kwargs={"observed": "v", "stack": 10},
        observed="10 frames of the velocities",
        hidden="x",
        skill="none (stacked baseline)",
        **_CARTPOLE,
    ),
}

# ---- Car, or heaven-hell (envs/car.py) ----

_CAR = {
    "entry_point": "envs.car:make_car",
    "max_episode_steps": 160,
}
_CAR_HIDDEN = {"hidden": "side of heaven, except near the priest"}
_CAR_EPISODIC = {"episodic_limit": _CAR["max_episode_steps"]}
ENVS |= {
    "car-v0": EnvInfo(
        observed="position, velocity, direction near the priest",
        skill="explore, remember one bit; leaks: the velocity can store it",
        oracle="car-mdp-v0",
        **_CAR_HIDDEN,
        **_CAR,
    ),
    "car-p-v0": EnvInfo(
        kwargs={"observed": "p"},
        observed="position, direction near the priest",
        hidden="side of heaven, except near the priest; velocity",
        skill="explore, remember one bit; no leak",
        oracle="car-mdp-v0",
        **_CAR,
    ),
    "car-mdp-v0": EnvInfo(
        kwargs={"observed": "mdp"},
        observed="position, velocity, direction",
        oracle="car-mdp-v0",
        **_CAR,
    ),
    "car-concat20-v0": EnvInfo(
        kwargs={"stack": 20},
        observed="20 frames of car-v0",
        hidden="side of heaven, 20 steps after the priest",
        skill="none (stacked baseline, shorter than the way back)",
        oracle="car-mdp-v0",
        **_CAR,
    ),
    "car-episodic-v0": EnvInfo(
        kwargs=_CAR_EPISODIC,
        observed="position, velocity, direction near the priest",
        skill="as car-v0, with -1 a step and a price for hell",
        oracle="car-episodic-mdp-v0",
        **_CAR_HIDDEN,
        **_CAR,
    ),
    "car-episodic-mdp-v0": EnvInfo(
        kwargs={"observed": "mdp", **_CAR_EPISODIC},
        observed="position, velocity, direction",
        oracle="car-episodic-mdp-v0",
        **_CAR,
    ),
    "car-episodic-concat20-v0": EnvInfo(
        kwargs={"stack": 20, **_CAR_EPISODIC},
        observed="20 frames of car-episodic-v0",
        hidden="side of heaven, 20 steps after the priest",
        skill="none (stacked baseline, shorter than the way back)",
        oracle="car-episodic-mdp-v0",
        **_CAR,
    ),
}

# ---- Water maze (envs/water_maze.py) ----

_WATER_MAZE = {
    "entry_point": "envs.water_maze:WaterMaze",
    "max_episode_steps": 200,
}
ENVS |= {
    "water-maze-simple-pomdp-v0": EnvInfo(
        kwargs={"observed": "pomdp"},
        observed="position, on the platform or not",
        hidden="platform, velocity, visits",
        skill="search once, remember a place over teleports",
        oracle="water-maze-simple-mdp-v0",
        **_WATER_MAZE,
    ),
    "water-maze-simple-mdp-v0": EnvInfo(
        kwargs={"observed": "mdp"},
        observed="position, on the platform or not, platform",
        hidden="velocity, visits",
        skill="(nearly) none",
        oracle="water-maze-simple-state-v0",
        **_WATER_MAZE,
    ),
    "water-maze-simple-state-v0": EnvInfo(
        kwargs={"observed": "state"},
        observed="position, on the platform or not, platform, velocity, visits",
        oracle="water-maze-simple-state-v0",
        **_WATER_MAZE,
    ),
}

# ---- Reacher (envs/reacher.py) ----

_REACHER = {
    "entry_point": "envs.reacher:make_reacher",
    "max_episode_steps": 50,
    "oracle": "reacher-mdp-v0",
}
ENVS |= {
    "reacher-mdp-v0": EnvInfo(observed="joints, target, tip minus target", **_REACHER),
    "reacher-pomdp-v0": EnvInfo(
        kwargs={"hide_target": True},
        observed="joints; target, tip minus target at the first step",
        hidden="target after the first step",
        skill="keep two numbers for 50 steps",
        **_REACHER,
    ),
}

# ---- dm_control, states and pixels (envs/dm_control.py) ----
# The paper's ids. `find` answers for every other task of the suite by the same patterns.

_DMC_CARTPOLE = [
    f"dmc-cartpole-{task}{view}-v0"
    for task in ("balance", "swingup")
    for view in ("", "-p", "-va", "-p-concat5", "-va-concat10")
]
_PIXELS = [f"dmc-{task}-mdp-img-concat3-v0" for task in ("cartpole-balance", "walker-walk")]
ENVS |= {env_id: EnvInfo(**suite.describe(env_id)) for env_id in (*_DMC_CARTPOLE, *_PIXELS)}

# ---- Push-r-bump (envs/bumps.py) ----

_BUMPS = {
    "entry_point": "envs.bumps:Bumps",
    "max_episode_steps": 50,
}
_TIMED = {"max_decisions": _BUMPS["max_episode_steps"]}
_TOUCH = {"observed": "tip position, finger angle", "hidden": "both bumps"}
_SEEN = {"observed": "tip position, finger angle, both bumps"}
ENVS |= {
    "bumps-normal-test-v0": EnvInfo(
        kwargs={"task": "normal-test"},
        skill="feel, count and remember touches; act to find out",
        oracle="bumps-normal-test-mdp-v0",
        **_TOUCH,
        **_BUMPS,
    ),
    "bumps-normal-test-timed-v0": EnvInfo(
        kwargs={"task": "normal-test", **_TIMED},
        skill="as bumps-normal-test; the task ends after 50 steps",
        oracle="bumps-normal-test-mdp-v0",
        **_TOUCH,
        **_BUMPS,
    ),
    "bumps-normal-test-mdp-v0": EnvInfo(
        kwargs={"task": "normal-test", "full_state": True},
        oracle="bumps-normal-test-mdp-v0",
        **_SEEN,
        **_BUMPS,
    ),
    "pbc-bumps-normal-pomdp-v0": EnvInfo(
        kwargs={"task": "normal"},
        skill="as bumps-normal-test, with a free layout",
        oracle="pbc-bumps-normal-mdp-v0",
        **_TOUCH,
        **_BUMPS,
    ),
    "pbc-bumps-normal-timed-v0": EnvInfo(
        kwargs={"task": "normal", **_TIMED},
        skill="as pbc-bumps-normal-pomdp; the task ends after 50 steps",
        oracle="pbc-bumps-normal-mdp-v0",
        **_TOUCH,
        **_BUMPS,
    ),
    "pbc-bumps-normal-mdp-v0": EnvInfo(
        kwargs={"task": "normal", "full_state": True},
        oracle="pbc-bumps-normal-mdp-v0",
        **_SEEN,
        **_BUMPS,
    ),
}

# ---- pybullet locomotion (envs/locomotion.py) ----

_LOCOMOTION = {
    "entry_point": "envs.locomotion:Locomotion",
    "max_episode_steps": 1000,
}
for _robot, _full in {
    "halfcheetah": "HalfCheetahBulletEnv-v0",
    "ant": "AntBulletEnv-v0",
    "hopper": "HopperBulletEnv-v0",
    "walker2d": "Walker2DBulletEnv-v0",
}.items():
    ENVS[_full] = EnvInfo(
        kwargs={"robot": _robot},
        observed="posture, velocities, foot contacts",
        oracle=_full,
        **_LOCOMOTION,
    )
    ENVS[f"{_robot}-p-v0"] = EnvInfo(
        kwargs={"robot": _robot, "observed": "p"},
        observed="posture, foot contacts",
        hidden="velocities of body and joints",
        skill="differentiate noisy, contact-rich motion",
        oracle=_full,
        **_LOCOMOTION,
    )
    ENVS[f"{_robot}-v-v0"] = EnvInfo(
        kwargs={"robot": _robot, "observed": "v"},
        observed="velocities of body and joints",
        hidden="posture, foot contacts",
        skill="integrate velocities from a known start",
        oracle=_full,
        **_LOCOMOTION,
    )

# ---- MuJoCo locomotion (envs/mujoco.py) ----

for _robot, _full in {
    "hopper": "Hopper-v5",
    "halfcheetah": "HalfCheetah-v5",
    "walker2d": "Walker2d-v5",
    "ant": "Ant-v5",
}.items():
    _forces = ", contact forces" if _robot == "ant" else ""
    _runner = {
        "entry_point": "envs.mujoco:make_runner",
        "max_episode_steps": 1000,
        "oracle": _full,  # Gymnasium's own
    }
    ENVS[f"mujoco-{_robot}-p-v0"] = EnvInfo(
        kwargs={"robot": _robot, "observed": "p"},
        observed="posture",
        hidden=f"velocities of body and joints{_forces}",
        skill="differentiate contact-rich motion",
        **_runner,
    )
    ENVS[f"mujoco-{_robot}-v-v0"] = EnvInfo(
        kwargs={"robot": _robot, "observed": "v"},
        observed="velocities of body and joints",
        hidden=f"posture{_forces}",
        skill="integrate velocities from a known start",
        **_runner,
    )
