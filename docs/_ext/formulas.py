"""Formulas as MathML, written by docutils when the site is built: browsers typeset it without scripts or fonts."""

from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml
from sphinx.application import Sphinx

# what docutils would set as an apostrophe, as relations, and with the spaces of a relation
LATEX = {"'": r"^\prime ", r"\lvert": r"\left|", r"\rvert": r"\right|", r"\left(x \right)": "(x)"}
MATHML = {'<mo stretchy="false">/</mo>': '<mo lspace="0" rspace="0">/</mo>'}


def mathml(formula: str, block: bool) -> str:
    """A formula of LaTeX as MathML."""
    for written, meant in LATEX.items():
        formula = formula.replace(written, meant)
    text: str = latex2mathml.tex2mathml(formula, as_block=block)
    for written, meant in MATHML.items():
        text = text.replace(written, meant)
    return text


def inline(writer: Any, node: nodes.math) -> None:
    """Write a formula in a sentence."""
    writer.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own."""
    writer.body.append(f'<div class="formula">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way formulas are written."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
