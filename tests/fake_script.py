"""Stands for a training script in tests of the sweep: same folder, files and arguments, no torch.

Every evaluation adds one line to trace.txt beside the run folders, so that a test can tell what was
computed twice.
"""

import argparse
import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--env-id", default="pendulum-p-v0")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--total-steps", type=int)
parser.add_argument("--run-dir")
parser.add_argument("--num-threads", type=int, default=2)
parser.add_argument("--resume")
parser.add_argument("--seconds-per-row", type=float, default=0.0)
parser.add_argument("--rows-per-save", type=int, default=1)
parser.add_argument("--fail-at-seed", type=int, default=-1)
parser.add_argument("--gain", type=float, default=1.0)
args = parser.parse_args()

if args.resume:
    folder = Path(args.resume)
    step, saved = json.loads((folder / "checkpoint.pt").read_text())
    total = args.total_steps or saved["total_steps"]
    args = argparse.Namespace(**saved | {"total_steps": total})
    kept = (folder / "progress.csv").read_text().splitlines()[: 2 + step // 100]
    (folder / "progress.csv").write_text("\n".join(kept) + "\n")
    first = step + 100
else:
    args.total_steps = args.total_steps or 1000
    folder = Path(args.run_dir)
    folder.mkdir(parents=True)
    (folder / "args.json").write_text(json.dumps(vars(args)))
    command = shlex.join(["python", *sys.argv])
    (folder / "run.json").write_text(json.dumps([{"command": command}]))
    (folder / "progress.csv").write_text(
        "global_step,wall_seconds,eval_return_mean,steps_per_second\n"
    )
    first = 0

stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
for step in range(first, args.total_steps + 1, 100):
    with open(folder.parent / "trace.txt", "a") as file:
        file.write(f"{folder.name} {step}\n")
    time.sleep(args.seconds_per_row)
    if args.seed == args.fail_at_seed:
        print("10%|#####     | 5/50 [00:01<00:09, 4.9step/s]\rthe simulator fell over")
        sys.exit(1)
    with open(folder / "progress.csv", "a") as file:
        file.write(f"{step},{time.perf_counter()},{args.gain * step + args.seed},100\n")
    if stopped or step // 100 % args.rows_per_save == args.rows_per_save - 1:
        (folder / ".new").write_text(json.dumps([step, vars(args)]))
        os.replace(folder / ".new", folder / "checkpoint.pt")
    if stopped:
        sys.exit(143)
