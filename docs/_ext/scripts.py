"""Reads the algorithm scripts: their statements by name, their differences, their arguments.

Nothing here knows Sphinx or imports torch; the documentation and its tests share it.
"""

import ast
import difflib
from argparse import ArgumentTypeError
from pathlib import Path
from unittest import mock

from common.cli import Parser

ROOT = Path(__file__).resolve().parents[2]
# Each script and the sibling that it extends, in reading order.
EXTENDS = {
    "ddpg": None,
    "td3": "ddpg",
    "sac": "td3",
    "rdpg": "ddpg",
    "rtd3": "td3",
    "rsac": "sac",
    "rsac_sharing": "rsac",
    "conv_sac": "sac",
}
# What pages call statements that have no name of their own.
KINDS = {"Expr": "docstring", "Import": "imports", "ImportFrom": "imports", "If": "start"}


def source(script):
    return (ROOT / f"{script}.py").read_text()


def statements(script):
    """name -> numbers of the lines, from 1, of the top-level statements of this name."""
    found = {}
    for node in ast.parse(source(script)).body:
        kind = type(node).__name__
        name = ast.unparse(node.targets[0]) if kind == "Assign" else KINDS.get(kind)
        first = min(n.lineno for n in [node, *getattr(node, "decorator_list", [])])
        found.setdefault(name or node.name, []).extend(range(first, node.end_lineno + 1))
    return found


def block(script, name):
    """Lines of the top-level statements of this name; an empty list if there are none."""
    lines = source(script).splitlines()
    return [lines[number - 1] for number in statements(script).get(name, [])]


def diff(old, new, name=None):
    """Lines of the unified diff of two scripts, or of their top-level statements of one name."""
    texts = [block(s, name) if name else source(s).splitlines() for s in (old, new)]
    return [*difflib.unified_diff(*texts, f"{old}.py", f"{new}.py", lineterm="", n=2)]


def diff_size(old, new):
    """(added, removed) lines of the diff, blank lines apart."""
    changes = [line[0] for line in diff(old, new)[2:] if line[1:].strip()]
    return changes.count("+"), changes.count("-")


def parse_args_of(script):
    """The script's parse_args. What comes after it is not executed: it imports torch."""
    namespace = {"__name__": script}
    exec(source(script).partition("\nif __name__ ==")[0], namespace)
    return namespace["parse_args"]


def parser_of(script):
    """The ArgumentParser that the script's parse_args fills."""
    with mock.patch.object(Parser, "parse", lambda self, argv: self):
        return parse_args_of(script)()


def row_of(action):
    """An argument as texts: its flag, what it takes, its default, its meaning."""
    takes, default = "text", action.default
    try:
        (action.type or str)("?")
    except ArgumentTypeError as error:  # "must be a whole number at least 1, not '?'"
        takes = str(error).removeprefix("must be ").removesuffix(", not '?'")
    if action.choices:
        takes = ", ".join(map(str, action.choices))
    if action.nargs == 0:
        takes, default = "switch", "on" if default else "off"
    if action.nargs == "+":
        takes, default = f"one or more: {takes}", " ".join(map(str, default))
    default = "-" if default is None else str(default)
    return [f"`{action.option_strings[0]}`", takes, default, action.help]
