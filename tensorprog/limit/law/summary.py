"""What is shown of a law: what converges to what, and the numbers that are there or come at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from tensorprog.blocks import COLOURS, Block, Grid, badge, code, paragraph, strong
from tensorprog.language.errors import TensorprogError
from tensorprog.language.formats import label, quantity
from tensorprog.language.schedule import steps
from tensorprog.limit.law.law import NumericLaw

__all__ = ["blocks_of", "converges"]

LISTED = 4  # members of a family with numbers
MATRIX = 8  # members of a family whose covariance is shown
SMALL = 64  # members of the largest family of vectors up to which covariances come at once
NUMBERS = ("mean", "var", "kurtosis")


def blocks_of(law: NumericLaw) -> list[Block]:
    """The law in short; nothing is computed that takes longer than showing it."""
    netsor, quick = law.netsor, _quick(law)
    names = (*law.outputs, *law.scores)
    rows = tuple(row for name in names for row in _rows(law, name, quick))
    grade = [" ", badge(law.grade)] if law.grade in COLOURS else []
    header = ("variable", "members", "limit", "mean", "variance", "kurtosis")
    foot = "In brackets: the error of the last digits."
    if any("" in row[3:] for row in rows):
        foot += " What is left out takes a computation: ask law.var, law.kurtosis, law.cov."
    return [
        paragraph(strong(netsor.title or netsor.name), ": infinite-width limit", *grade),
        paragraph(converges(law)),
        Grid(f"limit of {netsor.name}", header, rows, text_columns=(0, 1, 2)),
        *(shown for name in names for shown in _matrix(law, name, quick)),
        paragraph(foot, note=True),
    ]


def converges(law: NumericLaw) -> str:
    """The theorem for a program, in a sentence."""
    infinite = [name for name, value in law.widths.items() if value == math.inf]
    fixed = [f"{name} = {value:g}" for name, value in law.widths.items() if value != math.inf]
    start = f"As {' and '.join(infinite)} {'go' if len(infinite) > 1 else 'goes'} to infinity" + (
        f" with {' and '.join(fixed)}" if fixed else ""
    )
    means = f"averages over coordinates of bounded, pseudo-Lipschitz functions of {', '.join(law.outputs)} converge"
    if not law.scores:
        return f"{start}, {means} to expectations: each coordinate is a draw from the law below."
    return (
        f"{start}, the scores {', '.join(law.scores)} converge in distribution to random limits, and {means} to "
        "expectations given these."
    )


def _quick(law: NumericLaw) -> bool:
    """Whether moments of Gaussian variables come at once: no recurrence, no draws, no large families."""
    compiler, families = law.compiler, law.compiled.families.values()
    sizes = (math.prod(family.shape) for family in families if family.kind == "vector")
    return (
        not compiler.layered
        and compiler.replicates is None
        and max(sizes, default=0) <= SMALL
        and not any(step.fixed for step in steps(law.compiled))
    )


def _rows(law: NumericLaw, name: str, quick: bool) -> Iterator[tuple[str, ...]]:
    """One row for each of the first members, or one for the family if there are no numbers."""
    family = law.compiled.families[name]
    members = family.members(LISTED)
    free = quick and (name not in law.compiler.random or name in law.compiler.scores)
    numbers = [[_asked(law, ask, name, index, k, free) for ask in NUMBERS] for k, index in enumerate(members)]
    if not any(map(any, numbers)):
        members, numbers = [()], [[""] * len(NUMBERS)]
    for k, (index, row) in enumerate(zip(members, numbers, strict=True)):
        about = (f"{math.prod(family.shape):,}", _sort(law, name)) if k == 0 else ("", "")
        yield code(label(name, index)), *about, *row


def _asked(law: NumericLaw, ask: str, name: str, index: tuple[int, ...], place: int, free: bool) -> str:
    """A number of one member that is at hand, or may be asked for as it comes at once."""
    member = label(name, index)
    known = [text for text in (name, member) if law._knows(ask, text)]
    if not (known or free):
        return ""
    try:
        value, error = (np.ravel(part) for part in getattr(law, ask)((known or [member])[0], with_error=True))
    except TensorprogError:
        return ""
    k = place if value.size > 1 else 0
    return _number(float(value[k]), float(error[k]))


def _number(value: float, error: float) -> str:
    return "0" if value == 0 and not error > 1e-15 else quantity(value, error)


def _sort(law: NumericLaw, name: str) -> str:
    """Which law a family has, in words."""
    given = "" if name not in law.compiler.random else f" given {', '.join(law.scores)}"
    if name in law.compiler.scores:
        return "Gaussian" if not law.compiler.layered else "random"
    if law.compiled.families[name].kind == "scalar":
        return "a number" if not given else f"a function{given}"
    return ("Gaussian" if law.is_linear(name) else "a function of Gaussian variables") + given


def _matrix(law: NumericLaw, name: str, quick: bool) -> Iterator[Block]:
    """The covariance of a small family, shaded."""
    family = law.compiled.families[name]
    size = math.prod(family.shape)
    known = law._knows("cov", name) or (quick and name not in law.compiler.random)
    if not (1 < size <= MATRIX and known):
        return
    with suppress(TensorprogError):
        value, error = (np.asarray(part).reshape(size, size) for part in law.cov(name, with_error=True))
        largest = float(np.abs(value).max()) or 1.0
        names = [label(name, index) for index in family.members()]
        rows = tuple(
            (member, *(_number(float(v), float(e)) for v, e in zip(*pair, strict=True)))
            for member, *pair in zip(names, value, error, strict=True)
        )
        shades = {(i, j + 1): float(value[i, j]) / largest for i, j in np.ndindex(size, size)}
        yield Grid(f"covariance of {name}", ("", *names), rows, shades=shades)
