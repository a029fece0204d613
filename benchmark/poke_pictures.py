"""Takes screenshots of the page where policies run: before and after a push, wiped, dark, small.

    make docs
    python -m benchmark.poke_pictures docs/_build/html/poke.html --out .

Needs Chromium (apt-get install chromium) and requirements-dev.txt.
"""

import shutil
from pathlib import Path

from benchmark import check_package
from common.cli import Parser, integer, run_cli
from common.errors import UserError

PHONE, DESK = {"width": 375, "height": 812}, {"width": 1280, "height": 900}
STEPS = "for (let k = 0; k < {}; k++) play.tick();"
PUSHES = "play.env.push(1.5); play.env.push(1.5);"


def parse_args(argv=None):
    parser = Parser(__doc__)
    parser.prog = "python -m benchmark.poke_pictures"
    add = parser.add_argument
    add("page", type=Path, help="poke.html of the built site")
    add("--out", type=Path, default=Path("."), help="folder for the pictures")
    add("--steps", type=integer(1), default=150, help="before the push")
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
            scene = page.locator(".poke").first
            for name, code in (
                ("before", STEPS.format(args.steps)),
                ("pushed", PUSHES + STEPS.format(10)),
                ("wiped", "play.frames = 1;" + STEPS.format(60)),
            ):
                page.evaluate(f"([play]) => {{ {code} }}", page.evaluate_handle("poke.shown"))
                page.get_by_role("button", name="Step", exact=True).first.press("Enter")
                path = args.out / f"poke-{look}-{name}.png"
                scene.screenshot(path=path)
                print(path)
            page.close()
        browser.close()


if __name__ == "__main__":
    run_cli(main, parse_args())
