"""Formulas as MathML, written when the site is built: browsers typeset it without scripts or fonts."""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

from tensorprog.blocks.markup import Html
from tensorprog.blocks.mathml import displayed, mathml

logger = logging.getLogger(__name__)

UNKNOWN = re.compile(r"<mtext>(\\[A-Za-z]+)</mtext>")  # commands that are shown as they are written


def written(formula: Html, place: nodes.Node) -> str:
    """A formula of a page, with a warning for every command in it that is not known."""
    for command in UNKNOWN.findall(formula):
        logger.warning("formula: %s is not known", command, location=place)
    return formula


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a sentence."""
    writer.body.append(written(mathml(node.astext()), node))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    r"""Write a formula on lines of its own; or several with text between, as notebooks have them: f \] text \[ g."""
    writer.body.append(written(displayed(rf"\[{node.astext()}\]"), node))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
