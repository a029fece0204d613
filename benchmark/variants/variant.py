"""Runs a script with a few of its lines replaced: what would another choice have done?

Each file beside this one is such a question, and how to ask one of your own:

    python benchmark/variants/sac-time-limits.py --env-id pendulum-v0

It takes the arguments of the script, and its run is named after the file. The answers stand on the
pages of the algorithms, under "Differences from the paper".
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for common/ and envs/


def script_of(path):
    """The name of the script that a file in this folder changes, the first word of its own."""
    return Path(path).stem.split("-")[0]


def changed_source(script, name, changes):
    """The text of the script after the changes, pairs (old, new).

    Raises ValueError unless every old text stands in it exactly once: then the script has moved on,
    and the variant has to follow.
    """
    source = (ROOT / f"{script}.py").read_text()
    for old, new in [(f'SCRIPT = "{script}"', f'SCRIPT = "{name}"'), *changes]:
        if source.count(old) != 1:
            raise ValueError(f"{script}.py has {source.count(old)} times, not once:\n{old}")
        source = source.replace(old, new)
    return source


def run(script, *changes):
    """Runs the changed script as if it were the file that was started."""
    path = Path(sys.argv[0])
    code = compile(changed_source(script, path.stem, changes), path, "exec")
    exec(code, {"__name__": "__main__", "__file__": str(path)})
