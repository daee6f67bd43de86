"""Networks evaluated member by member, with matrices, in numpy: what gradients are compared with.

It shares the records of a program with the package and nothing else: no schedule, no evaluation of families at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

from tests.reading import Netsor

Member = tuple[int, ...]
Values = dict[str, dict[Member, Any]]


def numpy_functions() -> dict[str, Callable[..., Any]]:
    return {
        "negative": np.negative, "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
        "divide": np.divide, "power": lambda x, p: np.asarray(x, float) ** p, "sqrt": np.sqrt, "log": np.log,
        "exp": np.exp, "abs": np.abs, "relu": lambda x: np.maximum(x, 0), "sign": np.sign,
        "step": lambda x: np.asarray(np.asarray(x) > 0, float), "clip": lambda x, lo, hi: np.clip(x, lo, hi),
        "leaky_relu": lambda x, a: np.where(x > 0, x, a * x), "tanh": np.tanh, "sigmoid": special.expit,
        "erf": special.erf, "gelu": lambda x: x * special.ndtr(x), "silu": lambda x: x * special.expit(x),
        "gelu_tanh": lambda x: x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) / 2,
        "softplus": lambda x: np.logaddexp(x, 0), "sin": np.sin, "cos": np.cos,
        "elu": lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))),
        "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
        "gaussian": lambda x: np.exp(-np.square(x)), "minimum": np.minimum, "maximum": np.maximum,
        "where": np.where, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
        "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
        "logical_and": np.logical_and, "logical_or": np.logical_or, "constant": lambda x, size: np.full(size, float(x)),
    }  # fmt: skip


def drawn(netsor: Netsor, n: int, seed: int = 0) -> Values:
    """Numbers for weights and initial vectors, standard normals times deviations; the laws of a program do not matter
    for its gradients."""
    rng = np.random.default_rng(seed)
    found: Values = {}
    for vector in netsor.initial:
        size = int(netsor.width_of(vector.width, n))
        grid = (np.arange(size) + 0.5) / size
        found[vector.name] = {
            m: grid if vector.grid else rng.standard_normal(size) for m in netsor.families[vector.name].members()
        }
    for weight in netsor.weights:
        rows, columns = (int(netsor.width_of(name, n)) for name in weight.shape)
        found[weight.name] = {
            m: rng.standard_normal((rows, columns)) / math.sqrt(columns) for m in netsor.families[weight.name].members()
        }
    return found


class Network:
    """The members of a program's families, each computed when it is asked for; `moved` is added to what it is."""

    def __init__(
        self,
        netsor: Netsor,
        n: int,
        given: Values,
        functions: Mapping[str, Callable[..., Any]],
        moved: Values | None = None,
    ) -> None:
        self.netsor, self.n, self.functions, self.moved = netsor, n, functions, moved or {}
        self.given, self.known = given, {}

    def value(self, name: str, member: Member) -> Any:
        if (name, member) not in self.known:
            found = self.given[name][member] if name in self.given else self.defined(name, member)
            if member in self.moved.get(name, {}):
                found = found + self.moved[name][member]
            self.known[name, member] = found
        return self.known[name, member]

    def family(self, name: str) -> dict[Member, Any]:
        return {member: self.value(name, member) for member in self.netsor.families[name].members()}

    def defined(self, name: str, member: Member) -> Any:
        for statement in self.netsor.body:
            if statement.target.name != name:
                continue
            place = self.place(statement.target.slots, member)
            if place is not None:
                break
        else:
            raise KeyError((name, member))
        kind = type(statement).__name__
        if kind == "MatMul":
            matrix, vector = self.read(statement.weight, place), self.read(statement.vector, place)
            return (matrix.T if statement.transposed else matrix) @ vector
        if kind == "Dot":
            left, right = self.read(statement.left, place), self.read(statement.right, place)
            total = (left * right).sum()
            return total / (len(left) if statement.scale == "1/n" else math.sqrt(len(left)))
        found = self.expression(statement.expr, place)
        family = self.netsor.families[name]
        if family.kind == "vector" and getattr(found, "ndim", 0) == 0:
            return self.functions["constant"](found, int(self.netsor.width_of(family.width, self.n)))
        return found

    def place(self, slots: Any, member: Member) -> dict[str, int] | None:
        place: dict[str, int] = {}
        for slot, value in zip(slots, member, strict=True):
            if not slot.terms:
                if slot.offset != value:
                    return None
                continue
            index = self.netsor.index[slot.terms[0][0]]
            if not index.start <= value < index.stop:
                return None
            place[index.name] = value
        return place

    def read(self, reference: Any, place: Mapping[str, int]) -> Any:
        family = self.netsor.families[reference.name]
        member = []
        for slot, (start, stop), rule in zip(reference.slots, family.ranges, family.boundaries, strict=True):
            value = slot.offset + sum(factor * place[name] for name, factor in slot.terms)
            if rule == "wrap":
                value = start + (value - start) % (stop - start)
            if rule == "zero" and not start <= value < stop:
                some = (
                    self.value(reference.name, tuple(low for low, _ in family.ranges))
                    if (family.kind == "scalar")
                    else self.functions["constant"](0.0, int(self.netsor.width_of(family.width, self.n)))
                )
                return some * 0
            member.append(value)
        return self.value(reference.name, tuple(member))

    def expression(self, node: Any, place: Mapping[str, int]) -> Any:
        kind = type(node).__name__
        if kind == "Number":
            return node.value
        if kind == "IndexValue":
            return place[node.name]
        if kind == "Variable":
            return self.read(node, place)
        if kind == "Constant":
            return self.constant(node, place)
        if kind == "Call":
            if node.atom == "where":  # one branch alone where indices decide
                condition = self.expression(node.args[0], place)
                if np.ndim(condition) == 0:
                    return self.expression(node.args[1 if condition else 2], place)
            return self.functions[node.atom](*(self.expression(arg, place) for arg in node.args))
        ranges = [range(self.netsor.index[name].start, self.netsor.index[name].stop) for name in node.indices]
        values = [
            self.expression(node.arg, {**place, **dict(zip(node.indices, at, strict=True))})
            for at in itertools.product(*ranges)
        ]
        if node.reducer == "sum":
            return sum(values[1:], values[0])
        if node.reducer == "mean":
            return sum(values[1:], values[0]) / len(values)
        top = values[0]
        for other in values[1:]:
            top = self.functions["maximum"](top, other)
        if node.reducer == "max":
            return top
        exp = self.functions["exp"]
        total = sum(exp(value - top) for value in values)
        if node.reducer == "logsumexp":
            return top + self.functions["log"](total)
        return exp(self.expression(node.arg, place) - top) / total

    def constant(self, node: Any, place: Mapping[str, int]) -> Any:
        definition = self.netsor.constant[node.name]
        at = [slot.offset + sum(factor * place[name] for name, factor in slot.terms) for slot in node.slots]
        if isinstance(definition.value, int | float):
            return definition.value
        if hasattr(definition.value, "array"):
            starts = [self.netsor.index[name].start for name in definition.indices]
            return float(definition.value.array[tuple(k - start for k, start in zip(at, starts, strict=True))])
        return self.expression(definition.value, dict(zip(definition.indices, at, strict=True)))
