"""What the benchmark tools share: scripts, environments, run folders, reading progress.csv."""

import csv
import difflib
import fcntl
import importlib.util
import io
import itertools
import os
import platform
import shlex
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from common.errors import RunError, UserError
from common.files import file_name, write_file
from common.machine import usable_cores

ROOT = Path(__file__).resolve().parent.parent
RECURRENT = ("rsac", "rdpg", "rtd3", "rsac_sharing")
COLUMNS = ("global_step", "wall_seconds", "eval_return_mean")  # of progress.csv, those read here
LARGEST = 1e100  # of a number in a file; sums and axes of plots overflow far beyond
LAST = 0.1  # part of a run whose evaluations make its final return; one alone is noisy


def find_script(name):
    """Path of a script by its name ("rsac") or path; relative to here where that is shorter.

    Raises UserError if there is none.
    """
    path = Path(name)
    if path.suffix != ".py":
        folders = (ROOT, ROOT / "benchmark", ROOT / "benchmark" / "variants")
        places = [folder / f"{name}.py" for folder in folders]
        path = next((place for place in places if place.exists()), places[0])
    if not path.is_file():
        known = [p.stem for p in ROOT.glob("*.py")]
        near = difflib.get_close_matches(path.stem, known, n=1, cutoff=0.3)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(known))}"
        raise UserError(f"unknown script '{name}'; {hint}")
    path = path.resolve()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def import_script(name):
    """The module of a script, or of a variant of one."""
    path = find_script(name)
    sys.path.insert(0, str(path.resolve().parent))  # a variant imports from its folder
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_run(path, *options, env_id=None):
    """The agent that a run folder or checkpoint holds, and environments to evaluate it in.

    options: of the script that wrote it, such as "--seed", "3".
    env_id: of the run; needed where it names a module that is none of this repository.
    """
    from common.checkpoint import load_checkpoint
    from common.evaluate import load_agent

    script = Path(load_checkpoint(path, script=None)["script"]).stem  # no path to other code
    module = import_script(script)
    options = [*options, "--env-id", env_id] if env_id else options
    args = module.parse_args(["--evaluate", str(path), *map(str, options)])
    return load_agent(args, script, module.Agent)


def split_argv(argv):
    """The words before and after `--`; argv: as for `parse_args`, None stands for sys.argv."""
    argv = sys.argv[1:] if argv is None else list(argv)
    cut = argv.index("--") if "--" in argv else len(argv)
    return argv[:cut], argv[cut + 1 :]


def move_aside(folder):
    """Renames a run folder that nothing can go on from, to a name that is no run's.

    Raises UserError if a process is writing to it.
    """
    with suppress(FileNotFoundError), open(folder / "args.json", "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is writing to {folder}") from None
    name = f"{folder.name.replace('__', '_')}_unfinished"
    for k in itertools.count(1):
        aside = folder.with_name(f"{name}_{k}")
        if not aside.exists():
            return folder.rename(aside)


@contextmanager
def locked(folder):
    """For one process at a time: to read, change and write a file in the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)  # and with it the lock


def run_name(env_id, algorithm, seed):
    """The name of a run's folder, and of its collected curve."""
    return f"{file_name(env_id)}__{algorithm}__{seed}"


def child_error(what, code, text):
    """The error to raise where a script has failed: its exit code says which, its text why."""
    lines = text.strip().splitlines() or ["no output"]
    error = UserError if code == 2 else RunError  # as the script told
    return error(f"{what} failed with exit code {code}: {lines[-1]}")


def check_package(name, file="requirements-dev.txt"):
    """UserError if a package of `file` is not installed; runs do not need it."""
    if importlib.util.find_spec(name) is None:
        raise UserError(f"this needs {name}: pip install -r {file}")


def check_env_id(env_id):
    """Raises UserError if there is no such environment. Those that are known are not built."""
    import gymnasium as gym

    from common.envs import make_env
    from envs.table import find

    if find(env_id) is None and env_id not in gym.registry:
        make_env(env_id).close()


def without_folder(origin):
    """Where a run comes from, without the name of its folder, which means nothing elsewhere."""
    words = shlex.split(origin.get("command") or "")  # of None it would read from the keyboard
    if "--run-dir" in words:
        k = words.index("--run-dir")
        del words[k : k + 2]
    return origin | {"command": shlex.join(words)}


def read_curve(path):
    """The columns of a finished or growing progress.csv: dict of name -> array (evaluations,).

    Lines before the header that begin with # are comments.
    Raises ValueError, saying where, if it is damaged: cells missing or not numbers, steps that do
    not rise. A last line without its end is being written or was cut off: damaged, too.
    """
    text = Path(path).read_text()
    if not text.strip():
        raise ValueError("it is empty")
    if not text.endswith("\n"):
        raise ValueError(f"line {text.count(chr(10)) + 1} is cut off")
    lines = text.splitlines()
    comments = len(list(itertools.takewhile(lambda line: line.startswith("#"), lines)))
    try:
        header, *lines = list(csv.reader(lines[comments:])) or [[]]
    except csv.Error as error:
        raise ValueError(error) from error
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise ValueError(f"column {missing[0]} is missing")
    if not lines:
        raise ValueError("it has no rows yet")
    columns, first = {}, comments + 2  # number of the first row's line
    for name in [name for name in header if name in (*COLUMNS, "steps_per_second")]:
        place = header.index(name)
        try:
            columns[name] = np.array([float(line[place]) for line in lines])
        except (ValueError, IndexError):
            number = next(k for k, line in enumerate(lines, first) if not _is_number(line, place))
            raise ValueError(f"line {number} has no number for {name}") from None
        usable = np.abs(columns[name]) < LARGEST  # not so of NaN
        if not usable.all():
            number = first + int(np.argmin(usable))
            raise ValueError(f"line {number} has no usable {name}")
    if (np.diff(columns["global_step"]) <= 0).any():
        number = first + 1 + int(np.argmax(np.diff(columns["global_step"]) <= 0))
        raise ValueError(f"line {number} does not come after the line before it")
    return columns


def final_return(step, value):
    """Mean of the evaluations in the last tenth of a run.  step, value: (evaluations,)"""
    return float(value[step >= (1 - LAST) * step[-1]].mean())


def _is_number(line, place):
    try:
        float(line[place])
    except (ValueError, IndexError):
        return False
    return True


def save_figure(figure, path, **options):
    """Writes a picture of a Matplotlib figure, completely or not at all; its name says the format.

    options: of `savefig`.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:], **options)
    write_file(path, picture.getvalue())


def machine():
    """One line for the record: processor, cores, Python, versions and commit."""
    from importlib.metadata import version

    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            x.split(":")[1].strip() for x in info.read_text().splitlines() if "model name" in x
        ]
        cpu = names[0] if names else cpu
    describe = ["git", "describe", "--always", "--dirty"]
    try:
        commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git here
        commit = ""
    python, torch = platform.python_version(), version("torch")
    return (
        f"{cpu}, {usable_cores()} cores, Python {python}, torch {torch}, "
        f"commit {commit or 'unknown'}"
    )


def child_env(num_threads):
    """The environment of a run whose numerical libraries must not take every core."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return os.environ | dict.fromkeys(names, str(num_threads))
