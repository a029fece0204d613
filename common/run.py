"""What a run shows and leaves: folder, progress.csv, TensorBoard, progress bar, signals."""

import csv
import json
import os
import random
import signal
import statistics
import sys
import time
from argparse import Namespace
from datetime import datetime
from pathlib import Path

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from common.checkpoint import NAME, load_checkpoint, save_checkpoint
from common.envs import make_env
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


def process_seconds():
    """Seconds since this process started, imports included."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):  # no /proc: count from here
        return time.perf_counter() - _IMPORTED


_IMPORTED = time.perf_counter()


def load_resumed(args, script):
    """The checkpoint that --resume names and the arguments to go on with: (state, args).

    Only --total-steps and how the run is shown may differ from what was saved; an argument that
    was typed and conflicts is refused by name.
    """
    state = load_checkpoint(args.resume, script)
    saved = state["args"]
    free = {"total_steps", "resume", "track", "log_dir", "device", "num_threads"}
    for name in args.typed:
        if name not in free and name in saved and getattr(args, name) != saved[name]:
            option = "--" + name.replace("_", "-")
            raise UserError(
                f"{option} {getattr(args, name)} is not the run's {saved[name]}; leave it out"
            )
    if "total_steps" in args.typed and args.total_steps < saved["total_steps"]:
        raise UserError(
            f"--total-steps {args.total_steps} is less than the run's {saved['total_steps']}; "
            "it may only be raised"
        )
    for name, value in saved.items():
        if name not in args.typed and name != "resume":
            setattr(args, name, value)
    return state, args


def set_up_torch(args):
    """Threads, device and seeds, and says which. Raises UserError if the device is not there."""
    try:
        device = torch.device(args.device)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"--device {args.device} is not to be had here ({reason}); try cpu"
        ) from error
    torch.set_num_threads(args.num_threads)
    torch.manual_seed(args.seed)
    random.seed(args.seed)
    print(f"device {device}, {args.num_threads} threads, seed {args.seed}", file=sys.stderr)


def check_memory(num_bytes, args):
    """Says how much memory the replay buffer takes; UserError if this machine has not that much."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # not known on this system
        free = float("inf")
    print(f"replay memory: {num_bytes / 2**20:.0f} MiB when full", file=sys.stderr)
    if num_bytes > free:
        raise UserError(
            f"--buffer-size {args.buffer_size} needs {num_bytes / 2**30:.1f} GiB of memory, "
            f"{free / 2**30:.1f} GiB are free; choose a smaller one"
        )


def evaluate_checkpoint(args, script, make_agent, evaluate):
    """--evaluate: rebuilds environment and networks from a checkpoint and reports the returns.

    make_agent(observation shape, action shape, args) and evaluate(agent, env, episodes, seed, film)
    are those of the script.
    """
    state = load_checkpoint(args.evaluate, script)
    saved = Namespace(**state["args"] | {"device": args.device, "num_threads": args.num_threads})
    set_up_torch(args)
    env = make_env(saved.env_id, render_mode="rgb_array" if args.video else None)
    agent = make_agent(env.observation_space.shape[0], env.action_space.shape[0], saved)
    agent.load_state_dict(state["agent"])
    folder = Path(args.evaluate)
    folder = folder if folder.is_dir() else folder.parent
    film = Film(folder / f"evaluation-seed{args.seed}.mp4") if args.video else None
    seed = args.seed + 2**31  # never a training seed
    report(args, *evaluate(agent, env, args.episodes, seed, film))
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
        self.stopped_by, self.last_logged = None, None
        self._losses, self._num_losses, self._returns = {}, 0, []
        self.before = state["wall_seconds"] if state else 0.0  # of earlier processes
        if state is None:
            self.folder = self._new_folder()
            self._write_json("args.json", {k: v for k, v in vars(args).items() if k != "typed"})
        else:
            path = Path(args.resume)
            self.folder = path if path.is_dir() else path.parent
            self._cut_progress(state["global_step"])
            # What had been collected since the last row of progress.csv.
            self._returns, self._losses, self._num_losses = state["pending"]
        step = state["global_step"] if state else 0
        self._rate_mark = (step, time.perf_counter())
        try:
            self.writer = SummaryWriter(self.folder, purge_step=step + 1 if state else None)
        except OSError as error:
            raise RunError(f"cannot write in {self.folder}: {error.strerror}") from error
        self.bar = tqdm(
            total=args.total_steps,
            initial=step,
            unit="step",
            dynamic_ncols=True,
            mininterval=0.5,
            file=sys.stderr,
        )
        self._wandb = self._start_wandb() if args.track else None
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    # ---- Learning ----

    def add_losses(self, global_step, **losses):
        """Collects scalar tensors; their means go to TensorBoard at the next `log`.

        On the CPU a value that is not finite stops the run at its step. On a GPU reading a value
        would wait for the device, so there it is found at the next `log`.
        """
        self._num_losses += 1
        for name, loss in losses.items():
            loss = loss.detach()
            if loss.device.type == "cpu" and not loss.isfinite():
                raise RunError(
                    f"{name} is {loss.item()} at step {global_step}; {self._where_saved()}"
                )
            self._losses[name] = self._losses[name] + loss if name in self._losses else loss.clone()

    def add_returns(self, info, ended):
        """Collects the returns of training episodes that have just ended; ended: bool or (N,)."""
        if np.any(ended) and "episode" in info:
            self._returns.extend(np.atleast_1d(info["episode"]["r"])[np.atleast_1d(ended)].tolist())

    # ---- Showing ----

    def log(self, global_step, num_updates, returns, lengths, successes):
        """Writes one row of progress.csv, and the same with the losses to TensorBoard."""
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
        losses = {name: (loss / self._num_losses).item() for name, loss in self._losses.items()}
        for name, loss in losses.items():
            if not np.isfinite(loss):
                raise RunError(
                    f"{name} became {loss} before step {global_step}; {self._where_saved()}"
                )
        if successes:
            losses["eval_success_rate"] = statistics.fmean(successes)
        self._append_csv(row | {"eval_success_rate": losses.get("eval_success_rate", "")})
        for name, value in (row | losses).items():
            if name != "global_step":
                self.writer.add_scalar(name, value, global_step)
        if self._wandb:
            self._wandb.log(row | losses, step=global_step)
        self.bar.set_postfix(
            train=f"{row['train_return_mean']:.1f}", eval=f"{row['eval_return_mean']:.1f}"
        )
        self._losses, self._num_losses, self._returns = {}, 0, []
        self.last_logged = global_step

    def film(self, global_step):
        """A film of every tenth evaluation with --video, else None."""
        if not self.args.video or (global_step // self.args.eval_every) % 10:
            return None
        return Film(self.folder / f"step-{global_step}.mp4")

    def note(self, text):
        """Prints a line without breaking the progress bar."""
        tqdm.write(text, file=sys.stderr)

    def wall_seconds(self):
        """Seconds of this run, those before a resume included."""
        return self.before + process_seconds()

    # ---- Saving ----

    def save(self, **state):
        """Writes a checkpoint; what is in it stands in each script's `save`."""
        versions = {"torch": str(torch.__version__), "numpy": np.__version__}
        pending = [self._returns, self._losses, self._num_losses]
        args = {name: value for name, value in vars(self.args).items() if name != "typed"}
        extra = {"script": self.script, "args": args, "versions": versions, "pending": pending}
        save_checkpoint(self.folder, state | extra | {"wall_seconds": self.wall_seconds()})

    def finish(self):
        """Closes all files, says where the results are, returns the exit code."""
        self.bar.close()
        self.writer.close()
        if self._wandb:
            self._wandb.finish()
        rows = read_progress(self.folder / "progress.csv")
        if self.stopped_by:
            name = signal.Signals(self.stopped_by).name
            print(f"stopped by {name}; go on with: python {self.script}.py --resume {self.folder}")
        elif rows:
            mean, std = rows[-1]["eval_return_mean"], rows[-1]["eval_return_std"]
            step = int(rows[-1]["global_step"])
            print(
                f"final return {mean:.1f} +- {std:.1f} at step {step}, {self.wall_seconds():.0f} s"
            )
        print(f"curves:  tensorboard --logdir {self.args.log_dir}")
        print(f"policy:  python {self.script}.py --evaluate {self.folder / NAME} --video")
        return 128 + self.stopped_by if self.stopped_by else 0

    # ---- Details ----

    def _new_folder(self):
        args = self.args
        env = args.env_id.replace(":", "_").replace("/", "_")
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

    def _write_json(self, name, content):
        (self.folder / name).write_text(json.dumps(content, indent=2) + "\n")

    def _append_csv(self, row):
        path = self.folder / "progress.csv"
        try:
            with open(path, "a", newline="") as file:
                writer = csv.DictWriter(file, [*COLUMNS, "eval_success_rate"])
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerow(row)
        except OSError as error:
            raise RunError(
                f"cannot write {path}: {error.strerror}; {self._where_saved()}"
            ) from error

    def _cut_progress(self, global_step):
        """Drops rows written after the checkpoint: they will be written again, equal."""
        path = self.folder / "progress.csv"
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            keep = [line for line in lines[1:] if line[-1:] == "\n"]
            keep = [line for line in keep if int(line.split(",")[0]) <= global_step]
            # The extra evaluation at the end of a run is not one that a longer run makes.
            every, n = self.args.eval_every, getattr(self.args, "num_envs", 1)
            keep = [line for line in keep if int(line.split(",")[0]) % every < n]
            temporary = path.with_suffix(".tmp")
            temporary.write_text("".join(lines[:1] + keep))
            os.replace(temporary, path)

    def _where_saved(self):
        path = self.folder / NAME
        return f"the last checkpoint is {path}" if path.exists() else "there is no checkpoint yet"

    def _on_signal(self, number, frame):
        if self.stopped_by:  # asked twice: stop at once
            raise KeyboardInterrupt
        self.stopped_by = number

    def _start_wandb(self):
        try:
            import wandb
        except ImportError as error:
            raise UserError("--track needs Weights & Biases: pip install wandb") from error
        return wandb.init(
            project="recurrent-off-policy-rl", name=self.folder.name, config=self.args
        )


def read_progress(path):
    """The rows of a progress.csv as dicts of floats (empty cells are left out)."""
    if not Path(path).exists():
        return []
    with open(path, newline="") as file:
        return [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
