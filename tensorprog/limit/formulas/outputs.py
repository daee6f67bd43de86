"""Vectors that depend on scores: averages over p-ring of conditional covariances, evaluated by the numeric law."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.ir import Netsor
from tensorprog.limit.formulas.nodes import Node
from tensorprog.limit.law.law import NumericLaw

__all__ = ["Conditional", "ProgramAtom", "ScoreAverage"]


class ProgramAtom(sp.Atom):  # type: ignore[misc]
    """A program as an argument of formulas, with the names of the constants that are symbols there."""

    __slots__ = ("names", "netsor")

    def __new__(cls, netsor: Netsor, names: tuple[str, ...]) -> ProgramAtom:
        """From a program and names."""
        self = super().__new__(cls)
        self.netsor, self.names = netsor, names
        return self  # type: ignore[no-any-return]

    def _hashable_content(self) -> tuple[Any, ...]:
        return id(self.netsor), self.names

    def sort_key(self, order: Any = None) -> Any:
        """By its name."""
        return self.class_key(), (1, (self.netsor.name,)), sp.S.One.sort_key(), sp.S.One

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.netsor, self.names

    def _sympystr(self, printer: Any) -> str:
        return str(self.netsor.name)


class Conditional(sp.Expr):  # type: ignore[misc]
    """A covariance or mean given p-ring that is not written out, args (variables as (name, *indices), ...)."""

    is_commutative = True
    is_extended_real = is_real = is_finite = True

    def _words(self, printer: Any) -> str:
        found = []
        for name, *indices in self.args:
            place = ",".join(map(printer._print, indices))
            found.append(f"{printer._print(name)}" + (f"_{{{place}}}" if place else ""))
        return ", ".join(found)

    def _sympystr(self, printer: Any) -> str:
        words = self._words(printer).replace("_{", "[").replace("}", "]")
        return f"{'Cov' if len(self.args) == 2 else 'E'}({words} | p)"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        name = r"\operatorname{Cov}" if len(self.args) == 2 else r"\mathbb{E}"
        text = rf"{name}\left({self._words(printer)} \,\middle|\, \mathring{{p}}\right)"
        return rf"{text}^{{{exp}}}" if exp else text


class ScoreAverage(Node):
    """Cov(f, g) or E f over p-ring and the vectors, unevaluated.

    Args are (program, values of its constants, variables as (name, *indices), conditional covariance, conditional
    means); `evalf` asks the numeric law, `estimate` gives the error too.
    """

    is_commutative = True
    is_extended_real = is_real = is_finite = True

    def estimate(self) -> Estimate:
        """Value and error, when the constants are numbers."""
        program, constants, variables, *_ = self.args
        value, error = _numbers(program, constants, tuple(str(name) for name, *_ in variables))
        place = [int(index) for _, *indices in variables for index in indices]
        starts = [start for name, *_ in variables for start, _ in program.netsor.families[str(name)].ranges]
        key = tuple(a - b for a, b in zip(place, starts, strict=True))
        return Estimate(np.asarray(value[key]), np.asarray(error[key]))

    def _eval_evalf(self, prec: int) -> Any:
        ready = not self.args[1].free_symbols and not sp.Tuple(*(v[1:] for v in self.args[2])).free_symbols
        return sp.Float(float(self.estimate().value), 15) if ready else None

    def _parts(self, printer: Any) -> tuple[str, list[str]]:
        return printer._print(self.args[3]), [printer._print(mean) for mean in self.args[4] if mean != 0]

    def _sympystr(self, printer: Any) -> str:
        covariance, means = self._parts(printer)
        if len(means) < len(self.args[4]):
            return f"E_p[{covariance}]"
        return f"E_p[{means[0]}]" if len(means) == 1 else f"E_p[{covariance}] + Cov_p({', '.join(means)})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        covariance, means = self._parts(printer)
        over = r"\mathbb{E}_{\mathring{p}}"
        text = rf"{over}\left[{covariance}\right]"
        if len(means) == len(self.args[4]):
            both = rf"{text} + \operatorname{{Cov}}_{{\mathring{{p}}}}\left({', '.join(means)}\right)"
            text = rf"{over}\left[{means[0]}\right]" if len(means) == 1 else rf"\left({both}\right)"
        return rf"{{{text}}}^{{{exp}}}" if exp else text


@lru_cache(maxsize=8)
def _law(program: ProgramAtom, constants: Any) -> NumericLaw:
    values = {name: int(v) if v.is_Integer else float(v) for name, v in zip(program.names, constants, strict=True)}
    named = [replace(c, value=values.get(c.name, c.value)) for c in program.netsor.constants]
    return NumericLaw(replace(program.netsor, constants=tuple(named)))


@lru_cache(maxsize=64)
def _numbers(program: ProgramAtom, constants: Any, names: tuple[str, ...]) -> tuple[Any, Any]:
    law = _law(program, constants)
    first, *rest = names
    value, error = law.cov(first, rest[0], with_error=True) if rest else law.mean(first, with_error=True)
    return np.asarray(value), np.asarray(error)
