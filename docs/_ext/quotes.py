"""Quotes the scripts at build time, so that a page can only show the code that runs.

A line of Markdown that is nothing but one of these links is replaced when the site is built; on
GitHub it stays a link to the script:

    [rsac.py: soft_update](../rsac.py)            function, class or `Class.method`
    [rsac.py: main # Learn](../rsac.py)           from this comment to the next empty line
    [rsac.py: arguments](../rsac.py)              table of arguments, from the script's parser
    [diff sac.py rsac.py](../rsac.py)             the whole diff, folded
    [diff sac.py rsac.py: Agent](../rsac.py)      of the top-level statements of one name
    [sizes of the diffs](../sac.py)               table: script, sibling, lines
    [include CHANGELOG.md](../CHANGELOG.md)       a Markdown file, without its title

Sphinx's `literalinclude` quotes the code and whole diffs. The rest it cannot do. A name that a
script does not have is a warning, which `make docs` treats as an error.
"""

import re

import scripts
from sphinx.util import logging

logger = logging.getLogger(__name__)


def replace_links(app, docname, source):
    """Lines that are a link become quotes; other links lead to the highlighted source."""
    text = source[0]
    for pattern, quote in QUOTES.items():
        text = re.sub(rf"^\[{pattern}\]\((\S+)\)$", quote, text, flags=re.M)
    if text != source[0]:
        for script in scripts.EXTENDS:
            app.env.note_dependency(str(scripts.ROOT / f"{script}.py"))
    names = "|".join(scripts.EXTENDS)
    source[0] = re.sub(rf"\]\(\.\./({names})\.py\)", r"](script:\1)", text)


def directive(name, argument, *options, body=""):
    """A directive as MyST's Markdown writes it."""
    return "\n".join([f"~~~~{{{name}}} {argument}", ":class: quoted", *options, "", body, "~~~~"])


def caption(text, script, name):
    """A link to the line of the script where a top-level name begins."""
    line = scripts.statements(script).get(name.partition(".")[0], [1])[0]
    return f':caption: "[{text}](script:{script}#L-{line})"'


def code(match):
    """A part, as in `main # Learn`, ends at an empty line, which Sphinx cannot find: we count."""
    text, script, name, part, path = match.groups()
    options = [f":pyobject: {name}", ":dedent:", ":language: python", caption(text, script, name)]
    if part:
        _, _, rest = "\n".join(scripts.block(script, name)).partition(f"# {part}")
        length = len(rest.partition("\n\n")[0].splitlines())
        options += [f':start-at: "# {part}"', f":lines: 1-{length}"]
    return directive("literalinclude", path, *options)


def diff(match):
    """Of one name as it is, of the whole scripts folded."""
    text, old, new, name, path = match.groups()
    if name:
        body = "\n".join(scripts.diff(old, new, name))
        if not body:
            logger.warning("nothing to show: %s", text)
        return directive("code-block", "diff", caption(text, new, name), body=body)
    added, removed = scripts.diff_size(old, new)
    summary = f"<summary>{text}: {added} lines added, {removed} removed</summary>"
    quote = directive("literalinclude", path, f":diff: ../{old}.py")
    return f"<details>{summary}\n\n{quote}\n\n</details>"


def shorten_paths(app, pagename, templatename, context, doctree):
    """Sphinx begins a whole diff with two absolute paths."""
    context["body"] = context.get("body", "").replace(f"{app.srcdir.parent}/", "")


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def escape(text):
    """Plain text as a cell of a Markdown table; words in backticks stay as they are."""
    return re.sub(r"`[^`]*`|[<>*_|\[\]]", lambda m: m[0] if m[0][0] == "`" else f"\\{m[0]}", text)


def arguments(match):
    """One table for each group of the script's arguments."""
    parts = []
    for group in scripts.parser_of(match[1])._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        rows = [map(escape, scripts.row_of(action)) for action in actions]
        if rows:
            head = ["argument", "values", "default", "meaning"]
            parts += [f"**{group.title}**", table(head, rows)]
    return "\n\n".join(parts)


def sizes(match):
    """Scripts, siblings and the sizes of their differences."""
    rows = []
    for script, old in scripts.EXTENDS.items():
        sibling, change = (f"`{old}.py`", scripts.diff_size(old, script)) if old else ("-", "--")
        length = len(scripts.source(script).splitlines())
        rows += [[f"[{script}.py](../{script}.py)", length, sibling, *change]]
    return table(["script", "lines", "extends", "added", "removed"], rows)


# Text of a link that stands alone -> what takes its place. The first one that fits counts.
QUOTES = {
    r"(\w+)\.py: arguments": arguments,
    r"((\w+)\.py: ([^\]]+?)(?: # ([^\]]+))?)": code,
    r"(diff (\w+)\.py (\w+)\.py(?:: ([^\]]+))?)": diff,
    r"sizes of the diffs": sizes,
    r"include [^\]]+": r"~~~~{include} \1\n:start-line: 1\n~~~~",
}


def code_pages(app):
    """One page per script: its highlighted source, with an anchor at every line."""
    for script in scripts.EXTENDS:
        highlight = app.builder.highlighter.highlight_block
        body = highlight(scripts.source(script), "python", lineanchors="L")
        context = {"title": f"{script}.py", "body": f"<h1>{script}.py</h1>{body}"}
        yield f"_code/{script}", context, "page.html"


def setup(app):
    app.connect("source-read", replace_links)
    app.connect("html-page-context", shorten_paths)
    app.connect("html-collect-pages", code_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
