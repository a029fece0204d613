"""A script with a few of its lines replaced: what would another choice have done?

Each file beside this one is such a question, and how to ask one of your own:

    python benchmark/variants/sac-time-limits.py --env-id pendulum-v0

It takes the arguments of the script that its name begins with, and its run is named after the file.
The answers stand in docs/effects.md.
"""

import linecache
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # for common/ and envs/

# In recurrent scripts: every time limit is an end of the task, so the value beyond it is 0.
TIME_LIMITS = (
    "        buffer.add(obs, action, reward, next_obs, terminated, truncated)\n",
    "        buffer.add(obs, action, reward, next_obs, terminated | truncated, truncated)\n",
)


def script_of(path):
    """The name of the script that a file in this folder changes, the first word of its own."""
    return Path(path).stem.split("-")[0]


def changed_source(path, *changes):
    """The text of the script that the file `path` changes, after the changes, pairs (old, new).

    Raises ValueError unless every old text stands in it exactly once: then the script has moved on,
    and the variant has to follow.
    """
    script = script_of(path)
    source = (ROOT / f"{script}.py").read_text()
    name = (f'SCRIPT = "{script}"', f'SCRIPT = "{Path(path).stem}"')
    for old, new in [name, *changes]:
        if source.count(old) != 1:
            raise ValueError(f"{script}.py has {source.count(old)} times, not once:\n{old}")
        source = source.replace(old, new)
    return source


def changed(path, *changes):
    """The same, for `exec`: the file becomes the changed script, started or imported."""
    source, name = changed_source(path, *changes), f"<{Path(path).stem}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name  # tracebacks
    return compile(source, name, "exec")
