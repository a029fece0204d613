"""Runs scripts x environments x seeds: on this machine, on a Ray cluster or as a SLURM array.

    python -m benchmark.sweep --scripts rsac rtd3 --env-ids pendulum-p-v0 --seeds 0 1 2 \\
        -- --total-steps 50000
    python -m benchmark.sweep --config benchmark/configs/paper.txt --scripts rsac --seeds 0 1 2

What follows `--` goes to every run. The same command, started again, finishes what is missing and
repeats nothing. A run is finished when its progress.csv has reached the last step. Otherwise it
continues from its checkpoint; without one, its folder is moved aside and it starts again. All state
is in the run folders.

Docs: docs/sweeps.md
"""

import ctypes
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import string
import subprocess
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmark import (
    ROOT,
    check_env_id,
    child_env,
    find_script,
    move_aside,
    read_curve,
    run_name,
    split_argv,
)
from common.cli import SEED, Parser, integer, number, run_cli
from common.errors import UserError
from common.files import file_name
from common.machine import usable_cores

# What only the tool that starts a script says to it, and why.
OWN = {
    "--seed": "--seeds of this command says it",
    "--env-id": "this command says it",
    "--num-threads": "--threads of this command says it",
    "--run-dir": "this command names the folders",
    "--resume": "give the same command again",
    "--evaluate": "run the script itself",
}
# What may differ between two commands of one run: where, how long, and on what.
FREE = ("--run-dir", "--num-threads", "--device", "--total-steps")
DRAW_EVERY = 1.0  # [s], the table
EARLY = "ended early"  # without an error, but before its last step


def parse_args(argv=None):
    own, options = split_argv(argv)
    parser = Parser(__doc__)
    parser.usage = "%(prog)s [options] [-- arguments of every run]"
    add = parser.add_argument_group("what to run").add_argument
    add("--scripts", nargs="+", metavar="NAME", help="such as rsac, or the path of a file")
    add("--env-ids", nargs="+", metavar="ID", help="environments")
    add("--seeds", nargs="+", type=SEED, metavar="N", help="one run each; SEEDS of --config or 0")
    add("--config", metavar="FILE", help="command lines; --scripts and --env-ids select from it")
    add("--tag", help="added to the script's name in run names, to tell settings apart")
    add("--log-dir", default="runs", help="where the run folders go, and logs/ with their output")
    add = parser.add_argument_group("where to run").add_argument
    add("--threads", type=integer(1), default=1, help="threads of each run")
    add("--workers", type=integer(1), help="runs at a time; cores / threads if not set")
    add("--ray", nargs="?", const="", metavar="ADDRESS", help="run on a Ray cluster")
    add("--cpus-per-run", type=number(0), help="cores that Ray reserves; --threads if not set")
    add("--gpus-per-run", type=number(0), default=0, help="GPUs that Ray reserves; may be 0.25")
    add = parser.add_argument_group("job arrays").add_argument
    add("--list", action="store_true", help="only print the command lines; marks finished ones")
    add("--index", type=integer(0), metavar="K", help="only run number K, here and now")
    args = parser.parse_args(own)
    args.options, args.argv = options, [*own, "--", *options]
    if not args.config and not (args.scripts and args.env_ids):
        parser.error("nothing to run: give --scripts and --env-ids, or --config")
    if args.ray is None and (args.gpus_per_run or args.cpus_per_run is not None):
        parser.error("--gpus-per-run and --cpus-per-run need --ray; use --workers and --threads")
    try:
        check_tag(args.tag or "", "--tag")
    except UserError as error:
        parser.error(str(error))
    return args


def check_tag(tag, where):
    """UserError if this would break the name of a run folder, <env>__<script>-<tag>__<seed>."""
    if re.search("__|[/:]", tag):
        raise UserError(f"{where} {tag}: it becomes part of a file name; no '__', '/' or ':'")


# ---- 1. What to run ----


@dataclass
class Run:
    """One run of a script. Its name, and so its folder, follows from what it does."""

    name: str
    script: Path
    options: list  # of the script, all but those that say where and on how many threads
    total_steps: int | None  # None: the script's default, which its args.json tells
    log_dir: Path
    threads: int
    # Of progress.csv: which version of the file, its curve.
    last_read: tuple = field(default=(None, None), init=False, repr=False, compare=False)

    @property
    def folder(self):
        return self.log_dir / self.name

    @property
    def log(self):
        return self.log_dir / "logs" / f"{self.name}.log"

    def fresh_command(self):
        """The words of the command line that starts this run."""
        where = ["--run-dir", str(self.folder), "--num-threads", str(self.threads)]
        return ["python", str(self.script), *self.options, *where]

    def command(self):
        """The command that finishes this run from where it is now, None if it is finished."""
        if self.finished():
            return None
        if self.has_checkpoint():
            # Arguments come from the checkpoint, the number of threads too: it can change results.
            more = ["--total-steps", str(self.total_steps)] if self.total_steps else []
            device = settings(self.fresh_command()).get("--device")  # a checkpoint does not keep it
            more += ["--device", *device] if device else []
            return ["python", str(self.script), "--resume", str(self.folder), *more]
        if self.folder.exists():
            move_aside(self.folder)  # stopped before its first checkpoint
        return self.fresh_command()

    def has_checkpoint(self):
        return (self.folder / "checkpoint.pt").exists()

    def target(self):
        """The last step, None while it is not known."""
        if self.total_steps:
            return self.total_steps
        try:
            return int(json.loads((self.folder / "args.json").read_text())["total_steps"])
        except (OSError, ValueError, KeyError, TypeError, OverflowError):
            return None

    def curve(self):
        """What progress.csv has so far, None if that is nothing."""
        path = self.folder / "progress.csv"
        try:
            stat = path.stat()
            version = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if version != self.last_read[0]:  # a table of many runs asks every second
                self.last_read = version, read_curve(path)
            return self.last_read[1]
        except (OSError, ValueError):
            return None

    def step(self):
        curve = self.curve()
        return int(curve["global_step"][-1]) if curve else 0

    def finished(self):
        target = self.target()
        return target is not None and self.step() >= target


def make_runs(args):
    """All runs in order, seeds outermost, so that a sweep that is stopped early has every curve.

    Raises UserError for unknown scripts and environments.
    """
    if args.config:
        lines = read_config(args.config)
        names = [find_script(s).stem for s in args.scripts or []]
        for wanted, there in (
            (names, {Path(x[0]).stem for x in lines}),
            (args.env_ids or [], {x[1] for x in lines}),
        ):
            if missing := [name for name in wanted if name not in there]:
                raise UserError(f"{args.config} has nothing for {', '.join(missing)}")
        lines = [x for x in lines if not names or Path(x[0]).stem in names]
        lines = [x for x in lines if not args.env_ids or x[1] in args.env_ids]
        if not lines:
            raise UserError(f"{args.config} has nothing for these --scripts and --env-ids")
    else:
        pairs = [(script, env_id) for env_id in args.env_ids for script in args.scripts]
        lines = [(script, env_id, [], "", [0]) for script, env_id in pairs]
    for env_id in dict.fromkeys(line[1] for line in lines):
        check_env_id(env_id)
    refuse_own(args.options, "after --")
    runs = {}
    for k in range(max(len(args.seeds or line[4]) for line in lines)):
        for script, env_id, options, tag, seeds in lines:
            seeds = args.seeds or seeds
            if k >= len(seeds):
                continue
            seed = seeds[k]
            path, tag = find_script(script), "-".join(filter(None, [tag, args.tag]))
            check_tag(path.stem, "script")
            method = f"{path.stem}-{tag}" if tag else path.stem
            check_tag(file_name(env_id), "environment")
            name = run_name(env_id, method, seed)
            if name in runs:
                words = "give each seed once, and other settings to another sweep, with a --tag"
                raise UserError(f"{name} is there twice; {words}")
            words = ["--env-id", env_id, "--seed", str(seed), *options, *args.options]
            total_steps = split_options(words)[0].total_steps
            log_dir = Path(args.log_dir)
            runs[name] = Run(name, path, words, total_steps, log_dir, args.threads)
    return list(runs.values())


def read_config(path):
    """The commands of a config file: script, environment, other options, TAG and SEEDS there.

    It is a shell script of the simplest kind: NAME="value", "$NAME", comments, and lines
    `python rsac.py --env-id ...`, so that people can also run it with sh, or copy a line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"--config {path} is not a text file") from error
    variables, commands = {}, []
    for line in text.replace("\\\n", " ").splitlines():
        if line.lstrip().startswith("#"):
            continue
        try:
            words = shlex.split(string.Template(line).substitute(variables), comments=True)
        except (ValueError, KeyError) as error:
            raise UserError(f"{path}: cannot read the line '{line}': {error}") from error
        if len(words) == 1 and "=" in words[0]:
            name, variables[name] = words[0].split("=", 1)
            check_tag(variables.get("TAG", ""), f"{path}: TAG")
        elif words[:1] == ["python"] and len(words) > 1:
            known, rest = split_options(words[2:])
            if not known.env_id:
                raise UserError(f"{path}: the line '{line}' has no --env-id")
            refuse_own(rest, f"in {path}")
            total = ["--total-steps", str(known.total_steps)] if known.total_steps else []
            tag, seeds = variables.get("TAG", ""), read_seeds(variables.get("SEEDS", "0"), path)
            commands.append((words[1], known.env_id, rest + total, tag, seeds))
        elif words:
            raise UserError(f"{path}: '{line}' is not a line `python SCRIPT.py --env-id ...`")
    return commands


def read_seeds(text, path):
    """The seeds in a line such as SEEDS="0 1 2". Raises UserError."""
    try:
        seeds = [SEED(word) for word in text.split()]
    except ArgumentTypeError as error:
        raise UserError(f"{path}: a seed in SEEDS {error}") from error
    if not seeds:
        raise UserError(f"{path}: SEEDS is empty")
    return seeds


def split_options(words):
    """--env-id and --total-steps of a script, as a namespace, and all others, as a list."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--env-id")
    parser.add_argument("--total-steps", type=integer(1))
    parser.error = lambda message: (_ for _ in ()).throw(UserError(message))
    return parser.parse_known_args(words)


def settings(command):
    """Option -> its values as typed, of a command `python SCRIPT --option value ...`."""
    script = Path(command[1])  # of this repository, if there is none here
    found = {"script": [str((script if script.exists() else ROOT / script).resolve())]}
    name = "script"
    for word in command[2:]:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        else:
            found[name].append(word)
    return found


def refuse_own(words, where):
    """UserError if options for a script name what the sweep itself sets."""
    for name in settings(["python", "", *words]):
        if name in OWN:
            raise UserError(f"{name} {where} is not allowed: {OWN[name]}")


def check_same(run):
    """UserError if the run folder was made with other arguments than those asked for now."""
    if not run.has_checkpoint() and not run.finished():
        return  # it starts anew, from nothing
    command = made_with(run)
    if command is None:
        raise UserError(
            f"{run.folder} exists, but its run.json does not say how it was made; "
            "use another --log-dir or --tag"
        )
    old, new = settings(command), settings(run.fresh_command())
    # Without --total-steps the script's default counts, of which the sweep knows nothing.
    names = (old | new).keys() - {x for x in FREE if x != "--total-steps" or x in new}
    if differ := sorted(x for x in names if numbers(old.get(x)) != numbers(new.get(x))):
        before, now = (
            " ".join(shlex.join([name, *x[name]]) if name in x else f"no {name}" for name in differ)
            for x in (old, new)
        )
        raise UserError(
            f"{run.folder} was made with {before}, not {now}; use another --tag or --log-dir"
        )


def numbers(values):
    """The values of an option, numbers as such: 1e-3 is 0.001. None if it is not there."""

    def number_or_text(text):
        try:
            return float(text)
        except ValueError:
            return text

    return values and list(map(number_or_text, values))


def made_with(run):
    """The words of the command line that made a run, by its run.json; None if unknown."""
    try:
        words = shlex.split(str(json.loads((run.folder / "run.json").read_text())[0]["command"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return words if len(words) > 1 and words[0] == "python" else None


# ---- 2. Starting one run ----


def take(run, wait=False):
    """The open, locked log of a run; None if another process works on the run.

    The process that is started inherits the lock, so that even one whose sweep was killed is not
    joined by a second one. wait: until it is free.
    """
    run.log.parent.mkdir(parents=True, exist_ok=True)
    log = open(run.log, "a")  # noqa: SIM115
    try:
        fcntl.flock(log, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        log.close()
        return None
    except OSError as error:  # some shared file systems
        raise UserError(
            f"{run.log} cannot be locked ({error.strerror}); choose a --log-dir on another disk"
        ) from error
    return log


def announce(log, command):
    """Writes the command line into the log, which a new run starts anew."""
    if "--resume" not in command:
        log.truncate(0)
    log.write(f"$ {shlex.join(command)}\n")
    log.flush()


def end_with_parent():
    """Lets this process be asked to stop if the one that started it dies (on Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def start(run, command, log, output):
    """The process of a run, which holds the lock of its log for as long as it lives."""
    return subprocess.Popen(
        [sys.executable, *command[1:]],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        env=child_env(run.threads),
        pass_fds=(log.fileno(),),
        # Ctrl-C reaches the sweep alone, which then asks every run once to save and stop.
        start_new_session=True,
        preexec_fn=end_with_parent,  # safe, as it waits for no other thread
    )


def run_here(run):
    """Runs it as if this process were the run: its output, signals and exit code."""
    log = take(run)
    if log is None:
        print(f"waiting: another process works on {run.name}", file=sys.stderr, flush=True)
        log = take(run, wait=True)
    check_same(run)
    command = run.command()
    if command is None:
        print(f"{run.name} is finished")
        return 0
    announce(log, command)
    print(shlex.join(command), flush=True)
    process = start(run, command, log, None)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda signum, _: process.send_signal(signum))
    code = process.wait()
    if code == 0 and not run.finished():
        print(f"{run.name} {EARLY}", file=sys.stderr)
        return 1
    return code if code >= 0 else 128 - code


# ---- 3. Where to run ----


class LocalPool:
    """Processes on this machine. `poll` starts what fits and returns what has ended."""

    def __init__(self, runs, workers):
        self.waiting, self.workers = deque(runs), workers
        self.again = 0.0  # when to look at those that are locked
        self.running = {}  # run name -> (run, process, log)

    def poll(self):
        """List of (run, exit code) of the runs that ended since the last call; instead of the code
        the error of one that could not begin."""
        ended = []
        for name, (run, process, log) in list(self.running.items()):
            if process.poll() is not None:
                early = process.returncode == 0 and not run.finished()
                ended.append((run, EARLY if early else process.returncode))
                log.close()
                del self.running[name]
        for _ in range(len(self.waiting) if time.monotonic() >= self.again else 0):
            if len(self.running) >= self.workers:
                break
            run = self.waiting.popleft()
            log = None
            try:
                log = take(run)
                if log is None:  # another sweep is at it, or a run that outlived its sweep
                    self.waiting.append(run)
                    self.again = time.monotonic() + 1
                    continue
                check_same(run)  # again: another sweep may have made it since
                command = run.command()
                if command is not None:
                    announce(log, command)
                    self.running[run.name] = run, start(run, command, log, log), log
                    continue
                ended.append((run, 0))
            except (UserError, OSError) as error:  # such as a full disk
                ended.append((run, error))
            if log is not None:
                with suppress(OSError):  # what it could not write before, it cannot write now
                    log.close()
        return ended

    def is_running(self, run):
        return run.name in self.running

    def stop(self):
        """Asks all runs to save and stop, and waits for them."""
        for _, process, _ in self.running.values():
            process.terminate()
        for _, process, _ in self.running.values():
            process.wait()


class RayPool:
    """Tasks on a Ray cluster whose nodes see the same files. Each is one `--index K`.

    Ray starts a task again, elsewhere, when its worker or node has died; the run then goes on
    from its checkpoint.
    """

    def __init__(self, runs, numbers, args):
        self.ray = connect_ray(args.ray)
        cpus = args.threads if args.cpus_per_run is None else args.cpus_per_run
        self.started = time.time()
        task = self.ray.remote(num_cpus=cpus, num_gpus=args.gpus_per_run, max_retries=-1)(_ray_task)
        self.refs = {}
        for run, k in zip(runs, numbers, strict=True):
            run.log.parent.mkdir(parents=True, exist_ok=True)
            command = ["-m", "benchmark.sweep", "--index", str(k), *args.argv]
            ref = task.remote([sys.executable, *command], str(run.log.absolute()), os.getcwd())
            self.refs[ref] = run

    def poll(self):
        if not self.refs:
            return []
        # Waits, since after each call the sweep looks at the shared disk for every run.
        done, _ = self.ray.wait(list(self.refs), num_returns=len(self.refs), timeout=1)
        ended = []
        for ref in done:
            try:
                code = self.ray.get(ref)
            except self.ray.exceptions.RayError as error:
                code = f"Ray: {str(error).splitlines()[0]}"
            ended.append((self.refs.pop(ref), code))
        return ended

    def is_running(self, run):
        return run.log.exists() and run.log.stat().st_mtime >= self.started

    def stop(self):
        """Asks all runs to save and stop, and waits for them."""
        for ref in self.refs:
            self.ray.cancel(ref)  # KeyboardInterrupt in its task; one that waits never starts
        self.ray.wait(list(self.refs), num_returns=len(self.refs))
        self.ray.shutdown()


def _ray_task(command, log, folder):
    """Runs on a node. Imports here: Ray sends this function, not this file."""
    import signal
    import subprocess
    import time

    # A worker of a cluster that was started in the background ignores it, and so `ray.cancel`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(log, "a") as out:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                time.sleep(0.2)  # where `RayPool.stop` can interrupt
        finally:
            process.terminate()  # does nothing to one that has ended
            process.wait()
        return process.returncode


def connect_ray(address):
    """The ray module, connected. Raises UserError, within 10 s, if no cluster answers."""
    hint = "start one with `ray start --head`, or leave the address out to start it here"
    if address and address not in ("auto", "local"):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=3).close()
        except (OSError, ValueError) as error:
            raise UserError(f"no Ray cluster answers at {address} ({error}); {hint}") from error
    try:
        import ray
    except ImportError as error:
        raise UserError("--ray needs Ray: pip install -r requirements-ray.txt") from error
    if address and ":" in address and not address.startswith("ray://"):
        # Something else may listen there, and ray.init would wait for minutes.
        check = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
        try:
            subprocess.run(check, check=True, capture_output=True, timeout=5)
        except subprocess.SubprocessError as error:
            raise UserError(f"what answers at {address} is no Ray cluster; {hint}") from error
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"no Ray cluster answers ({reason}); {hint}") from error
    return ray


# ---- 4. Watching ----


class Table:
    """The runs, live on a terminal; elsewhere a line for every change."""

    def __init__(self, runs, stream=sys.stderr):
        self.runs, self.stream = runs, stream
        self.states = {run.name: "waiting" for run in runs}
        self.live, self.height, self.drawn = stream.isatty(), 0, 0.0
        self.start = time.monotonic()

    def change(self, run, state):
        if self.states[run.name] != state:
            self.states[run.name] = state
            if not self.live and state != "waiting":
                print(self.row(run), file=self.stream, flush=True)

    def draw(self, last=False):
        """Draws the table anew, at most once a second."""
        if not self.live or (time.monotonic() - self.drawn < DRAW_EVERY and not last):
            return
        self.drawn = time.monotonic()
        size = shutil.get_terminal_size()
        order = {"running": 0, "failed": 1, "waiting": 2, "finished": 3}
        shown = sorted(self.runs, key=lambda run: order[self.states[run.name]])
        rows = [self.row(run, size.columns - 1) for run in shown[: max(3, size.lines - 4)]]
        if len(shown) > len(rows):
            rows.append(f"... and {len(shown) - len(rows)} more")
        text = "\n".join([line[: size.columns - 1] for line in (HEADER, *rows, self.summary())])
        up = f"\x1b[{self.height}F\x1b[J" if self.height else ""
        print(up + text, file=self.stream, flush=True)
        self.height = text.count("\n") + 1

    def row(self, run, width=1000):
        """One line: state, steps, rate, last return, time left, and the name or its end."""
        state, curve, total = self.states[run.name], None, run.target()
        if state != "waiting":
            curve = run.curve()
        step = int(curve["global_step"][-1]) if curve else 0
        rate = curve["steps_per_second"][-1] if curve and "steps_per_second" in curve else 0
        left = (total - step) / rate if total and rate and state == "running" else None
        numbers = (
            f"{state:<9}{step:>9} / {total or '?':<9}{rate:>8.0f}"
            f"{curve['eval_return_mean'][-1] if curve else float('nan'):>11.1f}{clock(left):>10}  "
        )
        room = max(1, width - len(numbers))
        name = run.name if len(run.name) <= room else f"…{run.name[1 - room :]}"
        return f"{numbers}{name}"[:width]

    def summary(self):
        """Counts of states and how long the rest may take."""
        counts = Counter(self.states.values())
        spent, left = time.monotonic() - self.start, None
        rates, steps = [], 0
        for run in self.runs:
            if self.states[run.name] in ("running", "waiting") and steps is not None:
                curve, total = run.curve(), run.target()
                steps = None if total is None else steps + total - run.step()
                if self.states[run.name] == "running" and curve:
                    rates.append(curve.get("steps_per_second", [0])[-1])
        if steps is not None and any(rates):
            left = steps / sum(rates)  # all that run now, together
        text = ", ".join(f"{count} {state}" for state, count in counts.items())
        more = f", about {clock(left)} left" if steps != 0 else ""
        return f"{text}; {clock(spent)} spent{more}"


HEADER = f"{'state':<9}{'steps':>9}   {'of':<9}{'steps/s':>8}{'return':>11}{'left':>10}  run"


def clock(seconds):
    """3725 -> '1:02:05'."""
    if seconds is None:
        return "?"
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


def last_lines(path, n=5):
    """The last lines of a log, those of progress bars left out."""
    text = path.read_text(errors="replace") if path.exists() else ""
    lines = [line.rstrip() for line in re.split(r"[\r\n]+", text)]
    return [line for line in lines if line and not re.search(r"\d%\|", line)][-n:]


def load(start, seconds, cores):
    """How busy the runs kept the cores since os.times() was `start`, and the sweep itself."""
    spent = os.times()
    runs = spent.children_user + spent.children_system
    own = (spent.user - start.user) + (spent.system - start.system)
    text = f"{runs / seconds:.2f} of {cores} cores were busy with runs"
    return f"{text}, {own / seconds:.3f} with the sweep itself"


# ---- 5. The sweep ----


def main(args):
    runs = make_runs(args)
    if args.list:
        for k, run in enumerate(runs):
            done = "  # finished" if run.finished() else ""
            try:
                check_same(run)
            except UserError as error:
                done = f"  # {error}"
            print(f"{k}: {shlex.join(run.fresh_command())}{done}")
        return 0
    if args.index is not None:
        if args.index >= len(runs):
            raise UserError(
                f"--index {args.index} is not one of the {len(runs)} runs, 0 is the first"
            )
        if args.ray is not None:  # this is a task on a node
            end_with_parent()
        return run_here(runs[args.index])
    for run in runs:
        check_same(run)

    missing = [(k, run) for k, run in enumerate(runs) if not run.finished()]
    cores = usable_cores()
    workers = args.workers or max(1, cores // args.threads)
    print(
        f"{len(runs)} runs, {len(runs) - len(missing)} of them finished, in {args.log_dir}; "
        + ("on Ray" if args.ray is not None else f"{workers} at a time on {cores} cores")
        + f", {args.threads} threads each",
        file=sys.stderr,
    )
    if not missing:
        return 0
    Path(args.log_dir, "logs").mkdir(parents=True, exist_ok=True)
    handle_signals()
    try:
        pool = (
            LocalPool([run for _, run in missing], workers)
            if args.ray is None
            else RayPool([run for _, run in missing], [k for k, _ in missing], args)
        )
    except KeyboardInterrupt:
        return 130
    handle_signals()  # Ray has set its own
    table, failed, left = Table([run for _, run in missing]), {}, len(missing)
    times = os.times()
    try:
        while left:
            for run, code in pool.poll():
                left -= 1
                if code != 0:
                    failed[run.name] = code
                table.change(run, "failed" if code else "finished")
            for _, run in missing:
                if table.states[run.name] == "waiting" and pool.is_running(run):
                    table.change(run, "running")
            table.draw()
            if left:
                time.sleep(0.1)
    except KeyboardInterrupt:
        print("\nstopping: every run saves first", file=sys.stderr)
        pool.stop()
        print(f"{left} runs are not finished; the same command continues them", file=sys.stderr)
        return 130
    table.draw(last=True)
    print(table.summary(), file=sys.stderr)
    if args.ray is None:
        print(load(times, time.monotonic() - table.start, cores), file=sys.stderr)
    for _, run in missing:
        if run.name in failed:
            print(f"\nfailed: {run.name} ({failed[run.name]}), {run.log}", file=sys.stderr)
            if isinstance(failed[run.name], Exception):  # could not begin: the log is an older one
                continue
            for line in last_lines(run.log):
                print(f"    {line}", file=sys.stderr)
    return 1 if failed else 0


def handle_signals():
    """Ctrl-C and a scheduler's request to end both raise KeyboardInterrupt."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, _interrupt)


def _interrupt(signum, frame):
    for asked in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(asked, signal.SIG_IGN)  # asked twice: still wait for the checkpoints
    raise KeyboardInterrupt


if __name__ == "__main__":
    run_cli(main, parse_args())
