"""Settings for all tests: one thread each, since two tests run side by side. One browser a file."""

import os
import shutil

import pytest

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


@pytest.fixture(scope="module")
def browser():
    """Debian's Chromium, driven by Playwright."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (requirements-dev.txt)"
    )
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()
