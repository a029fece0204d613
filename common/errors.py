"""Errors that a user can act on, and how the command line shows them."""

import sys


class UserError(ValueError):
    """Bad input. The message says in one line what is wrong and what to do; exit code 2."""


class RunError(RuntimeError):
    """A run that cannot go on, such as a NaN from the environment. One line; exit code 1."""


def run_cli(main, *args):
    """Calls main(*args) and exits: 0 (or what main returns), 2 on UserError, 1 on RunError.

    A second Ctrl-C, or one outside the training loop, ends with 130 and no traceback.
    """
    program = sys.argv[0].rsplit("/", 1)[-1]
    try:
        sys.exit(main(*args))
    except (UserError, RunError) as error:
        print(f"{program}: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
