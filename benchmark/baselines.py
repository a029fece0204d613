"""Measures what needs no learning: random actions, no action, and static controllers.

    python -m benchmark.baselines                       writes benchmark/results/baselines.csv
    python -m benchmark.baselines --env-ids pendulum-p-v0 --episodes 1000

A static controller answers each observation alone, so what it scores needs no memory. Those below
were found by hand and by search, so the best policy without memory may be better.
"""

import csv
import statistics
from pathlib import Path

import numpy as np

from benchmark import locked
from common.cli import SEED, Parser, integer, run_cli
from common.envs import make_env
from common.errors import UserError
from common.files import write_csv

# The tasks of the paper (Yang & Nguyen 2021, arXiv:2110.12628v1), their full-state versions, those
# with a controller of their own, and those that hide in other ways or in another simulator.
ENV_IDS = (
    "pendulum-v0",
    "pendulum-p-v0",
    "pendulum-v-v0",
    "pendulum-va-v0",
    "dmc-cartpole-balance-v0",
    "dmc-cartpole-balance-p-v0",
    "dmc-cartpole-balance-va-v0",
    "dmc-cartpole-swingup-v0",
    "dmc-cartpole-swingup-p-v0",
    "dmc-cartpole-swingup-va-v0",
    "cartpole-continuous-p-v0",
    "cartpole-continuous-v-v0",
    "reacher-mdp-v0",
    "reacher-pomdp-v0",
    "water-maze-simple-mdp-v0",
    "water-maze-simple-pomdp-v0",
    "car-v0",
    "car-p-v0",
    "bumps-normal-test-v0",
    "pbc-bumps-normal-pomdp-v0",
    "pendulum-flicker-v0",
    "pendulum-noise-v0",
    "pendulum-delay-v0",
    "mujoco-hopper-p-v0",
    "mujoco-hopper-v-v0",
    "mujoco-halfcheetah-p-v0",
    "mujoco-halfcheetah-v-v0",
    "mujoco-walker2d-p-v0",
    "mujoco-walker2d-v-v0",
    "mujoco-ant-p-v0",
    "mujoco-ant-v-v0",
)
# Tasks whose returns differ so much between episodes that 100 are too few.
NOISY = (
    "reacher-pomdp-v0",
    "water-maze-simple-pomdp-v0",
    "car-p-v0",
    "bumps-normal-test-v0",
    "pbc-bumps-normal-pomdp-v0",
)
NAMES = ["env_id", "controller", "mean", "std", "success_rate", "episodes"]


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--env-ids", nargs="+", default=list(ENV_IDS), metavar="ID", help="environments")
    add("--episodes", type=integer(2), help="for each mean; 100 if not set, 300 on noisy tasks")
    add("--seed", type=SEED, default=0, help="random seed")
    out = "benchmark/results/baselines.csv"
    add("--out", default=out, metavar="FILE", help="table to write; its other rows stay")
    return parser.parse_args(argv)


# ---- Static controllers: observation -> action in [-1, 1] ----


def pendulum_p(obs):
    """From the angle alone. Without friction, that cannot hold the top."""
    th = np.arctan2(obs[1], obs[0])
    u = 0.1 - 5.74 * np.sin(th) - 1.32 * np.cos(th) - 1.52 * np.sin(2 * th)
    return np.tanh(u + 0.94 * np.cos(2 * th) - 4.25 * np.sin(3 * th) - 0.57 * np.cos(3 * th))


def pendulum_v(obs):
    """From the angular velocity alone: steers the energy, and lingers near the top."""
    x = obs[0] / 8
    u = 1.69 - 4.68 * x - 2.97 * x**2 - 3.03 * x**3 - 1.83 * x**4 - 4.34 * x**5
    return np.tanh(u + 0.9 * np.tanh(4 * x) + 3.92 * np.tanh(12 * x))


def balance_p(obs):
    """dm_control's cart-pole from the cart's place and the pole's angle."""
    x, c, s = obs
    return np.tanh(-0.53 * x + 1.89 * s + 0.64 * c * x + 0.22 * c * s - 0.16 * x**3 + 4 * s * x**2)


def cartpole_p(obs):
    """Continuous cart-pole from the cart's place and the pole's angle."""
    x, th = obs
    return np.tanh(0.05 * x + 0.8 * th + 0.67 * x**3 + 19 * th**3)


def cartpole_v(obs):
    """Continuous cart-pole from velocities. It solves the task, which so needs no memory."""
    x, th = obs
    return np.tanh(2.22 * x + 2.88 * th - 3.78 * x**3 + 6.16 * th**3)


def car(obs):
    """Keeps the priest's bit in the sign of the car's velocity, which is observed."""
    _, velocity, direction = obs
    if direction != 0:
        return direction
    if velocity < -0.001:
        return -1.0
    return 1.0 if velocity < 0.02 else 0.0


def car_p(obs):
    """Always drives right: half of the time heaven is there."""
    return 1.0


def water_maze(obs):
    """Circles where every platform is met; on the platform it brakes, and drifts outwards."""
    x, y, flag = obs
    radius = np.hypot(x, y)
    out = np.array([x, y]) / radius if radius > 0 else np.array([1.0, 0.0])
    around = np.array([-out[1], out[0]])
    if flag and radius > 0:
        return np.clip(0.5 * out - around, -1, 1)
    return np.clip(5 * (0.47 - radius) * out + around, -1, 1)


def reacher(obs):
    """Throws both joints at the target while it is shown, then brakes by their speed alone.

    No memory in the controller is needed: a joint that is thrown faster comes to rest further on.
    """
    target, speed = obs[4:6], obs[6:8]
    if not target.any():  # hidden, from the second observation on
        return -np.array([0.0044, 0.0029]) * speed + 0.0004 * speed**3
    angles = np.arctan2(obs[2:4], obs[:2])
    upper, lower, distance = 0.1, 0.11, np.hypot(*target)  # m; the arm's triangle to the target
    bend = np.arccos(np.clip((distance**2 - upper**2 - lower**2) / (2 * upper * lower), -1, 1))
    goals = []
    for elbow in (bend, -bend):
        aside = np.arctan2(lower * np.sin(elbow), upper + lower * np.cos(elbow))
        shoulder = np.arctan2(target[1], target[0]) - aside
        goals.append(np.array([np.arctan2(np.sin(shoulder), np.cos(shoulder)), elbow]))
    nearer = min(goals, key=lambda goal: np.abs(goal).sum())
    return np.clip(np.array([0.56, 0.48]) * (nearer - angles), -1, 1)


def bumps_test(obs):
    """To the right, soft at first: right if the right-hand bump lies beyond 0.1 m, one in three."""
    return 1.0, 1.0 if obs[0] >= 0.1 else -1.0


def bumps_free(obs):
    """The same for the free layout."""
    return 1.0, 1.0 if obs[0] >= 0 else -1.0


STATIC = {
    "pendulum-p-v0": pendulum_p,
    "pendulum-v-v0": pendulum_v,
    "pendulum-va-v0": pendulum_v,
    "dmc-cartpole-balance-p-v0": balance_p,
    "cartpole-continuous-p-v0": cartpole_p,
    "cartpole-continuous-v-v0": cartpole_v,
    "car-v0": car,
    "car-p-v0": car_p,
    "reacher-pomdp-v0": reacher,
    "water-maze-simple-pomdp-v0": water_maze,
    "bumps-normal-test-v0": bumps_test,
    "pbc-bumps-normal-pomdp-v0": bumps_free,
}


# ---- Measuring ----


def measure(env_id, controller, episodes, seed):
    """Returns and successes of whole episodes; controller: of an observation, or random, zero."""
    env, rng = make_env(env_id, seed), np.random.default_rng(seed)
    shape = env.action_space.shape
    policy = {
        "random": lambda obs: rng.uniform(-1, 1, shape),
        "zero": lambda obs: np.zeros(shape),
    }.get(controller, lambda obs: np.full(shape, controller(obs)))
    returns, successes = [], []
    for _ in range(episodes):
        obs, _ = env.reset()
        ended = False
        while not ended:
            obs, _, terminated, truncated, info = env.step(policy(obs).astype(np.float32))
            ended = terminated or truncated
        returns.append(float(info["episode"]["r"]))
        if "is_success" in info:
            successes.append(float(info["is_success"]))
    env.close()
    return returns, successes


def read_rows(path):
    """(environment, controller) -> row of an earlier table, which stays where nothing is new."""
    if not path.exists():
        return {}
    with open(path, newline="", errors="replace") as file:
        table = [row for row in csv.reader(file) if row]
    if table[:1] != [NAMES] or any(len(row) != len(NAMES) for row in table):
        raise UserError(f"{path} is not a table of benchmark.baselines; choose another --out")
    return {(row[0], row[1]): row for row in table[1:]}


def main(args):
    path = Path(args.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = {}
    read_rows(path)  # a wrong path shows now
    print(f"{'environment':<30}{'controller':<12}{'mean':>10}{'std':>9}{'success':>9}")
    for env_id in args.env_ids:
        episodes = args.episodes or (300 if env_id in NOISY else 100)
        kinds = {"random": "random", "zero": "zero", "static": STATIC.get(env_id)}
        for name, controller in kinds.items():
            if controller is None:
                continue
            returns, successes = measure(env_id, controller, episodes, args.seed)
            mean, std = statistics.fmean(returns), statistics.stdev(returns)
            rate = f"{statistics.fmean(successes):.2f}" if successes else ""
            row = [env_id, name, f"{mean:.5g}", f"{std:.5g}", rate, str(episodes)]
            new[env_id, name] = row
            print(f"{env_id:<30}{name:<12}{mean:>10.1f}{std:>9.1f}{rate:>9}", flush=True)
        with locked(path.parent):
            rows = read_rows(path) | new  # another process may have written since
            write_csv(path, [dict(zip(NAMES, row, strict=True)) for row in rows.values()])


if __name__ == "__main__":
    run_cli(main, parse_args())
