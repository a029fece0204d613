"""Runs of the training scripts in tests: forked from one process that has torch loaded already.

A fork is a process of its own, with signals, exit code, stdout and stderr, and starts at once.
`python tests/script_runs.py` is that process: it takes requests as lines of JSON.
"""

import atexit
import csv
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import torch

import common.cli

ROOT = Path(__file__).parent.parent
FAMILIES = ["ddpg", "td3", "sac", "rdpg", "rtd3", "rsac", "rsac_sharing", "conv_sac"]
SCRIPTS = [name for name in FAMILIES if (ROOT / f"{name}.py").exists()]
RECURRENT = [name for name in SCRIPTS if "--context-length" in (ROOT / f"{name}.py").read_text()]
CLOCKS = {"wall_seconds", "steps_per_second"}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def env_id(script, name="Toy"):
    """The id of a toy environment that the script can learn from."""
    name = name.replace("Toy", "ToyPictures") if script == "conv_sac" else name
    return f"toy_envs:{name}-v0"


def tiny(script, *more, total=60, env=None):
    """A command line for a run of `total` steps that learns after a few of them."""
    text = (
        f"--total-steps {total} --num-threads 1 --learning-starts 16 --batch-size 3 "
        "--buffer-size 40 --eval-every 25 --eval-episodes 2 --hidden-dims 6 "
    )
    if script in RECURRENT:
        text += "--rnn-dim 5 --sequence-length 4 --context-length 3 --updates-per-step 1 "
    if script == "conv_sac":
        text += "--updates-per-step 0.2 "
    return list(map(str, [*text.split(), "--env-id", env or env_id(script), *more]))


# ---- The process that forks ----


def serve():
    """Starts and awaits runs as asked on stdin; kills what still runs when stdin closes."""
    importlib.import_module("torch._dynamo")  # the first optimizer takes a second for it
    os.fsync = lambda file: None  # a busy disk takes long, and no test cuts the power
    alive = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "script" in request:
            pid = fork(**request)
            alive.add(pid)
            print(pid, flush=True)
        else:
            pid, status = os.waitpid(request["pid"], os.WNOHANG)
            alive.discard(pid)
            print("null" if pid == 0 else os.waitstatus_to_exitcode(status), flush=True)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)


def fork(script, argv, log, patch, patch_args):
    module = importlib.import_module(script)
    pid = os.fork()
    if pid:
        return pid
    code = 99
    common.cli.STARTED = time.perf_counter()
    try:
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(f"{log}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        sys.argv = [f"{script}.py", *argv]
        if patch:
            getattr(importlib.import_module("faults"), patch)(*patch_args)
        try:
            module.run_cli(module.main, module.parse_args(argv))
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            code = 1
            traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
    finally:
        os._exit(code)


# ---- What tests call ----


@functools.cache
def server():
    """The forking process of this test process."""
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    process = subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
    )
    atexit.register(process.communicate)  # closes its stdin
    return process


def ask(**request):
    print(json.dumps(request), file=server().stdin, flush=True)
    return json.loads(server().stdout.readline())


def launch(script, argv, log, patch=None, *patch_args):
    """Starts `python <script>.py *argv` and returns its process id.

    log: stdout and stderr go to <log>.out and <log>.err.  patch: a function of faults.py that is
    called beforehand.
    """
    argv = list(map(str, argv))
    return ask(script=script, argv=argv, log=str(log), patch=patch, patch_args=patch_args)


def wait(pid, log, until=lambda: False):
    """The exit code (minus the signal if it was killed) and the output of a launched run.

    until: a condition that ends the waiting; then the exit code is None.
    """
    while (code := ask(pid=pid)) is None and not until():
        time.sleep(0.01)
    out, err = (Path(f"{log}.{name}").read_text() for name in ("out", "err"))
    return Ended(code, out, err)


def run(script, argv, tmp_path, *patch):
    """Runs to the end; its run folder is tmp_path / "runs" / "run" if not told otherwise."""
    if not {"--run-dir", "--resume", "--evaluate"} & set(argv):
        argv = [*argv, "--run-dir", tmp_path / "runs" / "run"]
    tmp_path.mkdir(exist_ok=True)
    log = tmp_path / "log"
    return wait(launch(script, argv, log, *patch), log)


def train(script, argv, tmp_path, name="run"):
    """Runs to the end, which must be good, and returns the run folder."""
    folder = tmp_path / "runs" / name
    ended = run(script, [*argv, "--run-dir", folder], tmp_path)
    assert ended.code == 0, ended.err
    return folder


def resume(script, folder, tmp_path, total):
    """Continues a run up to `total` steps, which must end well."""
    ended = run(script, ["--resume", folder, "--total-steps", total], tmp_path)
    assert ended.code == 0, ended.err
    return ended


def progress(folder):
    """progress.csv as rows of text, without the columns that a clock fills."""
    with open(folder / "progress.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: text for name, text in row.items() if name not in CLOCKS} for row in rows]


def checkpoint(folder):
    """All that PyTorch reads from the newest checkpoint, without our own checks."""
    return torch.load(folder / "checkpoint.pt", weights_only=True)


def differences(a, b, path=""):
    """Where two nested states differ in any bit."""
    if isinstance(a, dict) and isinstance(b, dict):
        pairs = [(key, a.get(key), b.get(key)) for key in a.keys() | b.keys()]
    elif isinstance(a, list | tuple) and isinstance(b, list | tuple) and len(a) == len(b):
        pairs = [(k, *pair) for k, pair in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = (
            a.dtype == b.dtype and a.shape == b.shape and a.numpy().tobytes() == b.numpy().tobytes()
        )
        return [] if same else [path]
    else:
        return [] if a == b or (a != a and b != b) else [f"{path}: {a} {b}"]
    return [line for key, x, y in pairs for line in differences(x, y, f"{path}.{key}")]


if __name__ == "__main__":
    serve()
