"""The algebra of sizes: Definition 1 walked without numbers, so that a law says beforehand what it would compute.

The recursion is the one that computes; its arrays are replaced by `Extent`, the axes of an array and how long they are.
A `Ledger` notes what would be computed, kept and taken on the way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tensorprog.gaussian.arc_kernels import elementary
from tensorprog.gaussian.estimate import Estimate
from tensorprog.language.evaluate import union
from tensorprog.language.expr import Affine, Expr, Variable, indices_of, variables
from tensorprog.language.initials import covariance_size
from tensorprog.language.ir import Netsor, Range, Table
from tensorprog.limit.form.sums_of_functions import WeightedFunction
from tensorprog.limit.form.univariate import function
from tensorprog.limit.memory import NUMBER, SMALL
from tensorprog.limit.moment.indexed import NOTHING, Equations, solve
from tensorprog.limit.moment.numbers import COVARIANCES
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.reduced import reducing_groups
from tensorprog.limit.moment.values import SHIFTED, WORKED, IndexedValues, Value

__all__ = ["DRAWN", "GIVEN", "STEPPED", "Ledger", "MomentRow", "PlannedRecursion"]

Ranges = Mapping[str, Range]
# nanoseconds on one current core: a number of an array that is made, an expectation by the method named
TOUCH = 12.0
CLOSED, TERMS = ("closed form", 60.0), ("closed form", 2_000.0)
SERIES, SEVERAL = ("quadrature", 6_000.0), ("quadrature in several variables", 1e6)
SUMMED, BEHIND = 24, 160  # arrays for each expectation by the second of these, and by the last two
PIECE = 6 << 20  # numbers taken at a time
DRAWN, STEPPED = "averaged over draws", "filled in step by step"
GIVEN = "given draws of the scores"
STATEMENT = 4e6  # nanoseconds that a covariance takes however small it is


@dataclass(frozen=True)
class MomentRow:
    """One covariance or second moment that would be computed.

    `numbers` are those of the array that holds it, of which a sum over the shifts of a convolution needs no copies.
    """

    families: tuple[str, str]
    positions: str  # at which it is computed
    numbers: int
    method: str


@dataclass
class Ledger:
    """What would be computed; bytes that would be kept, and the most that would be taken."""

    rows: list[MomentRow] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)  # of the expectations since the last row
    kept: int = 0
    peak: int = 0
    nanoseconds: float = 0.0

    def made(self, numbers: int, arrays: int = WORKED) -> None:
        """An array is made, beside what is kept."""
        self.taken(arrays * numbers)
        self.nanoseconds += TOUCH * numbers

    def taken(self, numbers: int) -> None:
        """So many numbers are needed for a while."""
        self.peak = max(self.peak, self.kept + NUMBER * numbers)

    def keep(self, numbers: int) -> None:
        """Numbers and their errors are kept."""
        size = NUMBER * numbers
        self.kept += 2 * size if size >= SMALL else 0
        self.peak = max(self.peak, self.kept)


class Extent(Value):
    """An array that is not made: its axes and how long they are.

    Of what is read at sums of indices only what is behind it is `stored`, as in `values.Shifted`.
    """

    later = True

    def __init__(self, ledger: Ledger, sizes: Mapping[str, int], stored: int | None = None) -> None:
        object.__setattr__(self, "axes", union(tuple(sizes)))
        object.__setattr__(self, "sizes", dict(sizes))
        object.__setattr__(self, "ledger", ledger)
        object.__setattr__(self, "stored", stored)

    ledger: Ledger
    sizes: dict[str, int]
    stored: int | None

    @property
    def size(self) -> int:
        """Numbers of the whole array."""
        return math.prod(self.sizes.values())

    @property
    def arrays(self) -> tuple[()]:
        """None is made."""
        return ()

    @property
    def numbers(self) -> int:
        """Numbers that would be stored."""
        return self.size if self.stored is None else self.stored

    def _with(self, sizes: Mapping[str, int]) -> Extent:
        found = Extent(self.ledger, sizes)
        self.ledger.made(found.size)
        return found

    def _joined(self, other: Value) -> dict[str, int]:
        return self.sizes | {name: size for name, size in extents(other).items() if self.sizes.get(name, 1) == 1}

    def __add__(self, other: Value) -> Value:
        return self if not other.axes else self._with(self._joined(other))

    def __radd__(self, other: Value) -> Value:
        return self + other

    def __rmul__(self, other: Value) -> Value:
        return self * other

    def __mul__(self, other: Value) -> Value:
        sizes = self._joined(other)
        large = max(math.prod(extents(factor).values()) for factor in other.factors)
        if not other.axes or (self.stored is not None and large <= self.stored):
            return Extent(self.ledger, sizes, self.stored)
        return self._with(sizes)

    def apart(self, other: Value) -> Value:
        """The product with another value, of which the factors would be stored."""
        stored = self.numbers + math.prod(extents(other).values())
        sizes = self._joined(other)
        return Extent(self.ledger, sizes, stored if stored < math.prod(sizes.values()) else None)

    def scaled(self, factor: float) -> Value:
        """Times a number that is exact."""
        return self

    def contracted(self, other: Value, over: Sequence[str]) -> Value:
        """The sum of products over some axes."""
        if not over or self.stored is not None:
            found = self * other
            for name in over:
                found = found.summed(name)
            return found
        return self._with({name: size for name, size in self._joined(other).items() if name not in over})

    def summed(self, name: str) -> Value:
        """The sum over an axis."""
        sizes = {axis: size for axis, size in self.sizes.items() if axis != name}
        if self.stored is not None and math.prod(sizes.values()) >= max(2 * self.stored, SHIFTED):
            self.ledger.made(self.stored)
            return Extent(self.ledger, sizes, self.stored)
        return self._with(sizes)

    def gather(self, slots: Mapping[str, Affine], ranges: Ranges, starts: Mapping[str, int]) -> Value:
        """Read every axis at an affine form of new indices."""
        forms = {name: slots[name] for name in self.axes if name in slots and slots[name].bare != name}
        if not forms:
            return self
        sizes = {name: size for name, size in self.sizes.items() if name not in forms}
        sizes |= {name: ranges[name][1] - ranges[name][0] for form in forms.values() for name in form.indices}
        large = math.prod(sizes.values())
        if self.stored is not None or any(len(form.terms) > 1 for form in forms.values()):
            if large >= max(2 * self.numbers, SHIFTED):
                return Extent(self.ledger, sizes, self.numbers)
            return self._with(sizes)
        return Extent(self.ledger, sizes) if large <= self.size else self._with(sizes)

    def around(self, name: str, span: Range, start: int) -> Value:
        """The value over a larger range of one index."""
        return self._with(self.sizes | {name: span[1] - span[0]}) if name in self.axes else self

    def widened(self, name: str, span: Range, whole: Range) -> Value:
        """The value over a larger range of one index."""
        return self._with(self.sizes | {name: whole[1] - whole[0]})

    def zero(self) -> bool:
        """Nobody knows: it counts as if it were not."""
        return False

    def settled(self) -> Value:
        """The mean over replicates of draws."""
        return Extent(self.ledger, {name: size for name, size in self.sizes.items() if name != "&"})

    @cached_property
    def bound(self) -> Estimate:
        """Nobody knows: there is no error yet."""
        return Estimate.exact(1.0)


def extents(value: Value) -> dict[str, int]:
    """The axes of a value and how long they are."""
    if isinstance(value, Extent):
        return value.sizes
    sizes: dict[str, int] = {}
    for factor in value.factors:
        sizes |= (
            extents(factor)
            if isinstance(factor, Extent)
            else dict(zip(factor.axes, factor.estimate.value.shape, strict=True))
        )
    return sizes


def _numbers(moment: IndexedValues) -> int:
    factors = (factor for term in moment.terms for factor in term.value.factors)
    return sum(f.numbers if isinstance(f, Extent) else math.prod(extents(f).values()) for f in factors)


class PlannedRecursion(NumericRecursion):
    """The recursion that notes in a ledger what it would compute.

    What is averaged over draws, and covariances of recurrences, are noted as they stand, with nothing behind them.
    """

    def __init__(self, program: Netsor, expanded: bool, numbers: int) -> None:
        self.ledger = Ledger()
        super().__init__(program, expanded, numbers)

    def _noted(self, f: str, g: str, at: Mapping[str, Affine], numbers: int, method: str) -> None:
        self.ledger.rows.append(MomentRow((f, g), self._positions(f, g, at), numbers, method))
        self.ledger.nanoseconds += STATEMENT

    def _positions(self, f: str, g: str, at: Mapping[str, Affine]) -> str:
        """The equations between indices as they are written: "a = a_"."""
        names = {str(k): name for k, name in enumerate(self._indices(f))}
        copies = {f"{k}_": f"{name}_" for k, name in enumerate(self._indices(g))}
        equal = [f"{form.at({k: Affine.index(n) for k, n in names.items()})} = {copies[name]}"
                 for name, form in sorted(at.items()) if name in copies]  # fmt: skip
        return ", ".join(equal) or ("all pairs" if names or copies else "")

    def _indices(self, name: str) -> tuple[str, ...]:
        family = self.netsor.families[name]
        if not family.statements:
            return self.initials[name].initial.indices
        slots = self.netsor.body[family.statements[0]].target.slots
        return tuple(slot.bare or str(k) for k, slot in enumerate(slots))

    def _extent(self, ranges: Ranges) -> Extent:
        return Extent(self.ledger, {name: stop - start for name, (start, stop) in ranges.items()})

    def on_diagonal(self, f: str) -> None:
        """Nothing is filled in."""

    # -- what is noted --------------------------------------------------------------------------------------------

    def ready(self, *names: str) -> None:
        """Nothing is filled in."""

    def kept(self, moment: IndexedValues) -> IndexedValues:
        """The moment, whose numbers count as kept."""
        self.ledger.keep(_numbers(moment))
        return moment

    def initial(self, name: str, ranges: Ranges, where: Equations) -> IndexedValues:
        """The covariance of initial vectors."""
        law, at, found = self.initials[name], solve(where), self._extent(ranges)
        given = isinstance(law.initial.cov, Table)
        if given or not at:
            self.ledger.made(covariance_size(self.netsor, law.initial), COVARIANCES)
            at = {}
        equal = {f"{k}_" for k, n in enumerate(law.initial.indices) if n in law.independent} | at.keys()
        found = self._extent({n: span for n, span in ranges.items() if n not in equal})
        self.ledger.made(found.size)
        method = "inner products of data" if law.initial.data is not None else "given" if given else "declared"
        self._noted(name, name, at, found.size, method)
        return IndexedValues.constant(found, ranges)

    def gaussian(self, f: str, g: str, ranges: Ranges, where: Equations = NOTHING) -> IndexedValues:
        """The covariance of two Gaussian families."""
        found = super().gaussian(f, g, ranges, where)
        if found.terms and self.netsor.families[f].statements:
            shifted = any(isinstance(t.value, Extent) and t.value.stored is not None for t in found.terms)
            self._noted(f, g, solve(where), _numbers(found), "summed shift by shift" if shifted else "MatMul")
        return found

    def base(self, f: str, g: str) -> IndexedValues:
        """The covariance of two Gaussian families, of recurrences as a whole."""
        if not (self.recurrent(f) or self.recurrent(g)):
            return super().base(f, g)
        if (f, g) not in self._base:
            ranges, own = self.pair_ranges(f, g), self.parts.source(f) == self.parts.source(g)
            self._base[f, g] = IndexedValues.constant(self._extent(ranges), ranges) if own else self.nothing(ranges)
            if own:
                self.ledger.made(_numbers(self._base[f, g]), 2)
                self._noted(f, g, {}, _numbers(self._base[f, g]), STEPPED)
                self.kept(self._base[f, g])
        return self._base[f, g]

    def _uncentred(self, f: str, g: str, ranges: Ranges, at: Mapping[str, Affine] | None = None) -> IndexedValues:
        before, self.ledger.methods = self.ledger.methods, []
        found = super()._uncentred(f, g, ranges, at)
        own, self.ledger.methods = self.ledger.methods, before
        if not (self.parts.is_base(f) and self.parts.is_base(g)):
            self._noted(f, g, at or {}, _numbers(found), ", ".join(dict.fromkeys(own)) or "linear")
        return found

    # -- the algebra ----------------------------------------------------------------------------------------------

    def averaged(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> IndexedValues:
        """E[f(l) g(l')], and what is averaged over draws in one piece."""
        factors = [factor for part in (p, q) for factor in self.parts.factors_of(part)]
        drawn = self.paths is not None and len(self.paths.split(factors)[0]) < len(factors)
        if not drawn and not reducing_groups(self, factors)[1]:
            return super().averaged(p, q, ranges)
        self.ledger.methods.append(DRAWN)
        names = {name for part in (p, q) for _, v, _ in part.inner for slot in v.slots for name in slot.indices}
        found = self._extent({name: span for name, span in ranges.items() if name in names or name == "&"})
        self.ledger.made(found.size)
        return IndexedValues.constant(found, ranges)

    def sized(self, bodies: Sequence[Expr], axes: Sequence[str], ranges: Ranges) -> Value:
        """The expectation of a product of functions of Gaussian variables."""
        found = self._extent({name: ranges[name] for name in axes})
        method, cost = self._method(bodies, ranges)
        self.ledger.methods.append(method)
        self.ledger.made(found.size)
        if cost != CLOSED[1]:
            self.ledger.taken(min((SUMMED if cost == TERMS[1] else BEHIND) * found.size, PIECE))
        self.ledger.nanoseconds += cost * found.size
        return found

    def _method(self, bodies: Sequence[Expr], ranges: Ranges) -> tuple[str, float]:
        if not bodies:
            return SEVERAL
        if any(v.name != "." for body in bodies for v in variables(body)):
            return SERIES
        functions = [function(body, self.scope(ranges), tuple(ranges)) for body in bodies]
        if any(f.terms is None for f in functions):
            return SERIES
        return CLOSED if all(elementary(f) is not None for f in functions) else TERMS

    def number(self, expr: Expr, ranges: Ranges) -> Value:
        """An expression of constants, indices and averages."""
        read = list(variables(expr))
        if not read:
            return super().number(expr, ranges)
        for reference in read:
            self._average(reference.name)
        names = {*indices_of(expr, ranges), *(n for v in read for slot in v.slots for n in slot.indices)}
        return self._extent({name: ranges[name] for name in names if name in ranges})

    def _average_at(self, reference: Variable, ranges: Ranges) -> Value:
        self._average(reference.name)
        names = {name for slot in reference.slots for name in slot.indices}
        return self._extent({name: ranges[name] for name in names})

    def value_of(self, moment: IndexedValues) -> Value:
        """All terms as one array."""
        axes = {name for term in moment.terms for name in term.value.axes}
        axes |= {name for term in moment.terms for form in term.equations for name in form.indices}
        found = self._extent({name: span for name, span in moment.ranges.items() if name in axes})
        self.ledger.made(found.size)
        return found
