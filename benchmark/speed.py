"""Steps per second of ours and of Stable-Baselines3 at the same work, in turns.

    python -m benchmark.speed                         the table: ddpg, td3, sac on HalfCheetah-v5
    python -m benchmark.speed --turns 20              steadier
    python -m benchmark.speed --num-threads 1 2       which number of threads is the fastest
    python -m benchmark.speed --tuned both            both as a run of ours sets up the CPU
    python -m benchmark.speed --growth                does an update slow down as memory fills?
    python -m benchmark.speed --scripts conv_sac --env-id dmc-cartpole-balance-mdp-img-concat3-v0
    python -m benchmark.speed --scripts rsac rdpg rtd3 rsac_sharing --env-id pendulum-p-v0
    python -m benchmark.speed --scripts sac -- --batch-size 100

The same work: networks of the same size, the same batch size, one environment step and one update
per step, whatever --num-envs, --update-every and --updates-per-step say. What stands after `--`
goes to the scripts, and to Stable-Baselines3 where it has the like; all else are the scripts'
defaults. Ours takes its --learning-starts random steps first, so that recurrent scripts have whole
episodes to learn from; these have no peer in Stable-Baselines3. A turn is some steps of one, then
of the other; the ratio is the median over turns, its spread the 10th to 90th percentile. Other
programs on the machine slow both down, but blur the numbers: measure on an idle machine. The ratio
of CPU time is blurred less; it counts all threads, waiting ones too.

"matmul" is the time of an update that its matrix products, convolutions and LSTM layers take alone,
in percent: what is left to gain is the rest. They are recorded in an update and called again with
the same operands. LSTMs count whole on the CPU, where oneDNN has them as one operation, but not on
a GPU; of a GRU or a plain RNN the matrix products count. From pixels both have the same encoder,
Stable-Baselines3 in its default way: one for the actor and one for the critics, and no random
shifts.
"""

import importlib
import itertools
import multiprocessing
import statistics
import sys
import time

import numpy as np

from benchmark import RECURRENT, check_package, machine
from benchmark.compare_sb3 import SCRIPTS, make_sb3
from common.cli import Parser, integer, run_cli

WHO = ("nobody", "ours", "both")


def parse_args(argv=None):
    argv = sys.argv[1:] if argv is None else list(argv)
    cut = argv.index("--") if "--" in argv else len(argv)
    parser = Parser(__doc__)
    parser.prog = "python -m benchmark.speed"
    parser.usage = "%(prog)s [options] [-- arguments of the scripts]"
    add, known = parser.add_argument, [*SCRIPTS, "conv_sac", *RECURRENT]
    add("--scripts", nargs="+", choices=known, default=list(SCRIPTS), help="ours")
    add("--env-id", default="HalfCheetah-v5", metavar="ID", help="environment")
    add("--turns", type=integer(2), default=10, help="of each, alternately")
    add("--steps", type=integer(2), default=200, help="in a turn [env steps]")
    add("--num-threads", type=integer(1), nargs="+", default=[2], metavar="N", help="of PyTorch")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--compile", action="store_true", help="ours with --compile beside ours without")
    add("--tuned", choices=WHO, default="ours", help="who runs with `tune_cpu` of common/run.py")
    add("--growth", action="store_true", help="time per update, small and full memory")
    args = parser.parse_args(argv[:cut])
    args.options = argv[cut + 1 :]
    for name in ("--env-id", "--num-threads", "--device", "--compile"):
        if name in args.options:
            parser.error(f"{name} is an argument of this program, too: write it before --")
    if args.compile and not set(args.scripts) <= set(SCRIPTS):
        parser.error(f"--compile is for {', '.join(SCRIPTS)}")
    if args.growth and "conv_sac" in args.scripts:
        parser.error("--growth is not for conv_sac: a million pictures take tens of gigabytes")
    return args


# ---- What is timed: generators that do one environment step and one update at a time ----


def run_ours(script, args, compiled=False):
    """The loop of the script without evaluation and files; yields its `Learner` at each update."""
    learner = Learner(script, args, compiled)
    module, its, agent, env = learner.module, learner.its, learner.agent, learner.env
    losses = Losses()
    obs, _ = env.reset()
    history, hidden = learner.join(obs, np.zeros(env.action_space.shape), 0), None
    for global_step in itertools.count():
        action, hidden = learner.act(history, hidden)
        if global_step < its.learning_starts:
            action = learner.rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        learner.add(learner.buffer, hidden, obs, action, reward, next_obs, terminated, truncated)
        obs, ended = next_obs, terminated or truncated
        if ended:
            if learner.recurrent:
                module.forget(hidden, ended), agent.refresh_behaviour()
            obs, _ = env.reset()
        history = learner.join(obs, action, reward, ended)
        if global_step >= its.learning_starts:
            losses.add_losses(0, **learner.learn(learner.buffer))
            yield learner


class Learner:
    """What `main` of a script puts together, and how it learns; with or without memory."""

    def __init__(self, script, args, compiled=False):
        import torch

        self.module, self.its, self.env, self.dims = prepare(script, args)
        torch.manual_seed(0)
        self.rng, self.num_updates = np.random.default_rng(0), 0
        self.recurrent = script in RECURRENT
        self.period = getattr(self.its, "policy_delay", 1)  # updates until the actor learns, too
        self.agent = self.module.Agent(*self.dims[:2], self.its)
        self.optimizers = self.module.make_optimizers(self.agent, self.its)
        self.buffer = self.module.ReplayBuffer(self.its.buffer_size, *self.dims)
        self.function = self.module.update
        if compiled:
            from common.compile import compile_update

            self.function = compile_update(self.function, self.optimizers, self.its.device)

    def join(self, obs, *last):
        """What the agent acts on: `obs`, with memory also the last action and reward."""
        return self.module.join(obs, *last) if self.recurrent else obs

    def act(self, history, hidden=None):
        """The action and the hidden state, which is None without memory."""
        agent = self.agent
        return agent.act(history, hidden) if self.recurrent else (agent.act(history), None)

    def add(self, buffer, hidden, *step):
        """Stores a step, with the hidden state where the script may keep it."""
        buffer.add(*step, *([hidden] if hasattr(self.its, "stored_state") else []))

    def sample(self, buffer):
        """A batch as the script draws it, on its device."""
        its, window = self.its, ()
        if self.recurrent:
            window = (its.sequence_length, its.burn_in)
        elif hasattr(its, "n_step"):
            window = (its.n_step, its.gamma)
        return [x.to(its.device) for x in buffer.sample(its.batch_size, *window, self.rng)]

    def update(self, batch):
        """One update; with a policy delay, the actor learns in every `period`-th."""
        self.num_updates += 1
        flag = [self.num_updates % self.period == 0] if hasattr(self.its, "policy_delay") else []
        return self.function(self.agent, self.optimizers, batch, self.its, *flag)

    def learn(self, buffer):
        """Samples and updates, after what the script sets from its random steps."""
        module, its, first = self.module, self.its, self.num_updates == 0
        if first and hasattr(module, "start_alpha") and its.alpha is None:
            module.start_alpha(self.agent, buffer)
        if first and self.recurrent and its.rescale:
            module.start_memory(self.agent, buffer)
        return self.update(self.sample(buffer))


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

    _, its, env, _ = prepare(script, args)
    its.learning_starts = 0
    model = make_sb3(script, env, its)
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


def prepare(script, args):
    """The module of a script, its arguments, its environment, and the shapes of its replay buffer.

    The shapes are what `ReplayBuffer` takes after its capacity: obs_dim, or (C, H, W) of pictures;
    action_dim; 1 environment; then the frames of a stack, or the size of stored hidden states.
    """
    from common.envs import check_flat, check_sequences, make_env

    module = importlib.import_module(script)
    # Stable-Baselines3 stores stacks, current and next: 4 GB for 100,000 steps.
    argv = ["--buffer-size", "10000"] if script == "conv_sac" else []
    argv += ["--device", args.device, "--env-id", args.env_id, *args.options]
    program, sys.argv[0] = sys.argv[0], f"{script}.py"  # begins the line about a wrong argument
    its = module.parse_args(argv)
    sys.argv[0] = program
    its.num_envs = its.update_every = its.updates_per_step = 1
    env = make_env(its.env_id)
    if script == "conv_sac":
        dims = (*module.check_pixels(env, its), 1, its.frame_stack)
    else:
        dims = (*check_flat(env), 1)
    if script in RECURRENT:
        check_sequences(env, its)
    if getattr(its, "stored_state", False):
        dims += (its.rnn_layers * its.rnn_hidden * (2 if its.rnn == "lstm" else 1),)
    its.target_entropy = -float(dims[1])
    return module, its, env, dims


def synchronize(device):
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)


class Timed:
    """Wall and CPU seconds per step of a loop in a process of its own, turn by turn.

    make_loop(*loop_args): gives the loop.  tuned: as a run of ours is, by `common.run.tune_cpu`.
    """

    def __init__(self, make_loop, loop_args, tuned, device, num_threads):
        self.pipe, theirs = multiprocessing.Pipe()
        work = (theirs, make_loop, loop_args, tuned, device, num_threads)
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=serve, args=work, daemon=True)
        self.process.start()
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


def serve(pipe, make_loop, loop_args, tuned, device, num_threads):
    """The other side of `Timed`: waits while it is not its turn."""
    import torch

    from common.run import tune_cpu

    torch.set_num_threads(num_threads)
    if tuned:
        tune_cpu()
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


def update_and_matmul_seconds(script, args):
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

    learner = next(run_ours(script, args))
    # The longest of some: windows near the start of an episode have a shorter warm-up.
    batches = [learner.sample(learner.buffer) for _ in range(20)]
    batch = max(batches, key=lambda batch: batch[0].shape[1])

    def updates():
        for _ in range(learner.period):
            learner.update(batch)

    @torch.no_grad()
    def matmuls():
        for func, operands in recorded:
            func(*operands)

    with Record():
        updates()
    best = [float("inf"), float("inf")]
    for _ in range(6 * args.turns):
        for k, call in enumerate((updates, matmuls)):
            synchronize(args.device)
            start = time.perf_counter()
            call()
            synchronize(args.device)
            best[k] = min(best[k], (time.perf_counter() - start) / learner.period)
    return best


def detached(x):
    return x.detach() if hasattr(x, "detach") else x


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
            ours, both = args.tuned != "nobody", args.tuned == "both"
            sides = [(run_ours, (script, args, args.compile), ours)]
            if args.compile:
                sides.append((run_ours, (script, args), ours))
            elif script not in RECURRENT:
                sides.append((run_sb3, (script, args), both))
            timed = [Timed(*side, args.device, num_threads) for side in sides]
            for _ in range(args.turns):
                for side in timed:
                    side.turn(args.steps)
            for side in timed:
                side.close()
            cells = [f"{1 / statistics.median(side.wall):.1f}" for side in timed]
            for a, b in itertools.pairwise(timed):
                cells += [quantiles(np.divide(b.wall, a.wall)), quantiles(np.divide(b.cpu, a.cpu))]
            cells += ["-"] * (4 - len(cells))
            update, products = update_and_matmul_seconds(script, args)
            cells += [f"{1e3 * update:.2f}", f"{100 * products / update:.0f}"]
            print(f"| {' | '.join([script, str(num_threads), *cells])} |", flush=True)


def growth(args):
    """Time of sampling and updating with 1,000 steps stored and with a million, alternately.

    The median of as many as there are steps in all turns.
    """
    import torch

    torch.set_num_threads(args.num_threads[0])
    print("| script | 1,000 steps stored, ms | 1,000,000, ms | ratio |\n|---|---|---|---|")
    for script in args.scripts:
        learner = Learner(script, args)
        buffers = [fill(learner, 1_000_000, num_steps) for num_steps in (1000, 999_000)]
        times = [[], []]
        for _ in range(args.turns * args.steps):
            for which in (0, 1):
                start = time.perf_counter()
                for _ in range(learner.period):
                    learner.learn(buffers[which])
                synchronize(args.device)
                times[which].append((time.perf_counter() - start) / learner.period)
        early, late = (1e3 * statistics.median(x) for x in times)
        print(f"| {script} | {early:.2f} | {late:.2f} | {late / early:.3f} |", flush=True)


def fill(learner, capacity, num_steps):
    """A buffer with steps of episodes up to the time limit, written through its own `add`."""
    obs_dim, action_dim, *_ = learner.dims
    buffer = learner.module.ReplayBuffer(capacity, *learner.dims)
    length = learner.env.spec.max_episode_steps
    obs = learner.rng.standard_normal((length + 1, obs_dim)).astype(np.float32)
    action = np.zeros(action_dim, np.float32)
    _, hidden = learner.act(learner.join(obs[0], action, 0))
    for k in range(num_steps):
        t = k % length
        ended = t == length - 1
        learner.add(buffer, hidden, obs[t], action, 0.0, obs[t + 1], False, ended)
    return buffer


def main(args):
    from common.run import tune_cpu

    if not args.growth and not args.compile and not set(args.scripts) <= set(RECURRENT):
        check_package("stable_baselines3")
    for script in args.scripts:
        prepare(script, args)[2].close()  # what is wrong with an argument is said here
    if args.tuned != "nobody":
        tune_cpu()  # as `set_up_torch` does in a run; here for what this process times
    print(machine())
    growth(args) if args.growth else compare(args)


if __name__ == "__main__":
    run_cli(main, parse_args())
