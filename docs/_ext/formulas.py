"""Formulas as MathML, written when the site is built: browsers typeset it without scripts or fonts."""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

from tensorprog.blocks.html import displayed, mathml


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a sentence."""
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    r"""Write a formula on lines of its own; or several with text between, as notebooks have them: f \] text \[ g."""
    writer.body.append(displayed(rf"\[{node.astext()}\]"))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
