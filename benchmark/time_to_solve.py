"""Wall-clock time until a script solves a task, over seeds, one run after another.

    python -m benchmark.time_to_solve --script rsac --env-id pendulum-p-v0 --threshold -200 \\
        --seeds 0 1 2 3 4 -- --eval-every 500
    python -m benchmark.time_to_solve --script rsac --env-id pendulum-va-v0 --threshold -230 \\
        --seeds 95 96 97 --read benchmark/results/curves

The second form trains nothing: it reads what the runs of a sweep, or copies of them, have left.

A run solves the task at its first evaluation with a mean return of at least the threshold. Time is
counted by the run itself, from the start of its process, and is rounded up to the evaluation that
showed it. What stands after `--` goes to the script; its other arguments are its defaults.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmark import (
    check_env_id,
    child_error,
    find_script,
    machine,
    read_curve,
    run_name,
    split_argv,
    sweep,
)
from common.cli import SEED, Parser, integer, number, run_cli
from common.errors import UserError
from common.files import write_csv


def parse_args(argv=None):
    own, options = split_argv(argv)
    parser = Parser(__doc__)
    parser.usage = "%(prog)s [options] [-- arguments of the script]"
    add = parser.add_argument
    add("--script", required=True, metavar="NAME", help="such as rsac")
    add("--env-id", required=True, metavar="ID", help="environment")
    add("--threshold", type=number(), required=True, help="mean evaluation return that counts")
    add("--seeds", nargs="+", type=SEED, default=[0, 1, 2, 3, 4], metavar="N", help="one run each")
    add("--threads", type=integer(1), help="threads of a run; the script's default if not set")
    add("--whole", action="store_true", help="finish each run, also after it has solved the task")
    add("--read", metavar="DIR", help="do not train; read the runs in this folder")
    add("--tag", help="with --read: TAG of the runs in the config")
    add("--keep", metavar="DIR", help="keep the run folders there")
    add("--out", metavar="FILE", help="CSV to write")
    args = parser.parse_args(own)
    args.options = options
    try:
        sweep.refuse_own(options, "after --")
    except UserError as error:
        parser.error(str(error))
    if args.tag and not args.read:
        parser.error("--tag needs --read; give the arguments after -- instead")
    return args


def main(args):
    sweep.handle_signals()
    script = find_script(args.script)
    check_env_id(args.env_id)
    if not args.read:  # what is read may be of another one
        print(machine())
    print(f"{'seed':>6}{'seconds':>9}{'steps':>8}{'return':>9}")
    log_dir = Path(args.keep or tempfile.mkdtemp(prefix="time-to-solve-"))
    algorithm, rows = "-".join(filter(None, [script.stem, args.tag])), []
    names = {seed: run_name(args.env_id, algorithm, seed) for seed in args.seeds}
    for name in names.values() if args.keep and not args.read else ():
        if (log_dir / name).exists():
            raise UserError(f"{log_dir / name} exists; choose another --keep, or --read {log_dir}")
    try:
        if args.out and not Path(args.out).is_file():
            write_table(args.out, [])  # a path that cannot be written shows now, not after hours
        for seed, name in names.items():
            result = find(args, name) if args.read else race(args, seed, name, log_dir)
            rows.append([algorithm, args.env_id, seed, args.threshold, *result])
            seconds, step, value = rows[-1][4:]
            solved = f"{seconds:9.1f}{step:>8}" if seconds is not None else f"{'-':>9}{'-':>8}"
            print(f"{seed:>6}{solved}{value:>9.1f}", flush=True)
            write_table(args.out, rows)
    finally:
        if not args.keep:
            shutil.rmtree(log_dir, ignore_errors=True)
    times = sorted(row[4] if row[4] is not None else float("inf") for row in rows)
    solved = sum(row[4] is not None for row in rows)
    print(f"median {statistics.median(times):.1f} s; {solved} of {len(rows)} seeds solved it")


def write_table(path, rows):
    """Writes the seeds that are done as CSV, if there is a path to write to."""
    if path is None:
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    names = ["script", "env_id", "seed", "threshold", "wall_seconds", "global_step", "return"]
    write_csv(path, [dict(zip(names, row, strict=True)) for row in rows], names)


def solution(curve, threshold):
    """Seconds, step and return of the evaluation that solved the task.

    If none did: None, None and the best return.
    """
    values = curve["eval_return_mean"]
    for k, value in enumerate(values):
        if value >= threshold:
            return float(curve["wall_seconds"][k]), int(curve["global_step"][k]), float(value)
    return None, None, float(values.max())


def find(args, name):
    """The solution of a run that is there, or of its copy by benchmark.plot --collect."""
    folder = Path(args.read)
    for path in (folder / name / "progress.csv", folder / f"{name}.csv"):
        if path.exists():
            try:
                return solution(read_curve(path), args.threshold)
            except ValueError as error:
                raise UserError(f"{path} is damaged: {error}") from error
    raise UserError(f"there is no run {name} in {folder}")


def race(args, seed, name, log_dir):
    """The solution of a new run, which ends there. Raises RunError if it fails."""
    command = [sys.executable, find_script(args.script), "--env-id", args.env_id]
    command += ["--seed", str(seed), "--run-dir", log_dir / name, *args.options]
    command += ["--num-threads", str(args.threads)] if args.threads else []
    log_dir.mkdir(parents=True, exist_ok=True)
    log_path, curve, solved = log_dir / f"{name}.log", None, False
    with open(log_path, "w") as log:
        end = sweep.end_with_parent
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=end)
        try:
            running = True
            while running and (args.whole or not solved):
                time.sleep(0.2)
                running = process.poll() is None
                try:
                    curve = read_curve(log_dir / name / "progress.csv")
                except (OSError, ValueError):  # not there yet, or a row is being written
                    continue
                solved = solution(curve, args.threshold)[0] is not None
        finally:
            process.terminate()  # does nothing to one that has ended
            process.wait()
    if curve is None or (process.returncode != 0 and not solved):
        text = log_path.read_text(errors="replace")
        raise child_error(f"seed {seed}", process.returncode, text)
    return solution(curve, args.threshold)


if __name__ == "__main__":
    run_cli(main, parse_args())
