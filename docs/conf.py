"""The site: `sphinx-build -W docs site`. Its pages are the Markdown files beside this one, and those of `building`."""

import sys
from pathlib import Path

from newkinds import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "newkinds"
author = "the newkinds maintainers"
copyright = "the newkinds maintainers; Apache-2.0"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "building.pages"]
exclude_patterns = ["building"]
suppress_warnings = ["misc.highlighting_failure"]  # … in a sketch of code
smartquotes = False  # --time stays two hyphens
myst_heading_anchors = 4  # the anchors that GitHub makes, which the pages link to

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 100

html_theme = "furo"  # it loads nothing from elsewhere
html_title = f"newkinds {__version__}"
html_static_path = ["building/static"]
html_css_files = ["wider.css"]
html_copy_source = False
