"""The scripts are read as diffs of each other: what is shared is the same to the letter."""

import ast
import difflib
import functools
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FEED_FORWARD = ["ddpg", "td3", "sac"]
RECURRENT = ["rdpg", "rtd3", "rsac", "rsac_sharing"]
NAMES = [*FEED_FORWARD, *RECURRENT, "conv_sac"]
TEXTS = {name: (ROOT / f"{name}.py").read_text() for name in NAMES}
WITH_ENTROPY = ["sac", "rsac", "rsac_sharing", "conv_sac"]

# Each script has its own of these.
OWN = {"parse_args", "Agent", "Critics", "update", "main", "SCRIPT"}
# The algorithm, the memory or the pictures change these; among these scripts they are the same.
SHARED = [
    ("mlp", [*FEED_FORWARD, "conv_sac"]),
    ("mlp", RECURRENT),
    ("Actor", ["ddpg", "td3"]),
    ("Actor", ["sac", "conv_sac"]),
    ("Actor", ["rdpg", "rtd3"]),
    ("Critics", ["sac", "conv_sac"]),
    ("actor_loss", ["ddpg", "rdpg"]),
    ("actor_loss", ["td3", "rtd3"]),
    ("actor_loss", ["sac", "conv_sac"]),
    ("actor_loss", ["rsac", "rsac_sharing"]),
    ("critics_loss", ["td3", "rtd3"]),
    ("critics_loss", WITH_ENTROPY),
    ("make_optimizers", ["ddpg", "td3", "rdpg", "rtd3"]),
    ("make_optimizers", WITH_ENTROPY),
    ("ReplayBuffer", FEED_FORWARD),
    ("ReplayBuffer", RECURRENT),
]
# Code lines of a script that its sibling has not, comments and docstrings aside, at most.
BUDGETS = {
    ("ddpg", "td3"): 21,
    ("td3", "sac"): 38,
    ("ddpg", "rdpg"): 81,
    ("td3", "rtd3"): 84,
    ("sac", "rsac"): 89,
    ("rsac", "rsac_sharing"): 28,
    ("sac", "conv_sac"): 82,
}
MOST_ARGUMENTS = dict.fromkeys(FEED_FORWARD, 25) | dict.fromkeys(RECURRENT, 32) | {"conv_sac": 30}
# Parts of `main`, from the line with the first text up to the one with the second.
PARTS = [
    ("def main", "run = Run(", NAMES),
    ("    agent = Agent(", "    obs, _ = envs.reset()", FEED_FORWARD),
    ("    agent = Agent(", "    obs, _ = envs.reset()", RECURRENT),
    ("    obs, _ = envs.reset()", "# Act", [*FEED_FORWARD, "conv_sac"]),
    ("    obs, _ = envs.reset()", "# Act", RECURRENT),
    ("# Act", "# Step and store", [*FEED_FORWARD, "conv_sac"]),
    ("# Act", "# Step and store", RECURRENT),
    ("# Step and store", "# Learn", FEED_FORWARD),
    ("# Step and store", "# Learn", RECURRENT),
    ("# Show, evaluate and save", "return run.finish", [*FEED_FORWARD, "conv_sac"]),
    ("# Show, evaluate and save", "return run.finish", RECURRENT),
]


@functools.cache
def blocks(text):
    """Top-level classes, functions and constants of a script: name -> source."""
    found = {}
    for node in ast.parse(text).body:
        names = [getattr(node, "name", None)]
        if isinstance(node, ast.Assign):
            names = [target.id for target in node.targets]
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        for name in filter(None, names):
            found[name] = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    return found


def versions(name, scripts):
    """The different sources of a block: source -> scripts that have it."""
    found = {}
    for script in scripts:
        if name in (its := blocks(TEXTS[script])):
            found.setdefault(its[name], []).append(script)
    return found


def between(text, start, end):
    """The lines from the one that holds `start` up to the one that holds `end`."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if start in line)
    last = next(k for k, line in enumerate(lines) if end in line and k > first)
    return "\n".join(lines[first:last])


def code_lines(text):
    """Lines without comments, docstrings and empty lines."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = [line for k, line in enumerate(text.splitlines(), 1) if k not in docstrings]
    return [line for line in lines if line.strip() and not line.strip().startswith("#")]


def new_lines(sibling, script):
    old, new = code_lines(TEXTS[sibling]), code_lines(TEXTS[script])
    diff = list(difflib.unified_diff(old, new, n=0, lineterm=""))[2:]
    return sum(line.startswith("+") for line in diff)


def depth(node):
    """How deeply loops, conditions and the like are nested in a piece of code."""
    nests = isinstance(node, ast.For | ast.While | ast.If | ast.With | ast.Try)
    inner = max(map(depth, ast.iter_child_nodes(node)), default=0)
    return inner + nests


@pytest.mark.parametrize(
    "name",
    sorted({n for t in TEXTS.values() for n in blocks(t)} - OWN - {name for name, _ in SHARED}),
)
def test_blocks_of_one_name_are_the_same_to_the_letter(name):
    found = versions(name, NAMES)
    assert len(found) == 1, list(found.values())


@pytest.mark.parametrize(("name", "scripts"), SHARED)
def test_blocks_that_some_scripts_share_are_the_same_to_the_letter(name, scripts):
    assert list(versions(name, scripts).values()) == [scripts]


@pytest.mark.parametrize(("start", "end", "scripts"), PARTS, ids=[start for start, *_ in PARTS])
def test_parts_of_main_are_the_same_to_the_letter(start, end, scripts):
    found = {}
    for script in scripts:
        part = between(blocks(TEXTS[script])["main"], start, end)
        found.setdefault(part, []).append(script)
    assert len(found) == 1, list(found.values())


@pytest.mark.parametrize(("group", "count"), [("schedule", 9), ("algorithm", 4), ("memory", 5)])
def test_shared_arguments_stand_first_in_their_group_in_the_same_order(group, count):
    found = {}
    for script, text in TEXTS.items():
        parts = re.split(r'add_argument_group\("(.*)"\)', blocks(text)["parse_args"])
        if group in parts:
            names = re.findall(r'"(--[\w-]+)"', parts[parts.index(group) + 1])
            found.setdefault(tuple(names[:count]), []).append(script)
    assert len(found) == 1, found


@pytest.mark.parametrize(("sibling", "script"), BUDGETS)
def test_a_script_adds_little_to_its_sibling(sibling, script):
    assert new_lines(sibling, script) <= BUDGETS[sibling, script]


@pytest.mark.parametrize("script", NAMES)
def test_a_script_has_few_arguments(script):
    args = importlib.import_module(script).parse_args([])
    assert len(vars(args).keys() - {"typed"}) <= MOST_ARGUMENTS[script]


@pytest.mark.parametrize("script", NAMES)
def test_a_script_is_simple_code(script):
    assert len(blocks(TEXTS[script])["main"].splitlines()) <= 60
    assert max(map(len, TEXTS[script].splitlines())) <= 100
    for name, source in blocks(TEXTS[script]).items():
        assert depth(ast.parse(source)) <= 3, name
