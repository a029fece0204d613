"""What a run shows and writes: folder, progress.csv, TensorBoard, progress bar, checkpoints."""

import fcntl
import json
import math
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch.backends.cpu import get_cpu_capability
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from common import cli
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import RunError, UserError
from common.evaluate import evaluate, make_eval_envs, set_up_torch
from common.files import file_name, write_csv, write_file
from common.machine import free_memory, usable_cores
from common.replay_files import ReplayFiles, arrays_of
from envs.table import foreign_module
from envs.wrappers import make_seeds

STOP = (signal.SIGINT, signal.SIGTERM)


def _no_traceback(failed):
    """Of TensorBoard's thread on a full disk: the main thread gets the same error and tells it."""
    if not issubclass(failed.exc_type, OSError):
        threading.__excepthook__(failed)


def origin():
    """Where results come from. "clean": no file differs from the commit (None without git)."""
    git, lines = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch"], []
    with suppress(OSError):  # no git here
        done = subprocess.run(git, cwd=Path(__file__).parent, capture_output=True, text=True)
        lines = done.stdout.splitlines()  # "# branch.oid <commit>", then others
    return {
        "command": shlex.join(["python", *sys.argv]),
        "commit": lines[0].split()[-1] if lines else None,
        "clean": all(line[0] == "#" for line in lines) if lines else None,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "gymnasium", "numpy")},
        # With what PyTorch makes of the processor (AVX2 or AVX512): times depend on it.
        "machine": f"{platform.platform()}, {usable_cores()} cores, {get_cpu_capability()}",
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


class Run:
    """One run folder: runs/<env>__<script>__<seed>__<time>/.

    It writes all files: `track` names what a checkpoint holds, `start` opens the folder, `step`
    evaluates and saves when it is time, `finish` does so one last time.
    """

    def __init__(self, args, script):
        """Sets up PyTorch. With --resume, `args` become the arguments of the run to continue."""
        self.args, self.script = args, script
        self.stopped_by = None  # number of the signal that asked the run to stop
        self.rows = []  # of progress.csv
        self.loss_sums, self.loss_counts, self.train_returns = {}, {}, []
        self.locks = []  # open files
        self.saved = self._load_resumed() if args.resume else {}
        self.origins = [*self.saved.get("origins", []), origin()]  # of each process of this run
        set_up_torch(args)

    def _load_resumed(self):
        args, path = self.args, Path(self.args.resume)
        if not path.exists():
            raise UserError(f"{path} is not there")
        self.folder = path if path.is_dir() else path.parent
        self._lock()
        saved = load_checkpoint(path, self.script, args.device)
        if "progress" not in saved:
            raise UserError(f"{path} is an exported policy; no run can go on from it")
        free = ("total_steps", "resume", "device", "num_threads")
        cli.refuse_conflicts(args, saved["args"], free)
        for name, value in saved["args"].items():
            if name not in args.typed and name not in ("resume", "device"):
                setattr(args, name, value)
        if args.total_steps < saved["args"]["total_steps"]:
            words = f"less than the run's {saved['args']['total_steps']}; it may only be raised"
            raise UserError(f"--total-steps {args.total_steps} is {words}")
        return saved

    def _write_settings(self):
        """Writes args.json and run.json; a resumed run overwrites them."""
        for name, content in (("run", self.origins), ("args", self._settings())):
            write_file(self.folder / f"{name}.json", json.dumps(content, indent=2).encode())
        self._lock()

    def _lock(self):
        """Lets only one process write to the folder; the lock ends with the process."""
        try:
            self.locks.append(open(self.folder / "args.json", "r+"))  # noqa: SIM115
            fcntl.flock(self.locks[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except FileNotFoundError:
            resumed = self.args.resume
            hint = "; --evaluate plays a policy" if resumed and Path(resumed).is_file() else ""
            raise UserError(f"{self.folder} holds no run: it has no args.json{hint}") from None
        except BlockingIOError:
            raise UserError(f"another process is writing to {self.folder}") from None
        except OSError as error:  # some shared file systems
            hint = "copy it to another disk" if self.args.resume else "choose another --run-dir"
            raise UserError(f"{self.folder} cannot be locked ({error.strerror}); {hint}") from error

    # ---- What a checkpoint holds ----

    def track(self, *, agent, optimizers, buffer, envs, rng):
        """Names once what every checkpoint holds: all parameters and buffers of `agent`, the dict
        `optimizers`, the rows of `buffer` (see common/replay_files.py), the episodes of `envs`, and
        the NumPy generator `rng`.

        Raises UserError if the replay buffer does not fit into the free memory, is too small, or
        has an array that is not one of rows.
        """
        objects = {"agent": agent, "optimizers": optimizers, "buffer": buffer}
        self.tracked = {**objects, "envs": envs, "rng": rng}
        args = self.args
        for name, array in arrays_of(buffer).items():
            if array.shape[:1] != (buffer.capacity,):
                words = f"has shape {array.shape}, not one row for each of its {buffer.capacity}"
                raise UserError(f"the replay buffer's `{name}` {words} steps; keep it in the agent")
        needed = sum(x.nbytes for x in arrays_of(buffer).values()) / 2**20
        if args.buffer_size < args.num_envs:
            words = f"is too small for --num-envs {args.num_envs}: each adds a step at a time"
            raise UserError(f"--buffer-size {args.buffer_size} {words}")
        free = free_memory() / 2**20
        if needed > free:
            words = f"needs {needed:.0f} MiB of memory, {free:.0f} MiB are free"
            raise UserError(f"--buffer-size {args.buffer_size} {words}; choose a smaller one")
        words = f"{args.device}, {args.num_threads} threads, seed {args.seed}"
        print(f"{words}, replay buffer: {needed:.0f} MiB when full", file=sys.stderr)
        if args.total_steps <= args.learning_starts:
            words = f"--learning-starts {args.learning_starts}: all steps are random"
            print(f"--total-steps {args.total_steps} is not above {words}", file=sys.stderr)

    def start(self, *progress):
        """Opens the run folder and returns `progress`, or the saved one if a run is resumed.

        progress: where a new run begins; first the global step and the number of updates, then
        whatever else the loop carries from step to step (arrays, tensors, tuples of tensors, None).
        """
        args = self.args
        self.eval_envs = make_eval_envs(args, film=args.video)
        if not args.resume:
            name = f"{self.script}__{args.seed}__{datetime.now():%Y%m%d-%H%M%S}"
            name = f"{file_name(args.env_id)}__{name}"
            self.folder = Path(args.run_dir or f"runs/{name}")
            if self.folder.exists():
                words = "exists and is no run; choose another --run-dir"
                if (self.folder / "args.json").exists():
                    self._lock()  # says so if it is being written
                    words = "has no checkpoint to resume; choose another --run-dir or delete it"
                    if (self.folder / "checkpoint.pt").exists():
                        words = f"exists; choose another --run-dir or --resume {self.folder}"
                raise UserError(f"{self.folder} {words}")
            self.folder.mkdir(parents=True)
        self.replay_files = ReplayFiles(self.folder)
        if args.resume:
            progress = self._restore(progress)
        try:
            self._open(*progress[:2])
        except (UserError, RunError):  # such as a full disk, or an environment that goes wrong
            if not args.resume:
                shutil.rmtree(self.folder)
            raise
        return progress

    def _open(self, step, num_updates):
        """Opens all that the run writes to; a new run is evaluated before its first step."""
        args = self.args
        self._write_settings()
        self.rate_mark = (step, time.perf_counter())
        # What came after the last row of the checkpoint will come again.
        last = self.rows[-1]["global_step"] if self.rows else None
        threading.excepthook = _no_traceback
        try:
            self.writer = SummaryWriter(self.folder, purge_step=last)
        except OSError as error:
            raise self._not_written(error) from error
        every = 0.5 if sys.stderr.isatty() else 10  # seconds
        self.bar = tqdm(total=args.total_steps, initial=step, unit="step", mininterval=every)
        self.handlers = {number: signal.signal(number, self._on_signal) for number in STOP}
        if not args.resume:
            self._evaluate(step, num_updates)
        self._tell()

    def _restore(self, progress):
        """Loads every tracked object; returns the saved progress."""
        saved, tracked = self.saved, self.tracked
        tracked["envs"].load_state_dict(saved["envs"])  # first: says if the shapes have changed
        try:
            tracked["agent"].load_state_dict(saved["agent"])
            for name, optimizer in tracked["optimizers"].items():
                optimizer.load_state_dict(saved["optimizers"][name])
        except (LookupError, RuntimeError, ValueError) as error:
            words = f"the present {self.script}.py: {type(error).__name__}: {error!s:.200}"
            raise UserError(f"{self.folder} does not fit {words}") from error
        self.replay_files.load(tracked["buffer"], saved["buffer"])
        tracked["rng"].bit_generator.state = saved["rng"]
        self.train_returns, self.loss_sums, self.loss_counts = saved["pending"]
        self.rows = saved["rows"]
        self.scalars = saved.get("scalars", self.rows[-1])
        torch.set_rng_state(saved["torch_rng"].cpu())
        if "cuda_rng" in saved and self.args.device.startswith("cuda"):
            torch.cuda.set_rng_state(saved["cuda_rng"].cpu(), self.args.device)
        return [
            old.cpu().numpy() if isinstance(new, np.ndarray) else old
            for new, old in zip(progress, saved["progress"], strict=True)
        ]

    def save(self, *progress):
        """Writes a checkpoint of everything tracked; `progress` as in `start`."""
        if not self.folder.is_dir():
            raise RunError(f"cannot write {self.folder}: it is no longer there")
        tracked = self.tracked
        state = {
            "agent": tracked["agent"].state_dict(),
            "optimizers": {name: x.state_dict() for name, x in tracked["optimizers"].items()},
            "buffer": self.replay_files.save(tracked["buffer"]),
            "envs": tracked["envs"].state_dict(),
            "rng": tracked["rng"].bit_generator.state,
            "torch_rng": torch.get_rng_state(),
            "progress": [torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in progress],
            "script": self.script,
            "args": self._settings(),
            "origins": self.origins,
            "rows": self.rows,
            "scalars": self.scalars,
            "pending": [self.train_returns, self.loss_sums, self.loss_counts],
            "wall_seconds": self.wall_seconds(),
        }
        if self.args.device.startswith("cuda"):
            state["cuda_rng"] = torch.cuda.get_rng_state(self.args.device)
        save_checkpoint(self.folder, state)

    def _settings(self):
        return {name: value for name, value in vars(self.args).items() if name != "typed"}

    # ---- Logging ----

    def add_losses(self, global_step, losses):
        """Collects scalar tensors; the next evaluation writes their means to TensorBoard.

        Raises RunError at the step where one is not finite.
        """
        values = torch.stack(list(losses.values())).tolist()  # one copy from the GPU, not one each
        for name, loss in zip(losses, values, strict=True):
            if not math.isfinite(loss):
                raise RunError(f"{name} is {loss} at step {global_step}: learning diverges")
            self.loss_sums[name] = self.loss_sums.get(name, 0.0) + loss
            self.loss_counts[name] = self.loss_counts.get(name, 0) + 1  # an actor may learn less

    def add_returns(self, info, ended):
        """Collects the returns of training episodes that have just ended; ended: (N,) bool."""
        self.train_returns += info["episode"]["r"][ended].tolist()

    def step(self, *progress):
        """Once per loop: moves the progress bar and, every `--eval-every` steps, evaluates and
        writes a checkpoint."""
        global_step, num_updates = progress[:2]
        self.bar.update(self.args.num_envs)
        if global_step % self.args.eval_every < self.args.num_envs:
            self._evaluate(global_step, num_updates)
            self.save(*progress)
            self._tell()  # last: whoever finds the final row finds its checkpoint, too

    def running(self, global_step):
        """False when all steps are done or the run was asked to stop (Ctrl-C, SIGTERM)."""
        return global_step < self.args.total_steps and self.stopped_by is None

    def finish(self, *progress):
        """Saves and evaluates one last time, closes all files, returns the exit code."""
        # In this order: a run made longer by --resume has no evaluation here, if none is due.
        self.save(*progress)
        if self.stopped_by is None and self.rows[-1]["global_step"] != progress[0]:
            self._evaluate(*progress[:2])
            self._tell()
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.bar.close()
        self.writer.close()
        for envs in (self.tracked["envs"], self.eval_envs):
            envs.close()
        last = self.rows[-1]  # of an earlier step if the run was stopped
        values = f"{last['eval_return_mean']:.1f} +- {last['eval_return_std']:.1f}"
        print(f"return {values}, step {last['global_step']}, {self.wall_seconds():.0f} s")
        program, folder = f"python {shlex.quote(sys.argv[0])}", shlex.quote(str(self.folder))
        # A request during the last evaluation changes nothing.
        stopped = self.stopped_by is not None and last["global_step"] < self.args.total_steps
        if stopped:
            device = "" if self.args.device == "cpu" else f" --device {self.args.device}"
            print(f"stopped; continue with: {program} --resume {folder}{device}")
        print(f"curves:  tensorboard --logdir {folder}")
        typed = f" --env-id {self.args.env_id}" if foreign_module(self.args.env_id) else ""
        print(f"policy:  {program} --evaluate {folder}{typed} --video")
        return 128 + self.stopped_by if stopped else 0

    def wall_seconds(self):
        """Seconds of this run since its processes started, imports included."""
        return self.saved.get("wall_seconds", 0.0) + time.perf_counter() - cli.STARTED

    def _evaluate(self, global_step, num_updates):
        """Evaluates the agent: a new row of progress.csv, and with the mean losses, the scalars."""
        args = self.args
        seeds = make_seeds("evaluation", args.seed, global_step, count=args.eval_episodes)
        tenth = args.video and global_step // args.eval_every % 10 == 0
        film = self.folder / f"step-{global_step}.mp4" if tenth else None
        results = evaluate(self.tracked["agent"], self.eval_envs, seeds, film)
        step, then = self.rate_mark
        now = time.perf_counter()
        self.rate_mark = (global_step, now)
        returns = results["returns"]
        row = {
            "global_step": global_step,
            "num_updates": num_updates,
            "wall_seconds": round(self.wall_seconds(), 3),
            "train_return_mean": statistics.fmean(self.train_returns or [math.nan]),
            "eval_return_mean": statistics.fmean(returns),
            "eval_return_std": statistics.pstdev(returns),
            "eval_length_mean": statistics.fmean(results["lengths"]),
            "steps_per_second": round((global_step - step) / (now - then), 2),
            "eval_success_rate": statistics.fmean(results["successes"] or [math.nan]),
        }
        self.rows.append(row)
        losses = {name: total / self.loss_counts[name] for name, total in self.loss_sums.items()}
        self.loss_sums, self.loss_counts, self.train_returns = {}, {}, []
        self.scalars = row | losses

    def _tell(self):
        """Shows the last evaluation, and writes it to TensorBoard and progress.csv."""
        scalars = self.scalars
        try:
            for name, value in scalars.items():
                if not math.isnan(value):
                    self.writer.add_scalar(name, value, scalars["global_step"])
            self.writer.flush()
        except OSError as error:
            raise self._not_written(error) from error
        write_csv(self.folder / "progress.csv", self.rows)
        train, mean = scalars["train_return_mean"], scalars["eval_return_mean"]
        self.bar.set_postfix(train=f"{train:.1f}", eval=f"{mean:.1f}")

    def _not_written(self, error):
        return RunError(f"cannot write TensorBoard's file in {self.folder}: {error.strerror}")

    def _on_signal(self, number, frame):
        # One request may come twice within an instant: from make, and from what stopped make.
        if self.stopped_by is None:
            self.stopped_by, self.asked_at = number, time.monotonic()
        elif time.monotonic() > self.asked_at + 1:  # asked again: stop at once
            raise KeyboardInterrupt
