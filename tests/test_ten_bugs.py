"""The bugs of docs/ten_bugs.md: the test that the page names for each does catch it."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from docs_site import DOCS, ROOT

VARIANTS = ROOT / "benchmark" / "variants"
BUGS = re.findall(
    r"rsac-bug-([\w-]+)\.py\).*?`(test_\w+\.py::test_\w+)`",
    (DOCS / "ten_bugs.md").read_text(),
    re.S,
)


def test_the_page_has_every_bug_and_a_test_for_each():
    assert len(BUGS) == 10
    assert {name for name, _ in BUGS} == {
        path.stem.removeprefix("rsac-bug-") for path in VARIANTS.glob("rsac-bug-*.py")
    }


@pytest.mark.slow
@pytest.mark.parametrize(("name", "test"), BUGS, ids=[name for name, _ in BUGS])
def test_the_test_that_the_page_names_fails_with_the_bug(name, test, tmp_path):
    # The tests look in this folder first, so they import the rsac.py that lies there.
    shutil.copy(VARIANTS / f"rsac-bug-{name}.py", tmp_path / "rsac.py")
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "-n", "0", "-m", ""]
    command += ["-o", f"pythonpath={tmp_path}"]
    command += ["-p", "no:cacheprovider", "-k", "not (rsac_sharing or rdpg or rtd3)"]
    done = subprocess.run(
        [*command, ROOT / "tests" / test],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{VARIANTS}"},
        capture_output=True,
        text=True,
    )
    # 1: a test failed. Were it not found, or not importable, the code would be another one.
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"::{test.split('::')[1]}" in done.stdout
