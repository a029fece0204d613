"""The built site in a real browser: Debian's Chromium, driven by Playwright."""

import pytest
from chromium import PHONE, open_page
from docs_site import build

# The first test builds the site.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.xdist_group("site")]
SCRIPTS = ["ddpg", "td3", "sac", "rdpg", "rtd3", "rsac", "rsac_sharing", "conv_sac"]


@pytest.fixture(scope="module")
def site():
    folder, code, output = build()
    assert code == 0, output[-2000:]
    return folder


def test_no_page_has_a_console_error_a_missing_file_or_a_network_request(browser, site):
    page, trouble = open_page(browser)
    for path in sorted(site.rglob("*.html")):
        page.goto(f"file://{path}")
        assert trouble == [], path.name
    page.close()


def test_every_formula_is_laid_out_by_the_browser_and_none_is_left_as_latex(browser, site):
    formulas = 0
    for name in ("sac", "rsac", "td3"):
        page, _ = open_page(browser, site / f"{name}.html")
        boxes = page.eval_on_selector_all(
            "math", "all => all.map(m => m.getBoundingClientRect()).map(b => [b.width, b.height])"
        )
        formulas += len(boxes)
        assert all(width > 3 and height > 3 for width, height in boxes)
        # A fraction or a sub-script is drawn below or above its line, so formulas differ in height.
        assert len({round(height) for _, height in boxes}) > 1
        text = page.eval_on_selector("article", "a => a.innerText")
        assert "\\frac" not in text
        assert "$" not in text
        page.close()
    assert formulas > 20


def test_the_built_page_lets_a_policy_run_and_is_a_film_without_javascript(browser, site):
    page, trouble = open_page(browser, site / "poke.html")
    page.wait_for_function("poke.shown.length > 0")
    for i in range(page.evaluate("poke.shown.length")):  # each plays while it is in view
        page.locator(".poke-scene").nth(i).scroll_into_view_if_needed()
        page.wait_for_function(f"poke.shown[{i}].count > 5")
    assert page.locator(".poke canvas").count() == 2 * page.evaluate("poke.shown.length")
    assert page.locator("article img").count() == 0
    assert "input_scale" not in page.locator("article").inner_text()  # the weights are not text
    assert trouble == []
    page.close()
    page, _ = open_page(browser, site / "poke.html", java_script_enabled=False)
    box = page.locator("article img").first.bounding_box()
    assert box["width"] > 200
    assert page.locator("canvas").count() == 0
    page.close()


def test_the_search_finds_padding_without_a_server(browser, site):
    page, trouble = open_page(browser, f"{site / 'search.html'}?q=padding")
    page.wait_for_selector("ul.search li a", timeout=20_000)
    titles = page.eval_on_selector_all("ul.search li a", "all => all.map(a => a.innerText)")
    assert "Memory in replay" in titles
    assert trouble == []
    page.close()


def test_no_page_scrolls_sideways_on_a_phone(browser, site):
    too_wide = {}
    page, _ = open_page(browser, viewport=PHONE)
    for path in sorted(site.rglob("*.html")):
        page.goto(f"file://{path}")
        # The theme hides what sticks out of the page and lets `.content` scroll in its place.
        width = page.evaluate(
            "Math.max(...[...document.querySelectorAll('html, body, .main, .content')]"
            ".map(box => box.scrollWidth))"
        )
        if width > PHONE["width"]:
            too_wide[path.name] = width
    page.close()
    assert too_wide == {}


PAGES = ["reading", "partial_observability", "memory_in_replay", "effects"]


@pytest.mark.parametrize("name", [*SCRIPTS, *PAGES])
def test_every_picture_of_a_page_is_shown(browser, site, name):
    page, _ = open_page(browser, site / f"{name}.html")
    pictures = page.eval_on_selector_all(
        "article img", "all => all.map(i => [i.src, i.complete && i.naturalWidth > 0])"
    )
    assert pictures
    assert [source for source, shown in pictures if not shown] == []
    page.close()
