"""Settings for all tests: one thread each, since two tests run side by side."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_terminal_summary(terminalreporter):
    """Says in one line what was skipped, and why."""
    skipped = {}  # reason -> tests, or files where a whole one was skipped
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        skipped.setdefault(reason, set()).add(report.nodeid)
    if skipped:
        reasons = []
        for reason, ids in skipped.items():
            files = sorted({name.split("::")[0].removeprefix("tests/") for name in ids})
            reasons.append(f"{len(ids)} in {', '.join(files)} ({reason})")
        terminalreporter.write_line(f"skipped: {'; '.join(reasons)}")
