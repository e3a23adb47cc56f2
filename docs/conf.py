"""How Sphinx builds the documentation site; ``make docs`` runs it, without a network and with warnings as errors."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]

project = "margrave"
author = "The margrave developers"
project_copyright = author
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist"]
# Links to headings, as a code host makes them: [the file](domain.md#the-file).
myst_heading_anchors = 3
# The pages are written for a code host too, where a heading may follow one of two levels above.
suppress_warnings = ["myst.header"]

# Options such as --delta stay as they are typed.
smartquotes = False

# Docstrings are in the numpy convention, with `names` in single backticks.
default_role = "code"
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True}
autoclass_content = "class"
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = f"margrave {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_exclude = ".linenos, .gp"
