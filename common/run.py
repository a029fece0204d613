"""What a run shows and leaves: folder, progress.csv, TensorBoard, progress bar, signals."""

import contextlib
import csv
import ctypes
import errno
import io
import json
import math
import os
import platform
import random
import shlex
import shutil
import signal
import statistics
import sys
import threading
import time
from argparse import Namespace
from datetime import datetime
from pathlib import Path

import gymnasium as gym
import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from common import cli
from common.checkpoint import NAME, PREVIOUS, load_checkpoint, save_checkpoint, write_file
from common.envs import make_envs
from common.errors import RunError, UserError
from common.video import Film

COLUMNS = [
    "global_step",
    "num_updates",
    "wall_seconds",
    "train_return_mean",
    "eval_return_mean",
    "eval_return_std",
    "eval_length_mean",
    "steps_per_second",
]


STOP = (signal.SIGINT, signal.SIGTERM)
PROJECT = "recurrent-off-policy-rl"
VERSIONS = {
    "python": platform.python_version(),
    "torch": str(torch.__version__),
    "numpy": np.__version__,
    "gymnasium": gym.__version__,
}


def load_resumed(args, script):
    """The checkpoint that --resume names and the arguments to go on with: (state, args).

    Only --total-steps and how the run is shown may differ from what was saved; an argument that
    was typed and conflicts is refused by name.
    """
    state = load_checkpoint(args.resume, script)
    saved = state["args"]
    refuse_conflicts(args, saved, {"total_steps", "resume", "track", "device", "num_threads"})
    if "total_steps" in args.typed and args.total_steps < saved["total_steps"]:
        raise UserError(
            f"--total-steps {args.total_steps} is less than the run's {saved['total_steps']}; "
            "it may only be raised"
        )
    for name, value in saved.items():
        if name not in args.typed and name != "resume":
            setattr(args, name, value)
    for name in sorted(vars(args).keys() - saved.keys() - {"typed"}):
        option = "--" + name.replace("_", "-")
        cli.notes.append(f"{option} is newer than this run; it goes on with {vars(args)[name]}")
    check_device(args)
    if isinstance(hidden := state.get("hidden"), tuple):
        state["hidden"] = tuple(h.to(args.device) for h in hidden)
    elif hidden is not None:
        state["hidden"] = hidden.to(args.device)
    if state["versions"] != VERSIONS:
        old, new = (
            " ".join(f"{k} {v}" for k, v in x.items()) for x in (state["versions"], VERSIONS)
        )
        cli.notes.append(f"not the same to the last bit any more: saved with {old}, now {new}")
    return state, args


def refuse_conflicts(args, saved, free):
    """UserError if an argument was typed, is none of `free`, and is not what was saved."""
    for name in sorted(set(args.typed) - free):
        if name in saved and getattr(args, name) != saved[name]:
            option = "--" + name.replace("_", "-")
            raise UserError(
                f"{option} {getattr(args, name)} is not the run's {saved[name]}; leave it out"
            )


def set_up_torch(args):
    """Threads, device and seeds, and says which. Raises UserError if the device is not there."""
    check_device(args)
    tune_cpu()
    torch.set_num_threads(args.num_threads)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    cli.notes.append(f"device {args.device}, {args.num_threads} threads, seed {args.seed}")


def tune_cpu():
    """Takes two brakes off the CPU; no result changes. To be called before torch starts threads.

    Numbers below 1e-38 (denormals) count as 0: a CPU is many times slower with them, and behind a
    unit of a ReLU that is dead Adam's running mean shrinks to the smallest one and stays there.

    And the C library is to reuse what one update frees in the next, not hand it back to the
    system: glibc returns large blocks at once, and an update from pixels then gets them again, page
    by page. Nothing to do where the C library has no `mallopt`.
    """
    for dtype in (np.float32, np.float64):
        np.finfo(dtype)  # kept by NumPy, whose older versions warn if they first look later
    torch.set_flush_denormal(True)
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    for option in (-3, -1):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD of malloc.h
        mallopt(option, 2**30)


def check_device(args):
    """UserError if --device is not there."""
    try:
        torch.zeros(1, device=args.device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--device {args.device} is not to be had here ({reason}); try cpu"
        ) from error


def check_memory(num_bytes, args):
    """Says how much memory the replay buffer takes; UserError if this machine has not that much."""
    try:
        text = Path("/proc/meminfo").read_text()
        free = 1024 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):  # not known on this system
        free = float("inf")
    cli.notes.append(f"replay memory: {num_bytes / 2**20:.0f} MiB when full")
    if num_bytes > free:
        raise UserError(
            f"--buffer-size {args.buffer_size} needs {num_bytes / 2**30:.1f} GiB of memory, "
            f"{free / 2**30:.1f} GiB are free; choose a smaller one"
        )


def evaluate_checkpoint(args, script, make_agent, evaluate):
    """--evaluate: rebuilds environment and networks from a checkpoint and reports the returns.

    make_agent(obs_dim, or the shape of pictures; action_dim; args) and evaluate(agent, envs,
    episodes, seed, film) are those of the script.
    """
    state = load_checkpoint(args.evaluate, script)
    free = {"evaluate", "episodes", "json", "video", "seed", "device", "num_threads"}
    refuse_conflicts(args, state["args"], free)
    chosen = {"device": args.device, "num_threads": args.num_threads}
    saved = Namespace(**vars(args) | state["args"] | chosen)
    set_up_torch(args)
    envs = make_envs(saved.env_id, args.episodes, args.video)
    envs[0].check_shapes(state["env"][0])
    shape, action_dim = envs[0].observation_space.shape, envs[0].action_space.shape[0]
    agent = make_agent(shape[0] if len(shape) == 1 else shape, action_dim, saved)
    agent.load_state_dict(state["agent"])
    folder = Path(args.evaluate)
    folder = folder if folder.is_dir() else folder.parent
    film = Film(folder / f"evaluation-seed{args.seed}.mp4") if args.video else None
    seed = args.seed + 2**31  # never a training seed
    report(args, *evaluate(agent, envs, args.episodes, seed, film))
    for env in envs:
        env.close()
    if film:
        print(f"film: {film.save()}", file=sys.stderr)


def report(args, returns, lengths, successes):
    """Prints what --evaluate measured, for people or as JSON."""
    result = {
        "episodes": len(returns),
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "return_min": min(returns),
        "return_max": max(returns),
        "length_mean": statistics.fmean(lengths),
    }
    if successes:
        result["success_rate"] = statistics.fmean(successes)
    if args.json:
        print(json.dumps(result | {"returns": returns, "lengths": lengths}))
    else:
        print("  ".join(f"{name} {value:.6g}" for name, value in result.items()))


class Run:
    """One run folder: runs/<env>__<script>__<seed>__<time>/.

    Everything that is written goes through here, so a script only says what to log and when.
    """

    def __init__(self, args, script, state=None):
        """args: parsed arguments.  state: of a checkpoint to go on from, None for a new run."""
        self.args, self.script = args, script
        self.stopped_by, self.last_logged, self._film = None, None, None
        self._losses, self._counts, self._returns = {}, {}, []
        self.before = state["wall_seconds"] if state else 0.0  # of earlier processes
        wandb = import_wandb() if args.track else None
        step = state["global_step"] if state else 0
        if state is None:
            self.folder = self._new_folder()
            text = json.dumps({k: v for k, v in vars(args).items() if k != "typed"}, indent=2)
            write_file(self.folder / "args.json", text.encode())
        else:
            self.folder = self._old_folder()
            self.last_logged = self._cut_progress(step)
            # What had been collected since the last row of progress.csv.
            self._returns, self._losses, self._counts = state["pending"]
        self._rate_mark = (step, time.perf_counter())
        try:
            self.writer = SummaryWriter(self.folder, purge_step=step + 1 if state else None)
        except OSError as error:
            raise RunError(f"cannot write in {self.folder}: {error.strerror}") from error
        # TensorBoard's thread hands its error to the next call; it need not print it, too.
        threading.excepthook = hide_os_errors
        self._wandb = self._start(wandb, state) if wandb else None
        self._show_notes()
        self.bar = tqdm(
            total=args.total_steps,
            initial=step,
            unit="step",
            dynamic_ncols=True,
            mininterval=0.5 if sys.stderr.isatty() else 10,
            file=sys.stderr,
        )
        cli.closing[:] = [self._close_after_error]
        self._handlers = {number: signal.getsignal(number) for number in STOP}
        for number in STOP:
            signal.signal(number, self._on_signal)

    # ---- Learning ----

    def add_losses(self, global_step, **losses):
        """Collects scalar tensors; their means go to TensorBoard at the next `log`.

        On the CPU a value that is not finite stops the run at its step. On a GPU reading a value
        would wait for the device, so there it is found at the next `log`.
        """
        for name, loss in losses.items():
            loss = loss.item() if loss.device.type == "cpu" else loss.detach()
            if isinstance(loss, float) and not math.isfinite(loss):
                raise RunError(f"{name} is {loss} at step {global_step}: learning diverges")
            self._losses[name] = self._losses.get(name, 0.0) + loss
            self._counts[name] = self._counts.get(name, 0) + 1  # an actor may learn less often

    def add_returns(self, info, ended):
        """Collects the returns of training episodes that have just ended; ended: bool or (N,)."""
        if np.any(ended) and "episode" in info:
            self._returns.extend(np.atleast_1d(info["episode"]["r"])[np.atleast_1d(ended)].tolist())

    # ---- Showing ----

    def log(self, global_step, num_updates, returns, lengths, successes):
        """Writes one row of progress.csv, and the same with the losses to TensorBoard."""
        self._show_notes()
        if self._film:
            self._film.save()
            self._film = None
        step, then = self._rate_mark
        now = time.perf_counter()
        self._rate_mark = (global_step, now)
        row = {
            "global_step": global_step,
            "num_updates": num_updates,
            "wall_seconds": round(self.wall_seconds(), 3),
            "train_return_mean": statistics.fmean(self._returns) if self._returns else float("nan"),
            "eval_return_mean": statistics.fmean(returns),
            "eval_return_std": statistics.pstdev(returns),
            "eval_length_mean": statistics.fmean(lengths),
            "steps_per_second": round((global_step - step) / (now - then), 2),
        }
        losses = {name: float(loss / self._counts[name]) for name, loss in self._losses.items()}
        for name, loss in losses.items():
            if not math.isfinite(loss):
                raise RunError(
                    f"{name} is {loss} at step {global_step} or before: learning diverges"
                )
        if successes:
            losses["eval_success_rate"] = statistics.fmean(successes)
        self._append_csv(row | {"eval_success_rate": losses.get("eval_success_rate", "")})
        try:
            for name, value in (row | losses).items():
                if name != "global_step":
                    self.writer.add_scalar(name, value, global_step)
        except OSError as error:
            raise RunError(f"cannot write in {self.folder}: {error.strerror}") from error
        if self._wandb:
            self._wandb.log(row | losses, step=global_step)
        self.bar.set_postfix(
            train=f"{row['train_return_mean']:.1f}", eval=f"{row['eval_return_mean']:.1f}"
        )
        self._losses, self._counts, self._returns = {}, {}, []
        self.last_logged = global_step

    def film(self, global_step):
        """A film of every tenth evaluation with --video, else None."""
        if self.args.video and (global_step // self.args.eval_every) % 10 == 0:
            self._film = Film(self.folder / f"step-{global_step}.mp4")  # `log` completes it
        return self._film

    def note(self, text):
        """Prints a line without breaking the progress bar."""
        tqdm.write(text, file=sys.stderr)

    def _show_notes(self):
        while cli.notes:
            self.note(cli.notes.pop(0))

    def wall_seconds(self):
        """Seconds of this run, those before a resume included."""
        return self.before + cli.process_seconds()

    # ---- Saving ----

    def save(self, **state):
        """Writes a checkpoint; what is in it stands in each script's `save`."""
        self._flush_csv()
        pending = [self._returns, self._losses, self._counts]
        args = {name: value for name, value in vars(self.args).items() if name != "typed"}
        extra = {"script": self.script, "args": args, "versions": VERSIONS, "pending": pending}
        save_checkpoint(self.folder, state | extra | {"wall_seconds": self.wall_seconds()})

    def finish(self):
        """Closes all files, says where the results are, returns the exit code."""
        self._close()
        rows = read_progress(self.folder / "progress.csv")
        program = f"python {shlex.quote(sys.argv[0])}"
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            folder = shlex.quote(str(self.folder))
            print(f"stopped by {name}; go on with: {program} --resume {folder}")
        elif rows:
            mean, std = rows[-1]["eval_return_mean"], rows[-1]["eval_return_std"]
            step = int(rows[-1]["global_step"])
            print(
                f"final return {mean:.1f} +- {std:.1f} at step {step}, {self.wall_seconds():.0f} s"
            )
        path = shlex.quote(str(self.folder / NAME))
        print(f"curves:  tensorboard --logdir {shlex.quote(str(self.folder.parent))}")
        print(f"policy:  {program} --evaluate {path} --video")
        return 128 + self.stopped_by if self.stopped_by else 0

    # ---- Details ----

    def _new_folder(self):
        args = self.args
        env = cli.file_name(args.env_id)
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        name = args.run_name or f"{env}__{self.script}__{args.seed}__{stamp}"
        for attempt in range(1, 1000):  # two runs may start within one second
            folder = Path(args.log_dir) / (name if attempt == 1 else f"{name}-{attempt}")
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                if args.run_name:
                    raise UserError(
                        f"{folder} exists; choose another --run-name or --resume {folder}"
                    ) from None
            except OSError as error:
                raise UserError(
                    f"cannot make the run folder {folder}: {error.strerror}; see --log-dir"
                ) from error
        raise UserError(f"too many runs named {name}; choose another --run-name")

    def _old_folder(self):
        path = Path(self.args.resume)
        if path.is_dir():
            return path
        if path.name == PREVIOUS:  # becomes the newest, what came after it is given up
            write_file(path.with_name(NAME), path.read_bytes())
        return path.parent

    def _append_csv(self, row):
        path, text = self.folder / "progress.csv", io.StringIO()
        writer = csv.DictWriter(text, [*COLUMNS, "eval_success_rate"])
        try:
            if not path.exists() or not path.stat().st_size:
                writer.writeheader()
            writer.writerow(row)
            with open(path, "ab", buffering=0) as file:
                size = file.tell()
                try:
                    data = text.getvalue().encode()
                    if file.write(data) < len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    file.truncate(size)  # no half row
                    raise
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error

    def _flush_csv(self):
        """To the disk: a checkpoint must not outlive the rows before it, should the power fail."""
        path = self.folder / "progress.csv"
        try:
            with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
                os.fsync(file.fileno())
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error

    def _cut_progress(self, global_step):
        """Drops rows written after the checkpoint: they will be written again, equal.

        Returns the step of the last row that stays.
        """
        path = self.folder / "progress.csv"
        if not path.exists():
            return None
        lines = path.read_text().splitlines(keepends=True)
        every, n = self.args.eval_every, getattr(self.args, "num_envs", 1)
        keep, last = lines[:1], None
        for line in lines[1:]:
            if line[-1] != "\n":
                continue  # cut off while it was written
            try:
                step = int(line.split(",")[0])
            except ValueError:
                raise UserError(f"{path} has a row that is not a run's: {line.strip()}") from None
            # The extra evaluation at the end of a run is not one that a longer run makes.
            ended = step == global_step >= self.args.total_steps
            if step <= global_step and (step % every < n or ended):
                keep.append(line)
                last = step
        write_file(path, "".join(keep).encode())
        return last

    def _close(self):
        cli.closing.clear()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self.bar.close()
        with contextlib.suppress(OSError):  # of a disk that is full
            self.writer.close()
        if self._wandb:
            self._wandb.finish()

    def _close_after_error(self):
        self._close()
        path = self.folder / NAME
        saved = f"the last checkpoint is {path}" if path.exists() else "there is no checkpoint yet"
        return f"the run ends after step {self.bar.n}, {saved}"

    def _on_signal(self, number, frame):
        # One request may come twice within an instant: from make, and from what stopped make.
        if self.stopped_by and time.monotonic() > self._asked_at + 1:  # asked again: stop at once
            raise KeyboardInterrupt
        if not self.stopped_by:
            self.stopped_by, self._asked_at = number, time.monotonic()

    def _start(self, wandb, state):
        name = self.folder.name
        config = {k: v for k, v in vars(self.args).items() if k != "typed"}
        try:
            return wandb.init(project=PROJECT, name=name, id=name, resume="allow", config=config)
        except Exception as error:  # no network, no login
            self.writer.close()
            if state is None:
                shutil.rmtree(self.folder)
            raise UserError(f"--track: Weights & Biases does not start: {error}") from error


def import_wandb():
    """The optional package behind --track, UserError without it."""
    try:
        import wandb
    except ImportError as error:
        raise UserError("--track needs Weights & Biases: pip install wandb") from error
    return wandb


def hide_os_errors(info):
    """A threading.excepthook: a thread's OSError is not printed."""
    if not issubclass(info.exc_type, OSError):
        threading.__excepthook__(info)


def read_progress(path):
    """The rows of a progress.csv as dicts of floats (empty cells are left out)."""
    if not Path(path).exists():
        return []
    with open(path, newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
