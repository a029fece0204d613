"""Command lines: one-line errors, checked numbers, and no slow imports."""

import argparse
import math
import os
import re
import signal
import sys
import time
from pathlib import Path

from common.errors import RunError, UserError

STARTED = time.perf_counter()  # before the imports that take seconds
LARGEST = 10**15  # whole number in an argument


def program():
    """How this process was called, such as `rsac.py` or `python -m benchmark.plot`."""
    main = sys.modules["__main__"]
    if main.__spec__ and sys.argv[0] == main.__file__:  # with -m
        return f"python -m {main.__spec__.name.removesuffix('.__main__')}"
    return Path(sys.argv[0]).name


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Shows the defaults of arguments that have one."""

    def _get_help_string(self, action):
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that shows defaults and answers bad input with one line and exit code 2."""

    def __init__(self, description):
        text = description.split("\n\n")[0]
        super().__init__(program(), description=text, formatter_class=Help, allow_abbrev=False)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # -1e-1, too

    def error(self, message):
        """Ends the process with one line on stderr and exit code 2."""
        line = " ".join(message.split())
        self.exit(2, f"{self.prog}: error: {line} (see {self.prog} --help)\n")

    def parse_args(self, args=None, namespace=None):
        """As argparse's, but refuses empty words: those of a shell variable that is not set."""
        before = self.prog
        for word in sys.argv[1:] if args is None else args:
            name, equals, value = word.partition("=")
            if not word or (name.startswith("--") and equals and not value):
                self.error(f"an empty word after {name or before}; is a shell variable not set?")
            before = word
        return super().parse_args(args, namespace)

    def parse(self, argv=None):
        """parse_args, plus `typed`: the names of the arguments given on the command line."""
        if argv is None:  # Ctrl-C during the imports, which take seconds
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))
        args = self.parse_args(argv)
        words = sys.argv[1:] if argv is None else argv
        options = {word[2:].split("=")[0] for word in words if word.startswith("--")}
        args.typed = sorted(option.replace("-", "_") for option in options)
        if "resume" in args and args.resume is not None and args.evaluate is not None:
            self.error("--evaluate and --resume cannot go together")
        return args


def integer(low, high=LARGEST):
    """An argparse type: a whole number in [low, high]; also written as 1e6 or 50_000."""
    return number(low, high, whole=True)


def number(low=-math.inf, high=1e100, whole=False):
    """An argparse type: a number in [low, high]; products of larger ones would overflow."""
    limits = f" at least {low}" if high >= LARGEST else f" from {low} to {high}"
    words = ("a whole number" if whole else "a number") + (limits if low > -math.inf else "")

    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or not low <= value <= high or (whole and value % 1):
            raise argparse.ArgumentTypeError(f"must be {words}, not '{text}'")
        return int(value) if whole else value

    return parse


SEED = integer(0, 2**31 - 1)


def add_run_arguments(parser):
    """Adds the arguments of every script that do not change the algorithm."""
    add = parser.add_argument_group("run").add_argument
    add("--seed", type=SEED, default=0, help="random seed")
    add("--device", default="cpu", help="device of the networks: cpu, cuda or cuda:N")
    add(
        "--run-dir",
        help="new folder for the run; runs/<env>__<script>__<seed>__<time> if not set",
    )
    add("--resume", metavar="FOLDER", help="continue the run in this folder")
    add("--evaluate", metavar="PATH", help="do not train; play this run or checkpoint")
    add("--eval-episodes", type=integer(1), default=10, help="episodes of each evaluation")
    add("--video", action="store_true", help="film --evaluate, or every 10th evaluation of a run")


def refuse_conflicts(args, saved, free):
    """UserError if a typed argument is not in `free` and differs from what was saved."""
    for name in sorted(set(args.typed) - set(free)):
        if name in saved and getattr(args, name) != saved[name]:
            option = f"--{name.replace('_', '-')} {getattr(args, name)}"
            raise UserError(f"{option} is not the run's {saved[name]}; leave it out")


def run_cli(main, *args):
    """Calls main(*args) and exits: 0 (or what main returns), 2 on UserError, 1 on RunError.

    These, memory that is not enough, and errors of the system (files, sockets) are one line without
    a traceback; any other error is a bug of ours. Ctrl-C outside the training loop ends with 130.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main(*args)
        sys.stdout.flush()
        sys.exit(code)
    except (UserError, RunError) as error:
        words, code = str(error), 2 if isinstance(error, UserError) else 1
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # what a shell reports for SIGPIPE
    except (MemoryError, RuntimeError) as error:
        text = str(error).partition("\n")[0]
        if isinstance(error, RuntimeError) and not re.search("allocate memory|out of memory", text):
            raise
        text = text or "out of memory"  # Python's own MemoryError says nothing
        words, code = f"{text:.200}; try a smaller --buffer-size, context, batch or network", 2
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        words, code = f"{place}{error.strerror or error}", 2
    except KeyboardInterrupt:
        words, code = "interrupted", 130
    if "tqdm" in sys.modules:  # the error gets a line of its own, below an open progress bar
        for bar in list(sys.modules["tqdm"].tqdm._instances):
            bar.close()
    print(f"{program()}: error: {' '.join(words.split())}", file=sys.stderr)
    sys.exit(code)
