"""The derivation of a limit as formulas, as far as it comes within a few seconds."""

from __future__ import annotations

import time

from tensorprog.language.errors import TensorprogError
from tensorprog.language.ir import Netsor
from tensorprog.show.markup import Html, details, joined, paragraph
from tensorprog.show.mathml import displayed, numbered

__all__ = ["derived"]

SECONDS = 5.0  # beyond which no further line is begun


def derived(netsor: Netsor, grade: str, seconds: float = SECONDS) -> Html:
    """Line by line: statement, clause of Definition 1, formula; or why there are none."""
    from tensorprog.limit.formulas.derivation import NOTATION, blocks
    from tensorprog.limit.formulas.law import SymbolicLaw

    lines: list[str] = []
    remark = ""
    end = time.monotonic() + seconds
    try:
        for line in blocks(SymbolicLaw(netsor, grade=grade)):
            lines.append(line)
            if time.monotonic() > end:
                remark = (f"Formulas beyond {seconds:.3g} seconds of work are left out here; "
                          "`tp limit FILE --latex` writes them all.")
                break
    except TensorprogError as error:
        remark = f"Not all is written as formulas, numbers are below: {error}." if lines else (
            f"The limit of this program is given in numbers, not in formulas: {error}.")
    whole = "\n".join(lines)
    meanings = " ".join(meaning for mark, meaning in NOTATION.items() if mark in whole)
    steps = details("The derivation by Definition 1, line by line", numbered(lines), opened=True) if lines else ""
    return joined([displayed(meanings), steps, paragraph(remark) if remark else ""])
