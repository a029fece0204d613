"""Steps per second of the environments under random actions, on one core.

python -m benchmark.env_speed                    the table
python -m benchmark.env_speed --seconds 10       longer, so steadier
python -m benchmark.env_speed --ids car-v0 reacher-mdp-v0

"gym.make" is the environment alone, "make_env" what a script steps (actions rescaled, values
checked, every episode seeded). Resets are in the time. All are timed in turns and the best turn
counts. Seconds are CPU seconds of this process, so that other programs on the machine do not
matter; where a GPU draws, use `--clock wall` on an idle machine.
"""

import os
import time

import gymnasium as gym
import numpy as np

from common.cli import Parser, number, run_cli
from common.envs import make_env
from common.errors import UserError
from envs.table import find

# id -> steps per second expected of gym.make on one core of a laptop (0: none named)
EXPECTED = {
    "pendulum-v0": 15_000,
    "pendulum-va-v0": 15_000,
    "pendulum-p-concat5-v0": 0,
    "cartpole-continuous-v0": 0,
    "car-v0": 0,
    "water-maze-simple-pomdp-v0": 15_000,
    "reacher-pomdp-v0": 0,
    "dmc-cartpole-balance-v0": 0,  # 0.9 of shimmy's rate, see below
    "dmc-cartpole-balance-va-v0": 0,
    "dmc-walker-walk-v0": 0,
    "dmc-cartpole-balance-mdp-img-concat3-v0": 120,
    "dmc-walker-walk-mdp-img-concat3-v0": 120,
    "bumps-normal-test-v0": 150,
    "HalfCheetahBulletEnv-v0": 0,
    "hopper-p-v0": 0,
}
SHIMMY_RATIO = 0.9
TURNS = 5
CLOCKS = {"cpu": time.process_time, "wall": time.perf_counter}


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.add_argument("--seconds", type=number(0.01), default=2.0, help="time for each [s]")
    parser.add_argument("--clock", choices=CLOCKS, default="cpu", help="CPU time or wall time")
    parser.add_argument("--ids", nargs="+", default=list(EXPECTED), metavar="ID", help="env ids")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse_args(argv)
    if hasattr(os, "sched_setaffinity"):  # Mesa would draw with a thread for each core
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    steppers = {}  # (id, kind) -> Stepper
    for env_id in args.ids:
        try:
            steppers[env_id, "make_env"] = Stepper(make_env(env_id))
        except UserError as error:
            print(f"left out: {env_id}: {error}")
            continue
        steppers[env_id, "gym.make"] = Stepper(gym.make(env_id, disable_env_checker=True))
        if env_id.startswith("dmc-") and "img" not in env_id:
            steppers[env_id, "shimmy"] = Stepper(bare_shimmy(**find(env_id).kwargs))
    best = dict.fromkeys(steppers, 0.0)
    for _ in range(TURNS):
        for key, stepper in steppers.items():
            best[key] = max(best[key], stepper.rate(args.seconds / TURNS, CLOCKS[args.clock]))
    for stepper in steppers.values():
        stepper.env.close()

    print("| environment | gym.make, steps/s | make_env, steps/s | expected of gym.make | |")
    print("|---|---|---|---|---|")
    for env_id, kind in steppers:
        if kind != "gym.make":
            continue
        rate, script_rate = best[env_id, "gym.make"], best[env_id, "make_env"]
        expected, note = EXPECTED.get(env_id, 0), ""
        if (env_id, "shimmy") in best:
            bare = best[env_id, "shimmy"] / find(env_id).kwargs["frame_skip"]
            expected, note = SHIMMY_RATIO * bare, f"{rate / bare:.2f} of shimmy's {bare:,.0f}; "
        if expected:
            note += "ok" if rate >= expected else "TOO SLOW"
        least = f"{expected:,.0f}" if expected else ""
        print(f"| {env_id} | {rate:,.0f} | {script_rate:,.0f} | {least} | {note} |")


def bare_shimmy(domain, task, **_):
    """shimmy's adapter alone: observations in a dict, one control step for each action."""
    from envs.gl import load

    load("mujoco")
    suite = load("dm_control.suite")
    adapter = load("shimmy.dm_control_compatibility").DmControlCompatibilityV0
    return adapter(suite.load(domain, task))


class Stepper:
    """Steps one environment across episodes with random actions drawn beforehand."""

    def __init__(self, env):
        self.env, self.num_steps = env, 0
        space = env.action_space
        rng = np.random.default_rng(0)
        actions = rng.uniform(space.low, space.high, (997, *space.shape))
        self.actions = list(actions.astype(space.dtype))
        env.reset(seed=0)

    def rate(self, seconds, clock):
        """Steps per second over at least `seconds`."""
        start, steps = clock(), 0
        while clock() - start < seconds:
            for _ in range(20):  # so that reading the clock costs nothing
                action = self.actions[self.num_steps % len(self.actions)]
                _, _, terminated, truncated, _ = self.env.step(action)
                self.num_steps += 1
                if terminated or truncated:
                    self.env.reset()
            steps += 20
        return steps / (clock() - start)


if __name__ == "__main__":
    run_cli(main)
