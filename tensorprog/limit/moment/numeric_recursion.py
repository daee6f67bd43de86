"""The recursion in numbers with its special routes: what is filled in step by step, and what is averaged over draws.

Recurrences are filled in step by step (`recurrences`); what is carried along them without a MatMul between is averaged
over draws (`carried`), and so are functions that reduce over an index of vectors (`reduced`), in replicates that stay
apart, as an axis of all values, until a number leaves the recursion.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial, reduce

from tensorprog.gaussian.several import REPLICATES
from tensorprog.language.expr import Affine
from tensorprog.language.ir import MatMul, Netsor, Range
from tensorprog.limit.form.definitions import Box
from tensorprog.limit.form.sums_of_functions import WeightedFunction, position_names
from tensorprog.limit.moment.carried import Paths
from tensorprog.limit.moment.indexed import Equations
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.products import ProductOfFunctions
from tensorprog.limit.moment.recurrences import Recurrences
from tensorprog.limit.moment.reduced import Reduced, any_reduces, reducing_groups
from tensorprog.limit.moment.values import IndexedValues, Value

__all__ = ["NumericRecursion"]

Ranges = Mapping[str, Range]
NUMBERS, PILOT = 1 << 26, 1 << 18  # numbers held by all draws together, for what is carried along recurrences


class NumericRecursion(Numbers):
    """Moments of one program in numbers.

    A `pilot` takes one replicate of draws, to find the directions that matter; its numbers have no error.  Draws are of
    all Gaussian variables `apart`, or of the sums that statements read.

    Raises    NotCompiledError for what this version does not compile, NotFiniteError for moments that are not finite
    """

    def __init__(
        self, program: Netsor, expanded: bool = True, numbers: int = NUMBERS, symbols: Collection[str] = (),
        pilot: bool = False, apart: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(program, expanded, symbols)
        self._apart: NumericRecursion | None = None
        self._made_apart = partial(NumericRecursion, program, expanded, numbers, symbols, apart=True)
        self.paths: Paths | None = None
        self.start(Recurrences(self))
        if any(self.netsor.families[name].kind == "vector" for name in self.parts.carried - self.random):
            few = min(PILOT, numbers)
            turned = None if pilot else lambda: NumericRecursion(program, expanded, few, symbols, True, apart).drawn
            self.paths = Paths(self, numbers, turned, apart)
        known = self.program.known
        if "reduces" not in known:
            known["reduces"] = any_reduces(self.parts, self.netsor.families.keys() - self.random)
        drawn = known["reduces"]
        self.replicates = self.paths.range if self.paths is not None else (0, REPLICATES) if drawn else None

    def start(self, recurrences: Recurrences) -> None:
        """Nothing is computed yet."""
        self.reset()
        self.recurrences = recurrences

    def start_again(self) -> None:
        """Nothing is computed yet: filling in a recurrence did not finish."""
        self.start(self.recurrences.afresh(self))
        self.paths = None if self.paths is None else self.paths.afresh()

    def is_finite(self, name: str) -> bool:
        """Whether a vector has a width that stays finite."""
        return self.netsor.families[name].width in dict(self.netsor.fixed_widths)

    def width(self, name: str) -> int:
        """Number of coordinates that one draw has: 1 where the width is infinite, as all follow one law."""
        return dict(self.netsor.fixed_widths).get(self.netsor.families[name].width, 1)

    @property
    def drawn(self) -> Paths:
        """The draws of what is carried along recurrences."""
        assert self.paths is not None
        return self.paths

    # -- what is averaged over draws ------------------------------------------------------------------------------

    def averaged(self, p: WeightedFunction, q: WeightedFunction, ranges: Ranges) -> IndexedValues:
        """E[f(l) g(l')] without coefficients: factors that need draws apart from the others.

        This is what makes LSTMs, and functions such as batch normalisation, compile at all.
        """
        first, second = (self.parts.factors_of(part) for part in (p, q))
        factors, drawn = [*first, *second], None
        if self.paths is not None:
            factors, groups = self.paths.split(factors)
            sides = (_sides(group, first, second) for group in groups)
            averages = [self._drawn(one, two, ranges) for one, two in sides]
            drawn = reduce(lambda a, b: a * b, averages, Value.of(1.0)) if groups else None
        factors, groups = reducing_groups(self, factors)
        blocks = [Reduced(self, _sides(group, first, second), ranges) for group in groups]
        product = _WithBlocks(ProductOfFunctions(self, factors, ranges), blocks)
        found = self.by_patterns(product, ranges, (*q.bound, *p.bound))
        return found if drawn is None else found.times(drawn)

    def _drawn(self, first: Sequence[WeightedFunction], second: Sequence[WeightedFunction], ranges: Ranges) -> Value:
        return self._fitting(*first, *second).drawn.average(first, second, ranges)

    def _fitting(self, *factors: WeightedFunction) -> NumericRecursion:
        """The recursion whose draws answer for these functions: another one if they read parts of sums."""
        if self.drawn.fits(*factors):
            return self
        self._apart = self._apart or self._made_apart()
        return self._apart

    # -- what is filled in step by step ---------------------------------------------------------------------------

    def ready(self, *names: str) -> None:
        """Fill the recurrences that define these families, unless that is under way."""
        self.recurrences.ensure(*names)

    def recurrent(self, name: str) -> bool:
        """Whether a family belongs to a recurrence."""
        return self.recurrences.recurrent(name)

    def entered(self, name: str, box: Box) -> None:
        """Draw members of a Gaussian family, where something that is carried along reads them."""
        if self.paths is not None:
            self.paths.draw(name, tuple(box))

    def step(self, position: int, box: Box) -> None:
        """Compute members of a family that is carried along, for every draw."""
        if self.paths is not None:
            self.paths.step(position, box)

    def base(self, f: str, g: str) -> IndexedValues:
        """Covariance of two Gaussian families; of those in recurrences, as far as it is known."""
        self.ready(f, g)
        if self.recurrences.active & {f, g} or (f, g) in self.recurrences.covariances:
            return self.recurrences.covariances.get((f, g), IndexedValues((), self.pair_ranges(f, g)))
        return super().base(f, g)

    def base_at(self, f: str, g: str, where: Equations) -> IndexedValues:
        """The covariance of two Gaussian families where these equations between positions hold."""
        self.ready(f, g)
        return super().base_at(f, g, where)

    def between(self, f: str, g: str, names: Mapping[str, Affine], ranges: Ranges) -> IndexedValues:
        """E[Z^f Z^g] with at least the members that are read at these forms of other indices.

        Only those are computed of families of which only part is known, or whose later definitions may read earlier
        ones, or where every draw has moments of its own.
        """
        whole, held = position_names(self.netsor, f) | position_names(self.netsor, g, "_"), {}
        for name, (start, stop) in whole.items():
            low, high = names[name].span(ranges)
            held[name] = max(low, start), min(high, stop)
        partly = self.each or any(len(self.netsor.families[name].statements) > 1 for name in (f, g))
        if not self.recurrences.active & {f, g} and not (partly and held != whole):
            return super().between(f, g, names, ranges)
        if any(start >= stop for start, stop in held.values()):
            return IndexedValues((), self.over(held))
        where = self.wanted(f, g, names)
        return self._checked_at(f, g, self.over(held), where) if where else self._compute(f, g, self.over(held))

    def around(self, a: MatMul, b: MatMul) -> bool:
        """Whether products may read what wraps as one case: where moments are there as a whole."""
        families = [self.netsor.families[statement.vector.name] for statement in (a, b)]
        partly = any(len(family.statements) > 1 or self.recurrent(family.name) for family in families)
        return not partly and not self.each and any("wrap" in family.boundaries for family in families)

    def between_around(self, f: str, g: str, names: Mapping[str, Affine], ranges: Ranges) -> IndexedValues | None:
        """E[Z^f Z^g] with ranges beyond boundaries at which positions wrap; None if equations say which are equal."""
        around = {}
        for family, copy in ((f, ""), (g, "_")):
            declared = self.netsor.families[family]
            for k, ((start, stop), rule) in enumerate(zip(declared.ranges, declared.boundaries, strict=False)):
                low, high = names[f"{k}{copy}"].span(ranges)
                if rule == "wrap" and (low < start or high > stop):
                    around[f"{k}{copy}"] = low, high
        moment = self.second_at(f, g, self.wanted(f, g, names, around))
        read = {name for term in moment.terms for form in term.equations for name in form.indices}
        return None if read & around.keys() else moment.around(around)

    def _average(self, name: str) -> Value:
        self.ready(name)
        if name in self.recurrences.active and name not in self._averages:  # as far as it is known
            return self.recurrences.averages.get(name, Value.of(0.0))
        return super()._average(name)

    def whole_average(self, name: str) -> Value:
        """All averages of a family, of those in recurrences as they have been filled in."""
        if len(self.netsor.families[name].statements) == 1 and name not in self.recurrences.averages:
            return super().whole_average(name)
        self.recurrences.rest_of(name)
        return self.recurrences.averages[name]


def _sides(group: Sequence[WeightedFunction], *sides: Sequence[WeightedFunction]) -> list[list[WeightedFunction]]:
    """The factors of a group, those of each side apart."""
    return [[factor for factor in side if any(factor is other for other in group)] for side in sides]


class _WithBlocks:
    """A product of factors and of blocks that are averaged over draws, independent of each other."""

    def __init__(self, product: ProductOfFunctions, blocks: Sequence[Reduced]) -> None:
        self.product, self.blocks = product, blocks

    @property
    def equations(self) -> list[Equations]:
        """The equations that matter to any of them."""
        return [*self.product.equations, *(dropped for block in self.blocks for dropped in block.dropped)]

    def expectation(self, equations: Equations, solution: Mapping[str, Affine]) -> Value:
        """The product of their expectations."""
        each = (block.at(solution).expectation() for block in self.blocks)
        return reduce(lambda a, b: a * b, each, self.product.expectation(equations, solution))
