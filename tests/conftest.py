"""Settings for all tests: one thread each, since two tests run side by side. One browser a file."""

import os
import shutil
import sys

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


@pytest.fixture(autouse=True)
def own_arithmetic():
    """A run that a test makes in this process rounds the smallest numbers to 0 (`set_up_torch`)."""
    yield
    if "torch" in sys.modules:
        sys.modules["torch"].set_flush_denormal(False)


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
