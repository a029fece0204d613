"""Milliseconds of one update on the CPU and on a GPU, for batches and contexts of several sizes.

    python -m benchmark.gpu                                   rsac, 8 to 256 sequences
    python -m benchmark.gpu --context-lengths 0 200 936       windows of 64, 264 and 1,000 steps
    python -m benchmark.gpu --scripts sac --batch-sizes 256 1024 4096
    python -m benchmark.gpu --devices cpu                     without a GPU

The replay buffer holds random numbers in episodes of 1,000 steps, observations and actions as
large as those of HalfCheetah (17 and 6). Each time is the median of five blocks of updates; on a
GPU, CUDA events measure it. "captured" is the same update recorded as one CUDA graph and replayed,
which leaves out Python and the launches of its operations; all batches must then have one shape.
"draw" is the time to draw a batch from the replay buffer and copy it to the device.
"""

import itertools
import statistics
import time

import numpy as np

from benchmark import RECURRENT, compare_sb3, import_script, machine
from common.cli import Parser, integer, number, run_cli

SCRIPTS = (*compare_sb3.SCRIPTS, *RECURRENT)
OBS_DIM, ACTION_DIM = 17, 6  # HalfCheetah
EPISODE = 1000  # [env steps]
STORED = 20_000  # [env steps]
BLOCKS = 5


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("--scripts", nargs="+", choices=SCRIPTS, default=["rsac"], help="ours to time")
    sizes, lengths = [8, 32, 128, 256], [200]
    add("--batch-sizes", type=integer(1), nargs="+", default=sizes, metavar="B", help="batches")
    text = "steps of context before the windows, of recurrent scripts"
    add("--context-lengths", type=integer(0), nargs="+", default=lengths, metavar="K", help=text)
    devices = ["cpu", "cuda"]
    add("--devices", nargs="+", choices=devices, default=devices, help="where to run it")
    add("--num-threads", type=integer(1), default=2, help="threads of PyTorch on the CPU")
    add("--seconds", type=number(0.001), default=0.3, help="length of a block")
    return parser.parse_args(argv)


def make(script, device, batch_size=8, context_length=200, num_threads=1):
    """What an update needs: the module of a script, its agent and optimizers, a function that draws
    a batch, and its arguments."""
    import torch

    module = import_script(script)
    words = ["--device", device, "--batch-size", batch_size, "--num-threads", num_threads]
    recurrent = script in RECURRENT
    words += ["--context-length", context_length] if recurrent else []
    args = module.parse_args([str(word) for word in words])
    args.target_entropy = -ACTION_DIM
    torch.set_num_threads(num_threads)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    obs_dim = OBS_DIM + ACTION_DIM * recurrent  # the memory reads the previous action, too
    agent = module.Agent(obs_dim, ACTION_DIM, args)
    buffer = module.ReplayBuffer(STORED, obs_dim, ACTION_DIM)
    for k in range(STORED):
        obs, next_obs = rng.normal(size=(2, 1, obs_dim))
        action, reward = rng.uniform(-1, 1, (1, ACTION_DIM)), rng.normal(size=1)
        ended = [np.array([(k + 1) % EPISODE == 0])] if recurrent else []
        buffer.add(obs, action, reward, next_obs, np.array([False]), *ended)
    window = [args.sequence_length, args.context_length] if recurrent else []

    def draw():
        return [x.to(device) for x in buffer.sample(args.batch_size, *window, rng)]

    return module, agent, module.make_optimizers(agent, args), draw, args


def update_call(module, agent, optimizers, batch, args):
    """One update with all its parts, as a function without arguments."""
    every_part = [True] if "td3" in module.SCRIPT else []
    return lambda: module.update(agent, optimizers, batch, args, *every_part)


def captured(call, optimizers):
    """The same call as one CUDA graph: its operations are launched together."""
    import torch

    for group in itertools.chain(*(x.param_groups for x in optimizers.values())):
        group["capturable"] = True
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # before a capture, work on another stream than the default
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def milliseconds(call, device, seconds):
    """Of one call, the median of BLOCKS blocks that take about `seconds` each."""
    import torch

    def block(count):
        if device == "cpu":
            start = time.perf_counter()
            for _ in range(count):
                call()
            return 1e3 * (time.perf_counter() - start)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    block(3)  # the first calls prepare
    count = max(1, round(1e3 * seconds / (block(3) / 3)))
    return statistics.median(block(count) / count for _ in range(BLOCKS))


def main(args):
    import torch

    from common.checkpoint import check_device

    for device in args.devices:
        check_device(device)
    gpus = [torch.cuda.get_device_name(device) for device in args.devices if device != "cpu"]
    print(", ".join([machine(), *gpus]))
    print("| script | batch | context | device | draw, ms | update, ms | captured, ms |")
    print("|---|---|---|---|---|---|---|")
    for script, size in itertools.product(args.scripts, args.batch_sizes):
        for length in args.context_lengths if script in RECURRENT else [None]:
            for device in args.devices:
                made = make(script, device, size, length, args.num_threads)
                module, agent, optimizers, draw, its = made
                call = update_call(module, agent, optimizers, draw(), its)
                times = [milliseconds(x, device, args.seconds) for x in (draw, call)]
                if device != "cpu":
                    graph = captured(call, optimizers)
                    times.append(milliseconds(graph, device, args.seconds))
                cells = [script, size, "-" if length is None else length, device]
                cells += [*(f"{x:.2f}" for x in times), "-"][:3]
                print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    run_cli(main, parse_args())
