"""Errors that a user can act on; `common.cli.run_cli` shows each as one line."""

import os
import traceback
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages", "<frozen", os.path.dirname(os.__file__))


class UserError(ValueError):
    """Bad input. The message says in one line what is wrong and what to do; exit code 2."""


class RunError(RuntimeError):
    """A run that cannot go on, such as a NaN from the environment. One line; exit code 1."""


def describe(error, caught_in):
    """An error of other code as text, such as "KeyError: 'pos' (my_env.py, line 31)".

    The line is the innermost one that is neither of an installed package nor of the file
    `caught_in`, or else the innermost one, such as "gymnasium/core.py, line 9".
    """
    frames = traceback.extract_tb(error.__traceback__)
    passed = (*INSTALLED, caught_in)
    theirs = [frame for frame in frames if not any(x in frame.filename for x in passed)]
    frame = (theirs or frames)[-1]
    name = frame.filename.partition("-packages/")[2] or Path(frame.filename).name
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{words} ({name}, line {frame.lineno})"
