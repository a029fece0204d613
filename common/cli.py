"""Command lines: one-line errors, checked numbers, and nothing heavy imported."""

import argparse
import math
import os
import signal
import sys
import time
from pathlib import Path

from common.errors import RunError, UserError

# Called before `run_cli` reports an error: closes what is open, returns words to add to the line.
closing = []
# Shown when a run begins, and not before: an error until then is to stand alone.
notes = []


# In the environment of a run: seconds that its process did something else before it was the run.
WAITED = "SECONDS_BEFORE_RUN"
_IMPORTED = time.perf_counter()


def process_seconds():
    """Seconds since this process started, imports included."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        seconds = uptime - ticks / os.sysconf("SC_CLK_TCK")
        return seconds - float(os.environ.get(WAITED, 0))
    except (OSError, ValueError, IndexError):  # no /proc: count from here
        return time.perf_counter() - _IMPORTED


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that shows defaults and answers bad input with one line and exit code 2."""

    def __init__(self, description):
        text = description.split("\n\n")[0]
        formatter = argparse.ArgumentDefaultsHelpFormatter
        super().__init__(description=text, formatter_class=formatter, allow_abbrev=False)

    def error(self, message):
        """Ends the process with one line on stderr and exit code 2."""
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: error: {line} (see {self.prog} --help)\n")

    def parse(self, argv=None):
        """parse_args, plus `typed`: the names of the arguments that were really given."""
        if argv is None:  # Ctrl-C while the imports run, which take seconds
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        args = self.parse_args(argv)
        defaults = {action: action.default for action in self._actions}
        for action in self._actions:
            action.default = argparse.SUPPRESS
        args.typed = sorted(vars(self.parse_args(argv)))
        for action, default in defaults.items():
            action.default = default
        if "resume" in args and "evaluate" in args:
            self._check_script(args)
        return args

    def _check_script(self, args):
        """Refuses what cannot go together, among the arguments that all scripts share."""
        if args.evaluate is not None and args.resume is not None:
            self.error("--evaluate and --resume cannot go together")
        for name in {"episodes", "json"}.intersection(args.typed):
            if args.evaluate is None:
                self.error(f"--{name} needs --evaluate")
        if args.buffer_size < 2 * args.num_envs:
            self.error(f"--buffer-size {args.buffer_size} is too small for {args.num_envs} envs")


def file_name(env_id):
    """The id of an environment in a file name, where `my_module:MyEnv-v0` must lose its colon."""
    return env_id.replace(":", "_").replace("/", "_")


def integer(low, high=None):
    """An argparse type: a whole number in [low, high]; also written as 1e6 or 50_000."""
    return _number("a whole number", low, high, _whole)


def number(low=-math.inf, high=None):
    """An argparse type: a finite number in [low, high]."""
    return _number("a number", low, high, float)


def _whole(text):
    value = float(text)
    if value != int(value):
        raise ValueError
    return int(value)


def _number(kind, low, high, convert):
    limits = "" if low == -math.inf else f" at least {low}"
    limits = limits if high is None else f" from {low} to {high}"

    def parse(text):
        try:
            value = convert(text)
            valid = math.isfinite(value) and value >= low and (high is None or value <= high)
        except (ValueError, OverflowError):
            valid = False
        if not valid:
            raise argparse.ArgumentTypeError(f"must be {kind}{limits}, not '{text}'")
        return value

    return parse


def run_cli(main, *args):
    """Calls main(*args) and exits: 0 (or what main returns), 2 on UserError, 1 on RunError.

    A file that cannot be read or written gives 2, in a run 1. Ctrl-C outside the training loop, or
    typed twice, ends with 130. Always one line and no traceback.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main(*args)
        sys.stdout.flush()
        sys.exit(code)
    except (UserError, RunError) as error:
        words, code = str(error), 2 if isinstance(error, UserError) else 1
    except BrokenPipeError:  # of `| head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell says of SIGPIPE, which Windows has not
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        words, code = f"{place}{error.strerror or error}", 1 if closing else 2
    except KeyboardInterrupt:
        words, code = "interrupted", 130
    words = "; ".join([words, *(close() for close in closing)])
    *_, package, program = ["", *sys.argv[0].split("/")]
    program = f"python -m {package}" if program == "__main__.py" else program
    print(f"{program}: error: {' '.join(words.split())}", file=sys.stderr)
    sys.exit(code)
