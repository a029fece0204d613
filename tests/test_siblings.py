"""The scripts are read as diffs of each other: what is shared is the same to the letter."""

import ast
import difflib
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAMES = ["ddpg", "td3", "sac", "rdpg", "rtd3", "rsac", "rsac_sharing", "conv_sac"]
TEXTS = {
    name: (ROOT / f"{name}.py").read_text() for name in NAMES if (ROOT / f"{name}.py").exists()
}

FEED_FORWARD = {"ddpg", "td3", "sac"}
RECURRENT = {"rdpg", "rtd3", "rsac", "rsac_sharing"}
DETERMINISTIC = {"ddpg", "td3", "rdpg", "rtd3"}
WITH_ENTROPY = {"sac", "rsac", "rsac_sharing", "conv_sac"}
# Each script has its own.
OWN = {"parse_args", "Agent", "update", "main", "SCRIPT"}
# The algorithm, the memory or the pictures change these; among these scripts they are the same.
SHARED = [
    ("Actor", DETERMINISTIC),
    ("Actor", WITH_ENTROPY),
    ("actor_loss", {"ddpg", "rdpg"}),
    ("actor_loss", {"td3", "rtd3"}),
    ("actor_loss", WITH_ENTROPY),
    ("critics_loss", {"td3", "rtd3"}),
    ("critics_loss", WITH_ENTROPY),
    ("Critics", {"td3", "sac"}),
    ("Critics", {"rtd3", "rsac"}),
    ("make_optimizers", {"sac", "conv_sac"}),
    ("ReplayBuffer", FEED_FORWARD),
    ("ReplayBuffer", RECURRENT - {"rsac_sharing"}),  # that one also stores the hidden state
    ("evaluate", FEED_FORWARD | {"conv_sac"}),
    ("evaluate", RECURRENT),
]

BANNERS = [
    "1. Arguments",
    "2. Replay buffer",
    "3. Networks",
    "4. Losses",
    "5. Evaluation",
    "6. The run",
]
# Code lines added plus removed, comments and docstrings aside: measured, and a little room.
BUDGETS = {("ddpg", "td3"): 56, ("td3", "sac"): 100}


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
    for script in sorted(scripts & TEXTS.keys()):
        if name in (its := blocks(TEXTS[script])):
            found.setdefault(its[name], []).append(script)
    return found


def names_of(scripts):
    return {name for script in scripts & TEXTS.keys() for name in blocks(TEXTS[script])}


def between(text, start, end):
    """The lines from the one that holds `start` up to the one that holds `end`."""
    lines = text.splitlines()
    first = next(k for k, line in enumerate(lines) if start in line)
    last = next(k for k, line in enumerate(lines) if end in line and k > first)
    return "\n".join(lines[first:last])


def code_lines(text):
    """Lines without comments, docstrings and the choices of a formatter."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree).splitlines()


def diff_size(a, b):
    a, b = code_lines(TEXTS[a]), code_lines(TEXTS[b])
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return sum(i2 - i1 + j2 - j1 for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def test_the_scripts_are_there():
    assert TEXTS.keys() >= FEED_FORWARD


@pytest.mark.parametrize("name", sorted(names_of(set(NAMES)) - OWN - {name for name, _ in SHARED}))
def test_blocks_of_one_name_are_the_same_to_the_letter(name):
    found = versions(name, set(NAMES))
    assert len(found) == 1, list(found.values())


@pytest.mark.parametrize(("name", "scripts"), SHARED)
def test_blocks_that_some_scripts_share_are_the_same_to_the_letter(name, scripts):
    assert list(versions(name, scripts).values()) == [sorted(scripts)]


@pytest.mark.parametrize("script", TEXTS)
def test_sections_stand_in_the_agreed_order(script):
    assert re.findall(r"^# ---- (.*) ----$", TEXTS[script], re.MULTILINE) == BANNERS


@pytest.mark.parametrize("script", TEXTS)
def test_a_script_is_short_and_its_lines_are_too(script):
    lines = TEXTS[script].splitlines()
    assert max(map(len, lines)) <= 100
    if script in FEED_FORWARD:
        assert 200 <= len(list(filter(None, lines))) <= 400


@pytest.mark.parametrize("group", ["run", "schedule", "networks", "algorithm", "evaluation"])
def test_argument_groups_of_the_feed_forward_scripts_are_the_same_to_the_letter(group):
    assert len({argument_group(script, group) for script in FEED_FORWARD}) == 1


def argument_group(script, group):
    """Source of one argument group, from its first line to the next blank line."""
    source = blocks(TEXTS[script])["parse_args"]
    start = source.index(f'    add = parser.add_argument_group("{group}')
    return re.split(r"\n\n|\n    args = |\n    return ", source[start:])[0]


@pytest.mark.parametrize("group", ["run", "schedule", "networks", "algorithm", "evaluation"])
def test_shared_argument_groups_have_the_same_names_in_the_same_order(group):
    found = {script: re.findall(r'"(--[\w-]+)"', argument_group(script, group)) for script in TEXTS}
    # Of the recurrent networks and of pixels, --compile would not be faster.
    names = {tuple(name for name in its if name != "--compile") for its in found.values()}
    assert len(names) == 1


PARTS = [
    ("# Act", "# Step and store", FEED_FORWARD | {"conv_sac"}),
    ("# Act", "# Step and store", RECURRENT),
    ("# Step and store", "# Learn", FEED_FORWARD),
    ("# Step and store", "# Learn", RECURRENT - {"rsac_sharing"}),
    ("# Show and save", "return run.finish()", set(NAMES)),
    ("def evaluate_and_log", "# Act", set(NAMES)),
    ("    agent = Agent(", "global_step = num_updates = 0", FEED_FORWARD),
    ("    agent = Agent(", "global_step = num_updates = 0", RECURRENT - {"rsac_sharing"}),
    ("    if state is None:", "def evaluate_and_log", FEED_FORWARD | {"conv_sac"}),
    ("    if state is None:", "def evaluate_and_log", RECURRENT),
]


@pytest.mark.parametrize(("start", "end", "scripts"), PARTS, ids=[start for start, *_ in PARTS])
def test_parts_of_main_are_the_same_to_the_letter(start, end, scripts):
    found = {}
    for script in sorted(scripts & TEXTS.keys()):
        part = between(blocks(TEXTS[script])["main"], start, end)
        found.setdefault(part, []).append(script)
    assert len(found) == 1, list(found.values())


@pytest.mark.parametrize(("script", "sibling"), BUDGETS)
def test_a_sibling_is_a_small_diff(script, sibling):
    assert diff_size(script, sibling) <= BUDGETS[script, sibling]
