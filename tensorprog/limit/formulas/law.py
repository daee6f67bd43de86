"""`SymbolicLaw`: the limit of a program in formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tensorprog.blocks import Block, Mathematics, paragraph, strong
from tensorprog.blocks.html import Shown
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, ProgramError, did_you_mean
from tensorprog.language.expr import Affine
from tensorprog.language.ir import Netsor, Table
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.formulas.cases import IndexedFormulas
from tensorprog.limit.formulas.convert import Data, Lookup, kept_constants
from tensorprog.limit.formulas.functions import Phi, phi
from tensorprog.limit.formulas.latex import blocks, cases_latex, derivation
from tensorprog.limit.formulas.nodes import Score, index_symbol
from tensorprog.limit.formulas.notation import readable
from tensorprog.limit.formulas.outputs import Conditional, ProgramAtom, ScoreAverage
from tensorprog.limit.formulas.recursion import FormulaRecursion
from tensorprog.limit.formulas.text import cases_text

__all__ = ["FormulaArray", "SymbolicLaw"]

MAX_ENTRIES = 4096  # formulas made at once
ZERO = sp.S.Zero


class FormulaArray:
    """Formulas of all members, made one by one when they are read: `law.cov("x")[0, 1]`.

    Positions count from 0 along every axis, as in the arrays of the numeric law; slices and missing positions give
    object arrays of at most 4096 formulas.  `cases` are the formulas in index symbols.
    """

    def __init__(self, law: SymbolicLaw, names: Sequence[str], cases: IndexedFormulas) -> None:
        self.law, self.names, self.cases = law, tuple(names), cases
        self._ranges = [span for name in names for span in law.netsor.families[name].ranges]
        self._axes = [
            f"{k}{'_' * copy}" for copy, name in enumerate(names) for k in range(len(law.netsor.families[name].ranges))
        ]

    @property
    def shape(self) -> tuple[int, ...]:
        """Members of the first family, then of the second."""
        return tuple(stop - start for start, stop in self._ranges)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a formula of one variable has no length")
        return self.shape[0]

    def at(self, *indices: int) -> Any:
        """The formula at values of the indices, those of the first family, then those of the second."""
        if len(indices) != len(self._axes):
            raise ProgramError(f"{len(indices)} indices given, {len(self._axes)} needed")
        for index, (start, stop) in zip(indices, self._ranges, strict=True):
            if not start <= index < stop:
                raise ProgramError(f"the index {index} lies outside {start}..{stop - 1}")
        return self.law.entry(self.cases, dict(zip(self._axes, map(int, indices), strict=True)))

    def __getitem__(self, key: Any) -> Any:
        keys = list(key if isinstance(key, tuple) else (key,))
        if Ellipsis in keys:
            place = keys.index(Ellipsis)
            keys[place : place + 1] = [slice(None)] * (len(self.shape) - len(keys) + 1)
        keys += [slice(None)] * (len(self.shape) - len(keys))
        if len(keys) > len(self.shape):
            raise IndexError(f"{len(keys)} positions given for shape {self.shape}")
        chosen = [range(size)[k] for k, size in zip(keys, self.shape, strict=True)]
        starts = [start for start, _ in self._ranges]
        if all(isinstance(place, int) for place in chosen):
            return self.at(*(a + b for a, b in zip(chosen, starts, strict=True)))  # type: ignore[operator]
        axes = [[place] if isinstance(place, int) else place for place in chosen]
        shape = tuple(len(place) for place in chosen if not isinstance(place, int))
        if math.prod(shape) > MAX_ENTRIES:
            raise MemoryLimitError(f"{math.prod(shape)} formulas at once; read them one by one")
        result: NDArray[Any] = np.empty(math.prod(shape), dtype=object)
        for k, places in enumerate(product(*axes)):
            result[k] = self.at(*(a + b for a, b in zip(places, starts, strict=True)))
        return result.reshape(shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[...] if self.shape else np.array(self[()], dtype=object), dtype=dtype)

    def __iter__(self) -> Any:
        return (self[k] for k in range(len(self)))

    def __repr__(self) -> str:
        return f"FormulaArray({', '.join(self.names)}; shape={self.shape})\n{self}"

    def __str__(self) -> str:
        return cases_text(self)

    def _repr_latex_(self) -> str:
        return cases_latex(self)


class SymbolicLaw(Shown):
    """The infinite-width limit of a program in formulas, with constants as symbols.

    `symbols` has the symbols by name.  Formulas hold for constants with the signs that they have in the program, and
    wherever no correlation becomes 1 that was not: ask again with other numbers for those.

    Source    Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846), Definition 1
    """

    def __init__(self, netsor: Netsor, symbolic: bool | Sequence[str] = True, *, grade: str = "") -> None:
        if not isinstance(symbolic, bool | str) and not (
            isinstance(symbolic, Sequence) and all(isinstance(name, str) for name in symbolic)
        ):
            raise ProgramError(f'symbolic takes True, False, or names of constants such as ["C"], not {symbolic!r}')
        self.grade = grade
        self.formulas = FormulaRecursion(netsor, kept_constants(netsor, symbolic))
        self.netsor = self.formulas.netsor
        inside = self.formulas.converter.symbols
        self.symbols = {name: sp.Symbol(name) for name in inside}
        self._plain = {symbol: self.symbols[name] for name, symbol in inside.items()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.netsor.outputs

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores that are random in the limit."""
        return tuple(self.formulas.scores)

    @property
    def families(self) -> tuple[str, ...]:
        """Names of vectors and scalars, in the order of the program."""
        return tuple(dict.fromkeys(s.target.name for s in self.netsor.body))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a law in formulas has no {name}: numbers are those of P.limit(), without symbolic")

    def __repr__(self) -> str:
        symbols = ", ".join(self.symbols) or "none"
        return f"SymbolicLaw({self.netsor.name}, outputs={', '.join(self.outputs)}, symbols={symbols})"

    def _repr_latex_(self) -> str:
        return self.latex()

    def blocks(self) -> list[Block]:
        """The derivation, line by line."""
        title = strong(self.netsor.title or self.netsor.name)
        return [paragraph(title, ": infinite-width limit in formulas"), Mathematics(tuple(blocks(self)))]

    def latex(self) -> str:
        """The derivation, line by line: statement, clause of Definition 1, formula; then the law of the outputs."""
        return derivation(self)

    # -- formulas -----------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str | None = None) -> FormulaArray:
        """Centred covariance of two families, as `Law.cov`.

        Source    Sakai et al. 2025, Definition 1 (ii), (iv)
        """
        second = first if second is None else second
        self._known(first, second)
        scores, random = set(self.scores), {first, second} & self.formulas.random
        numbers = [
            n for n in (first, second) if self.netsor.families[n].kind == "scalar" and n not in self.formulas.random
        ]
        if first in scores and second in scores:
            cases = self.formulas.score(first, second)
        elif numbers or ({first, second} & scores and len(random) == 1 and first != second):
            cases = IndexedFormulas.constant(ZERO, self.formulas.pair_ranges(first, second))
        else:
            cases = self._or_averaged(
                random, lambda: self.formulas.centred(first, second), lambda: self._averaged((first, second))
            )
        return FormulaArray(self, (first, second), cases)

    def second_moment(self, first: str, second: str | None = None) -> FormulaArray:
        """E[Z^f Z^g], uncentred: what clause (ii) of Definition 1 propagates."""
        second = first if second is None else second
        self._known(first, second)
        return FormulaArray(self, (first, second), self.formulas.second(first, second))

    def mean(self, name: str) -> FormulaArray:
        """E[Z]."""
        self._known(name)
        if name in self.scores:
            cases = IndexedFormulas.constant(ZERO, position_names(self.netsor, name))
        else:
            cases = self._or_averaged(
                name in self.formulas.random, lambda: self.formulas.mean(name), lambda: self._averaged((name,))
            )
        return FormulaArray(self, (name,), cases)

    def given_scores(
        self, first: str, second: str | None = None, *, scores: Mapping[str, Any] | None = None
    ) -> FormulaArray:
        """Cov(f, g | p-ring), a function of the scores, for vectors that are linear given them.

        With `scores={"p": array}` the formulas hold these numbers and evaluate.
        """
        second = first if second is None else second
        self._known(first, second)
        if not all(self.is_linear(name) for name in (first, second)):
            raise NotCompiledError(f"{first} and {second} are not linear in Gaussian vectors given the scores")
        cases = self.formulas.conditional(first, second).mapped(self._with_scores(scores or {}))
        return FormulaArray(self, (first, second), cases)

    def conditional_mean(self, name: str) -> FormulaArray:
        """E[f | p-ring], likewise."""
        self._known(name)
        return FormulaArray(self, (name,), self.formulas.conditional_mean(name))

    def _with_scores(self, given: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Scores in a formula read from arrays of numbers."""
        data = {}
        for name, values in given.items():
            if name not in self.scores:
                raise ProgramError(f"{name} is not a score of the program; {did_you_mean(name, self.scores)}")
            array, family = np.asarray(values, dtype=np.float64), self.netsor.families[name]
            if array.shape != family.shape:
                raise ProgramError(f"{name} must have shape {family.shape}, not {array.shape}")
            data[sp.Symbol(name)] = Data(name, Table.of(array), tuple(start for start, _ in family.ranges))

        def change(formula: Any) -> Any:
            found = [score for score in formula.atoms(Score) if score.args[0] in data]
            return formula.xreplace({score: Lookup(data[score.args[0]], *score.args[1:]) for score in found})

        return change

    @staticmethod
    def _or_averaged(
        random: Any, formula: Callable[[], IndexedFormulas], averaged: Callable[[], IndexedFormulas]
    ) -> IndexedFormulas:
        """Vectors that depend on scores, and those that only draws can answer for, are averages."""
        if random:
            return averaged()
        try:
            return formula()
        except NotCompiledError:
            return averaged()

    def is_linear(self, name: str) -> bool:
        """Whether a vector is linear in Gaussian variables given the scores."""
        vector = self.netsor.families[name].kind == "vector"
        return vector and all(part.linear for part in self.formulas.parts.of(name))

    def _averaged(self, names: tuple[str, ...]) -> IndexedFormulas:
        ranges = position_names(self.netsor, names[0])
        if len(names) == 2:
            ranges = self.formulas.pair_ranges(*names)
        variables = []
        for copy, name in enumerate(names):
            places = [index_symbol(f"{k}{'_' * copy}") for k in range(len(self.netsor.families[name].ranges))]
            variables.append(sp.Tuple(sp.Symbol(name), *places))
        constants = self.formulas.converter.symbols
        program = ProgramAtom(self.netsor, tuple(constants))
        head = (program, sp.Tuple(*constants.values()), sp.Tuple(*variables))
        if not all(map(self.is_linear, names)):
            whole = Conditional(*variables)
            means = [Conditional(variable) for variable in variables]
            return IndexedFormulas.constant(ScoreAverage(*head, whole, sp.Tuple(*means)), ranges)
        means = []
        for copy, name in enumerate(names):
            again = {n: _affine(f"{n}{'_' * copy}") for n in position_names(self.netsor, name)}
            means.append(self.formulas.conditional_mean(name).read(again, ranges).expression())
        if len(names) == 1:
            average = ScoreAverage(*head, ZERO, sp.Tuple(*means))
            return IndexedFormulas.constant(ZERO if means[0] == 0 else average, ranges)
        inner = self.formulas.conditional(*names)
        return inner.mapped(lambda value: ScoreAverage(*head, value, sp.Tuple(*means)))

    def _known(self, *names: str) -> None:
        for name in names:
            family = self.netsor.families.get(name)
            if family is None or family.kind == "weight":
                known = [n for n, f in self.netsor.families.items() if f.kind != "weight"]
                raise ProgramError(f"{name} is not a vector or scalar of the program; {did_you_mean(name, known)}")

    # -- what is given out --------------------------------------------------------------------------------------

    def entry(self, cases: IndexedFormulas, positions: dict[str, int]) -> Any:
        """The formula of one member, in plain symbols and sympy's own functions."""
        return self.plain(self.formulas.expand(cases.entry(positions)))

    def plain(self, formula: Any) -> Any:
        """A formula in symbols without assumptions, Phi and phi written by erf and exp."""
        formula = formula.replace(Phi, lambda x: (1 + sp.erf(x / sp.sqrt(2))) / 2)
        formula = formula.replace(phi, lambda x: sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi))
        return readable(formula.xreplace(self._plain), {})


def _affine(name: str) -> Any:
    return Affine.index(name)
