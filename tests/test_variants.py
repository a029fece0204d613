"""Variants: scripts with a few lines replaced, in benchmark/variants."""

import csv
import subprocess
import sys

import pytest
from script_runs import ROOT, tiny

from benchmark.variants import variant

FOLDER = ROOT / "benchmark" / "variants"
VARIANTS = sorted(path.stem for path in FOLDER.glob("*-*.py"))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_learns_and_its_run_bears_its_name(name, tmp_path):
    script = variant.script_of(name)
    more = ["--log-dir", tmp_path, "--hidden-dims", 6, 5, "--buffer-size", 400]
    argv = tiny(script, *more, env="Pendulum-v1")
    command = [sys.executable, FOLDER / f"{name}.py", *argv]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (folder,) = tmp_path.iterdir()
    assert folder.name.startswith(f"Pendulum-v1__{name}__0__")
    rows = list(csv.DictReader((folder / "progress.csv").read_text().splitlines()))
    assert int(rows[-1]["num_updates"]) > 0


def test_a_variant_of_a_text_that_is_not_there_once_is_refused():
    for old in ("no such line", "\n"):
        with pytest.raises(ValueError, match="not once"):
            variant.changed_source("sac", "sac-new", [(old, "")])


def test_a_variant_differs_from_its_script_in_its_name_and_the_lines_it_replaces():
    script = (ROOT / "sac.py").read_text().splitlines()
    source = variant.changed_source("sac", "sac-new", [("log_std.clamp(-20, 2)", "log_std")])
    changed = [b for a, b in zip(script, source.splitlines(), strict=True) if a != b]
    assert changed == ["        return mean, log_std", 'SCRIPT = "sac-new"']
