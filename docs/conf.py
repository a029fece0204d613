"""Sphinx configuration: MyST Markdown, the furo theme, nothing fetched from the network.

sphinx-build -W --keep-going -b html docs docs/_build/html
"""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_ext"), str(DOCS.parent)]

project = "Recurrent off-policy RL"
author = "the contributors"
copyright = "the contributors, MIT licence"
html_title = project

extensions = ["myst_parser", "mathml", "poke", "quotes"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["poke_*.md", "_build", "_ext"]
myst_enable_extensions = ["dollarmath", "amsmath", "deflist"]
myst_heading_anchors = 4
# `script:` links lead to the highlighted source made by quotes.py; they are written as ../sac.py.
myst_url_schemes = {
    "http": None,
    "https": None,
    "mailto": None,
    "script": {"url": "_code/{{path}}.html#{{fragment}}"},
}

smartquotes = False  # they make one dash of the two in `--evaluate` where it stands in plain text
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_copy_source = False
html_show_sphinx = False
# Summaries are fetched page by page, which browsers forbid for files: search would need a server.
html_show_search_summary = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_math_renderer = "mathml"
