"""The documentation site: `python -m sphinx -n -W --keep-going docs build/site`, without network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))  # the extensions beside this file

import tensorprog

project = "tensorprog"
author = "the authors of tensorprog"
version = release = tensorprog.__version__

extensions = ["myst_nb", "sphinx_copybutton", "formulas"]
exclude_patterns = ["_ext", "_static", "runs"]
default_role = "code"
smartquotes = False  # options begin with two hyphens

# pages: MyST Markdown; those with code cells are notebooks, executed when the site is built
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_math_renderer = "mathml"  # of the extension `formulas`
html_title = "tensorprog"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, Ubuntu, sans-serif"},
}
pygments_style = "default"
pygments_dark_style = "github-dark"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True
