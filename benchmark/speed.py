"""Steps per second of ours and of Stable-Baselines3 at the same work, in turns.

    python -m benchmark.speed                         the table: ddpg, td3, sac on HalfCheetah-v5
    python -m benchmark.speed --turns 20              steadier
    python -m benchmark.speed --num-threads 1 2       which number of threads is the fastest
    python -m benchmark.speed --growth                does an update slow down as memory fills?
    python -m benchmark.speed --scripts conv_sac --env-id dmc-cartpole-balance-mdp-img-concat3-v0

The same work: networks of the same size, the same batch size, one environment step and one update
per step, default arguments of the scripts. A turn is some steps of one, then of the other; the
ratio is the median over turns, its spread the 10th to 90th percentile. Other programs on the
machine slow both down, but blur the numbers: measure on an idle machine. The ratio of CPU time is
blurred less; it counts all threads, waiting ones too.

"matmul" is the time of an update that its matrix products and convolutions take alone, in percent:
what is left to gain is the rest. From pixels both have the same encoder, Stable-Baselines3 in its
default way: one for the actor and one for the critics, and no random shifts.
"""

import importlib
import multiprocessing
import os
import statistics
import time

import numpy as np

from benchmark import machine
from benchmark.compare_sb3 import SCRIPTS, make_sb3
from common.cli import Parser, integer, run_cli


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.prog = "python -m benchmark.speed"
    add = parser.add_argument
    add("--scripts", nargs="+", choices=[*SCRIPTS, "conv_sac"], default=list(SCRIPTS), help="ours")
    add("--env-id", default="HalfCheetah-v5", metavar="ID", help="environment")
    add("--turns", type=integer(2), default=10, help="of each, alternately")
    add("--steps", type=integer(2), default=200, help="in a turn [env steps]")
    add("--num-threads", type=integer(1), nargs="+", default=[2], metavar="N", help="of PyTorch")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--compile", action="store_true", help="ours with --compile beside ours without")
    add("--huge-pages", choices=["none", "ours", "both"], default="none", help="who has them")
    add("--growth", action="store_true", help="time per update, memory empty and full")
    return parser.parse_args(argv)


# ---- What is timed: generators that do one environment step and one update at a time ----


def run_ours(script, args, compiled=False):
    """The loop of the script without evaluation and files."""
    import torch

    from common.envs import make_env

    module, its = script_args(script, args)
    torch.manual_seed(0)
    rng, env = np.random.default_rng(0), make_env(args.env_id)
    obs_dim, action_dim, *stack = dims(module, its)
    its.target_entropy = -float(action_dim)
    agent = module.Agent(obs_dim, action_dim, its)
    optimizers = module.make_optimizers(agent, its)
    buffer = module.ReplayBuffer(its.buffer_size, obs_dim, action_dim, 1, *stack)
    learn = module.update
    if compiled:
        from common.compile import compile_update

        learn = compile_update(module.update, optimizers, its.device)
    losses, num_updates = Losses(), 0
    obs, _ = env.reset()
    while True:
        action = agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, reward, next_obs, terminated, truncated)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
        delayed = [(num_updates + 1) % its.policy_delay == 0] if script == "td3" else []
        batch = [x.to(its.device) for x in buffer.sample(its.batch_size, rng)]
        losses.add_losses(0, **learn(agent, optimizers, batch, its, *delayed))
        num_updates += 1
        yield


class Losses:
    """What `Run.add_losses` does at every update, without a run folder."""

    def __init__(self):
        self._losses, self._counts = {}, {}

    def add_losses(self, global_step, **losses):
        from common.run import Run

        Run.add_losses(self, global_step, **losses)


def run_sb3(script, args):
    """The loop of Stable-Baselines3's `learn`, one step at a time."""
    from stable_baselines3.common.callbacks import CallbackList
    from stable_baselines3.common.logger import configure

    from common.envs import make_env

    _, its = script_args(script, args)
    its.learning_starts = 0
    model = make_sb3(script, make_env(args.env_id), its)
    model.set_logger(configure(None, []))
    _, callback = model._setup_learn(10**9, CallbackList([]))
    callback.on_training_start({}, {})
    while True:
        model.collect_rollouts(
            model.env,
            train_freq=model.train_freq,
            action_noise=model.action_noise,
            callback=callback,
            learning_starts=0,
            replay_buffer=model.replay_buffer,
            log_interval=4,
        )
        model.train(gradient_steps=model.gradient_steps, batch_size=model.batch_size)
        yield


def script_args(script, args):
    module = importlib.import_module(script)
    argv = ["--device", args.device, "--env-id", args.env_id]
    # Stable-Baselines3 stores stacks, current and next: 4 GB for 100,000 steps.
    argv += ["--buffer-size", "10000"] if script == "conv_sac" else []
    return module, module.parse_args(argv)


def synchronize(device):
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


class Timed:
    """Wall and CPU seconds per step of a loop in a process of its own, turn by turn.

    make_loop(*loop_args): gives the loop.  huge_pages: ask glibc to use them (Linux).
    """

    def __init__(self, make_loop, loop_args, device, num_threads, huge_pages=False):
        self.pipe, theirs = multiprocessing.Pipe()
        work = (theirs, make_loop, loop_args, device, num_threads)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=serve, args=work, daemon=True)
        before = os.environ.pop("GLIBC_TUNABLES", None)
        if huge_pages:
            os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        self.process.start()
        os.environ.pop("GLIBC_TUNABLES", None)
        if before is not None:
            os.environ["GLIBC_TUNABLES"] = before
        theirs.close()
        self.pipe.recv()  # ready
        self.wall, self.cpu = [], []

    def turn(self, steps):
        self.pipe.send(steps)
        wall, cpu = self.pipe.recv()
        self.wall.append(wall / steps), self.cpu.append(cpu / steps)

    def close(self):
        self.pipe.send(0)
        self.process.join()


def serve(pipe, make_loop, loop_args, device, num_threads):
    """The other side of `Timed`: waits while it is not its turn."""
    import torch

    torch.set_num_threads(num_threads)
    loop = make_loop(*loop_args)
    for _ in range(20):
        next(loop)
    pipe.send(None)
    while steps := pipe.recv():
        synchronize(device)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(loop)
        synchronize(device)
        pipe.send((time.perf_counter() - wall, time.process_time() - cpu))


# ---- Matrix products alone ----


def matmul_calls(script, args):
    """The matrix products of one update as calls without arguments, by recording them."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    products = {aten.mm.default, aten.addmm.default}
    products |= {aten.convolution.default, aten.convolution_backward.default}
    recorded = []

    class Record(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, operands=(), options=None):
            if func in products:
                recorded.append((func, [detached(x) for x in operands]))
            return func(*operands, **options or {})

    loop = run_ours(script, args)
    for _ in range(4):
        next(loop)
    delays = 2 if script == "td3" else 1  # its two kinds of updates
    with Record():
        for _ in range(delays):
            next(loop)
    return recorded, delays


def detached(x):
    return x.detach() if hasattr(x, "detach") else x


def update_and_matmul_seconds(script, args):
    """Seconds of one update, and of its matrix products alone, each the best of many."""
    import torch

    module, its = script_args(script, args)
    recorded, delays = matmul_calls(script, args)
    torch.manual_seed(0)
    obs_dim, action_dim = dims(module, its)[:2]
    its.target_entropy = -float(action_dim)
    agent = module.Agent(obs_dim, action_dim, its)
    optimizers = module.make_optimizers(agent, its)
    b = its.batch_size
    obs_shape = (b, *np.atleast_1d(obs_dim).tolist())
    shapes = obs_shape, (b, action_dim), (b, 1), obs_shape, (b, 1)
    batch = [torch.rand(shape, device=its.device) for shape in shapes]
    flags = [[False], [True]] if script == "td3" else [[]]

    def updates():
        for flag in flags:
            module.update(agent, optimizers, batch, its, *flag)

    @torch.no_grad()
    def products():
        for func, operands in recorded:
            func(*operands)

    best = []
    for call, count in ((updates, len(flags)), (products, delays)):
        times = []
        for _ in range(60):
            synchronize(its.device)
            start = time.perf_counter()
            call()
            synchronize(its.device)
            times.append((time.perf_counter() - start) / count)
        best.append(min(times))
    return best


def dims(module, its):
    """obs_dim, or (C, H, W) of pictures; action_dim; of pictures also the frames of a stack."""
    from common.envs import check_flat, make_env

    env = make_env(its.env_id)
    pixels = hasattr(module, "check_pixels")
    shape = (*module.check_pixels(env, its), its.frame_stack) if pixels else check_flat(env)
    env.close()
    return shape


# ---- Tables ----


def quantiles(values):
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def compare(args):
    import torch

    first, second = ("compiled", "eager") if args.compile else ("ours", "SB3")
    print(
        f"| script | threads | {first}, steps/s | {second}, steps/s | ratio | ratio of CPU time "
        "| update, ms | matmul, % |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for script in args.scripts:
        for num_threads in args.num_threads:
            torch.set_num_threads(num_threads)
            ours_huge = args.huge_pages != "none"
            other_huge = ours_huge if args.compile else args.huge_pages == "both"
            other = (run_ours, (script, args)) if args.compile else (run_sb3, (script, args))
            a = Timed(run_ours, (script, args, args.compile), args.device, num_threads, ours_huge)
            b = Timed(*other, args.device, num_threads, other_huge)
            for _ in range(args.turns):
                a.turn(args.steps), b.turn(args.steps)
            a.close(), b.close()
            rates = [1 / statistics.median(x.wall) for x in (a, b)]
            wall = quantiles(np.divide(b.wall, a.wall))
            cpu = quantiles(np.divide(b.cpu, a.cpu))
            update, products = update_and_matmul_seconds(script, args)
            print(
                f"| {script} | {num_threads} | {rates[0]:.1f} | {rates[1]:.1f} | {wall} | {cpu} "
                f"| {1e3 * update:.2f} | {100 * products / update:.0f} |",
                flush=True,
            )


def growth(args):
    """Time of sampling and updating with 1,000 steps stored and with a million, in turns."""
    import torch

    torch.set_num_threads(args.num_threads[0])
    print("| script | 1,000 steps stored, ms | 1,000,000, ms | ratio |\n|---|---|---|---|")
    for script in args.scripts:
        module, its = script_args(script, args)
        obs_dim, action_dim = dims(module, its)
        its.target_entropy = -float(action_dim)
        agent = module.Agent(obs_dim, action_dim, its)
        optimizers = module.make_optimizers(agent, its)
        rng = np.random.default_rng(0)
        buffers = [fill(module, 1_000_000, n, obs_dim, action_dim) for n in (1000, 999_000)]
        times = [[], []]
        for _ in range(2000):
            for which in (0, 1):
                start = time.perf_counter()
                batch = [x.to(its.device) for x in buffers[which].sample(its.batch_size, rng)]
                module.update(agent, optimizers, batch, its, *([True] if script == "td3" else []))
                synchronize(its.device)
                times[which].append(time.perf_counter() - start)
        early, late = (1e3 * statistics.median(x) for x in times)
        print(f"| {script} | {early:.2f} | {late:.2f} | {late / early:.3f} |", flush=True)


def fill(module, capacity, num_steps, obs_dim, action_dim):
    """A buffer with steps of episodes of 1,000, written through its own `add`."""
    buffer, rng = module.ReplayBuffer(capacity, obs_dim, action_dim), np.random.default_rng(0)
    obs = rng.standard_normal((1001, obs_dim)).astype(np.float32)
    action = np.zeros(action_dim, np.float32)
    for k in range(num_steps):
        t = k % 999  # 999 steps and the last observation
        buffer.add(obs[t], action, 0.0, obs[t + 1], False, t == 998)
    return buffer


def main(args):
    print(machine())
    growth(args) if args.growth else compare(args)


if __name__ == "__main__":
    run_cli(main, parse_args())
