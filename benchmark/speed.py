"""Steps per second of our scripts and of Stable-Baselines3 at the same work, in turns.

    python -m benchmark.speed                         the table: ddpg, td3, sac on HalfCheetah-v5
    python -m benchmark.speed --turns 20              steadier
    python -m benchmark.speed --num-threads 1 2       which number of threads is the fastest
    python -m benchmark.speed --growth                does a step slow down as memory fills?
    python -m benchmark.speed --scripts conv_sac --env-id dmc-cartpole-balance-mdp-img-concat3-v0
    python -m benchmark.speed --scripts rsac rdpg rtd3 rsac_sharing --env-id pendulum-p-v0
    python -m benchmark.speed --scripts sac -- --batch-size 100

The same work: networks of the same size, the same batch size, one environment step and one update
per step, whatever --num-envs and --updates-per-step say. Both run their own loops, without
evaluations and files. What follows `--` goes to the scripts, and to Stable-Baselines3 if it has the
same option; all other arguments are the scripts' defaults. It has no recurrent SAC, TD3 or DDPG, so
these scripts are timed alone. A turn is some steps of one, then of the other. The ratio is the
median over turns, its spread the 10th to 90th percentile. Measure on an idle machine: other
programs add noise. The ratio of CPU time has less noise; it counts all threads, also waiting ones.

"matmul" is the share of an update that its matrix products, convolutions and LSTM layers take when
called alone with the same operands: the rest is what a faster program could save. An LSTM counts
as a whole on the CPU, where oneDNN has it as one operation, but not on a GPU. From pixels both have
the same encoder; Stable-Baselines3 has one for the actor and one for the critics, as is its
default, and no random shifts.
"""

import contextlib
import itertools
import multiprocessing
import statistics
import sys
import time
from inspect import signature

import numpy as np

from benchmark import RECURRENT, check_package, import_script, machine, split_argv
from benchmark.compare_sb3 import SCRIPTS, make_sb3
from common.cli import Parser, integer, run_cli

WARM = 20  # updates before the first turn
PERIOD = 12  # updates whose mean is the time of one: an actor may learn in every second or third


def parse_args(argv=None):
    own, options = split_argv(argv)
    parser = Parser(__doc__)
    parser.usage = "%(prog)s [options] [-- arguments of the scripts]"
    add, known = parser.add_argument, [*SCRIPTS, "conv_sac", *RECURRENT]
    add("--scripts", nargs="+", choices=known, default=list(SCRIPTS), help="our scripts to time")
    add("--env-id", default="HalfCheetah-v5", metavar="ID", help="environment")
    add("--turns", type=integer(2), default=10, help="turns of each, one after the other")
    add("--steps", type=integer(2), default=200, help="length of a turn [env steps]")
    add("--num-threads", type=integer(1), nargs="+", default=[2], metavar="N", help="threads")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--growth", action="store_true", help="time a step with 1,000 and with 1,000,000 stored")
    args = parser.parse_args(own)
    args.options = options
    for name in ("--env-id", "--num-threads", "--device"):
        if name in [word.partition("=")[0] for word in args.options]:
            parser.error(f"{name} is an argument of this program, too: write it before --")
    if args.growth and "conv_sac" in args.scripts:
        parser.error("--growth is not for conv_sac: a million pictures take tens of gigabytes")
    return args


def load(script, args, num_threads):
    """The module of a script and its arguments: one environment, one update per step."""
    module = import_script(script)
    # Stable-Baselines3 stores stacks, current and next: 4 GB for 100,000 steps.
    words = ["--buffer-size", "10000"] if script == "conv_sac" else []
    words += ["--device", args.device, "--env-id", args.env_id, "--num-threads", str(num_threads)]
    program, sys.argv[0] = sys.argv[0], f"{script}.py"  # begins the line about a wrong argument
    its = module.parse_args([*words, *args.options])
    sys.argv[0] = program
    its.num_envs = its.updates_per_step = 1
    its.total_steps = 10**9
    return module, its


# ---- What is timed ----


class Enough(Exception):
    """Ends the loop of a script."""


class NoRun:
    """Replaces `common.run.Run` in the loop of a script: sets up PyTorch, writes nothing."""

    def __init__(self, args, script):
        from common.evaluate import set_up_torch

        set_up_torch(args)
        self.loss_sums, self.loss_counts = {}, {}

    def add_losses(self, global_step, losses):
        from common.run import Run

        Run.add_losses(self, global_step, losses)

    def track(self, **objects):
        pass

    def start(self, *progress):
        return progress

    def running(self, global_step):
        return True

    def add_returns(self, info, ended):
        pass

    def step(self, *progress):
        pass

    def finish(self, *progress):
        pass


class Turns:
    """Lets a loop take some steps each time it is asked to through a pipe, and answers how long
    they took: wall and CPU seconds."""

    def __init__(self, pipe, device):
        self.pipe, self.device = pipe, device
        self.steps, self.left = None, 0

    def step(self, num_updates):
        """To be called after each step. False when there are no more turns."""
        self.left -= 1
        if num_updates < WARM or self.left > 0:
            return True
        synchronize(self.device)
        now = np.array([time.perf_counter(), time.process_time()])
        self.pipe.send(None if self.steps is None else (now - self.begun).tolist())
        self.steps = self.left = self.pipe.recv()
        self.begun = np.array([time.perf_counter(), time.process_time()])
        return self.steps > 0


def run_ours(pipe, script, args, num_threads, stored=0):
    """The script's own loop. stored: steps in its replay buffer beforehand."""
    module, its = load(script, args, num_threads)
    turns = Turns(pipe, args.device)

    class TimedRun(NoRun):
        going = True

        def track(self, buffer, envs, **objects):
            fill(buffer, envs, stored)

        def running(self, global_step):
            return self.going

        def step(self, global_step, num_updates, *rest):
            self.going = turns.step(num_updates)

    module.Run = TimedRun
    module.main(its)


def run_sb3(pipe, script, args, num_threads):
    """The loop of Stable-Baselines3."""
    import torch
    from stable_baselines3.common.callbacks import BaseCallback

    from common.envs import make_env

    _, its = load(script, args, num_threads)
    torch.set_num_threads(num_threads)
    turns = Turns(pipe, args.device)

    class TimedSteps(BaseCallback):
        def _on_step(self):
            return turns.step(self.model._n_updates)

    make_sb3(script, make_env(its.env_id), its).learn(its.total_steps, callback=TimedSteps())


def fill(buffer, envs, num_steps):
    """Stores steps of episodes up to the time limit, through the buffer's own `add`."""
    obs = np.zeros(envs.observation_space.shape, np.float32)
    action = np.zeros(envs.action_space.shape, np.float32)
    reward, no = np.zeros(1), np.array([False])
    length = envs.envs[0].spec.max_episode_steps
    takes_ends = "truncated" in signature(buffer.add).parameters
    for k in range(num_steps):
        ended = [np.array([(k + 1) % length == 0])] if takes_ends else []
        buffer.add(obs, action, reward, obs, no, *ended)


class Side:
    """A loop in a process of its own, and the seconds per step of its turns."""

    def __init__(self, loop, *loop_args):
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=loop, args=(theirs, *loop_args), daemon=True)
        self.process.start()
        theirs.close()
        self.wall, self.cpu = [], []


def take_turns(sides, args):
    """Each side's turns, one after another."""
    for side in sides:
        side.pipe.recv()  # ready
    for _ in range(args.turns):
        for side in sides:
            side.pipe.send(args.steps)
            wall, cpu = side.pipe.recv()
            side.wall.append(wall / args.steps)
            side.cpu.append(cpu / args.steps)
    for side in sides:
        side.pipe.send(0)
        side.process.join()


# ---- Matrix products alone ----


def update_and_matmul_seconds(script, args, num_threads):
    """Seconds of one update, and of its matrix products alone, each the best of six a turn."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    products = {aten.mm.default, aten.addmm.default, aten.bmm.default}
    products |= {aten.convolution.default, aten.convolution_backward.default}
    products |= {aten.mkldnn_rnn_layer.default, aten.mkldnn_rnn_layer_backward.default}
    recorded = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, operands=(), options=None):
            if func in products:
                recorded.append((func, [detached(x) for x in operands]))
            return func(*operands, **options or {})

    update, calls = catch_updates(script, args, num_threads)

    def updates():
        for call in calls:
            update(*call)

    @torch.no_grad()
    def matmuls():
        for func, operands in recorded:
            func(*operands)

    updates()  # the first makes the state of the optimizers
    with Record():
        updates()
    best = [float("inf"), float("inf")]
    for _ in range(6 * args.turns):
        for k, work in enumerate((updates, matmuls)):
            synchronize(args.device)
            start = time.perf_counter()
            work()
            synchronize(args.device)
            best[k] = min(best[k], (time.perf_counter() - start) / len(calls))
    return best


def catch_updates(script, args, num_threads):
    """The `update` of a script, and the arguments of its first calls."""
    import torch

    module, its = load(script, args, num_threads)
    update, calls = module.update, []

    def catch(*call):
        calls.append(call)
        if len(calls) == PERIOD:
            raise Enough
        return {"loss": torch.zeros(())}

    module.Run, module.update = NoRun, catch
    with contextlib.suppress(Enough):
        module.main(its)
    return update, calls


def detached(x):
    return x.detach() if hasattr(x, "detach") else x


def synchronize(device):
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


# ---- Tables ----


def quantiles(values):
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def compare(args):
    print("| script | threads | ours, steps/s | SB3, steps/s | ratio | ratio of CPU time ", end="")
    print("| update, ms | matmul, % |\n|---|---|---|---|---|---|---|---|")
    for script, num_threads in itertools.product(args.scripts, args.num_threads):
        sides = [Side(run_ours, script, args, num_threads)]
        if script not in RECURRENT:
            sides.append(Side(run_sb3, script, args, num_threads))
        take_turns(sides, args)
        cells = [f"{1 / statistics.median(side.wall):.1f}" for side in sides]
        for ours, theirs in itertools.pairwise(sides):
            cells.append(quantiles(np.divide(theirs.wall, ours.wall)))
            cells.append(quantiles(np.divide(theirs.cpu, ours.cpu)))
        cells += ["-"] * (4 - len(cells))
        update, products = update_and_matmul_seconds(script, args, num_threads)
        cells += [f"{1e3 * update:.2f}", f"{100 * products / update:.0f}"]
        print(f"| {' | '.join([script, str(num_threads), *cells])} |", flush=True)


def growth(args):
    """Time of a step, most of which is an update, with 1,000 steps stored and with a million."""
    print("| script | 1,000 steps stored, ms | 1,000,000, ms | ratio |\n|---|---|---|---|")
    for script in args.scripts:
        each = (script, args, args.num_threads[0])
        sides = [Side(run_ours, *each), Side(run_ours, *each, 999_000)]
        take_turns(sides, args)
        early, late = (1e3 * statistics.median(side.wall) for side in sides)
        print(f"| {script} | {early:.2f} | {late:.2f} | {late / early:.3f} |", flush=True)


def check(script, args):
    """Raises UserError if the script cannot run with these arguments."""
    module, its = load(script, args, 1)

    class Checked(NoRun):
        def start(self, *progress):
            raise Enough

    module.Run = Checked
    with contextlib.suppress(Enough):
        module.main(its)


def main(args):
    if not args.growth and not set(args.scripts) <= set(RECURRENT):
        check_package("stable_baselines3")
    for script in args.scripts:
        check(script, args)
    print(machine())
    growth(args) if args.growth else compare(args)


if __name__ == "__main__":
    run_cli(main, parse_args())
