"""`Expectation`, an unevaluated Gaussian expectation: closed where a form is known, else numbers on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sympy as sp

from tensorprog.gaussian.function import FunctionTerm
from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import Call, Expr, Number, Variable, rebuild, replace_variables, walk
from tensorprog.limit.form.sums_of_functions import FORMAL
from tensorprog.limit.formulas.closed import mean_moment, pair_moment, regular
from tensorprog.limit.formulas.conversion import SymbolicExpansion, expand_terms, scalar_function
from tensorprog.limit.formulas.nodes import IndexSum, Lookup, Node, Opaque, RealNode, Softmax
from tensorprog.limit.formulas.notation import expression_tex

__all__ = ["Body", "Expectation", "argument_names", "factor_of"]

ZERO = sp.S.Zero
LETTERS = ("z", "xi", "eta", "zeta", "variable")  # of the variables, whichever is not a constant
LENGTH = 3000  # parts of a closed form that is written out unasked


class Body(Opaque):
    """A function as an expression of the language: '.' or '.0', '.1', ... are its arguments, '.p0', ... numbers."""

    labelled = staticmethod(str)

    @property
    def expr(self) -> Expr:
        """The expression."""
        return self.given[0]  # type: ignore[no-any-return]


def factor_of(expr: Expr, places: Mapping[Variable, int], number: Callable[[Expr], Any]) -> sp.Tuple:
    """One factor f(z_1, ..., z_k) of an expectation: its body, its numbers, and which variables it reads."""
    used = [v for v in places if any(node == v for node in walk(expr))]
    names = dict(zip(used, argument_names(len(used)), strict=True))
    numbers: list[Any] = []

    def change(node: Expr) -> Expr | None:
        if node in names:
            return names[node]  # type: ignore[index]
        if isinstance(node, Number) or any(inner in names for inner in walk(node)):
            return node if isinstance(node, Number) else None
        numbers.append(number(node))
        return Variable(f".p{len(numbers) - 1}")

    return sp.Tuple(Body(rebuild(expr, change)), sp.Tuple(*numbers), sp.Tuple(*(places[v] for v in used)))


def letters_of(factor: sp.Tuple) -> dict[Variable, Any]:
    """The numbers of a factor by their names in its body."""
    return {Variable(f".p{k}"): value for k, value in enumerate(factor[1])}


class Expectation(RealNode, Node):
    """E[f_1 ... f_k] over jointly Gaussian variables, args (factors, means, rows of the covariance).

    Prints as an expectation with the law of its variables; `doit` gives the closed form if there is one; `evalf`
    gives a number when no free symbol is left, `estimate` the number with its error.
    """

    def __new__(cls, factors: Any, means: Any, cov: Any) -> Expectation:
        """From sympy tuples."""
        return super().__new__(cls, sp.sympify(factors), sp.sympify(means), sp.sympify(cov))  # type: ignore[no-any-return]

    @classmethod
    def of(cls, factors: Sequence[sp.Tuple], means: Sequence[Any], cov: Sequence[Sequence[Any]]) -> Expectation:
        """From sequences."""
        return cls(sp.Tuple(*factors), sp.Tuple(*means), sp.Tuple(*(sp.Tuple(*row) for row in cov)))

    def doit(self, **hints: Any) -> Any:
        """The closed form, as far as there is one."""
        args = [arg.doit(**hints) if hints.get("deep", True) else arg for arg in self.args]
        return Expectation(*args).closed(float("inf"))

    def closed(self, most: float = LENGTH) -> Any:
        """As `doit`, for arguments that are closed already, unless the formula has more than `most` parts."""
        factors, means, cov = self.args
        if any(len(places) != 1 for _, _, places in factors):
            return self
        if len(factors) == 1:
            return self._single(factors[0], means[0], cov[0][0], most)
        i, j = int(factors[0][2][0]), int(factors[1][2][0])
        return self._pair((means[i], means[j], cov[i][i], cov[j][j], cov[i][j]), most)

    def _single(self, factor: sp.Tuple, mean: Any, variance: Any, most: float) -> Any:
        if variance == 0:
            return scalar_function(factor[0].expr, _values(factor, [mean]))
        if mean == 0 and _parity(factor) < 0:
            return ZERO
        terms = terms_of(factor)
        found = None if terms is None else mean_moment(terms, mean, variance, most)
        return self if found is None else found

    def _pair(self, law: tuple[Any, ...], most: float) -> Any:
        f, g = self.args[0]
        mx, my, vx, vy, c = law
        if vx == 0 or vy == 0 or c == 0:
            return _alone(f, mx, vx).closed(most) * _alone(g, my, vy).closed(most)
        if mx == 0 and my == 0 and _parity(f) * _parity(g) < 0:
            return ZERO
        first, second = terms_of(f), terms_of(g)
        singular = _zero(vx * vy - c**2, vx * vy)
        found = None
        if first is not None and second is not None:
            # members may be equal for some values of indices
            indexed = any(symbol.is_integer for symbol in sp.Tuple(*law).free_symbols)
            if singular or not indexed or regular(first, second, mx, my):
                found = pair_moment(first, second, law, most, singular)
        if found is None and singular and c == vx and mx == my:
            return _one_variable((f, g), mx, vx)
        return self if found is None else found

    def settled(self) -> Any:
        """What holds for all members alike: independent factors part, and what is zero by symmetry is zero."""
        factors, means, cov = self.args
        if any(len(places) != 1 for _, _, places in factors):
            return self
        if len(factors) == 1:
            return ZERO if self.closed() == 0 else self
        f, g = factors
        i, j = int(f[2][0]), int(g[2][0])
        if means[i] == means[j] and cov[i][i] == cov[j][j] == cov[i][j]:
            return _one_variable(factors, means[i], cov[i][i])
        if cov[i][j] == 0:
            return sp.Mul(*(_alone(h, means[k], cov[k][k]).settled() for h, k in ((f, i), (g, j))))
        odd = means[i] == 0 and means[j] == 0 and _parity(f) * _parity(g) < 0
        return ZERO if odd else self

    # -- numbers ------------------------------------------------------------------------------------------------

    def _eval_derivative(self, symbol: Any) -> Any:
        if not self.has_free(symbol):
            return ZERO
        raise NotCompiledError(
            f"the derivative of an expectation without closed form in {symbol} is not written as a formula; "
            "take differences of its values, or ask for closed forms with doit() first"
        )

    # -- text ---------------------------------------------------------------------------------------------------

    def letters(self) -> list[Any]:
        """The variables as symbols: z, or z_1, z_2, ..."""
        size = len(self.args[1])
        taken = {str(symbol).split("_")[0] for symbol in self.free_symbols}
        letter = next(name for name in LETTERS if name not in taken)
        return [sp.Symbol(letter if size == 1 else f"{letter}_{k + 1}") for k in range(size)]

    def _sympystr(self, printer: Any) -> str:
        _, means, cov = self.args
        z = self.letters()
        texts = [_body_text(factor, z, printer) for factor in self.args[0]]
        product = f"{texts[0]}**2" if len(texts) == 2 and texts[0] == texts[1] else "*".join(texts)
        if len(z) == 1:
            return f"E[{product}; {z[0]} ~ N({printer._print(means[0])}, {printer._print(cov[0][0])})]"
        mean = printer._print(list(means)) if any(m != 0 for m in means) else "0"
        rows = printer._print([list(row) for row in cov])
        return f"E[{product}; ({', '.join(map(str, z))}) ~ N({mean}, {rows})]"

    def _latex(self, printer: Any) -> str:
        return rf"\mathbb{{E}}\left[{self.product_tex(printer)} \,\middle|\, {self.law_tex(printer)}\right]"

    def product_tex(self, printer: Any) -> str:
        """The function under the expectation."""
        z = self.letters()
        texts = [_body_tex(factor, z, printer) for factor in self.args[0]]
        return f"{{{texts[0]}}}^{{2}}" if len(texts) == 2 and texts[0] == texts[1] else r"\, ".join(texts)

    def law_tex(self, printer: Any) -> str:
        """The law of its variables."""
        _, means, cov = self.args
        z = [printer._print(letter) for letter in self.letters()]
        if len(z) == 1:
            return rf"{z[0]} \sim N\left({printer._print(means[0])}, {printer._print(cov[0][0])}\right)"
        mean = "0" if all(m == 0 for m in means) else printer._print(sp.Matrix(means))
        return rf"({', '.join(z)}) \sim N\left({mean}, {printer._print(sp.Matrix(cov))}\right)"


def _body_tex(factor: sp.Tuple, z: Sequence[Any], printer: Any) -> str:
    values = _values(factor, [z[int(place)] for place in factor[2]])

    def leaf(node: Any) -> tuple[str, int]:
        value = values[node]
        level = 9 if value.is_Atom and not value.could_extract_minus_sign() else 4 if value.is_Mul else 1
        return printer._print(value), level

    return expression_tex(factor[0].expr, 3, leaf)


def _body_text(factor: sp.Tuple, z: Sequence[Any], printer: Any) -> str:
    values = _values(factor, [z[int(place)] for place in factor[2]])

    def change(node: Variable) -> Variable:
        text = printer._print(values[node])
        return Variable(text if values[node].is_Atom else f"({text})")

    expr = factor[0].expr
    text = str(replace_variables(expr, change))
    called = isinstance(expr, Call) and not ATOMS[expr.atom].operator
    return text if called or isinstance(expr, Variable) else f"({text})"


def argument_names(count: int) -> list[Variable]:
    """The arguments of a factor's body."""
    return [FORMAL] if count == 1 else [Variable(f".{k}") for k in range(count)]


def _values(factor: sp.Tuple, places: Sequence[Any]) -> dict[Variable, Any]:
    """What stands in a factor's body, at given arguments."""
    return letters_of(factor) | dict(zip(argument_names(len(places)), places, strict=True))


def terms_of(factor: sp.Tuple) -> tuple[FunctionTerm, ...] | None:
    """The expansion of a factor of one argument."""
    return expand_terms(factor[0].expr, letters_of(factor))


def _parity(factor: sp.Tuple) -> int:
    """+1 for an even factor of one argument, -1 for an odd one, else 0."""
    return int(SymbolicExpansion(letters_of(factor)).of(factor[0].expr).parity)


def _one_variable(factors: Sequence[sp.Tuple], mean: Any, variance: Any) -> Expectation:
    """Both factors read the same variable."""
    return Expectation.of([sp.Tuple(*factor[:2], sp.Tuple(0)) for factor in factors], (mean,), ((variance,),))


def _alone(factor: sp.Tuple, mean: Any, variance: Any) -> Expectation:
    return _one_variable((factor,), mean, variance)


def _zero(value: Any, scale: Any) -> bool:
    """Whether an expression is zero: at numbers for its symbols first, and if so, exactly."""
    nodes = {node: sp.Dummy(real=True) for node in value.atoms(Expectation, IndexSum, Lookup, Softmax, sp.Piecewise)}
    value, scale = value.xreplace(nodes), scale.xreplace(nodes)
    if value == 0:
        return True
    free = sorted(value.free_symbols, key=str)
    trial = {symbol: sp.Rational(7 + 2 * k, 11 + 3 * k) for k, symbol in enumerate(free)}
    small = abs(value.xreplace(trial).evalf()) <= 1e-12 * abs(scale.xreplace(trial).evalf())
    if small is not sp.true and small is not True:
        return False
    return bool(value.has(sp.Float) or sp.simplify(value) == 0)
