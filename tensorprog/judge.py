"""The check of a program with numbers from its limit, where a finding wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tensorprog.assumptions import Report, check
from tensorprog.errors import TensorprogError
from tensorprog.expr import Variable
from tensorprog.ir import Netsor

__all__ = ["judge"]


def judge(netsor: Netsor) -> Report:
    """Judge a program by Assumption 1; a score that diverges is reported with the coefficient of sqrt(n).

    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    return check(netsor, _Means())


class _Means:
    """E[Z^left Z^right] at values of the indices, as far as the limit is compiled; with its error."""

    def __init__(self) -> None:
        self._compilers: dict[int, Any] = {}

    def __call__(
        self, netsor: Netsor, left: Variable, right: Variable, place: Mapping[str, int]
    ) -> tuple[float, float] | None:
        from tensorprog.limit.covariance import Compiler
        from tensorprog.limit.parts import position_names

        positions = {}
        for reference, copy in ((left, ""), (right, "_")):
            for name, slot in zip(position_names(netsor, reference.name), reference.slots, strict=True):
                positions[f"{name}{copy}"] = np.asarray(slot.offset + sum(c * place[n] for n, c in slot.terms))
        try:
            if id(netsor) not in self._compilers:
                self._compilers[id(netsor)] = Compiler(netsor)
            value = self._compilers[id(netsor)].second(left.name, right.name).at(positions)
        except TensorprogError:  # vectors that depend on scores, or what the limit does not compile
            return None
        return float(value.value), float(value.error)
