"""The documentation site: Sphinx with MyST's Markdown. tools/build_site.py puts the generated pages beside these
sources and runs Sphinx on both; it passes the folders in SITE_SOURCE and SITE_XML."""

import os
import pathlib
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools"))
import docstrings  # noqa: E402

source = pathlib.Path(os.environ["SITE_SOURCE"])

project = "dlaunch"
author = "the authors of dlaunch"
version = release = re.search(r"^\s*version: '([^']+)'", (source / "meson.build").read_text(), re.M).group(1)
html_title = f"dlaunch {version}"

extensions = ["myst_parser", "breathe", "autoapi.extension"]
exclude_patterns = ["tools", "source", "migrate/tables"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
# Not every domain of Sphinx finds names for Markdown; the others do. A compiled library is not read.
suppress_warnings = ["myst.domains", "autoapi.python_import_resolution"]

smartquotes = False  # "--np" is what one types

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["manual.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_sphinx = False
html_baseurl = ""

# C and C++: Doxygen's XML of the public headers.
breathe_projects = {"dlaunch": os.environ["SITE_XML"]}
breathe_default_project = "dlaunch"
breathe_domain_by_extension = {"h": "c", "hpp": "cpp"}
breathe_show_include = False

# Python: read, never imported, so that the site needs neither a build nor PyTorch.
autoapi_dirs = [str(source / "python" / "dlaunch")]
autoapi_file_patterns = ["*.pyi", "*.py"]
autoapi_generate_api_docs = False
autoapi_add_toctree_entry = False
autoapi_options = ["members", "undoc-members", "imported-members"]
add_module_names = False


def setup(app):
    app.connect("autodoc-process-docstring", docstrings.as_restructured_text)
    app.connect("autodoc-process-signature", docstrings.with_return_annotation)
