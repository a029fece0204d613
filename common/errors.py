"""Errors that a user can act on; `common.cli.run_cli` shows each as one line."""


class UserError(ValueError):
    """Bad input. The message says in one line what is wrong and what to do; exit code 2."""


class RunError(RuntimeError):
    """A run that cannot go on, such as a NaN from the environment. One line; exit code 1."""
