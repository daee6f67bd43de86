"""Formulas as MathML, written by docutils when the site is built: browsers typeset it without scripts or fonts."""

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

# what docutils would set as an apostrophe, as relations, not at all, and with wide brackets
LATEX = {
    "'": r"^\prime ", r"\lvert": r"\left|", r"\rvert": r"\right|", r"\,\middle|\,": r"\mid ",
    r"\left(x \right)": "(x)",
}
# the slash of a fraction has no spaces, and indices stand beside a letter with a ring
MATHML = {
    r'<mo stretchy="false">/</mo>': '<mo lspace="0" rspace="0">/</mo>',
    r'<munderover>(\s*<mi>\w</mi>)((?:(?!<munderover>).)*?)(<mo stretchy="false">˚</mo>)\s*</munderover>':
        r'<msub><mover accent="true">\1\3</mover>\2</msub>',
}


def mathml(formula: str, block: bool) -> str:
    """A formula of LaTeX as MathML."""
    for old, new in LATEX.items():
        formula = formula.replace(old, new)
    text: str = latex2mathml.tex2mathml(formula, as_block=block)
    for old, new in MATHML.items():
        text = re.sub(old, new, text, flags=re.DOTALL)
    return text


def written(formula: str, block: bool, place: nodes.Node) -> str:
    """A formula of a page; a warning, and the LaTeX itself, where it cannot be set."""
    try:
        return mathml(formula, block)
    except MathError as error:
        logger.warning("formula: %s", error, location=place)
        return f"<code>{escape(formula)}</code>"


def sentence(text: str, place: nodes.Node) -> str:
    """Text with formulas between dollars."""
    parts = text.split("$")
    return "".join(written(part, False, place) if k % 2 else escape(part) for k, part in enumerate(parts))


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a sentence."""
    writer.body.append(written(node.astext(), False, node))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    r"""Write a formula on lines of its own; or several with text between, as notebooks have them: f \] text \[ g."""
    parts = re.split(r"\\\]|\\\[", node.astext())
    for k, part in enumerate(parts):
        if k % 2:
            writer.body.append(f"<p>{sentence(part, node)}</p>")
        else:
            writer.body.append(f'<div class="formula">{written(part, True, node)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
