"""`SymbolicLaw`: the limit of a program in formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from tensorprog.blocks import Block, Mathematics, paragraph, strong
from tensorprog.blocks.html import Shown
from tensorprog.language.errors import MemoryLimitError, ProgramError, did_you_mean
from tensorprog.language.formats import name_of, selected
from tensorprog.language.ir import Netsor
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.formulas.closed import Phi, phi
from tensorprog.limit.formulas.conversion import kept_constants
from tensorprog.limit.formulas.nodes import readable
from tensorprog.limit.formulas.recursion import FormulaRecursion, IndexedFormulas
from tensorprog.limit.formulas.writing import blocks, cases_text, escaped

__all__ = ["FormulaArray", "SymbolicLaw"]

MAX_ENTRIES = 4096  # formulas made at once


class FormulaArray:
    """Formulas of all members, made one by one when they are read: `law.cov("x")[0, 1]`.

    Positions count from 0 along every axis, as in the arrays of the numeric law; slices and missing positions give
    object arrays of at most 4096 formulas.  `cases` are the formulas in index symbols.
    """

    def __init__(self, law: SymbolicLaw, names: tuple[str, ...], cases: IndexedFormulas) -> None:
        self.law, self.names, self.cases = law, names, cases
        self._ranges = [span for name in names for span in law.netsor.families[name].ranges]
        copies = (position_names(law.netsor, name, "_" * copy) for copy, name in enumerate(names))
        self._axes = [position for own in copies for position in own]

    @property
    def shape(self) -> tuple[int, ...]:
        """Members of the first family, then of the second."""
        return tuple(stop - start for start, stop in self._ranges)

    def at(self, *indices: int) -> Any:
        """The formula at values of the indices, those of the first family, then those of the second."""
        if len(indices) != len(self._axes):
            raise ProgramError(f"{len(indices)} indices given, {len(self._axes)} needed")
        for index, (start, stop) in zip(indices, self._ranges, strict=True):
            if not start <= index < stop:
                raise ProgramError(f"the index {index} lies outside {start}..{stop - 1}")
        return self.law.entry(self.cases, dict(zip(self._axes, map(int, indices), strict=True)))

    def __getitem__(self, key: Any) -> Any:
        axes = np.ix_(*(np.arange(*span) for span in self._ranges))
        places = [np.broadcast_to(axis, self.shape)[key] for axis in axes]
        if places and np.size(places[0]) > MAX_ENTRIES:
            raise MemoryLimitError(f"{np.size(places[0])} formulas at once; read them one by one")
        return np.frompyfunc(self.at, len(places), 1)(*places) if places else self.at()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[...] if self.shape else np.array(self[()], dtype=object), dtype=dtype)

    def __repr__(self) -> str:
        return f"FormulaArray({', '.join(self.names)}; shape={self.shape})\n{self}"

    def __str__(self) -> str:
        return cases_text(self.law.formulas, self.names, self.cases)


class SymbolicLaw(Shown):
    """The infinite-width limit of a program in formulas, with constants as symbols.

    `symbols` has the symbols by name.  Formulas hold for constants with the signs that they have in the program, and
    wherever no correlation becomes 1 that was not: ask again with other numbers for those.

    Source    Sakai, Karakida & Imaizumi 2025 (arXiv 2506.00846), Definition 1
    """

    def __init__(
        self, netsor: Netsor, symbolic: bool | Sequence[str] = True, *, grade: str = "", assumed: Sequence[str] = ()
    ) -> None:
        if not isinstance(symbolic, bool | str) and not (
            isinstance(symbolic, Sequence) and all(isinstance(name, str) for name in symbolic)
        ):
            raise ProgramError(f'symbolic takes True, False, or names of constants such as ["C"], not {symbolic!r}')
        self.grade, self.assumed = grade, tuple(assumed)
        self.formulas = FormulaRecursion(netsor, kept_constants(netsor, symbolic))
        self.netsor = self.formulas.netsor
        inside = self.formulas.converter.symbols
        self.symbols = {name: sp.Symbol(name) for name in inside}
        self._plain = {symbol: self.symbols[name] for name, symbol in inside.items()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.netsor.outputs

    def __repr__(self) -> str:
        symbols = ", ".join(self.symbols) or "none"
        assumed = "".join(f"; {claim}" for claim in self.assumed)
        return f"SymbolicLaw({self.netsor.name}, outputs={', '.join(self.outputs)}, symbols={symbols}{assumed})"

    def blocks(self) -> list[Block]:
        """The derivation, line by line."""
        title = strong(self.netsor.title or self.netsor.name)
        claims = [paragraph(claim, label="claim") for claim in self.assumed]
        return [
            paragraph(title, ": infinite-width limit in formulas"),
            *claims,
            Mathematics(tuple(blocks(self.formulas))),
        ]

    def latex(self) -> str:
        """The derivation, line by line: statement, clause of Definition 1, formula; then the law of the outputs."""
        return "\n\n".join([*(f"{escaped(claim)}." for claim in self.assumed), *blocks(self.formulas)])

    # -- formulas -----------------------------------------------------------------------------------------------

    def cov(self, first: str, second: str | None = None) -> Any:
        """Centred covariance of two families, as `Law.cov`; of members such as 'y[0]' one formula.

        Source    Sakai et al. 2025, Definition 1 (ii), (iv)
        """
        second = first if second is None else second
        return self._of(self.formulas.cov, first, second)

    def second_moment(self, first: str, second: str | None = None) -> Any:
        """E[Z^f Z^g], uncentred: what clause (ii) of Definition 1 propagates."""
        second = first if second is None else second
        return self._of(self.formulas.second, first, second)

    def mean(self, name: str) -> Any:
        """E[Z]."""
        return self._of(self.formulas.mean, name)

    def given_scores(self, first: str, second: str | None = None) -> Any:
        """Cov(f, g | p-ring), a function of the scores, for vectors that are linear given them."""
        second = first if second is None else second
        return self._of(self.formulas.conditional, first, second)

    def conditional_mean(self, name: str) -> Any:
        """E[f | p-ring], likewise."""
        return self._of(self.formulas.conditional_mean, name)

    def _of(self, formula: Callable[..., Any], *variables: str) -> Any:
        """A formula of families, read at the members that are named."""
        names, key = [], tuple[Any, ...]()
        for variable in variables:
            name = name_of(variable).partition("[")[0]
            family = self.netsor.families.get(name)
            if family is None or family.kind == "weight":
                known = [n for n, f in self.netsor.families.items() if f.kind != "weight"]
                raise ProgramError(f"{variable} is not a vector or scalar of the program; {did_you_mean(name, known)}")
            names.append(name)
            key += selected(self.netsor, variable)[1] or (slice(None),) * len(family.shape)
        found = FormulaArray(self, tuple(names), formula(*names))
        return found[key] if any(isinstance(part, int) for part in key) else found

    # -- what is given out --------------------------------------------------------------------------------------

    def entry(self, cases: IndexedFormulas, positions: dict[str, int]) -> Any:
        """The formula of one member, in symbols without assumptions, Phi and phi written by erf and exp."""
        formula = self.formulas.expand(cases.entry(positions))
        formula = formula.rewrite((Phi, phi), sp.erf)
        return readable(formula.xreplace(self._plain), {})
