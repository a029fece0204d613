"""Pages in a browser, for tests of what a reader sees; the fixture `browser` is in conftest.py."""

PHONE = {"width": 375, "height": 812}


def open_page(browser, path=None, viewport=None, **context):
    """(page, list that fills with what goes wrong: console errors, exceptions, requests)."""
    page = browser.new_page(viewport=viewport or {"width": 1280, "height": 900}, **context)
    trouble = []
    page.on("console", lambda m: m.type == "error" and trouble.append(m.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("requestfailed", lambda request: trouble.append(request.url))
    page.on("request", lambda r: r.url.startswith("http") and trouble.append(r.url))
    if path:
        page.goto(f"file://{path}")
    return page, trouble
