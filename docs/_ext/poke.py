"""Puts policies into docs/poke.md: the script that runs them, and their weights.

Weights are part of the page, since a browser loads no JSON beside a page that is a file. A part
about a policy that does not exist yet, in docs/poke_NAME.md, is left out until
docs/poke/NAME.json exists.
"""

from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]


def policies(docs=DOCS):
    """The JSON files of the policies, in the order of the page."""
    return sorted((docs / "poke").glob("*.json"))


def add_parts(app, docname, source):
    """Adds to the page the texts on policies that exist."""
    if docname != "poke":
        return
    parts = [app.srcdir / f"poke_{path.stem}.md" for path in policies(app.srcdir)]
    for part in parts:
        if part.exists():
            source[0] += "\n" + part.read_text()


def add_policies(app, pagename, templatename, context, doctree):
    """Adds script and weights to the HTML of the page."""
    if pagename != "poke":
        return
    app.add_js_file("poke.js", defer="defer")
    for path in policies(app.srcdir):
        data = path.read_text()
        context["body"] += f'<script type="application/json" class="poke-data">{data}</script>\n'


def always(app, env, added, changed, removed):
    """Builds the page anew each time: its sources do not tell that a policy has come or gone."""
    return ["poke"]


def setup(app):
    app.connect("env-get-outdated", always)
    app.connect("source-read", add_parts)
    app.connect("html-page-context", add_policies)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
