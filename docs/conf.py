"""How Sphinx makes a site of these pages: ``sphinx-build docs site``. It needs no network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

project = "drainer"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
autodoc_preserve_defaults = python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"
python_maximum_signature_line_length = 80
html_theme = "furo"
html_title = "drainer"
html_static_path = ["img"]
html_extra_path = ["llms.txt", "reference/output.schema.json"]  # At the root of the site.
html_css_files = ["site.css"]
html_show_copyright = html_show_sphinx = False
html_copy_source = html_show_sourcelink = False
myst_heading_anchors = 4

# The order in which a kind of page is read; what isn't named follows, by name.
KINDS = {
    "How to": [
        "tonight",
        "lag",
        "inspect",
        "check-a-handler",
        "failures",
        "hot-key",
        "customer-first",
        "follow",
    ],
    "Reference": [
        "cli/index",
        "python",
        "handler",
        "configuration",
        "rules",
        "exit-codes",
        "failure-modes",
    ],
    "Explanation": ["how-it-works", "correctness", "proofs"],
    "Contributing": ["architecture", "decisions", "kafka", "style"],
}


def navigation() -> str:
    """Tables of contents, which would be noise where Markdown is read as it is."""
    here = Path(__file__).parent
    parts = ["\n```{toctree}\n:hidden:\n\ntutorial\n```\n"]
    for title, first in KINDS.items():
        folder = title.lower().replace(" ", "")
        found = sorted(path.stem for path in (here / folder).glob("*.md"))
        pages = "\n".join(f"{folder}/{name}" for name in dict.fromkeys((*first, *found)))
        parts.append(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{pages}\n```\n")
    return "".join(parts)


def prepare(app: Any, name: str, source: list[str]) -> None:
    """Adds the navigation; what lies outside of the site is named there, not linked."""
    source[0] = re.sub(r"\[([^\]]+)\]\((?:\.\./)+[A-Z]\w+\.md\)", r"\1", source[0])
    if name == "index":
        source[0] += navigation()
    if name == "reference/cli/index":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"


def setup(app: Any) -> None:
    app.connect("source-read", prepare)
