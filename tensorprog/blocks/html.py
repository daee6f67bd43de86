"""Blocks as HTML, for notebooks and the page, by a template that escapes every text.

Pictures stand in it as images, in which nothing is executed; formulas in LaTeX as MathML, which browsers show without
scripts or fonts of their own.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tensorprog.blocks import COLOURS, Block, badge, to_text

__all__ = ["Printed", "Shown", "displayed", "mathml", "template", "to_html"]


PIECE = re.compile(r"(\\\[.*?\\\]|\\begin\{multline\*\}.*?\\end\{multline\*\}|\$[^$]+\$)", re.DOTALL)
AROUND = re.compile(r"\\\[|\\\]|\\(begin|end)\{multline\*\}|\$")


class Shown:
    """A result that notebooks show: its blocks say what."""

    def blocks(self) -> Iterable[Block]:
        """What is to be seen, as blocks of `tensorprog.blocks`."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return f'<div style="max-width:75em">{to_html(self.blocks())}</div>'


class Printed(Shown):
    """A result that is printed as its blocks, too."""

    def __str__(self) -> str:
        return to_text(self.blocks())

    __repr__ = __str__


def to_html(blocks: Iterable[Block]) -> Any:
    """Blocks one below the other, as markup that templates take as it is."""
    from markupsafe import Markup

    helpers = {"badge": badge, "colours": COLOURS, "displayed": displayed, "base64": b64encode}
    named = [(type(block).__name__, block) for block in blocks]
    return Markup(template(Path(__file__).with_name("blocks.html.j2")).render(blocks=named, **helpers))


@cache
def template(path: Path) -> Any:
    """A template in a file; what it is given is escaped unless it is markup."""
    from jinja2 import Environment, FileSystemLoader

    return Environment(loader=FileSystemLoader(path.parent), autoescape=True).get_template(path.name)


# ---- formulas --------------------------------------------------------------------------------------------------------


def displayed(text: str) -> Any:
    """Prose with formulas in $ $, and displayed ones; all else is text."""
    from markupsafe import Markup

    shown = []
    for number, piece in enumerate(PIECE.split(text)):
        if number % 2:
            shown.append(mathml(AROUND.sub("", piece), block=not piece.startswith("$")))
        else:
            shown.append(Markup("<br>").join(filter(None, map(str.strip, piece.splitlines()))))
    return Markup(" ").join(shown)


def mathml(formula: str, block: bool = False) -> Any:
    """One formula, of several lines where backslashes break it; what is not understood is shown as it is written."""
    from latex2mathml.converter import convert
    from markupsafe import Markup

    lines = (
        formula if r"\begin" in formula or r"\\" not in formula else rf"\begin{{array}}{{l}} {formula} \end{{array}}"
    )
    try:
        return Markup(convert(lines, display="block" if block else "inline"))
    except Exception:  # of a converter that has no error of its own
        return Markup("<code>{}</code>").format(formula.strip())
