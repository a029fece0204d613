"""The documentation as the tests see it: its sources, and its site, built once per session."""

import atexit
import functools
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(ROOT), str(DOCS), str(DOCS / "_ext")]

import scripts  # noqa: E402, F401

PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "_generated"} & set(p.parts))
MARKDOWN = [*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *PAGES]


def relative(path):
    return str(path.relative_to(ROOT))


@functools.cache
def build(docs=DOCS):
    """(folder of the built site, exit code, what sphinx-build printed). Warnings are errors."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed (requirements-dev.txt)")
    folder = Path(tempfile.mkdtemp(prefix="docs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-c", str(DOCS), str(docs), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    return folder, done.returncode, done.stdout + done.stderr


def fences(text):
    """[(language, body)] of the fenced code blocks of a Markdown text."""
    return re.findall(r"^ *(?:```|~~~)(\S*)[^\n]*\n(.*?)^ *(?:```|~~~) *$", text, re.M | re.S)


def outside_fences(text):
    return re.sub(r"^ *(```|~~~).*?^ *\1 *$", "", text, flags=re.M | re.S)
