"""`Sketch`: the program while it is drawn up in the language's own records, and what operations ask of it.

Names of families, indices and widths are provisional: `text` gives them those that are written.  Where an axis turns
out to consist of several (heads times their width), or a readout turns out to be a score, that is noted and the whole
module is read again from the beginning (`Again`): every rule sees tensors as they end up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any, Literal, TypeVar

import numpy as np

from tensorprog.importing.capture import Captured, Parameter
from tensorprog.importing.refusals import SourcePlace, refusal
from tensorprog.importing.values import (
    AxisKey,
    AxisPart,
    FixedTensor,
    Outer,
    Traced,
    Wave,
    along,
    atoms_of,
    product,
    recognised,
    scaled,
    varying,
    whole,
)
from tensorprog.language.evaluate import index_values
from tensorprog.language.expr import (
    Affine,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    bound_indices,
    call,
    free_indices,
    is_call,
    reindexed,
    slots_of,
    substitute,
    sum_of,
    variables,
    walk,
)
from tensorprog.language.ir import ConstantDef, Dot, Draft, Index, Initial, MatMul, Nonlin, Statement, Table, Weight

__all__ = ["Again", "Decisions", "Record", "Sketch", "changed", "place_of", "read_by"]

Boundary = Literal["", "zero", "wrap"]
Record = TypeVar("Record", bound=MatMul | Nonlin | Dot | Weight | Initial | ConstantDef)
Scale = tuple[float, Fraction]  # coefficient and power of n
POSITIVE = ("abs", "exp", "relu", "sigmoid", "softplus")
SMALL = 1e-3  # below it, a number that is added to squares only keeps quotients finite


def place_of(record: Any) -> SourcePlace:
    """Where a record comes from, and what for."""
    place: SourcePlace = record.span
    return place


def _parts(record: Record) -> dict[str, Expr]:
    """The expressions of a record by name; what a statement defines is none of them."""
    values = {part.name: getattr(record, part.name) for part in fields(record) if part.name != "target"}
    return {name: value for name, value in values.items() if isinstance(value, Expr)}


def changed(record: Record, change: Callable[[Any], Any], **others: Any) -> Record:
    """A record with other expressions; what a statement defines stays, except where it is given."""
    return replace(record, **{name: change(value) for name, value in _parts(record).items()}, **others)


def read_by(*records: Record) -> list[Expr]:
    """The expressions of records, that is on the right sides of statements."""
    return [value for record in records for value in _parts(record).values()]


ONE = Fraction(1)
_NOT_INDEPENDENT = {
    "orthogonal": "are orthogonal",
    "unknown": "are of an unknown law",
    "rows": "are initialised differently from row to row",
}


class Again(Exception):
    """What was decided makes it necessary to read the module once more."""


@dataclass
class Decisions:
    """What earlier readings found: axes that consist of several, readouts that are scores, positions in one row."""

    splits: dict[AxisKey, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    scores: set[str] = field(default_factory=set)
    flat: set[AxisKey] = field(default_factory=set)  # positions of inputs that are one index


class Sketch:
    """Records so far, with fresh names, and the rules' common questions."""

    def __init__(self, captured: Captured, decisions: Decisions, at: int | None, exact: bool = False) -> None:
        self.captured, self.decisions, self.at, self.exact = captured, decisions, at, exact
        self.n = captured.widths
        self.body: list[Statement] = []
        self.declared: dict[str, Weight | Initial] = {}
        self.tables: dict[str, ConstantDef] = {}
        self.atoms: dict[str, AxisPart] = {}
        self.ratios: dict[str, Fraction] = {}  # widths by name, as multiples of n
        self.meetings: dict[Any, Variable] = {}  # inner products by their sides and scale: one tensor is one statement
        self.layers: list[AxisPart] = []  # indices that layers became
        self.vectors: set[str] = set()  # families of vectors
        self.products: dict[Any, str] = {}  # families by what they multiply
        self.notes: list[str] = []
        self.as_gaussian: set[str] = set()  # parameters whose entries are not Gaussian, and are taken as such
        self.exponents: dict[str, Fraction] = {}
        self.place, self.operation = SourcePlace(), ""
        self.count = 0
        self.used: dict[str, Any] = {}  # how parameters were used, to be used so again
        self.ones: dict[Fraction, Variable] = {}
        self.angles: dict[tuple[float, int, Fraction], Variable] = {}  # of rotary positions

    # -- names and axes -----------------------------------------------------------------------------------------

    def fresh(self, prefix: str) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"{prefix}{self.count}"

    def width(self, ratio: Fraction) -> str:
        """The name of a width."""
        top = "n" if ratio.numerator == 1 else f"{ratio.numerator}*n"
        name = top if ratio.denominator == 1 else f"{top}/{ratio.denominator}"
        self.ratios[name] = ratio
        return name

    def atom(
        self, sizes: tuple[int, int], key: AxisKey | None = None, start: int = 0, boundary: Boundary = ""
    ) -> AxisPart:
        """A new index or width."""
        made = AxisPart(self.fresh("i"), sizes, key, start, boundary)
        self.atoms[made.name] = made
        return made

    def like(self, atoms: Iterable[AxisPart]) -> dict[str, AxisPart]:
        """New indices in the place of others, by the names of these."""
        return {atom.name: self.atom(atom.sizes, atom.key, atom.start, atom.boundary) for atom in atoms}

    def axis(self, key: AxisKey, one: int, other: int) -> tuple[AxisPart, ...]:
        """The atoms of a new axis of these sizes, as decisions have it."""
        if (one, other) == (1, 1):
            return ()
        split = self.decisions.splits.get(key)
        if split is None:
            return (self.atom((one, other), key),)
        return tuple(atom for k, sizes in enumerate(split) for atom in self.axis((*key, k), *sizes))

    def split(self, atom: AxisPart, outer: tuple[int, int]) -> tuple[tuple[AxisPart, ...], dict[str, Affine]]:
        """The atom as two, of which the outer one has these sizes, and what its index then is."""
        inner = (atom.sizes[0] // outer[0], atom.sizes[1] // outer[1])
        whole = outer[0] * inner[0] == atom.sizes[0] and outer[1] * inner[1] == atom.sizes[1]
        if not whole or (1, 1) in (outer, inner):
            raise self.refuse(
                f"an axis of size {atom.sizes[0]} cannot be split into parts of {inner[0]}",
                "choose widths that the numbers of heads and groups divide",
            )
        if atom.key is not None:
            self.decisions.splits[atom.key] = (outer, inner)
            raise Again
        if atom.is_width:
            raise self.refuse("a width is split whose origin is not known", "split it where it arises")
        parts = self.atom(outer), self.atom(inner)
        return parts, {atom.name: inner[0] * parts[0].slot + parts[1].slot}

    def ratio(self, atom: AxisPart) -> Fraction:
        """The width as a multiple of n."""
        ratio = Fraction(atom.sizes[0], self.n[0])
        if ratio != Fraction(atom.sizes[1], self.n[1]):
            raise self.refuse(
                f"an axis has sizes {atom.sizes[0]} and {atom.sizes[1]} at widths {self.n[0]} and "
                f"{self.n[1]}, which are no multiple of the width",
                "let widths grow in proportion: n, n/H, 4*n; where the module rounds them, give widths= at which it "
                "does not, such as (96, 192); and give what does not grow a layer of its own",
            )
        return ratio

    def refuse(self, why: str, fix: str) -> Exception:
        """The error for the operation that is being read."""
        return refusal(self.place, why, fix)

    def two_widths(self) -> Exception:
        """The error for what no vector holds."""
        return self.refuse(
            "it makes a matrix of two widths out of vectors",
            "sum over one of the widths before anything else: (q @ k.T) @ v, or q @ (k.T @ v)",
        )

    # -- records ------------------------------------------------------------------------------------------------

    def state(
        self,
        kind: Any,
        *args: Any,
        role: str = "",
        slots: Sequence[Affine] | None = None,
        name: str = "",
        **options: Any,
    ) -> Variable:
        """Add a statement for all free indices of its arguments; the family as it is read with these indices."""
        key: Any = None
        if slots is None:
            free = [*dict.fromkeys(index for arg in args for index in free_indices(arg))]
            slots = slots_of(free)
            if kind is not Nonlin:  # the same product, whatever its indices are called, is one family
                numbers = {index: Affine.index(str(k)) for k, index in enumerate(free)}
                kinds = tuple(replace(self.atoms[index], name="", key=None) for index in free)
                key = (kind, options.get("scale"), kinds, *(reindexed(arg, numbers) for arg in args))
                if key in self.products:
                    return Variable(self.products[key], slots)
        target = Variable(name or self.fresh("v"), tuple(slots))
        self.products |= {key: target.name} if key else {}
        self.body.append(kind(target, *args, span=replace(self.place, role=role), **options))
        if kind is MatMul or options.get("width") or (kind is Nonlin and self.holds_vector(args[0])):
            self.vectors.add(target.name)
        return target

    def weights(
        self, indices: tuple[str, ...], variance: float, shape: Iterable[Fraction], parameter: str, role: str = ""
    ) -> Variable:
        """Declare weights of a shape in multiples of n."""
        rows, columns = map(self.width, shape)
        place = replace(self.place, role=role, parameter=parameter)
        made = Weight(self.fresh("W"), indices, Number(variance), (rows, columns), place)
        self.declared[made.name] = made
        return Variable(made.name, slots_of(indices))

    def initial(
        self, indices: tuple[str, ...], cov: Expr, ratio: Fraction, parameter: str, mean: float = 0, **options: Any
    ) -> Variable:
        """Declare initial vectors."""
        place = replace(self.place, parameter=parameter)
        made = Initial(self.fresh("e"), indices, Number(mean), cov, width=self.width(ratio), span=place, **options)
        self.declared[made.name] = made
        return Variable(made.name, slots_of(indices))

    def one(self, ratio: Fraction) -> Variable:
        """The vector of ones of a width."""
        if ratio not in self.ones:
            place, self.place = self.place, SourcePlace()
            self.ones[ratio] = self.state(Nonlin, Number(1), role="one", width=self.width(ratio))
            self.place = place
            self.body.insert(len(self.ones) - 1, self.body.pop())
        return self.ones[ratio]

    @property
    def draft(self) -> Draft:
        """Constants and indices."""
        indices = (Index(atom.name, atom.start, atom.start + atom.size) for atom in self.atoms.values())
        return Draft("", tuple(self.tables.values()), tuple(indices))

    def evaluated(self, value: Traced) -> Expr:
        """What nothing random enters, as the number or the table that it is, if that is finite."""
        if not value.expr.children:
            return value.expr
        found = index_values(self.draft, value.expr)
        if not np.isfinite(found.data).all():
            return value.expr
        if not found.axes:
            return Number(_tidy(float(found.data)))
        order = [atom for atom in value.atoms if atom.name in found.axes]
        return self.table(found.data.transpose([found.axes.index(atom.name) for atom in order]), order)

    def named(self, value: Traced, role: str = "", vector: bool = False) -> Traced:
        """The value as a family of its own; `vector` where it must be one of vectors.

        What is not random is no family, but a number or a table.
        """
        value = self.settled(value)
        vector = vector and value.is_vector and not self.holds_vector(value.expr)
        expr = value.expr
        if isinstance(expr, Variable) and not vector:
            return value
        if vector:
            expr = product(expr, self.one(self.ratio(value.widths[0])))
        elif not variables(expr):
            return replace(value, expr=self.evaluated(value))
        free = set(free_indices(expr))
        slots = slots_of([atom.name for atom in value.atoms if atom.name in free])
        made = self.state(Nonlin, expr, role=role, slots=slots if len(slots) == len(free) else None)
        return replace(value, expr=made)

    def vector(self, value: Traced, role: str = "") -> Variable:
        """The reference of a value that is a family of vectors of its own."""
        made = self.named(value, role, vector=True).expr
        if not isinstance(made, Variable):
            raise self.refuse("a tensor of fixed numbers stands where vectors of the width are read", "leave it out")
        return made

    def stated(self, expr: Expr) -> Statement | None:
        """The first statement that defines a family."""
        return next((line for line in self.body if line.target.name == getattr(expr, "name", "")), None)

    def is_positive(self, expr: Expr) -> bool:
        """Whether an expression is made of functions that are nowhere negative."""
        line = self.stated(expr)
        if isinstance(line, Nonlin):
            return self.is_positive(line.expr)
        if isinstance(expr, Number):
            return float(expr.value) > 0
        if any(is_call(expr, name) for name in ("add", "multiply", "divide")):
            return all(map(self.is_positive, expr.children))
        return any(is_call(expr, name) for name in POSITIVE)

    def left_out(self, value: Traced) -> None:
        """Nothing where a value that falls with the width has the limit 0.

        Raises    ProgramError where it is divided by an average that may have the limit 0 as well
        """
        if self._holds(value.expr, self._divides_by_zero):
            raise self.refuse(
                f"a quotient by an average that may be 0 is multiplied by n**({value.power})",
                "multiply the average by the power of n, x / (x.mean(-1) * n**0.5), or give at=",
            )

    def _divides_by_zero(self, expr: Expr) -> bool:
        return is_call(expr, "divide") and self._holds(expr.children[1], self._of_either_sign)

    def _of_either_sign(self, expr: Expr) -> bool:
        line = self.stated(expr)
        return isinstance(line, Dot) and line.scale == "1/n" and not self.is_square(expr)

    def _holds(self, expr: Expr, what: Callable[[Expr], bool]) -> bool:
        """Whether something in an expression, or in the functions that it reads, is so."""
        seen: set[Any] = set()
        found = [expr]
        while found:
            node = found.pop()
            if what(node):
                return True
            line = self.stated(node)
            found += [
                *node.children,
                *(read_by(line) if isinstance(line, Nonlin | MatMul) and line not in seen else ()),
            ]
            seen.add(line)
        return False

    def is_square(self, expr: Expr) -> bool:
        """Whether an expression is the average of squares of a vector, a multiple or the root of one: not negative."""
        line = self.stated(expr)
        if isinstance(line, Dot):
            return line.left == line.right or (line.right in self.ones.values() and self.is_positive(line.left))
        if isinstance(line, Nonlin):
            return self.is_square(line.expr)
        if is_call(expr, "multiply") and isinstance(expr.args[0], Number):
            return expr.args[0].value > 0 and self.is_square(expr.args[1])
        if isinstance(expr, Reduction):
            return expr.reducer in ("sum", "mean") and self.is_square(expr.arg)
        return is_call(expr, "sqrt")

    def without_eps(self, value: Traced, eps: float) -> bool:
        """Whether a small number beside squares that grow or fall with the width is left out, as a note then says."""
        if not value.power or self.at is not None or not 0 < eps < SMALL or not self.is_square(value.expr):
            return False
        if value.power < 0:
            self.note(
                f"{eps:g} is left out beside an average that falls like n**({value.power}): the limit is that of "
                f"networks whose width is large, but too small for it to matter: {self.place.alike}"
            )
        return True

    def holds_vector(self, expr: Expr) -> bool:
        """Whether an expression refers to a vector."""
        return any(variable.name in self.declared or variable.name in self.vectors for variable in variables(expr))

    def as_score(self, vector: Variable) -> Variable:
        """Random numbers for vectors with independent Gaussian coordinates: scores of the same covariance.

        Where the program is `exact` at finite width, the numbers are sums of the coordinates.
        """
        if self.exact:
            return self.state(Dot, vector, self.one(ONE), role="score")
        self.note(
            "numbers that all coordinates share (relative positions, gates) are written as scores of MatMul "
            "outputs: the limit is the same, at finite widths they are Gaussian up to O(1/n)"
        )
        other = self.state(MatMul, self.weights((), 1, (ONE, ONE), "", "ones"), self.one(ONE), role="ones")
        return self.state(Dot, vector, other, role="score")

    # -- values -------------------------------------------------------------------------------------------------

    def settled(self, value: Traced, positive: bool = False) -> Traced:
        """The value with its inner product stated, if one waited for its scale; parameters become vectors.

        With `positive`, a sum of coordinates that are positive is n times their average.
        """
        if value.parameter:
            return self.as_vector(value)
        if value.outer:
            raise self.two_widths()
        inner = value.inner
        if inner is None:
            return value
        whole = inner.left == inner.right or value.power <= -1
        whole = whole or (positive and inner.right in self.ones.values() and self.is_positive(inner.left))
        role, scale = ("average", "1/n") if whole else ("score", "n**-0.5")
        key = inner.left, inner.right, scale
        if key not in self.meetings:
            self.meetings[key] = self.state(Dot, inner.left, inner.right, role=role, scale=scale)
        made: Expr = self.meetings[key]
        if inner.over:
            made = self.reduced("sum", inner.over, made)
        factor = float(inner.ratio) if whole else math.sqrt(inner.ratio)
        power = value.power + (1 if whole else Fraction(1, 2))
        return replace(value, inner=None, expr=product(scaled(value.expr, factor), made), power=power)

    def level(self, value: Traced, what: str) -> Traced:
        """The value without a power of n, for functions to act on.

        Raises    ProgramError where it diverges
        """
        value = self.settled(value)
        if not value.power:
            return value
        if self.at:
            return replace(value, expr=scaled(value.expr, self.at ** float(value.power)), power=Fraction(0))
        if value.power < 0:
            self.left_out(value)
            self.note(f"what {self.place.alike} reads vanishes like n**({value.power}) and is 0 in the limit")
            return replace(value, expr=Number(0), power=Fraction(0))
        rate = {"1": "n", "1/2": "sqrt(n)"}.get(str(value.power), f"n**({value.power})")
        raise self.refuse(
            f"{what} diverges like {rate} with the width{self.blame()}",
            "scale the initialisation with the width (variance 1/fan_in), or give at=, the width of "
            "your own network, at which all variances are then taken",
        )

    def blame(self) -> str:
        """Sketch whose variance times fan-in grows."""
        grown = [name for name, power in self.exponents.items() if power > 0]
        return f"; the variances of {', '.join(grown[:3])} times their fan-in grow" if grown else ""

    def note(self, text: str) -> None:
        """Remember what users should know, once."""
        if text not in self.notes:
            self.notes.append(text)

    def read_at(self, value: Traced, slots: Mapping[str, Affine], axes: Any = None) -> Traced:
        """The value with indices replaced by forms in others."""
        slots = {name: slot for name, slot in slots.items() if slot != Affine.index(name)}
        if not slots:
            return value if axes is None else value.on(axes)
        if value.outer:
            return replace(value, axes=value.axes if axes is None else axes, outer=self._outer_at(value.outer, slots))
        new = {index for slot in slots.values() for index in slot.indices}
        parts = [value.expr, *((value.inner.left, value.inner.right) if value.inner else ())]
        kept = {
            name
            for expr in parts
            for node in walk(expr)
            if isinstance(node, Reduction) and not node.removes
            for name in node.indices
        }
        bound = {name for expr in parts for name in bound_indices(expr)}
        over = {atom.name for atom in value.inner.over} if value.inner else set()
        bare = all(
            slot.bare and self.atoms[slot.bare].size == self.atoms[name].size
            for name, slot in slots.items()
            if name in kept
        )
        if not value.parameter and (not bare or new & (bound | over) - set(slots)):
            value = self.named(value)
        inner = value.inner and replace(
            value.inner, left=reindexed(value.inner.left, slots), right=reindexed(value.inner.right, slots)
        )
        expr = substitute(value.expr, slots, along=True)
        return replace(value, expr=expr, inner=inner, axes=value.axes if axes is None else axes)

    def _outer_at(self, outer: Sequence[Outer], slots: Mapping[str, Affine]) -> tuple[Outer, ...]:
        """The same, of products that wait; widths get other names too."""

        def moved(factor: Traced) -> Traced:
            (width,) = factor.widths
            name = slots[width.name].bare if width.name in slots else None
            return self.read_at(factor, slots, ((self.atoms[name or width.name],),))

        return tuple(Outer(moved(term.left), moved(term.right), term.over) for term in outer)

    def reduced(self, reducer: str, atoms: Sequence[AxisPart], expr: Expr) -> Expr:
        """A reduction over indices, which get names of their own: the same indices may be read beside it."""
        own = self.like(atoms)
        value = self.read_at(Traced((), expr), {name: atom.slot for name, atom in own.items()})
        return Reduction(reducer, tuple(atom.name for atom in own.values()), value.expr)

    def apart(self, value: Traced, taken: Sequence[AxisPart]) -> Traced:
        """The value with indices of its own where it shares them with `taken`."""
        clash = {atom.name for atom in taken}
        new = self.like(atom for atom in value.atoms if atom.name in clash and not atom.is_width)
        axes = tuple(tuple(new.get(atom.name, atom) for atom in axis) for axis in value.axes)
        return self.read_at(value, {name: atom.slot for name, atom in new.items()}, axes)

    def unified(
        self, left: Sequence[AxisPart], right: Sequence[AxisPart]
    ) -> tuple[tuple[AxisPart, ...], dict[str, Affine], dict[str, Affine]]:
        """The atoms of two axes of one size as the same atoms; what indices of both sides then are."""
        a, b = list(left), list(right)
        found: list[AxisPart] = []
        first: dict[str, Affine] = {}
        second: dict[str, Affine] = {}
        while a and b:
            x, y = a.pop(0), b.pop(0)
            if x.sizes == y.sizes:
                found.append(x)
                second[y.name] = x.slot
            elif x.sizes[0] >= y.sizes[0] and x.sizes[1] >= y.sizes[1]:
                parts, slots = self.split(x, y.sizes)
                first.update(slots)
                a[:0], b[:0] = list(parts), [y]
            else:
                parts, slots = self.split(y, x.sizes)
                second.update(slots)
                a[:0], b[:0] = [x], list(parts)
        final = {atom.name: atom.slot for atom in found}
        # forms in which indices that were replaced later are replaced too
        closed = {name: slot.at({k: v for k, v in second.items() if k != name}) for name, slot in second.items()}
        return tuple(found), first, {name: slot.at(final) for name, slot in closed.items()}

    # -- numbers ------------------------------------------------------------------------------------------------

    def number(self, one: float, other: float, what: str = "") -> Scale:
        """A number that stands at both widths as coefficient and power of n; one that is a power up to a share of 1/n,
        such as n/(n - 1), as it is in the limit or at the width that is frozen."""
        one, other = float(one), float(other)
        if one == other:
            return one, Fraction(0)
        positive = one * other > 0 and math.isfinite(one) and math.isfinite(other)
        exponent = math.log(other / one) / math.log(self.n[1] / self.n[0]) if positive else 0.0
        steps = 2 if what else 4
        power = Fraction(round(steps * exponent), steps)
        levelled = [value / n ** float(power) for value, n in zip((one, other), self.n, strict=True)]
        limit = levelled[0]
        if positive and abs(exponent - power) > 1e-6:  # exact for 2/(fan_in + fan_out), and for 1/(n - 1)
            limit = (self.n[1] - self.n[0]) / (self.n[1] / levelled[1] - self.n[0] / levelled[0])
        plain = abs(limit - Fraction(limit).limit_denominator(1000)) < 1e-9 * abs(limit) or limit == levelled[0]
        if not positive or not (plain or what):
            raise self.refuse(
                f"the numbers {one:g} and {other:g}, at widths {self.n[0]} and {self.n[1]}, are no power of the width",
                "scale by powers of the width, such as n**-0.5",
            )
        one, other = levelled
        if limit == one:
            return one, power
        self.note(
            f"{what or self.place.alike}: a number at widths {self.n[0]} and {self.n[1]} is no pure power of n; "
            f"the limit {limit:.6g} is extrapolated in 1/n"
        )
        if self.at:
            limit = 1 / (1 / limit + (1 / one - 1 / limit) * self.n[0] / self.at)
        return limit, power

    def constant(self, known: FixedTensor, axes: Any) -> Traced:
        """A fixed tensor as an expression, on the axes of a tensor that it meets."""
        one, other = (np.asarray(array) for array in known.arrays)
        if one.dtype == bool:
            one, other = one.astype(float), other.astype(float)
        own = axes[len(axes) - one.ndim :]
        wave = self._wave(one, other, own)
        if wave is not None:
            return Traced(axes, wave)
        places = varying(one, other)
        kept = atoms_of(tuple(own[k] for k in places))
        if any(atom.is_width for atom in kept):
            raise self.refuse(
                "a fixed tensor differs from coordinate to coordinate of a vector",
                "of such vectors only cosines and sines of positions are known, with frequencies "
                "f * base**(-k/m) or k/(m - 1), not those that are scaled in parts (llama3, yarn); make them "
                "random, or leave them out",
            )
        small, large = along(one, places), along(other, places)
        if not kept:
            coefficient, power = self.number(float(small), float(large))
            return Traced(axes, Number(_tidy(coefficient)), power)
        if not np.array_equal(small, large):
            raise self.refuse("a fixed table changes with the width", "keep tables the same at every width")
        return Traced(axes, self.table(small.reshape([atom.size for atom in kept]), kept))

    def _wave(self, one: Any, other: Any, axes: Any) -> Expr | None:
        """Rotary positions: functions of an index and of the coordinate; None for what is no wave."""
        places = varying(one, other)
        wide = [k for k in places if any(atom.is_width for atom in axes[k])]
        if len(places) != 2 or wide != places[1:] or len(axes[places[0]]) != 1:
            return None
        tables = [along(array, places) for array in (one, other)]
        atoms, position = axes[wide[0]], axes[places[0]][0]
        for cut, at_first in ((lambda m: [slice(m)], False), (_halves, True), (_pairs, False)):
            parts = [[table[:, where] for where in cut(table.shape[1])] for table in tables]
            if len(parts[0]) > 1 and any(table.shape[1] % 2 for table in tables):
                continue
            found = [recognised(one, other) for one, other in zip(*parts, strict=True)]
            waves = [wave for wave in found if wave is not None]
            if len(waves) < len(found):
                continue
            if len(atoms) == 1 and len(waves) > 1:
                self.split(atoms[0], (2, 2) if at_first else (atoms[0].sizes[0] // 2, atoms[0].sizes[1] // 2))
            width, index = (atoms[-1], atoms[0]) if at_first else (atoms[0], atoms[-1])
            if len(atoms) != len(waves) or not width.is_width or (len(waves) > 1 and index.sizes != (2, 2)):
                continue
            made = [self._turned(wave, position, width) for wave in waves]
            if made[0] == made[-1]:
                return made[0]
            return call("where", call("equal", IndexValue(index.name), Number(0)), *made)
        return None

    def _turned(self, wave: Wave, position: AxisPart, width: AxisPart) -> Expr:
        """A wave as a function of a position and of the coordinate."""
        ratio = self.ratio(width)
        key = (wave.base, wave.less, ratio)
        if key not in self.angles:
            made = self.initial((), Number(1 / 12), ratio, "", 0.5, grid=True)
            # coordinates of the module are k/m or k/(m - 1), not (k + 1/2)/m
            size = float(ratio * self.at) if self.at else math.inf
            stretch = 1 / (1 - wave.less / size)
            power = call("exp", scaled(made, -math.log(wave.base) * stretch))
            shift = wave.base ** (stretch / (2 * size))
            self.angles[key] = self.state(Nonlin, scaled(power, shift), role="angle")
            if not self.at:
                self.note(
                    "angles of rotary positions stand at the middles of their intervals, (k + 1/2)/m, where the "
                    "module has them at k/m or k/(m - 1): the same in the limit; with at= they are those of the module"
                )
        return call(wave.function, product(IndexValue(position.name), self.angles[key]))

    def table(self, array: Any, atoms: Sequence[AxisPart]) -> Constant:
        """A constant with indices; one that is there already is read again."""
        table = Table.of(array)
        name = next((name for name, entry in self.tables.items() if entry.value == table), None)
        if name is None:
            name = self.fresh("t")
            own = tuple(self.atom(atom.sizes).name for atom in atoms)
            self.tables[name] = ConstantDef(name, table, own)
        return Constant(name, slots_of([atom.name for atom in atoms]))

    def law(self, entry: Parameter, fan: Fraction | None) -> Scale:
        """Variance (times fan-in, a multiple of n or a number of rows) as coefficient and power of n."""
        one, other = (
            law.variance * (1.0 if fan is None else float(fan) * n) for law, n in zip(entry.laws, self.n, strict=True)
        )
        limit, power = self.number(one, other, f"the variance of {entry.name}") if one else (0.0, Fraction(0))
        self.exponents[entry.name] = power
        if self.at and entry.frozen is not None:
            return entry.frozen.variance * (1.0 if fan is None else float(fan) * self.at), Fraction(0)
        return limit, power

    # -- parameters ---------------------------------------------------------------------------------------------

    def parameter(self, node: str) -> Traced:
        """A parameter that nothing has used yet."""
        entry = self.captured.parameters[node]
        axes = tuple(self.axis((node, k), one, other) for k, (one, other) in enumerate(zip(*entry.shapes, strict=True)))
        own = [atom for axis in axes for atom in axis if not atom.is_width]
        return Traced(axes, Variable(f"@{node}", tuple(atom.slot for atom in own)), parameter=node)

    def entry(self, value: Traced, centred: bool = False) -> Parameter:
        """The parameter of a value.

        Raises    ProgramError for entries that are not independent, of an unknown law, or not `centred`
        """
        entry = self.captured.parameters[value.parameter]
        if entry.law.kind in _NOT_INDEPENDENT:
            raise self.refuse(
                f"the entries of {entry.name} {_NOT_INDEPENDENT[entry.law.kind]}",
                "initialise it with independent normal or uniform entries (torch.nn.init.normal_, kaiming_normal_, ..)",
            )
        if centred and any(abs(law.mean) > 1e-12 * law.deviation for law in entry.laws):
            raise self.refuse(f"the entries of {entry.name} have a mean other than 0", "let it be 0")
        return entry

    def taken(self, entry: Parameter, told: str) -> None:
        """Take entries as Gaussian, and tell so, if they are not."""
        if not entry.law.gaussian:
            self.as_gaussian.add(entry.name)
            self.note(told)

    def slots(self, value: Traced) -> tuple[Affine, ...]:
        """At which of its indices a parameter is read."""
        assert isinstance(value.expr, Variable)
        return value.expr.slots

    # -- vectors ------------------------------------------------------------------------------------------------

    def as_vector(self, value: Traced) -> Traced:
        """A parameter as random vectors; one without a width as numbers, or as copies of a number in coordinates."""
        entry = self.entry(value)
        widths = value.widths
        if len(widths) > 1:
            raise self.refuse(
                f"{entry.name} is a matrix of the width, used as if it were a vector",
                "multiply vectors by it: x @ W, nn.Linear",
            )
        ratio = self.ratio(widths[0]) if widths else ONE
        made, power = self._declared(value, entry, ratio)
        made, copies = self.shared(value, Variable(made.name, self.slots(value)), bool(widths))
        return Traced(value.axes, scaled(made, value.scale), value.power + power, copies=copies)

    def _declared(self, value: Traced, entry: Parameter, ratio: Fraction) -> tuple[Variable, Fraction]:
        """The family of vectors of a parameter, declared once, and its power of n."""
        if self.used.get(entry.name, ("vector",))[0] != "vector":
            raise self._twice(entry)
        if entry.name in self.used:
            found: tuple[str, Variable, Fraction] = self.used[entry.name]
            return found[1], found[2]
        law, (one, other) = entry.law, entry.laws
        number, power = self.law(entry, None)
        moves = abs(one.mean - other.mean) > 1e-9 * max(abs(one.mean), abs(other.mean))
        if not self.at and law.mean and (moves or power):
            raise self.refuse(f"the mean of {entry.name} changes with the width", "keep it the same, or give at=")
        lasting = not self.exponents.get(entry.name)  # what vanishes with the width is small enough for a Gaussian
        uniform = lasting and law.kind == "uniform"
        mean, cov = (0, Number(1)) if uniform else (law.mean or 0, Number(number))
        made = self.initial(self._indices(value), cov, ratio, entry.name, mean)
        if uniform:
            wave = scaled(call("erf", call("divide", made, call("sqrt", Number(2)))), math.sqrt(3 * number))
            made = self.state(Nonlin, sum_of([wave, Number(law.mean)]), role="uniform", slots=made.slots)
        elif lasting or self.at:
            what = (
                f"{entry.name}: entries that are not Gaussian"
                if lasting
                else "biases and other vectors that vanish with the width"
            )
            self.taken(entry, f"{what} are taken as Gaussian of the same variance")
        self.used[entry.name] = ("vector", made, power / 2)
        return made, power / 2

    def _indices(self, value: Traced) -> tuple[str, ...]:
        """Fresh reading of the parameter's own indices, whatever has become of its axes."""
        return tuple(atom.name for atom in self.parameter(value.parameter).atoms if not atom.is_width)

    # -- weights ------------------------------------------------------------------------------------------------

    def weight(self, value: Traced, fan: AxisPart, rows: Fraction) -> tuple[Variable, Fraction]:
        """A parameter as weights that are multiplied along one of its widths; the weights, and their power of n."""
        entry = self.entry(value, centred=True)
        use = ("weight", fan.key and fan.key[:2])
        known = self.used.get(entry.name)
        if known is not None and known[:2] != use:
            raise self._twice(entry)
        if known is None:
            ratio = self.ratio(fan)
            variance, power = self.law(entry, ratio)
            made = self.weights(self._indices(value), variance, (rows, ratio), entry.name)
            self.taken(
                entry,
                "entries of hidden weights that are not Gaussian are taken as Gaussian of the same variance: "
                "the limit is the same, finite widths differ by O(1/n)",
            )
            known = self.used[entry.name] = (*use, made.name, power / 2)
        return Variable(known[2], self.slots(value)), known[3] + value.power

    def _twice(self, entry: Parameter) -> Exception:
        return self.refuse(
            f"{entry.name} is used in two ways (as a matrix and transposed, or as a table of vectors): "
            "weights tied to their transposes",
            "give each use a parameter of its own",
        )

    # -- input layers -------------------------------------------------------------------------------------------

    def rows_of(
        self,
        value: Traced,
        batch: Sequence[AxisPart],
        own: Sequence[AxisPart],
        width: AxisPart | None,
        data: Any,
        gram: Any,
        flat: int = 0,
    ) -> Traced:
        """Random vectors whose covariance is a Gram matrix of fixed data: an input layer, or rows of a table.

        `batch` are indices of the data, of which the last `flat` become one; `own` indices of the parameter, over which
        vectors are independent.
        """
        slots = slots_of([atom.name for atom in (*own, *batch)])
        if flat > 1:
            row, size = Affine(), 1
            for atom in reversed(batch[-flat:]):
                row, size = size * atom.slot + row, size * atom.size
            slots = (*slots[:-flat], row)
            batch = [*batch[:-flat], self.atom((size, size))]
        entry = self.entry(value, centred=True)
        if entry.name in self.used:
            raise self.refuse(
                f"{entry.name} reads fixed inputs in several places",
                "read all inputs in one call, joined by torch.cat or torch.stack",
            )
        number, power = self.law(entry, None)
        kind = "" if data is None else f"a sum over {data.shape[-1]} "
        self.taken(entry, f"{entry.name}: {kind}entries that are not Gaussian are taken as Gaussian of one covariance")
        names = tuple(atom.name for atom in (*own, *batch))
        options: dict[str, Any] = {}
        count = math.prod(atom.size for atom in batch)
        diagonal = gram.reshape(count, count)
        if np.allclose(diagonal, diagonal[0, 0] * np.eye(count), rtol=1e-12, atol=0):
            cov: Expr = Number(number * float(diagonal[0, 0]))
        elif not own and data is not None:
            cov, options = Number(number * data.shape[-1]), {"data": Table.of(data)}
        else:
            table = self.table(gram.reshape([atom.size for atom in (*batch, *batch)]), [*batch, *batch])
            second = tuple(Affine.index(f"{atom.name}_") for atom in batch)
            cov = scaled(Constant(table.name, (*(atom.slot for atom in batch), *second)), number)
            for atom in own:
                cov = call("where", call("equal", _index(atom), _index(atom, "_")), cov, Number(0))
        made = self.initial(names, cov, self.ratio(width) if width is not None else ONE, entry.name, **options)
        self.used[entry.name] = ("rows", made.name)
        made, copies = self.shared(value, Variable(made.name, slots), width is not None)
        return Traced(value.axes, made, power / 2 + value.power, copies=copies)

    def shared(self, value: Traced, made: Variable, wide: bool) -> tuple[Variable, frozenset[str]]:
        """What a parameter made, and whose copies of numbers its coordinates hold where it has no width; these are
        scores, of vectors behind a weight of their own, once that is decided.

        Raises    ProgramError for numbers that are not Gaussian, unless they vanish
        """
        if wide or value.parameter not in self.decisions.scores:
            return made, frozenset([] if wide else [value.parameter])
        if isinstance(self.stated(made), MatMul):
            return self.as_score(made), frozenset()
        entry = self.captured.parameters[value.parameter]
        if not entry.law.gaussian and not self.exponents.get(entry.name):
            raise self.refuse(
                f"all coordinates share the numbers {entry.name}, which are not Gaussian",
                "initialise them by torch.nn.init.normal_",
            )
        if not self.exact:
            made = self.state(MatMul, self.weights((), 1, (ONE, ONE), entry.name, "mix"), made, role="product")
        return self.as_score(made), frozenset()

    def met(self, one: Traced, other: Traced) -> frozenset[str]:
        """Readouts in what two tensors make together; where one of them meets a vector, it must be a score.

        Raises    Again after that is decided
        """
        both = one.copies | other.copies
        if both and (one.is_vector or other.is_vector):
            self.decisions.scores |= both
            raise Again
        return both


def _index(atom: AxisPart, suffix: str = "") -> Expr:
    return IndexValue(f"{atom.name}{suffix}")


def _halves(size: int) -> list[slice]:
    return [slice(size // 2), slice(size // 2, size)]


def _pairs(size: int) -> list[slice]:
    return [slice(0, size, 2), slice(1, size, 2)]


def _tidy(value: float) -> float | int:
    """A number as a person would write it: rounded where single precision left noise."""
    short = float(f"{value:.7g}")
    return whole(short if short and abs(value / short - 1) < 2e-8 else value)
