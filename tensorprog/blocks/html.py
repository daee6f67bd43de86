"""Blocks as HTML, for notebooks and the page, by a template that escapes every text.

Pictures stand in it as images, in which nothing is executed.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tensorprog.blocks import COLOURS, Block, badge
from tensorprog.blocks.text import to_text

__all__ = ["Printed", "Shown", "template", "to_html"]


class Shown:
    """A result that notebooks show: its blocks say what."""

    def blocks(self) -> Sequence[Block]:
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

    from tensorprog.blocks.formulas import displayed

    helpers = {"badge": badge, "colours": COLOURS, "displayed": displayed, "base64": _base64}
    named = [(type(block).__name__, block) for block in blocks]
    return Markup(template(Path(__file__).with_name("blocks.html.j2")).render(blocks=named, **helpers))


@cache
def template(path: Path) -> Any:
    """A template in a file; what it is given is escaped unless it is markup."""
    from jinja2 import Environment, FileSystemLoader

    return Environment(loader=FileSystemLoader(path.parent), autoescape=True).get_template(path.name)


def _base64(text: str) -> str:
    return b64encode(text.encode()).decode()
