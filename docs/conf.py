"""The site: `make docs`. Built without network; whatever is not found is an error."""

import re
from importlib.metadata import version as version_of
from typing import Any

project = "holdfast"
author = "The holdfast authors"
copyright = "The holdfast authors, Apache-2.0"
version = release = version_of("holdfast")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
exclude_patterns = ["_build"]

default_role = "code"  # what stands between single backquotes in a docstring
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}
python_use_unqualified_type_names = True
maximum_signature_line_length = 100

html_theme = "furo"
html_title = "holdfast"
html_theme_options = {
    "announcement": "Not on PyPI: <code>pip install .</code> in a checkout"
}  # as long as a phone is wide
html_static_path = ["_site"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False


def literal_blocks(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """In our docstrings an indented block after an empty line is code, or a drawing: reStructuredText wants to be told."""
    told: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ")
        if indented and not inside and (not told or not told[-1]):
            told += ["::", ""]
        inside = indented or (inside and not line)
        told.append(line)
    lines[:] = told


_PARAMETER = re.compile(r"\s(?=`\w+`(?:, `\w+`)*(?::| and `\w+`:) )")


def parameters(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """In our docstrings a paragraph that begins with a name and a colon tells of parameters: here each is an item of a list."""
    told: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        items = _PARAMETER.split(" " + paragraph)
        if not items[0] and len(items) > 1:
            told += ["* " + " ".join(item.split()) for item in items[1:]]
        else:
            told += paragraph.split("\n")
        told.append("")
    lines[:] = told


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", parameters, priority=400)
    app.connect("autodoc-process-docstring", literal_blocks)
