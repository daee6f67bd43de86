"""`Expectation`, an unevaluated Gaussian expectation: closed where a form is known, else numbers on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import sympy as sp

from tensorprog.gaussian import cross, mean
from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.evaluate import Open, Scope
from tensorprog.language.expr import Call, Expr, Number, Variable, rebuild, replace_variables, walk
from tensorprog.limit.form.sums_of_functions import FORMAL
from tensorprog.limit.form.univariate import function
from tensorprog.limit.formulas.closed import mean_moment, pair_moment
from tensorprog.limit.formulas.conversion import SymbolicExpansion, converted, expand_terms, written
from tensorprog.limit.formulas.nodes import Node, Opaque, carried, estimate

__all__ = ["Expectation", "factor_of"]

ZERO = sp.S.Zero
LETTERS = ("z", "xi", "eta", "zeta", "variable")  # of the variables, whichever is not a constant
LENGTH = 3000  # parts of a closed form that is written out unasked


def factor_of(expr: Expr, places: Mapping[Variable, int], number: Callable[[Expr], Any]) -> sp.Tuple:
    """One factor f(z_1, ..., z_k) of an expectation: its body, its numbers, and which variables it reads.

    The body is an expression of the language: '.' or '.0', '.1', ... are its arguments, '.p0', ... its numbers.
    """
    used = [v for v in places if any(node == v for node in walk(expr))]
    names = dict(zip(used, _arguments(len(used)), strict=True))
    numbers: list[Any] = []

    def change(node: Expr) -> Expr | None:
        if node in names:
            return names[node]  # type: ignore[index]
        if isinstance(node, Number) or any(inner in names for inner in walk(node)):
            return node if isinstance(node, Number) else None
        numbers.append(number(node))
        return Variable(f".p{len(numbers) - 1}")

    body = rebuild(expr, change)
    return sp.Tuple(Opaque(body, str(body)), sp.Tuple(*numbers), sp.Tuple(*(places[v] for v in used)))


class Expectation(Node):
    """E[f_1 ... f_k] over jointly Gaussian variables, args (factors, means, rows of the covariance).

    Prints as an expectation with the law of its variables; `doit` gives the closed form if there is one; `evalf`
    gives a number when no free symbol is left, `estimate` the number with its error.
    """

    @classmethod
    def of(cls, factors: Sequence[sp.Tuple], means: Sequence[Any], cov: Sequence[Sequence[Any]]) -> Expectation:
        """From sequences."""
        return cls(*(sp.Tuple(*map(sp.sympify, given)) for given in (factors, means, map(tuple, cov))))

    @property
    def several(self) -> bool:
        """Whether a function reads several variables, or there are more than two."""
        return len(self.args[0]) > 2 or any(len(places) != 1 for _, _, places in self.args[0])

    def doit(self, **hints: Any) -> Any:
        """The closed form, as far as there is one."""
        return self.func(*(arg.doit(**hints) for arg in self.args)).closed(float("inf"))

    def closed(self, most: float = LENGTH) -> Any:
        """As `doit`, for arguments that are closed already, unless the formula has more than `most` parts."""
        factors, means, cov = self.args
        if self.several:
            return self
        i, j = (int(factor[2][0]) for factor in (factors[0], factors[-1]))
        if len(factors) == 1 and cov[i][i] == 0:
            return converted(factors[0][0].held, _values(factors[0], [means[i]]).get)
        apart = self.settled() if len(factors) == 2 else self
        if apart != self:
            return apart.replace(lambda e: isinstance(e, Expectation), lambda e: e.closed(most), simultaneous=False)
        if len(factors) == 1 and means[i] == 0 and _parity(factors[0]) < 0:
            return ZERO
        f, g = (expand_terms(factor[0].held, _letters(factor)) for factor in (factors[0], factors[-1]))
        if f is None or g is None:
            return self
        law = means[i], means[j], cov[i][i], cov[j][j], cov[i][j]
        found = mean_moment(f, means[i], cov[i][i], most) if len(factors) == 1 else pair_moment(f, g, law, most, i == j)
        return self if found is None else found

    def settled(self) -> Any:
        """What holds for all members alike: independent factors part, and what is zero by symmetry is zero."""
        factors, means, cov = self.args
        if self.several:
            return self
        if len(factors) == 1:
            return ZERO if self.closed() == 0 else self
        f, g = factors
        i, j = int(f[2][0]), int(g[2][0])
        if means[i] == means[j] and cov[i][i] == cov[j][j] == cov[i][j]:
            return _one_variable(factors, means[i], cov[i][i])
        if cov[i][j] == 0:
            return sp.Mul(*(_one_variable([h], means[k], cov[k][k]).settled() for h, k in ((f, i), (g, j))))
        odd = means[i] == 0 and means[j] == 0 and _parity(f) * _parity(g) < 0
        return ZERO if odd else self

    def value(self) -> Estimate:
        """The number, of functions of one variable each."""
        factors, means, cov = self.args
        size = len(means)
        if self.several:
            raise NotCompiledError(
                f"{self} is over a function of several variables and has no number as a formula; P.limit() gives it"
            )
        counts = [len(factor[1]) for factor in factors]
        bodies = [_apart(factor, f) for f, factor in enumerate(factors)]
        names = [Variable(f".p{f}.{k}") for f, count in enumerate(counts) for k in range(count)]
        places = [int(factor[2][0]) for factor in factors]

        def call(*values: Any) -> Estimate:
            given = {name: Open((), value) for name, value in zip(names, values, strict=False)}
            scope = Scope(cast(Any, None), {}, lambda reference, ranges: given[reference])
            mu, (vx, *rest) = values[len(names) : len(names) + size], values[len(names) + size :]
            if size == 1:
                product = bodies[0] if len(bodies) == 1 else Call("multiply", tuple(bodies))
                return mean(function(product, scope, ()), mu[0], np.maximum(vx, 0))
            c, vy = rest
            vx, vy = np.maximum(vx, 0), np.maximum(vy, 0)
            edge = np.sqrt(vx) * np.sqrt(vy)
            f, g = (function(bodies[places.index(k)], scope, ()) for k in range(2))
            return cross(f, g, mu[0], mu[1], vx, vy, np.clip(c, -edge, edge))

        upper = [cov[a][b] for a in range(size) for b in range(a, size)]
        numbers = [value for factor in factors for value in factor[1]]
        return carried(call, [estimate(arg) for arg in (*numbers, *means, *upper)])

    # -- text ---------------------------------------------------------------------------------------------------

    def _parts(self) -> tuple[Any, Any, Any, Any]:
        """The function under the expectation, its variables, their means and covariances, as they are shown."""
        factors, means, cov = self.args
        taken = {str(symbol).split("_")[0] for symbol in self.free_symbols}
        letter = next(name for name in LETTERS if name not in taken)
        size = len(means)
        z = [sp.Symbol(letter if size == 1 else f"{letter}_{k + 1}", real=True) for k in range(size)]
        values = [_values(factor, [z[int(place)] for place in factor[2]]) for factor in factors]
        shown = sp.Mul(*(written(factor[0].held, value.get) for factor, value in zip(factors, values, strict=True)))
        if size == 1:
            return shown, z[0], means[0], cov[0][0]
        return shown, tuple(z), list(means) if any(mean != 0 for mean in means) else ZERO, [list(row) for row in cov]

    def _sympystr(self, printer: Any) -> str:
        shown, z, mean, cov = map(printer._print, self._parts())
        return f"E[{shown}; {z} ~ N({mean}, {cov})]"

    def _latex(self, printer: Any) -> str:
        shown, z, mean, cov = self._parts()
        if isinstance(cov, list):
            mean, cov = sp.Matrix(mean) if mean != 0 else mean, sp.Matrix(cov)
        shown, z, mean, cov = map(printer._print, (shown, z, mean, cov))
        return rf"\mathbb{{E}}\left[{shown} \,\middle|\, {z} \sim N\left({mean}, {cov}\right)\right]"


def _arguments(count: int) -> list[Variable]:
    """The arguments of a factor's body."""
    return [FORMAL] if count == 1 else [Variable(f".{k}") for k in range(count)]


def _values(factor: sp.Tuple, places: Sequence[Any]) -> dict[Variable, Any]:
    """What stands in a factor's body, at given arguments."""
    return _letters(factor) | dict(zip(_arguments(len(places)), places, strict=True))


def _letters(factor: sp.Tuple) -> dict[Variable, Any]:
    return {Variable(f".p{k}"): value for k, value in enumerate(factor[1])}


def _apart(factor: Any, number: int) -> Expr:
    """A factor's body, its numbers named apart from those of other factors."""
    return replace_variables(
        factor[0].held, lambda v: Variable(f".p{number}.{v.name[2:]}") if v.name.startswith(".p") else None
    )


def _parity(factor: sp.Tuple) -> int:
    """+1 for an even factor of one argument, -1 for an odd one, else 0."""
    return int(SymbolicExpansion(_letters(factor)).of(factor[0].held).parity)


def _one_variable(factors: Sequence[sp.Tuple], mean: Any, variance: Any) -> Expectation:
    """All factors read the same variable."""
    return Expectation.of([sp.Tuple(*factor[:2], sp.Tuple(0)) for factor in factors], (mean,), ((variance,),))
