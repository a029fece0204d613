"""Takes screenshots of the page where policies run: before and after a push, wiped, dark, on a
phone.

    make docs
    python -m benchmark.poke_pictures docs/_build/html/poke.html --out .

Needs Chromium (apt-get install chromium) and requirements-dev.txt.
"""

import shutil
from pathlib import Path

from benchmark import check_package
from common.cli import Parser, integer, run_cli
from common.errors import UserError

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 812}
TICKS = "([shown, n]) => shown.forEach((play) => { for (let k = 0; k < n; k++) play.tick(); })"


def parse_args(argv=None):
    parser = Parser(__doc__)
    add = parser.add_argument
    add("page", type=Path, help="poke.html of the built site")
    add("--out", type=Path, default=Path("."), help="folder for the pictures")
    add("--steps", type=integer(1), default=150, help="steps before the push")
    return parser.parse_args(argv)


def main(args):
    check_package("playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise UserError("this needs Chromium: apt-get install chromium")
    for path, is_there in ((args.page, Path.is_file), (args.out, Path.is_dir)):
        if not is_there(path):
            raise UserError(f"{path} is not there")
    from playwright.sync_api import sync_playwright

    looks = {
        "light": {"viewport": DESK},
        "dark": {"viewport": DESK, "color_scheme": "dark"},
        "phone": {"viewport": PHONE, "has_touch": True},
    }
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for look, options in looks.items():
            # Less motion: the page waits, so that the pictures do not depend on the clock.
            page = browser.new_page(reduced_motion="reduce", **options)
            page.goto(args.page.resolve().as_uri())
            shown = page.evaluate_handle("poke.shown")

            def step(count, name, page=page, shown=shown, look=look):
                page.evaluate(TICKS, [shown, count])
                for button in page.get_by_role("button", name="Step", exact=True).all():
                    button.click()
                path = args.out / f"poke-{look}-{name}.png"
                page.screenshot(path=path, full_page=True, timeout=0)
                print(path)

            step(args.steps, "before")
            for name in ("Push ↺", "Target ↑"):
                for button in 3 * page.get_by_role("button", name=name).all():
                    button.click()
            step(10, "pushed")
            for choice in page.get_by_label("At each step its memory holds").all():
                choice.select_option("1")
            step(60, "wiped")
            page.close()
        browser.close()


if __name__ == "__main__":
    run_cli(main, parse_args())
