"""One network at a finite width from explicit matrices, member by member: the definitions, and nothing else.

Reads the records of programs and expressions only; no array has an axis for a family.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.rewrites import Rewritten
from tensorprog.language.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, walk
from tensorprog.language.ir import Dot, Initial, MatMul, Nonlin, Table
from tests.reading import Netsor

Array = NDArray[np.float64]
Place = tuple[int, ...]
Places = Mapping[str, int]

FUNCTIONS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda a: -a,
    "power": lambda a, e: a**e,
    "where": np.where,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "not_equal": lambda a, b: a != b,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "tanh": np.tanh,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "relu": lambda a: np.maximum(a, 0),
    "clip": lambda a, low, high: np.minimum(np.maximum(a, low), high),
    "sigmoid": lambda a: 1 / (1 + np.exp(-a)),
    "erf": np.vectorize(math.erf, otypes=[float]),
}
REDUCERS: dict[str, Any] = {
    "sum": lambda values: sum(values),
    "mean": lambda values: sum(values) / len(values),
    "max": lambda values: np.max(values, axis=0),
    "logsumexp": lambda values: np.log(np.sum(np.exp(values), axis=0)),
}


def value_of(slot: Affine, places: Places) -> int:
    return slot.offset + sum(c * places[name] for name, c in slot.terms)


def members(netsor: Netsor, indices: tuple[str, ...]) -> Iterator[Place]:
    spans = [range(netsor.index[name].start, netsor.index[name].stop) for name in indices]
    return itertools.product(*spans)


@dataclass
class Network:
    """The values of every member of every family, computed when asked for.

    `weights` and `initials` are given by name and member; vectors are arrays, scalars numbers.
    """

    netsor: Netsor
    n: int
    weights: Mapping[tuple[str, Place], Array]
    initials: Mapping[tuple[str, Place], Array]
    known: dict[tuple[str, Place], Any] = field(default_factory=dict)

    def width(self, name: str) -> int:
        return int(self.netsor.width_of(name, self.n))

    def member(self, name: str, place: Place) -> Any:
        """Value of a member in range."""
        if (name, place) in self.weights:
            return self.weights[name, place]
        if (name, place) in self.initials:
            return self.initials[name, place]
        if (name, place) not in self.known:
            self.known[name, place] = self._defined(name, place)
        return self.known[name, place]

    def _defined(self, name: str, place: Place) -> Any:
        for s in self.netsor.body:
            if s.target.name != name:
                continue
            places = {}
            for slot, value in zip(s.target.slots, place, strict=True):
                if slot.bare is not None:
                    index = self.netsor.index[slot.bare]
                    if not index.start <= value < index.stop:
                        break
                    places[slot.bare] = value
                elif slot.offset != value:
                    break
            else:
                return self._statement(s, places)
        raise AssertionError(f"nothing defines {name}{list(place)}")

    def _statement(self, s: MatMul | Nonlin | Dot, places: Places) -> Any:
        if isinstance(s, MatMul):
            matrix = self.read(s.weight, places)
            return (matrix.T if s.transposed else matrix) @ self.read(s.vector, places)
        if isinstance(s, Dot):
            left, right = self.read(s.left, places), self.read(s.right, places)
            return left @ right / (len(left) if s.scale == "1/n" else math.sqrt(len(left)))
        value = self.evaluate(s.expr, places)
        family = self.netsor.families[s.target.name]
        return value + np.zeros(self.width(family.width)) if family.kind == "vector" else value

    def read(self, reference: Variable, places: Places) -> Any:
        """What a reference reads, boundaries included."""
        family = self.netsor.families[reference.name]
        place = []
        for slot, (start, stop), rule in zip(reference.slots, family.ranges, family.boundaries, strict=True):
            value = value_of(slot, places)
            if not start <= value < stop and rule == "zero":
                return self._nothing(reference.name)
            place.append(start + (value - start) % (stop - start) if rule == "wrap" else value)
        return self.member(reference.name, tuple(place))

    def _nothing(self, name: str) -> Any:
        family = self.netsor.families[name]
        if family.kind == "weight":
            return np.zeros([self.width(w) for w in self.netsor.weight[name].shape])
        return np.zeros(self.width(family.width)) if family.kind == "vector" else 0.0

    def evaluate(self, expr: Expr, places: Places) -> Any:
        """Value of an expression at places of its indices."""
        if isinstance(expr, Number):
            return float(expr.value)
        if isinstance(expr, IndexValue):
            return float(places[expr.name])
        if isinstance(expr, Constant):
            return self._constant(expr, places)
        if isinstance(expr, Variable):
            return self.read(expr, places)
        if isinstance(expr, Call):
            return FUNCTIONS[expr.atom](*(self.evaluate(arg, places) for arg in expr.args))
        assert isinstance(expr, Reduction)
        inner = [dict(zip(expr.indices, place, strict=True)) for place in members(self.netsor, expr.indices)]
        values = [self.evaluate(expr.arg, {**places, **own}) for own in inner]
        if expr.removes:
            return REDUCERS[expr.reducer](values)
        assert expr.reducer == "softmax"
        own = self.evaluate(expr.arg, places)
        return np.exp(own) / sum(np.exp(value) for value in values)

    def _constant(self, node: Constant, places: Places) -> float:
        definition = self.netsor.constant[node.name]
        if isinstance(definition.value, int | float):
            return float(definition.value)
        place = []
        for slot, name in zip(node.slots, definition.indices, strict=True):
            index, value = self.netsor.index[name], value_of(slot, places)
            if not index.start <= value < index.stop and index.boundary == "zero":
                return 0.0
            if index.boundary == "wrap":
                value = index.start + (value - index.start) % (index.stop - index.start)
            place.append(value)
        if isinstance(definition.value, Table):
            starts = [self.netsor.index[name].start for name in definition.indices]
            return float(definition.value.array[tuple(v - s for v, s in zip(place, starts, strict=True))])
        return float(self.evaluate(definition.value, dict(zip(definition.indices, place, strict=True))))

    def family(self, name: str) -> list[Any]:
        """All members, in C order."""
        spans = [range(*span) for span in self.netsor.families[name].ranges]
        return [self.member(name, place) for place in itertools.product(*spans)]


def numbers(netsor: Netsor) -> Network:
    """A network without vectors, for expressions in constants and indices."""
    return Network(netsor, 1, {}, {})


def covariance(netsor: Netsor, initial: Initial) -> Array:
    """Covariance matrix of all members of an initial family, in C order."""
    own = list(members(netsor, initial.indices))
    count = len(own)
    if isinstance(initial.cov, Table):
        return initial.cov.array.reshape(count, count)
    if initial.data is not None:
        variance = numbers(netsor).evaluate(initial.cov, {})
        return np.asarray(variance * initial.data.array @ initial.data.array.T / initial.data.shape[1])
    copies = {node.name[:-1] for node in walk(initial.cov) if isinstance(node, IndexValue) and node.name.endswith("_")}
    result = np.zeros((count, count))
    for (row, first), (column, second) in itertools.product(enumerate(own), repeat=2):
        places = dict(zip(initial.indices, first, strict=True))
        other = dict(zip(initial.indices, second, strict=True))
        if all(places[name] == other[name] for name in initial.indices if name not in copies):
            both = places | {f"{name}_": value for name, value in other.items()}
            result[row, column] = numbers(netsor).evaluate(initial.cov, both)
    return result


RANK = 1e-12  # eigenvalues below, relative to the largest, are rounding: the root of one of 1e-16 would count as 1e-8


def root(matrix: Array) -> Array:
    """A symmetric square root of a covariance, of its rank: draws lie in its range, whatever the rounding."""
    values, vectors = np.linalg.eigh(matrix)
    kept = np.where(values > RANK * values.max(initial=0.0), values, 0.0)
    return np.asarray(vectors * np.sqrt(kept) @ vectors.T)


def draw(netsor: Netsor, n: int, generator: np.random.Generator) -> Network:
    """A network of independent draws."""
    weights: dict[tuple[str, Place], Array] = {}
    for weight in netsor.weights:
        rows, columns = (int(netsor.width_of(width, n)) for width in weight.shape)
        for place in members(netsor, weight.indices):
            variance = numbers(netsor).evaluate(weight.variance, dict(zip(weight.indices, place, strict=True)))
            weights[weight.name, place] = generator.normal(0, math.sqrt(variance / columns), (rows, columns))
    initials: dict[tuple[str, Place], Array] = {}
    for initial in netsor.initial:
        own = list(members(netsor, initial.indices))
        width = int(netsor.width_of(initial.width, n))
        drawn = root(covariance(netsor, initial)) @ generator.normal(size=(len(own), width))
        for place, vector in zip(own, drawn, strict=True):
            initials[initial.name, place] = vector + _mean(netsor, initial, place)
    return Network(netsor, n, weights, initials)


def _mean(netsor: Netsor, initial: Initial, place: Place) -> float:
    if isinstance(initial.mean, Table):
        starts = [netsor.index[name].start for name in initial.indices]
        return float(initial.mean.array[tuple(v - s for v, s in zip(place, starts, strict=True))])
    return float(numbers(netsor).evaluate(initial.mean, dict(zip(initial.indices, place, strict=True))))


def carried(network: Network, rewritten: Rewritten) -> Network:
    """The same network for the rewritten program: weights that a rewrite made follow from those that were drawn."""
    old, new = network.netsor, rewritten.netsor
    weights = dict(network.weights)
    for weight in new.weights:
        if weight.name not in old.weight:
            initial = next(v for v in old.initial if v.name == rewritten.initials[weight.name])
            vectors = {place: network.initials[initial.name, place] for place in members(old, initial.indices)}
            made = {place: np.outer(vector, np.ones(len(vector))) / len(vector) for place, vector in vectors.items()}
            weights |= {(weight.name, place): matrix for place, matrix in made.items()}
    kept = {initial.name for initial in new.initial}
    initials = {key: vector for key, vector in network.initials.items() if key[0] in kept}
    return Network(new, network.n, weights, initials)


def check_laws(old: Netsor, rewritten: Rewritten, definitions: Netsor) -> None:
    """Weights that a rewrite made have the law of what they stand for."""
    new = rewritten.netsor
    for weight, name in rewritten.initials.items():
        if weight in new.weight:
            initial = next(v for v in old.initial if v.name == name)
            _check_bias(old, definitions, weight, initial)


def _check_bias(old: Netsor, new: Netsor, weight: str, initial: Initial) -> None:
    record, own = new.weight[weight], list(members(old, initial.indices))
    assert record.shape == (initial.width, initial.width)
    places = (dict(zip(record.indices, place, strict=True)) for place in own)
    variances = [numbers(new).evaluate(record.variance, place) for place in places]
    expected = covariance(old, initial)
    np.testing.assert_allclose(np.diag(variances), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def check_same(rewritten: Rewritten, netsor: Netsor, definitions: Netsor | None = None, n: int = 6) -> None:
    """Every family that both programs have is the same in both, from the same weights; made weights have their laws."""
    definitions = definitions or rewritten.netsor
    check_laws(netsor, rewritten, definitions)
    network = draw(netsor, n, np.random.default_rng(n))
    other = carried(network, rewritten)
    new = rewritten.netsor
    for name, family in netsor.families.items():
        if name not in new.families or family.kind == "weight":
            continue
        after = new.families[name]
        assert (after.kind, after.ranges, after.boundaries) == (family.kind, family.ranges, family.boundaries), name
        assert new.width_of(after.width, n) == netsor.width_of(family.width, n), name
        first, second = np.array(network.family(name)), np.array(other.family(name))
        scale = np.abs(first[np.isfinite(first)]).max(initial=1.0)
        text = "\n".join([name, *map(str, new.body)])
        np.testing.assert_allclose(second, first, rtol=0, atol=1e-12 * scale, err_msg=text)
