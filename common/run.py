"""What a run shows and leaves: folder, progress.csv, TensorBoard, progress bar, checkpoints."""

import csv
import errno
import io
import json
import math
import os
import platform
import shlex
import signal
import statistics
import sys
import time
from datetime import datetime
from pathlib import Path

import gymnasium as gym
import numpy as np
import psutil
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from common.checkpoint import NAME, PREVIOUS, load_checkpoint, save_checkpoint, write_file
from common.cli import refuse_conflicts
from common.device import set_up_torch
from common.envs import make_seeds
from common.errors import RunError, UserError
from common.evaluate import evaluate, make_eval_envs
from common.replay_files import ReplayFiles

COLUMNS = [
    "global_step",
    "num_updates",
    "wall_seconds",
    "train_return_mean",
    "eval_return_mean",
    "eval_return_std",
    "eval_length_mean",
    "steps_per_second",
    "eval_success_rate",
]
STOP = (signal.SIGINT, signal.SIGTERM)
VERSIONS = {
    "python": platform.python_version(),
    "torch": str(torch.__version__),
    "numpy": np.__version__,
    "gymnasium": gym.__version__,
}


class Run:
    """One run folder: runs/<env>__<script>__<seed>__<time>/.

    Everything that is written goes through here, so a script only says what to log and when:
    `track` names what a checkpoint holds, `start` opens the folder, `checkpoint` evaluates and
    saves, `finish` does so for the last time.
    """

    def __init__(self, args, script):
        """Sets up PyTorch. With --resume, `args` become the arguments of the run to continue."""
        self.args, self.script = args, script
        self.stopped_by = None  # number of the signal that asked the run to stop
        self.last_logged = None  # the step of the last evaluation
        self.loss_sums, self.loss_counts, self.train_returns = {}, {}, []
        self.saved = self._load_resumed() if args.resume else None
        set_up_torch(args)

    def _load_resumed(self):
        args, saved = self.args, load_checkpoint(self.args.resume, self.script)
        free = ("total_steps", "resume", "device", "num_threads")
        refuse_conflicts(args, saved["args"], free)
        before = saved["args"]["total_steps"]
        if "total_steps" in args.typed and args.total_steps < before:
            raise UserError(
                f"--total-steps {args.total_steps} is less than the run's {before}; "
                "it may only be raised"
            )
        for name, value in saved["args"].items():
            if name not in args.typed and name != "resume":
                setattr(args, name, value)
        if saved["versions"] != VERSIONS:
            old, new = (
                ", ".join(f"{k} {v}" for k, v in versions.items())
                for versions in (saved["versions"], VERSIONS)
            )
            print(
                f"results may differ in the last bit: saved with {old}, now {new}", file=sys.stderr
            )
        return saved

    # ---- What a checkpoint holds ----

    def track(self, **objects):
        """Names what every checkpoint holds, once: `agent`, `buffer`, `envs` and anything else
        with `state_dict` and `load_state_dict`, NumPy generators, and dicts of these.

        Raises UserError if the replay memory does not fit into this machine's.
        """
        self.tracked = objects
        needed, free = objects["buffer"].num_bytes, psutil.virtual_memory().available
        print(f"replay memory: {needed / 2**20:.0f} MiB when full", file=sys.stderr)
        if needed > free:
            raise UserError(
                f"--buffer-size {self.args.buffer_size} needs {needed / 2**30:.1f} GiB of memory, "
                f"{free / 2**30:.1f} GiB are free; choose a smaller one"
            )

    def start(self, *progress):
        """Opens the run folder and returns `progress`, or what it was in a run to continue.

        progress: where a new run begins; first the global step and the number of updates, then
        whatever else the loop carries from step to step (arrays, tensors, None).
        """
        saved, args = self.saved, self.args
        self.eval_envs = make_eval_envs(args, film=args.video)
        if saved is None:
            self.folder = self._make_folder()
            settings = {name: value for name, value in vars(args).items() if name != "typed"}
            write_file(self.folder / "args.json", json.dumps(settings, indent=2).encode())
        else:
            path = Path(args.resume)
            self.folder = path if path.is_dir() else path.parent
            if path.name == PREVIOUS:  # becomes the newest; what came after it is given up
                write_file(self.folder / NAME, path.read_bytes())
        self.replay_files = ReplayFiles(self.folder)
        if saved is not None:
            progress = self._restore(progress)
        step = progress[0]
        self.seconds_before = saved["wall_seconds"] if saved else 0.0  # of earlier processes
        self.rate_mark = (step, time.perf_counter())
        try:
            self.writer = SummaryWriter(self.folder, purge_step=step + 1 if saved else None)
        except OSError as error:
            raise RunError(f"cannot write in {self.folder}: {error.strerror}") from error
        self.bar = tqdm(
            total=args.total_steps,
            initial=step,
            unit="step",
            dynamic_ncols=True,
            mininterval=0.5 if sys.stderr.isatty() else 10,
            file=sys.stderr,
        )
        self.handlers = {number: signal.signal(number, self._on_signal) for number in STOP}
        if saved is None:
            self._evaluate(*progress[:2])
        self.saved = None
        return progress

    def _restore(self, progress):
        """Loads every tracked object; returns the saved progress."""
        saved = self.saved
        for name, thing in self.tracked.items():
            if name == "buffer":
                self.replay_files.load(thing, saved[name])
            else:
                _load_state(thing, saved[name])
        self.train_returns, self.loss_sums, self.loss_counts = saved["pending"]
        self.last_logged = self._cut_progress(saved["progress"][0])
        values = []
        for new, old in zip(progress, saved["progress"], strict=True):
            values.append(old.numpy() if isinstance(new, np.ndarray) else _to(old, self.args))
        torch.set_rng_state(saved["torch_rng"])
        return values

    def save(self, *progress):
        """Writes a checkpoint of everything tracked; `progress` as in `start`."""
        state = {
            name: self.replay_files.save(thing) if name == "buffer" else _state(thing)
            for name, thing in self.tracked.items()
        }
        state["progress"] = [
            torch.from_numpy(x) if isinstance(x, np.ndarray) else x for x in progress
        ]
        settings = {name: value for name, value in vars(self.args).items() if name != "typed"}
        pending = [self.train_returns, self.loss_sums, self.loss_counts]
        state |= {"script": self.script, "args": settings, "versions": VERSIONS}
        state |= {"pending": pending, "torch_rng": torch.get_rng_state()}
        save_checkpoint(self.folder, state | {"wall_seconds": self.wall_seconds()})

    # ---- Logging ----

    def add_losses(self, global_step, losses):
        """Collects scalar tensors; their means go to TensorBoard at the next evaluation.

        Raises RunError at the step where one is not finite.
        """
        for name, loss in losses.items():
            loss = loss.item()
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

    def running(self, global_step):
        """False when all steps are done or the run was asked to stop (Ctrl-C, SIGTERM)."""
        return global_step < self.args.total_steps and self.stopped_by is None

    def finish(self, *progress):
        """Evaluates and saves for the last time, closes all files, returns the exit code."""
        if self.stopped_by is None and self.last_logged != progress[0]:
            self._evaluate(*progress[:2])
        self.save(*progress)
        for number, handler in self.handlers.items():
            signal.signal(number, handler)
        self.bar.close()
        self.writer.close()
        for envs in (self.tracked["envs"], self.eval_envs):
            envs.close()
        program = f"python {shlex.quote(sys.argv[0])}"
        folder = shlex.quote(str(self.folder))
        if self.stopped_by is not None:
            name = signal.Signals(self.stopped_by).name
            print(f"stopped by {name}; continue with: {program} --resume {folder}")
        else:
            print(f"{self.result} at step {progress[0]}, {self.wall_seconds():.0f} s")
        print(f"curves:  tensorboard --logdir {shlex.quote(str(self.folder.parent))}")
        print(f"policy:  {program} --evaluate {folder} --video")
        return 0 if self.stopped_by is None else 128 + self.stopped_by

    def wall_seconds(self):
        """Seconds of this run since its processes started, imports included."""
        return self.seconds_before + time.time() - psutil.Process().create_time()

    def _evaluate(self, global_step, num_updates):
        """Evaluates the agent; one row of progress.csv, and the same with losses to TensorBoard."""
        args = self.args
        seeds = make_seeds("evaluation", args.seed, global_step, count=args.eval_episodes)
        tenth = args.video and global_step // args.eval_every % 10 == 0
        film = self.folder / f"step-{global_step}.mp4" if tenth else None
        results = evaluate(self.tracked["agent"], self.eval_envs, seeds, film)
        step, then = self.rate_mark
        self.rate_mark = (global_step, time.perf_counter())
        train, returns = self.train_returns, results["returns"]
        row = {
            "global_step": global_step,
            "num_updates": num_updates,
            "wall_seconds": round(self.wall_seconds(), 3),
            "train_return_mean": statistics.fmean(train) if train else math.nan,
            "eval_return_mean": statistics.fmean(returns),
            "eval_return_std": statistics.pstdev(returns),
            "eval_length_mean": statistics.fmean(results["lengths"]),
            "steps_per_second": round((global_step - step) / (self.rate_mark[1] - then), 2),
        }
        if results["successes"]:
            row["eval_success_rate"] = statistics.fmean(results["successes"])
        self._append_csv(row)
        losses = {name: total / self.loss_counts[name] for name, total in self.loss_sums.items()}
        try:
            for name, value in (row | losses).items():
                if name != "global_step":
                    self.writer.add_scalar(name, value, global_step)
            self.writer.flush()
        except OSError as error:
            raise RunError(f"cannot write in {self.folder}: {error.strerror}") from error
        mean, std = row["eval_return_mean"], row["eval_return_std"]
        self.bar.set_postfix(train=f"{row['train_return_mean']:.1f}", eval=f"{mean:.1f}")
        self.result = f"final return {mean:.1f} +- {std:.1f}"
        self.loss_sums, self.loss_counts, self.train_returns = {}, {}, []
        self.last_logged = global_step

    def _append_csv(self, row):
        """Appends a row, flushed to the disk: a checkpoint must not outlive the rows before it."""
        path, text = self.folder / "progress.csv", io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        if not path.exists() or not path.stat().st_size:
            writer.writeheader()
        writer.writerow(row)
        data = text.getvalue().encode()
        try:
            with open(path, "ab", buffering=0) as file:
                size = file.tell()
                try:
                    if file.write(data) < len(data):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    os.fsync(file.fileno())
                except OSError:
                    file.truncate(size)  # no half row
                    raise
        except OSError as error:
            raise RunError(f"cannot write {path}: {error.strerror}") from error

    # ---- Folder and signals ----

    def _make_folder(self):
        args = self.args
        env = args.env_id.replace(":", "_").replace("/", "_")
        stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
        wanted = Path(args.run_dir or f"runs/{env}__{self.script}__{args.seed}__{stamp}")
        for attempt in range(1, 1000):  # two runs may start within one second
            folder = wanted if attempt == 1 else wanted.with_name(f"{wanted.name}-{attempt}")
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                if args.run_dir:
                    hint = f"choose another --run-dir or --resume {folder}"
                    raise UserError(f"{folder} exists; {hint}") from None
            except OSError as error:
                raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
        raise UserError(f"too many runs named {wanted}; choose another --run-dir")

    def _cut_progress(self, global_step):
        """Drops rows written after the checkpoint: they will be written again, equal.

        Returns the step of the last row that stays.
        """
        path = self.folder / "progress.csv"
        if not path.exists():
            return None
        header, *lines = path.read_text().splitlines(keepends=True) or [""]
        keep, last = [header], None
        for line in lines:
            if line[-1] != "\n":
                continue  # cut off while it was written
            try:
                step = int(line.split(",")[0])
            except ValueError:
                raise UserError(f"{path} has a row that is not a run's: {line.strip()}") from None
            # The extra evaluation at the end of a run is not one that a longer run makes.
            extra = step % self.args.eval_every >= self.args.num_envs
            if step <= global_step and (not extra or self.args.total_steps <= step):
                keep.append(line)
                last = step
        write_file(path, "".join(keep).encode())
        return last

    def _on_signal(self, number, frame):
        # One request may come twice within an instant: from make, and from what stopped make.
        if self.stopped_by is None:
            self.stopped_by, self.asked_at = number, time.monotonic()
        elif time.monotonic() > self.asked_at + 1:  # asked again: stop at once
            raise KeyboardInterrupt


def _state(thing):
    if isinstance(thing, dict):
        return {name: _state(part) for name, part in thing.items()}
    if isinstance(thing, np.random.Generator):
        return thing.bit_generator.state
    return thing.state_dict()


def _load_state(thing, state):
    if isinstance(thing, dict):
        for name, part in thing.items():
            _load_state(part, state[name])
    elif isinstance(thing, np.random.Generator):
        thing.bit_generator.state = state
    else:
        thing.load_state_dict(state)


def _to(value, args):
    """Tensors, also in tuples, on the run's device; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(_to(part, args) for part in value)
    return value.to(args.device) if isinstance(value, torch.Tensor) else value


def read_progress(path):
    """The rows of a progress.csv as dicts of floats (empty cells are left out)."""
    if not Path(path).exists():
        return []
    with open(path, newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
