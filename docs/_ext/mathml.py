"""Formulas as MathML, made at build time by docutils: no script, no font, no network."""

import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.util import logging

logger = logging.getLogger(__name__)
UNBRACED = re.compile(r"\\frac\s*[^{\s]")
ACCENT = re.compile(r"\\(?:bar|dot|hat|tilde)\s*\{?\s*\\?\w+\s*\}*[_^]")


def convert(node, as_block):
    """LaTeX of a math node -> MathML; a warning where docutils cannot read it."""
    latex = node.astext()
    if UNBRACED.search(latex):
        logger.warning("write \\frac{a}{b}: docutils misreads \\frac12", location=node)
    if ACCENT.search(latex):
        logger.warning("docutils misreads an index on an accent, as in \\bar Q_i", location=node)
    try:
        return latex2mathml.tex2mathml(latex, as_block=as_block)
    except MathError as error:
        logger.warning("formula %r: %s", latex, error, location=node)
        return latex


def visit_math(self, node):
    self.body.append(convert(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(self, node):
    self.body.append(f'<div class="math-block">{convert(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
