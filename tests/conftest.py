"""Settings for all tests: one thread each, since two tests run side by side."""

import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter):
    """Says in one line what was skipped, and why."""
    skipped = {}  # reason -> files, whole ones or tests in them
    for report in terminalreporter.stats.get("skipped", []):
        name, of_a_test, _ = report.nodeid.removeprefix("tests/").partition("::")
        reason = report.longrepr[2].removeprefix("Skipped: ")
        skipped.setdefault(reason, set()).add(name if of_a_test else f"all of {name}")
    if skipped:
        parts = [f"{', '.join(sorted(names))} ({reason})" for reason, names in skipped.items()]
        terminalreporter.write_line(f"skipped: {'; '.join(parts)}")
