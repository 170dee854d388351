"""Sphinx configuration; `make docs` runs it."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from unittest.mock import MagicMock

import tensorlang

sys.path.insert(0, str(Path(__file__).with_name("extension")))

gc.set_threshold(200_000)  # documents are trees: of 700 objects, few are garbage

project = "tensorlang"
version = release = tensorlang.__version__
extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "myst_parser",
    "matplotlib.sphinxext.plot_directive",
    "site_hooks",
]
exclude_patterns = templates_path = ["templates"]
nitpicky = True  # unknown references are warnings, which fail `make docs`
suppress_warnings = ["config.cache"]  # template functions are not cached
default_role = "py:obj"  # `name` in a docstring links to a public name
myst_heading_anchors = 3

html_theme = "pydata_sphinx_theme"
html_title = f"tensorlang {version}"
html_theme_options = {"show_toc_level": 2}
html_copy_source = False
html_show_sourcelink = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"

# for `tensorlang.interop` without its frameworks
autodoc_mock_imports = ["torch"]
_JAX = ("jax", "jax.extend", "jax.extend.core", "jax.interpreters")
sys.modules |= dict.fromkeys(_JAX, MagicMock())

plot_formats = ["svg"]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_rcparams = {"svg.fonttype": "none"}
