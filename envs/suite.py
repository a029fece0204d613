"""The ids of dm_control's tasks, without dm_control.

    dmc-<domain>-<task>-v0                    the whole observation of the task
    dmc-<domain>-<task>-p-v0                  without velocities
    dmc-<domain>-<task>-va-v0                 velocities and the last action
    dmc-<domain>-<task>-mdp-img-concat3-v0    the last three grey pictures of 84 x 84
    dmc-<domain>-<task>-img-v0                one picture, which shows no velocity

`-concat<N>` stacks N observations, `-rgb` after `-img` keeps the colours, `-skip<K>` before `-v0`
holds an action for K control steps. An episode is 1000 control steps, or the largest multiple of K
below. `IDS` has all tasks without these options.
"""

import difflib
import re

# domain -> tasks, copied so that an id is checked without importing dm_control (a test compares).
SUITE = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": (
        *("balance", "balance_sparse", "swingup", "swingup_sparse"),
        *("two_poles", "three_poles"),
    ),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
# Velocities are mixed with other entries there, so no `-p` and no `-va`.
MIXED = ("dog", "quadruped")
# Control steps of 0.01 s (and the pendulum, as in the paper's code): 5 make one decision. Elsewhere
# a control step is 0.015 to 0.04 s and 2 make one.
FINE = ("acrobot", "cartpole", "cheetah", "manipulator", "pendulum", "stacker")
CONTROL_STEPS = 1000  # per episode, dm_control's own limit for all tasks but lqr, which has none

_ID = re.compile(
    r"dmc-(?P<domain>\w+)-(?P<task>\w+?)"
    r"(?:-(?P<view>p|va|mdp-img|img))?(?P<rgb>-rgb)?(?:-concat(?P<stack>[1-9]\d?))?"
    r"(?:-skip(?P<skip>[1-9]\d?))?-v0"
)


def describe(env_id):
    """The arguments of `envs.table.EnvInfo` for an id that follows the patterns above, or None.

    Imports no simulator.
    """
    match = _ID.fullmatch(env_id)
    domain = match and _domain(match["domain"])
    if not domain or match["task"] not in SUITE[domain]:
        return None
    view, stack = match["view"] or "full", int(match["stack"] or 1)
    pixels = view.endswith("img")
    if (match["rgb"] and not pixels) or match["stack"] == "1":
        return None
    if pixels and (view == "mdp-img") != (stack > 1):  # one picture is no Markov state
        return None
    if domain in MIXED and view in ("p", "va"):
        return None
    skip = int(match["skip"] or (5 if domain in FINE and not pixels else 2))
    kwargs = {"domain": domain, "task": match["task"], "stack": stack, "frame_skip": skip}
    kwargs |= {"rgb": bool(match["rgb"])} if pixels else {"observed": view}
    frames = f"{stack} frames of " if stack > 1 else ""
    seen, hidden, skill = _TEXTS["img" if pixels else view]
    if view == "full" and (domain, match["task"]) == ("point_mass", "hard"):
        hidden, skill = "what each action does, drawn for each episode", "find out and remember"
    if stack > 1:
        hidden, skill = "positions, in part" if view == "va" else "-", "none (stacked baseline)"
    same_skip = f"-skip{skip}" if match["skip"] else ""
    return {
        "entry_point": f"envs.dm_control:{'make_pixels' if pixels else 'make_state'}",
        "max_episode_steps": CONTROL_STEPS // skip,
        "kwargs": kwargs,
        "observed": f"{frames}{'colour ' if match['rgb'] else ''}{seen}",
        "hidden": hidden,
        "skill": skill,
        "oracle": f"dmc-{match['domain']}-{match['task']}{same_skip}-v0",
    }


_TEXTS = {
    "full": ("state", "-", "none"),
    "p": ("positions", "velocities", "differentiate (2 frames)"),
    "va": ("velocities, last action", "positions", "integrate"),
    "img": ("84 x 84 pictures", "velocities", "differentiate (2 frames)"),
}


def near(env_id):
    """Up to three ids of tasks that are written much like `env_id`, best first."""
    return difflib.get_close_matches(env_id.lower(), IDS, n=3)


def _domain(name):
    """The suite's own spelling of a domain in lower case, or None."""
    return next((domain for domain in SUITE if domain.lower() == name), None)


# All tasks, each seen in five ways; the options would make them thousands.
IDS = [
    env_id
    for domain, tasks in SUITE.items()
    for task in tasks
    for view in ("", "-p", "-va", "-img", "-mdp-img-concat3")
    if describe(env_id := f"dmc-{domain.lower()}-{task}{view}-v0")
]
