"""Quotes the scripts at build time, so that a page can only show the code that runs.

A line of Markdown that is nothing but one of these links is replaced when the site is built; on
GitHub it stays a link to the script:

    [rsac.py: soft_update](../rsac.py)            function, class, `Class.method`, `main # Learn`
    [rsac.py: arguments](../rsac.py)              table of arguments, from the script's parser
    [diff sac.py rsac.py](../rsac.py)             the whole diff, folded
    [diff sac.py rsac.py: Agent](../rsac.py)      of one function or class
    [sizes of the diffs](../sac.py)               table: script, sibling, lines
    [include CHANGELOG.md](../CHANGELOG.md)       a Markdown file, without its title

A name that a script does not have is a warning, which `make docs` treats as an error.
"""

import re

import scripts
from docutils import nodes
from sphinx.directives.code import container_wrapper
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

logger = logging.getLogger(__name__)

ALONE = re.compile(r"^\[((?:\w+\.py: |diff |sizes of |include )[^\]]+)\]\(\.\./[\w./]+\)$", re.M)
LINK = re.compile(r"\[([^\]]+)\]\(\.\./(\w+)\.py(#[\w.]+)?\)")


def replace_links(app, docname, source):
    """Quotes become directives; other links to scripts lead to their highlighted source."""
    text = ALONE.sub(r"```{quote}\n\1\n```", source[0])
    source[0] = LINK.sub(_link, text)


def _link(match):
    text, script, fragment = match[1], match[2], match[3] or ""
    if script not in scripts.EXTENDS:
        return match[0]
    return f"[{text}](script:{script}{fragment})" if scripts.path_of(script).exists() else text


class Quote(SphinxDirective):
    """Body: the text of one of the links above."""

    has_content = True

    def run(self):
        text = self.content[0]
        if text.startswith("include "):
            return self.include(text.removeprefix("include "))
        if text == "sizes of the diffs":
            for script in scripts.existing():
                self.env.note_dependency(str(scripts.path_of(script)))
            return self.markdown(sizes())
        names = [name for name in re.findall(r"(\w+)\.py", text) if name in scripts.EXTENDS]
        for name in names:
            if not scripts.path_of(name).exists():
                return self.markdown([f"*{name}.py is not in the repository yet.*"])
            self.env.note_dependency(str(scripts.path_of(name)))
        what = text.partition(": ")[2]
        try:
            if what == "arguments":
                return self.markdown(arguments(names[0]))
            if text.startswith("diff "):
                return self.diff(*names, what or None)
            return self.code(scripts.quote(names[0], what), "python", names[0], what)
        except KeyError:
            return [self.error(f"{names[-1]}.py has no {what}")]

    def error(self, message):
        return self.state.document.reporter.warning(message, line=self.lineno)

    def markdown(self, lines):
        return self.parse_text_to_nodes("\n".join(lines))

    def include(self, name):
        path = scripts.ROOT / name
        self.env.note_dependency(str(path))
        if not path.exists():
            return self.markdown([f"*{name} is not in the repository yet.*"])
        lines = path.read_text().splitlines()
        body = lines[1:] if lines[0].startswith("# ") else lines
        return self.parse_text_to_nodes("\n".join(body), allow_section_headings=True)

    def code(self, text, language, script, what):
        literal = nodes.literal_block(text, text, language=language)
        literal["classes"] = ["quoted"]
        self.set_source_info(literal)
        anchor = what.split(" ")[0].split(".")[0]
        caption = f"[{script}.py: {escape(what)}](script:{script}#{anchor})"
        return [container_wrapper(self, literal, caption)]

    def diff(self, old, new, name):
        text = scripts.diff(old, new, name)
        if not text:
            return self.markdown([f"*No difference in `{name or 'the two files'}`.*"])
        literal = nodes.literal_block(text, text, language="diff")
        literal["classes"] = ["quoted"]
        if name:
            caption = f"[diff {old}.py {new}.py: {name}](script:{new}#{name})"
            return [container_wrapper(self, literal, caption)]
        added, removed = scripts.diff_size(old, new)
        summary = f"diff {old}.py {new}.py: {added} lines added, {removed} removed"
        opening = f"<details><summary>{summary}</summary>"
        return [
            nodes.raw("", opening, format="html"),
            literal,
            nodes.raw("", "</details>", format="html"),
        ]


def escape(text):
    """Plain text (with `code`) as a cell of a Markdown table."""
    parts = text.replace("|", "\\|").split("`")
    parts[::2] = [re.sub(r"([<>*_\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def arguments(script):
    """Markdown table of all arguments."""
    lines = []
    for title, rows in scripts.argument_groups(script):
        lines += [f"**{title}**", "", "| argument | values | default | meaning |"]
        lines += ["|---|---|---|---|"]
        lines += ["| " + " | ".join(map(escape, row)) + " |" for row in rows]
        lines += [""]
    return lines


def sizes():
    """Markdown table of scripts, siblings and the sizes of their differences."""
    lines = ["| script | lines | extends | added | removed |", "|---|---|---|---|---|"]
    for script in scripts.existing():
        old = scripts.EXTENDS[script]
        length = len(scripts.path_of(script).read_text().splitlines())
        known = old and scripts.path_of(old).exists()
        change = scripts.diff_size(old, script) if known else ("-", "-")
        sibling = f"`{old}.py`" if old else "-"
        lines += [
            f"| [{script}.py](script:{script}) | {length} | {sibling} | {change[0]} | {change[1]} |"
        ]
    return lines


def code_pages(app):
    """One page per script: its highlighted source, with an anchor at every top-level name."""
    for script in scripts.existing():
        source = scripts.path_of(script).read_text()
        html = app.builder.highlighter.highlight_block(source, "python")
        before, after = html.split("<pre>", 1)
        lines = after.split("\n")
        for name, ranges in scripts.spans(source).items():
            first = ranges[0][0]
            lines[first] = f'<span id="{name}"></span>{lines[first]}'
        body = f"<h1>{script}.py</h1>{before}<pre>" + "\n".join(lines)
        yield f"_code/{script}", {"title": f"{script}.py", "body": body}, "page.html"


def setup(app):
    app.add_directive("quote", Quote)
    app.connect("source-read", replace_links)
    app.connect("html-collect-pages", code_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
