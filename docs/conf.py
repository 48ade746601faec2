"""How Sphinx makes the site of these pages: `make docs` builds it in build/site.

The pages are plain Markdown, read by MyST; the reference of the Python API is made from docstrings.
Nothing in the site is loaded from elsewhere. tests/docs/test_site.py checks the same pages without
Sphinx.
"""

from __future__ import annotations

import os
from typing import Final

from millstream import __version__

# The compiled classes have no signatures to read; the plain versions have, and the same docstrings.
os.environ["MILLSTREAM_IMPL"] = "python"

_MONOSPACE: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, Liberation Mono, monospace"

project: Final = "Millstream"
author: Final = "The Millstream authors"
project_copyright: Final = author
version: Final = __version__
release: Final = __version__

extensions: Final = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
root_doc: Final = "index"
default_role: Final = "code"  # Docstrings put names into single backticks.
pygments_style: Final = "friendly"
pygments_dark_style: Final = "github-dark"
smartquotes: Final = False  # Quotes in headings belong to code.

myst_heading_anchors: Final = 6

autodoc_member_order: Final = "bysource"
autodoc_typehints: Final = "signature"
autodoc_preserve_defaults: Final = True
maximum_signature_line_length: Final = 88

copybutton_exclude: Final = ".linenos, .gp, .go"  # Prompts and output are not copied.

html_theme: Final = "furo"  # Dark and light, for phones too, with the previous and the next page.
html_title: Final = "Millstream"
html_copy_source: Final = False
html_show_sphinx: Final = False
html_static_path: Final = ["_static"]
html_css_files: Final = ["millstream.css"]
html_theme_options: Final = {
    "navigation_with_keys": True,
    "light_css_variables": {"font-stack--monospace": _MONOSPACE},
    "dark_css_variables": {"font-stack--monospace": _MONOSPACE},
}
