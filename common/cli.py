"""Command lines: one-line errors, checked numbers, and nothing heavy imported."""

import argparse
import sys

from common.errors import RunError, UserError


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that shows defaults and answers bad input with one line and exit code 2."""

    def __init__(self, description):
        text = description.split("\n\n")[0]
        formatter = argparse.ArgumentDefaultsHelpFormatter
        super().__init__(description=text, formatter_class=formatter, allow_abbrev=False)

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")

    def parse(self, argv=None):
        """parse_args, plus `typed`: the names of the arguments that were really given."""
        args = self.parse_args(argv)
        defaults = {action: action.default for action in self._actions}
        for action in self._actions:
            action.default = argparse.SUPPRESS
        args.typed = sorted(vars(self.parse_args(argv)))
        for action, default in defaults.items():
            action.default = default
        return args


def integer(low, high=None):
    """An argparse type: a whole number in [low, high]; also written as 1e6 or 50_000."""
    return _number("a whole number", low, high, _whole)


def number(low, high=None):
    """An argparse type: a finite number in [low, high]."""
    return _number("a number", low, high, float)


def _whole(text):
    value = float(text)
    if value != int(value):
        raise ValueError
    return int(value)


def _number(kind, low, high, convert):
    limits = f"at least {low}" if high is None else f"from {low} to {high}"

    def parse(text):
        try:
            value = convert(text)
            valid = value >= low and value < float("inf") and (high is None or value <= high)
        except (ValueError, OverflowError):
            valid = False
        if not valid:
            raise argparse.ArgumentTypeError(f"must be {kind} {limits}, not '{text}'")
        return value

    return parse


def run_cli(main, *args):
    """Calls main(*args) and exits: 0 (or what main returns), 2 on UserError, 1 on RunError.

    Ctrl-C outside the training loop, or typed twice, ends with 130 and no traceback.
    """
    program = sys.argv[0].rsplit("/", 1)[-1]
    try:
        code = main(*args)
    except (UserError, RunError) as error:
        print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
        code = 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
