"""The limit with the law of a coordinate moved towards some coordinates drawn from it: the first order in 1/n.

At width n everything that a network computes is a function of averages over n coordinates, which are independent and
have the law P of the limit if all that is drawn is written as standard normals:

    W x           coordinate a is e . xi_a: xi_a i.i.d. normals, e a row of a factor of sigma**2 X^T X / n, averages
    q.k / sqrt(n) e^T Xi f: Xi i.i.d. normals, e a row of a factor of Cov(q | inputs), f one of K^T K / n, averages

So a network is a function T of the empirical law P_n of coordinates and of normals Xi that are independent of it, and
E T(P_n) = T(P) + E T''(P)[G, G] / (2 n) + O(n**-2), where G = sqrt(n) (P_n - P): its second moments are those of one
coordinate at every n, its third are O(n**-1/2) and come with n**-3/2.  Any other centred G with the same second moments
gives the same: here sqrt(m) (P_m - P), m coordinates drawn for each draw of Xi, in a second difference of
T(P + e G) at e, 0 and -e.

In the recursion that is one change: where statements average over coordinates, E[Z^f Z^g] is moved towards the average
over the coordinates drawn, which themselves follow from the moments moved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.signs import both_ways
from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import NotCompiledError
from tensorprog.language.expr import Affine, Call, variables, walk
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Range
from tensorprog.language.schedule import downstream, upstream
from tensorprog.limit.draw.conditioned import Conditioned
from tensorprog.limit.draw.draws import Draws
from tensorprog.limit.draw.factors import Normals, Some
from tensorprog.limit.form.definitions import not_compiled
from tensorprog.limit.form.sums_of_functions import position_names
from tensorprog.limit.moment.indexed import Term
from tensorprog.limit.moment.numeric_recursion import NumericRecursion
from tensorprog.limit.moment.values import REPLICATE, IndexedValues, Value

__all__ = ["COORDINATES", "Moved", "Perturbed"]

Array = NDArray[Any]
CONTINUOUS = {"divide", "where"}  # but where a denominator is 0, or the condition jumps, which is said of itself
COORDINATES = 8  # drawn for each draw: of more, whose G is nearer to Gaussian, the spread is hardly smaller


class Varying(NumericRecursion):
    """The recursion of a program in which all that depends on an average counts as random."""

    def __init__(self, program: Netsor, numbers: int) -> None:
        super().__init__(program, True, numbers)
        body = self.netsor.body
        self.random = downstream(body, self.random | {s.target.name for s in body if isinstance(s, MatMul | Dot)})

    def width(self, name: str) -> int:
        """Number of coordinates that one draw has."""
        return super().width(name) if self.is_finite(name) else COORDINATES


class Perturbed(Conditioned):
    """Moments for each of some draws, averages over coordinates moved by G times a step of every draw.

    `ratios` are the multiples of n that other widths are; `averaging` are the weights whose products, as operands of
    scores, are averaged over.

    Shapes    steps (draws,)
    """

    def __init__(self, layers: Moved, normals: Normals, steps: Array) -> None:
        super().__init__(layers.recursion, layers.columns, normals)
        self.steps, self.ratios, self.averaging = steps, layers.ratios, layers.averaging
        self.bases = layers.bases

    def width(self, name: str) -> int:
        """Number of coordinates that one draw has."""
        return super().width(name) if self.is_finite(name) else COORDINATES

    def products(self, f: str, g: str, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> IndexedValues:
        """E[Z^f Z^g] where a statement averages over all coordinates, moved."""
        return self._moved(f, g, super().products(f, g, names, ranges))

    def operand_moment(self, f: str, g: str) -> IndexedValues:
        """The average of products of operands of scores: of one of each two, moved."""
        found = super().operand_moment(f, g)
        return self._moved(f, g, found) if self.columns.weight[f] in self.averaging else found

    def _moved(self, f: str, g: str, found: IndexedValues) -> IndexedValues:
        if self.is_finite(f):
            return found
        width = self.netsor.families[f].width
        share = self.steps * (COORDINATES / self.ratios.get(width, 1.0)) ** 0.5
        kept, taken = (Value.of(part, (REPLICATE,)) for part in (1 - share, share))
        whole = self.over(position_names(self.netsor, f) | position_names(self.netsor, g, "_"))
        ranges = {name: found.ranges.get(name, span) for name, span in whole.items()}
        if any(start >= stop for start, stop in ranges.values()):  # a case of a position that wraps: nowhere
            return found
        drawn = self._empirical(f, g, ranges)
        terms = [Term(term.equations, term.value * kept) for term in found.terms]
        terms += [Term(term.equations, term.value * taken) for term in drawn.terms]
        return IndexedValues(tuple(terms), self.over(found.ranges))

    def entered(self, name: str, box: Sequence[Range]) -> None:
        """Draw the coordinates of members that a recurrence has made known."""
        if name in self.bases:
            self._draw(name, tuple(box))


class Moved(Draws):
    """Draws of what is random and of coordinates upstream of some scalars, with averages moved or not.

    Raises    NotCompiledError where the first order in 1/n is not known
    """

    recursion: Varying

    def __init__(self, program: Netsor, wanted: Collection[str], numbers: int) -> None:
        recursion = Varying(program, numbers)
        netsor = recursion.netsor
        needed = upstream(netsor, wanted)
        self.ratios = {name: float(ratio) for name, ratio, _ in netsor.widths}
        _refuse(netsor, needed, program)
        gaussian = {name for name in needed if netsor.families[name].kind == "vector" and recursion.parts.is_base(name)}
        super().__init__(recursion, wanted, gaussian)
        exact = self._exact(needed)
        self.averaging = frozenset(w for key in self.columns.pairs for w in key if w not in exact)
        self.bases = frozenset(name for name in gaussian if self.columns.weight.get(name) not in exact)
        self.sources = self._sources()

    def _exact(self, needed: Collection[str]) -> set[str]:
        """Of every two weights that meet in scores one: scores are Gaussian given its inputs and the other's products.

        It makes nothing but operands of these scores, and each of its members meets one of the other weight.
        """
        body, columns = self.netsor.body, self.columns
        exact: set[str] = set()
        for statement in body:
            name = statement.target.name
            if not isinstance(statement, Dot) or statement.scale == "1/n" or name not in needed:
                continue
            if self.recursion.is_finite(statement.left.name):
                continue
            if name not in columns.source:
                raise not_compiled_yet(statement, f"the score {name} is not of two products with weights")
            _, *pair = columns.source[name]
            if exact & set(pair):
                continue
            alone = [weight for weight in pair if self._alone(weight, ("pair", *pair), needed)]
            if not alone or pair[0] == pair[1]:
                raise not_compiled_yet(
                    statement, f"{' and '.join(dict.fromkeys(pair))} make more than operands of one family of scores"
                )
            exact.add(alone[0])
        return exact

    def _alone(self, weight: str, key: tuple[str, ...], needed: Collection[str]) -> bool:
        """Whether the products with a weight are operands of scores with one other weight member, and nothing else."""
        made = set(self.columns.families[weight])
        readers = [s for s in self.netsor.body if s.target.name in needed and any(v.name in made for v in s.inputs)]
        for statement in readers:
            if not isinstance(statement, Dot) or self.columns.source.get(statement.target.name) != key:
                return False
        pairs = self.columns.pairs[key]
        own = pairs // self.columns.most if key[1] == weight else pairs % self.columns.most
        return len(np.unique(own)) == len(own)

    def at_steps(self, normals: Normals, steps: Sequence[float]) -> dict[str, Array]:
        """The scalars wanted for every draw, with averages moved by each of the steps.

        Shapes    name -> (steps, draws, *members)
        """
        again = np.tile(np.arange(normals.draws), len(steps))  # the same normals for every step
        found = Perturbed(self, Some(normals, again), np.repeat(steps, normals.draws))
        values = {name: self.drawn(found, name).data for name in self.wanted}
        found.forget()
        return {name: value.reshape(len(steps), -1, *value.shape[1:]) for name, value in values.items()}


def not_compiled_yet(statement: Any, what: str) -> NotCompiledError:
    """The first order in 1/n is not known, and why."""
    return not_compiled(statement, what, "networks of several widths, whose numbers show it")


def _refuse(netsor: Netsor, needed: Collection[str], program: Netsor) -> None:
    for _, _, position, _ in both_ways(program):
        product = program.body[position]
        raise not_compiled_yet(product, f"the first order in 1/n of what one weight makes both ways, as {product}")
    for initial in program.initial:
        if initial.grid and initial.name in needed:
            raise NotCompiledError(
                f"{initial.name} is the coordinate vector, which is not drawn: "
                "there is no first order in 1/n for it yet"
            )
    for statement in netsor.body:
        if isinstance(statement, Nonlin) and statement.target.name in needed:
            for node in walk(statement.expr):
                jumps = isinstance(node, Call) and not ATOMS[node.atom].continuous and node.atom not in CONTINUOUS
                if jumps and any(True for _ in variables(node)):
                    raise not_compiled_yet(statement, f"{node} jumps")
