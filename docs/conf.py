"""How Sphinx builds the site: `make docs`.

The source is the whole repository, so that links between documents hold there and on the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "clusterdp"
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md"]
exclude_patterns = [".*", "build", "dist", "site", "src", "tests", "bench", "examples"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sitepages.extension"]
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]  # as GitHub writes formulas
myst_heading_anchors = 4  # links to headings, named as GitHub names them

# Docstrings are Google's, and `name` in them is code.
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": False}
maximum_signature_line_length = 80
# Types in signatures: those of other libraries and those that are not public have no page here.
nitpick_ignore_regex = [(r"py:class", r".*")]

highlight_language = "text"  # of blocks that name no language
smartquotes = False  # two hyphens are an option, not a dash

html_theme = "furo"
html_title = "clusterdp"
html_math_renderer = "drawings"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["_front"]  # the first page of the folder leads to docs/index.html
html_copy_source = False
html_show_sphinx = False
html_show_search_summary = False  # pages opened from disk may not read each other
html_show_copyright = False
# The colors of the pages of plans, folders and reports.
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b5fa5", "color-brand-content": "#0b5fa5"},
    "dark_css_variables": {"color-brand-primary": "#74b6f5", "color-brand-content": "#74b6f5"},
}
