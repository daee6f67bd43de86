"""The check of a program with numbers from its limit, where a finding wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tensorprog.assumptions import Report, check
from tensorprog.errors import TensorprogError
from tensorprog.expr import Variable

if TYPE_CHECKING:
    from tensorprog.ir import Netsor

__all__ = ["judge"]


def judge(netsor: Netsor) -> Report:
    """Judge a program by Assumption 1; a score that diverges is reported with the coefficient of sqrt(n).

    Source    Sakai et al. 2025, Assumption 1 and Theorem 1; Yang 2019, Theorem 5.4
    """
    return check(netsor, _mean)


def _mean(
    netsor: Netsor, left: Variable, right: Variable, place: Mapping[str, int]
) -> tuple[float, float] | None:
    from tensorprog.limit.covariance import Compiler
    from tensorprog.limit.parts import position_names

    def member(reference: Variable) -> list[Any]:
        values = (slot.offset + sum(c * place[name] for name, c in slot.terms) for slot in reference.slots)
        return [np.asarray(value) for value in values]

    try:
        moment = Compiler(netsor).second(left.name, right.name)
        positions = dict(zip(position_names(netsor, left.name), member(left), strict=True))
        second = (f"{name}_" for name in position_names(netsor, right.name))
        positions |= dict(zip(second, member(right), strict=True))
        value = moment.at(positions)
        return float(value.value), float(value.error)
    except (TensorprogError, KeyError):  # vectors that depend on scores, or what the limit does not compile
        return None
