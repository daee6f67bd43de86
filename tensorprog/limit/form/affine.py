"""Affine forms in Gaussian variables, as they stand inside nonlinear functions, and when two of them are the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tensorprog.language.expr import Affine, Expr, Number, Variable
from tensorprog.language.ir import Range
from tensorprog.language.substitute import fresh_substitute, indices_of, reindexed
from tensorprog.limit.form.definitions import reductions
from tensorprog.limit.form.sums_of_functions import FORMAL, Inner, Part

__all__ = ["Form", "free_indices", "plain_text"]

ONE = Number(1)


class Form:
    """An affine combination of Gaussian variables, one for each member of its local indices."""

    def __init__(self, inner: Inner, local: Mapping[str, Range]) -> None:
        self.local = dict(local)
        self.parts = [Part(weight, bound, FORMAL, ((ONE, variable, ()),)) for weight, variable, bound in inner]
        self.key = (tuple(sorted(plain_text(*entry) for entry in inner)), tuple(local))
        self.name, self.start = "", 0

    @property
    def size(self) -> int:
        """Number of variables."""
        return math.prod(b - a for a, b in self.local.values())

    @property
    def place(self) -> slice:
        """Where they stand among those of all forms."""
        return slice(self.start, self.start + self.size)


def free_indices(weight: Expr, variable: Variable, bound: Sequence[str]) -> set[str]:
    """Indices of one term of a form that it does not sum over."""
    reduced = {name for node in reductions(weight) for name in node.indices if node.removes or node.at}
    everything = _Everything()
    return {*indices_of(weight, everything), *indices_of(variable, everything)} - {*bound, *reduced}


class _Everything(dict[str, Range]):
    """Ranges that know every name."""

    def __contains__(self, name: object) -> bool:
        return True


def plain_text(weight: Expr, variable: Variable, bound: Sequence[str]) -> str:
    """A term of a form as text, equal for terms that differ in the names of bound indices only."""
    values = {name: Affine(((f"?{k}", 1),)) for k, name in enumerate(bound)}
    names: list[str] = []

    def rename(name: str) -> str:
        names.append(f"{name.split('~')[0]}?{len(names)}")
        return names[-1]

    over = [name.split("~")[0] for name in bound]
    return f"{fresh_substitute(weight, values, rename)} {reindexed(variable, values)} {over}"
