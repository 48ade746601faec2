"""How Sphinx makes the site of these pages: `make docs` builds it in build/site.

The pages are plain Markdown, read by MyST; the reference of the Python API is made from docstrings.
Nothing in the site is loaded from elsewhere. tests/docs/test_site.py checks the same pages without
Sphinx.
"""

from __future__ import annotations

import os
from typing import Final

from millstream import __version__

# The compiled classes have no signatures to read; their twins in Python have, and the same words.
os.environ["MILLSTREAM_IMPL"] = "python"

project: Final = "Millstream"
author: Final = "The Millstream authors"
project_copyright: Final = author
version: Final = __version__
release: Final = __version__

extensions: Final = ["myst_parser", "sphinx.ext.autodoc"]
root_doc: Final = "index"
default_role: Final = "code"  # Docstrings put names into single backticks.
pygments_style: Final = "friendly"
smartquotes: Final = False  # Quotes in headings belong to code.

myst_heading_anchors: Final = 6

autodoc_member_order: Final = "bysource"
autodoc_typehints: Final = "signature"
autodoc_preserve_defaults: Final = True
maximum_signature_line_length: Final = 88

html_theme: Final = "alabaster"
html_title: Final = "Millstream"
html_copy_source: Final = False
html_theme_options: Final = {
    "description": "Event streaming for Python teams, by the Kafka protocol and without a JVM",
    "fixed_sidebar": True,
    "page_width": "1100px",
    "sidebar_width": "260px",
    "show_powered_by": False,
}
html_sidebars: Final = {"**": ["about.html", "searchfield.html", "navigation.html"]}
