"""What is to be seen of a result: a list of blocks, and what shows blocks.

A result makes its blocks (`kinds`: headings, paragraphs, tables, formulas, pictures) in one place; text (`text`), HTML
(`html`, with formulas by `mathml` and pictures by `svg`) and terminals (`show.terminal`) show blocks of any kind.
Nothing here knows of programs.
"""

from tensorprog.blocks.kinds import (
    COLOURS,
    Block,
    Code,
    Folded,
    Grid,
    Heading,
    Judgement,
    Judgements,
    Mathematics,
    Paragraph,
    Picture,
    Pictures,
    Styled,
    badge,
    code,
    paragraph,
    strong,
)

__all__ = ["COLOURS", "Block", "Code", "Folded", "Grid", "Heading", "Judgement", "Judgements", "Mathematics",
           "Paragraph", "Picture", "Pictures", "Styled", "badge", "code", "paragraph", "strong"]
