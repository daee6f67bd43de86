"""Formulas in LaTeX as MathML, which browsers show without scripts or fonts of their own."""

from __future__ import annotations

import re

from markupsafe import Markup

__all__ = ["displayed", "mathml"]

PIECE = re.compile(r"(\\\[.*?\\\]|\\begin\{multline\*\}.*?\\end\{multline\*\}|\$[^$]+\$)", re.DOTALL)
AROUND = re.compile(r"\\\[|\\\]|\\(begin|end)\{multline\*\}|\$")


def displayed(text: str) -> Markup:
    """Prose with formulas in $ $, and displayed ones; all else is text."""
    shown = []
    for number, piece in enumerate(PIECE.split(text)):
        if number % 2:
            shown.append(mathml(AROUND.sub("", piece), block=not piece.startswith("$")))
        else:
            shown.append(Markup("<br>").join(filter(None, map(str.strip, piece.splitlines()))))
    return Markup(" ").join(shown)


def mathml(formula: str, block: bool = False) -> Markup:
    """One formula, of several lines where backslashes break it; what is not understood is shown as it is written."""
    from latex2mathml.converter import convert

    lines = (
        formula if r"\begin" in formula or r"\\" not in formula else rf"\begin{{array}}{{l}} {formula} \end{{array}}"
    )
    try:
        return Markup(convert(lines, display="block" if block else "inline"))
    except Exception:  # of a converter that has no error of its own
        return Markup("<code>{}</code>").format(formula.strip())
