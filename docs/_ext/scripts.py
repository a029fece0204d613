"""Reads the algorithm scripts: their blocks by name, their differences, their arguments.

Nothing here knows Sphinx or imports torch; the documentation and its tests share it.
"""

import ast
import difflib
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

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


def path_of(script):
    return ROOT / f"{script}.py"


def existing():
    """The scripts that are in the repository, in reading order."""
    return [script for script in EXTENDS if path_of(script).exists()]


def _name(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Import | ast.ImportFrom):
        return "imports"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0])
    if isinstance(node, ast.Expr):
        return "docstring"
    return "start"  # `if __name__ == "__main__"`


def spans(source):
    """name -> [(first, last)] line ranges (from 0, last exclusive) of the top-level statements."""
    found = {}
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        found.setdefault(_name(node), []).append((first - 1, node.end_lineno))
    return found


def block(script, name):
    """Lines of the top-level statements called `name`; an empty list if there are none."""
    source = path_of(script).read_text()
    lines = source.splitlines()
    ranges = spans(source).get(name, [])
    return [line for first, last in ranges for line in lines[first:last]]


def quote(script, name):
    """Source of a function, class or `Class.method`, or of a part, as in `main # Learn`.

    A part runs from the comment that starts with the given words to the next line of the same
    block that is empty. Raises KeyError if the script has no such name.
    """
    name, _, part = name.partition(" # ")
    outer, _, method = name.partition(".")
    lines = block(script, outer)
    if method:
        tree = ast.parse("\n".join(lines)).body[0]
        inner = [node for node in tree.body if getattr(node, "name", None) == method]
        if not inner:
            raise KeyError(name)
        first = min([inner[0].lineno, *(d.lineno for d in inner[0].decorator_list)])
        lines = lines[first - 1 : inner[0].end_lineno]
    if part:
        starts = [i for i, line in enumerate(lines) if line.strip().startswith(f"# {part}")]
        if not starts:
            raise KeyError(f"{name} # {part}")
        lines = lines[starts[0] :]
        if "" in lines:
            lines = lines[: lines.index("")]
    if not lines:
        raise KeyError(name)
    return textwrap.dedent("\n".join(lines))


def changed_blocks(old, new):
    """Names of the top-level statements in which two scripts differ, in the new one's order."""
    names = [*spans(path_of(new).read_text())]
    names += [name for name in spans(path_of(old).read_text()) if name not in names]
    return [name for name in names if block(old, name) != block(new, name)]


def diff(old, new, name=None):
    """Unified diff of two scripts, or of the statements called `name` in both."""
    if name is None:
        before, after = (path_of(s).read_text().splitlines() for s in (old, new))
    else:
        before, after = block(old, name), block(new, name)
        if not before and not after:
            raise KeyError(name)
    lines = difflib.unified_diff(before, after, f"{old}.py", f"{new}.py", lineterm="", n=2)
    return "\n".join(lines)


def diff_size(old, new):
    """(added, removed) lines of the diff, blank lines apart."""
    lines = diff(old, new).splitlines()[2:]
    added = sum(line.startswith("+") and line[1:].strip() != "" for line in lines)
    removed = sum(line.startswith("-") and line[1:].strip() != "" for line in lines)
    return added, removed


# ---- Arguments ----


class _Captured(Exception):
    pass


def _namespace(script):
    """The script executed up to parse_args: what comes after imports torch."""
    body = []
    for node in ast.parse(path_of(script).read_text()).body:
        body.append(node)
        if getattr(node, "name", None) == "parse_args":
            break
    code = compile(ast.Module(body, []), str(path_of(script)), "exec")
    namespace = {"__name__": script}
    exec(code, namespace)
    return namespace


def parse(script, argv):
    """What the script's own parse_args makes of a command line; SystemExit if it is refused."""
    return _namespace(script)["parse_args"](argv)


def parser_of(script):
    """The ArgumentParser that the script's parse_args fills."""
    from common.cli import Parser

    def capture(self, argv=None):
        raise _Captured(self)

    original, Parser.parse = Parser.parse, capture
    try:
        parse(script, [])
    except _Captured as captured:
        return captured.args[0]
    finally:
        Parser.parse = original
    raise TypeError(f"{script}.parse_args does not call Parser.parse")


def argument_groups(script):
    """[(group title, [(flags, values, default, help)])] as texts, from the script's parser."""
    groups = []
    for group in parser_of(script)._action_groups:
        rows = [_row(a) for a in group._group_actions if a.option_strings != ["-h", "--help"]]
        if rows:
            groups.append((group.title, rows))
    return groups


def _row(action):
    flags = " ".join(f"`{flag}`" for flag in action.option_strings)
    default = action.default
    if isinstance(default, list):
        default = " ".join(map(str, default))
    if action.nargs == 0:
        values, default = "switch", "on" if default else "off"
    elif action.choices:
        values = ", ".join(map(str, action.choices))
    else:
        values = _values(action.type)
    if action.nargs == "+":
        values = f"one or more: {values}"
    return flags, values, "-" if default is None else str(default), action.help


def _values(convert):
    """What a type takes, from its own error message ("must be a whole number at least 1, not")."""
    if convert is None:
        return "text"
    try:
        convert("?")
    except Exception as error:
        text = str(error)
        if text.startswith("must be "):
            return text.removeprefix("must be ").rpartition(", not ")[0]
    return "a number" if convert is float else convert.__name__
