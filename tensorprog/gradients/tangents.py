"""The tangent program: how every family moves when parameters do, along a direction of standard normals.

With W = sigma / sqrt(n_in) times standard normals, a direction is a second weight W' with the law of W.  In the order
of the program,

    u = MatMul(W, x)          tangent_u = MatMul(W', x) + MatMul(W, tangent_x)
    z = Nonlin(phi(u; p))     tangent_z = phi_u tangent_u + phi_p tangent_p
    p = Dot(q, k)             tangent_p = Dot(tangent_q, k) + Dot(q, tangent_k), on the scale of p

Given the weights, the covariance of tangent_f over directions is the neural tangent kernel of f.  No transposes occur.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from tensorprog.gradients.derivatives import pulled_back, simplified, times
from tensorprog.language.averages import unused
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    fold,
    product_of,
    substitute,
    sum_of,
    variables,
)
from tensorprog.language.ir import Dot, Index, Initial, MatMul, Netsor, Nonlin, Statement, Weight
from tensorprog.language.schedule import upstream

__all__ = ["Tangents"]


class Tangents:
    """The tangents of the families that some outputs depend on, as statements beside those of the program.

    With `copies`, weights of their own multiply tangents: so it is in the limit, where W tangent_x is independent of
    W x, because tangent_x changes its sign with the direction.
    """

    def __init__(self, netsor: Netsor, outputs: Collection[str], parameters: Collection[str], copies: bool) -> None:
        self.source, self.copies = netsor, copies
        self.names = {*netsor.taken, "n"}
        self.indices: dict[str, Index] = dict(netsor.index)
        self.initial: list[Initial] = []
        self.weights: list[Weight] = []
        self.used = upstream(netsor, outputs)
        self.directions = {name: self._direction(name) for name in parameters}
        self.moving = self._moving()
        self.tangent = {
            name: self.directions[name] if name in self.directions else unused(f"tangent_{name}", self.names)
            for name in self.moving
        }
        self._other: dict[str, str] = {}
        forward = [statement for statement in netsor.body if statement.target.name in self.used]
        moving = [made for s in forward if s.target.name in self.tangent for made in self._statements(s)]
        self.body = (*forward, *moving)

    def program(self, outputs: Collection[str]) -> Netsor:
        """The program of which the tangents of some families are the outputs."""
        named = [self.tangent[name] for name in outputs]
        parts: dict[str, Any] = {
            **self.source.parts,
            "name": f"{self.source.name}_tangents",
            "title": f"Tangents of {self.source.name}",
            "indices": tuple(self.indices.values()),
            "initial": (*self.source.initial, *self.initial),
            "weights": (*self.source.weights, *self.weights),
            "body": self.body,
            "outputs": tuple(named),
            "run": (),
            "train": (),
        }
        return Netsor(**parts)

    def _direction(self, name: str) -> str:
        """A second weight, or a second family of initial vectors without their mean, with the same law."""
        made = unused(f"{name}_direction", self.names)
        if name in self.source.weight:
            self.weights.append(replace(self.source.weight[name], name=made))
        else:
            initial = next(v for v in self.source.initial if v.name == name)
            self.initial.append(replace(initial, name=made, mean=Number(0)))
        return made

    def _copy(self, name: str) -> str:
        """The weight that multiplies tangents in the place of a weight."""
        if not self.copies:
            return name
        if name not in self._other:
            self._other[name] = unused(f"{name}_copy", self.names)
            self.weights.append(replace(self.source.weight[name], name=self._other[name]))
        return self._other[name]

    def _moving(self) -> dict[str, None]:
        """Families that move with the parameters."""
        found = {name for name in self.directions if name not in self.source.weight}
        while True:
            more = {
                s.target.name
                for s in self.source.body
                if s.target.name in self.used
                and (
                    (isinstance(s, MatMul) and s.weight.name in self.directions)
                    or any(reference.name in found for reference in s.inputs)
                )
            }
            if more <= found:
                return {name: None for name in self.source.families if name in found}
            found |= more

    def _statements(self, statement: Statement) -> list[Statement]:
        """The tangent of what a statement defines."""
        target = Variable(self.tangent[statement.target.name], statement.target.slots)
        slots = tuple(slot for slot in target.slots if slot.bare)
        made: list[Statement] = []
        if isinstance(statement, MatMul) and self.copies:
            return self._product(statement, target, slots)
        if isinstance(statement, MatMul):
            if statement.weight.name in self.directions:
                weight = Variable(self.directions[statement.weight.name], statement.weight.slots)
                made.append(replace(statement, target=target, weight=weight))
            if statement.vector.name in self.tangent:
                weight = Variable(self._copy(statement.weight.name), statement.weight.slots)
                made.append(replace(statement, target=target, weight=weight, vector=self._of(statement.vector)))
        elif isinstance(statement, Dot):
            if statement.left == statement.right:
                made.append(replace(statement, target=target, left=self._of(statement.left)))
                return self._summed(target, slots, made, 2)
            if statement.left.name in self.tangent:
                made.append(replace(statement, target=target, left=self._of(statement.left)))
            if statement.right.name in self.tangent:
                made.append(replace(statement, target=target, right=self._of(statement.right)))
        else:
            value = self._derivative(statement.expr)
            if value == Number(0):
                vector = self.source.families[statement.target.name].kind == "vector"
                zero = Call("multiply", (Number(0), statement.target))
                return [Nonlin(target, Number(0) if vector else zero, statement.width)]
            return [Nonlin(target, value)]
        if not made:  # another definition of the family moves
            return [Nonlin(target, Call("multiply", (Number(0), statement.target)))]
        return made if len(made) == 1 else self._summed(target, slots, made, 1)

    def _product(self, statement: MatMul, target: Variable, slots: tuple[Affine, ...]) -> list[Statement]:
        """The tangent of a product in the limit: one weight times x, if the weight moves, plus tangent_x.

        For in the limit W' x and W tangent_x are independent of each other and of W x, and x and tangent_x are
        uncorrelated: (x + tangent_x) times one weight has the law of their sum.
        """
        moves, vector = statement.weight.name in self.directions, statement.vector
        if vector.name not in self.tangent:
            weight = Variable(self.directions[statement.weight.name], statement.weight.slots)
            return [replace(statement, target=target, weight=weight)]
        weight = Variable(
            self.directions.get(statement.weight.name) or self._copy(statement.weight.name), statement.weight.slots
        )
        if not moves:
            return [replace(statement, target=target, weight=weight, vector=self._of(vector))]
        both = Variable(unused(f"moved_{vector.name}", self.names), slots)
        total = Nonlin(both, Call("add", (vector, self._of(vector))))
        return [total, replace(statement, target=target, weight=weight, vector=both)]

    def _summed(
        self, target: Variable, slots: tuple[Affine, ...], made: list[Statement], factor: int
    ) -> list[Statement]:
        """Statements under names of their own, and their sum times a number."""
        parts = [Variable(unused(f"{target.name}_{k}", self.names), slots) for k in range(1, len(made) + 1)]
        named = [replace(statement, target=part) for statement, part in zip(made, parts, strict=True)]
        total = times(Number(factor), sum_of(parts))
        return [*named, Nonlin(target, total)]

    def _of(self, reference: Variable) -> Variable:
        return Variable(self.tangent[reference.name], reference.slots)

    def _derivative(self, expr: Expr) -> Expr:
        """The tangent of an expression."""

        def leaf(node: Expr) -> Expr | None:
            if isinstance(node, Variable):
                return self._of(node) if node.name in self.tangent else Number(0)
            if not node.children or not any(v.name in self.tangent for v in variables(node)):
                return Number(0)
            return None

        def applied(node: Call, *tangents: Expr) -> Expr:
            if node.atom in (*COMPARISONS, *LOGICAL):
                return Number(0)
            pairs = zip(range(len(node.arguments)), tangents, strict=False)
            return simplified(sum_of(pulled_back(node, t)[k] for k, t in pairs if t != Number(0)))

        def linear(node: Reduction, tangent: Expr) -> Expr:
            return Reduction(node.reducer, node.indices, tangent)

        def softmax(node: Reduction, tangent: Expr) -> Expr:
            other = {name: Affine.index(self._second(name, node)) for name in node.indices}
            product = substitute(product_of((node, tangent)), other, along=True)
            total = Reduction("sum", tuple(str(form.bare) for form in other.values()), product)
            return times(node, Call("subtract", (tangent, total)))

        def weighted(node: Reduction, tangent: Expr) -> Expr:
            outer = substitute(node, {name: Affine.index(self._second(name, node)) for name in node.indices})
            if node.reducer == "max":
                chosen: Expr = Call("where", (Call("equal", (node.arg, outer)), tangent, Number(0)))
            else:
                chosen = times(Call("exp", (Call("subtract", (node.arg, outer)),)), tangent)
            return Reduction("sum", node.indices, chosen)

        rules: dict[str, Callable[..., Expr]] = {
            "sum": linear,
            "mean": linear,
            "softmax": softmax,
            "max": weighted,
            "logsumexp": weighted,
        }
        return fold(expr, rules, leaf, applied)

    def _second(self, name: str, node: Expr) -> str:
        """An index with the range of another that does not occur beside it."""
        own = self.source.index[name]
        made = f"{name}_other"
        while made in self.names and self.indices.get(made) != replace(own, name=made):
            made += "2"
        self.names.add(made)
        self.indices[made] = replace(own, name=made)
        return made
