"""Outputs given everything but the weights used last: exactly Gaussian at every width.

Let y be sum_t c_t W_t v_t + m, the c_t numbers of a network, and let neither these nor the v_t nor m involve the W_t.
Given all but the W_t, a coordinate of y is N(m, V) with

    V = sum_W sigma_W^2 |w_W|^2 / n_in,    w_W = sum of c_t v_t over the terms of one member W of a weight

as W w is N(0, sigma_W^2 |w|^2 / n_in) in every coordinate, and independent for different W.  So V takes a few more
statements of the program, one family each, and m one more:

    w[i,b] = Nonlin(sum of c v)        b: the member of the weight
    d[i,b] = Dot(w[i,b], w[i,b], scale=1/n)
    V[i]   = Nonlin(sum[b](sigma_b**2 * d[i,b]))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.check.rewrites.editor import Editor, Stuck
from tensorprog.language.errors import NotCompiledError, Span
from tensorprog.language.expr import (
    MAX_NODES,
    Affine,
    Call,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    affine_expr,
    bound_indices,
    linear_arguments,
    reindexed,
    replace_variables,
    slots_of,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Statement
from tensorprog.language.samples import Samples
from tensorprog.language.schedule import upstream

__all__ = ["ConditionalProgram", "gaussians", "with_conditional"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ConditionalProgram:
    """A program with the statements of the conditional laws of its outputs.

    `mean` and `variance` have the family of each by output, without means that are 0; `refused` says why an output
    has no such law.
    """

    original: Netsor
    netsor: Netsor
    mean: Mapping[str, str]
    variance: Mapping[str, str]
    refused: Mapping[str, str]

    def separate(self, samples: Samples) -> Samples:
        """Samples of `netsor` as samples of the original, with the conditional laws beside its own variables."""
        own = {name: array for name, array in samples.arrays.items() if name in self.original.families}
        laws = {
            name: (self._beside(samples, name, self.mean.get(name)), self._beside(samples, name, family))
            for name, family in self.variance.items()
        }
        return replace(samples, netsor=self.original, arrays=own, conditional=laws)

    def _beside(self, samples: Samples, name: str, family: str | None) -> Array:
        """The numbers of a family in the shape of an output; 0 where there is none."""
        output = samples.arrays[name]
        if family is None:
            return np.broadcast_to(np.zeros((), output.dtype), output.shape)
        values = samples.arrays[family]
        missing = output.ndim - values.ndim  # scalars have no axis of coordinates
        return np.broadcast_to(np.expand_dims(values, tuple(range(1, 1 + missing))), output.shape)


def with_conditional(netsor: Netsor) -> ConditionalProgram:
    """Add the conditional mean and variance of every output that has them.

    Scale     in objects, a few for each weight used last; per network and output, one inner product for each member of
              these weights
    Raises    NotCompiledError if no output has such a law, with the reasons
    """
    editor = Editor(netsor, [str(statement.target) for statement in netsor.body])
    added: list[Statement] = []
    mean: dict[str, str] = {}
    variance: dict[str, str] = {}
    refused: dict[str, str] = {}
    for name in netsor.outputs:
        try:
            statements, variance[name], own = _Output(editor, name).statements()
        except NotCompiledError as error:
            refused[name] = str(error)
            continue
        added += statements
        mean |= {name: own} if own else {}
    if not variance:
        raise NotCompiledError("no output has a conditional law: " + "; ".join(refused.values()))
    larger, _ = editor.result()
    outputs = (*netsor.outputs, *variance.values(), *mean.values())
    larger = replace(larger, body=(*larger.body, *added), outputs=outputs)
    return ConditionalProgram(netsor, larger, mean, variance, refused)


def gaussians(samples: Samples, name: str, position: int) -> tuple[Array, Array]:
    """The conditional means and variances of one member of an output that has such laws.

    Shapes    (samples, coordinates) each
    """
    shape = samples.samples, samples.coordinates, -1
    mean, variance = (
        np.asarray(part.reshape(shape)[..., position], dtype=np.float64) for part in samples.conditional[name]
    )
    return mean, variance


class _Output:
    """One output as a combination of products by the weights `last`, and what its conditional law takes."""

    def __init__(self, editor: Editor, name: str) -> None:
        self.editor, self.netsor, self.name = editor, editor.netsor, name
        if self.netsor.families[name].kind != "vector":
            raise NotCompiledError(f"{name} is a scalar")
        statement = self._definition(name)
        if statement is None:
            raise NotCompiledError(f"{name} has several definitions, or is an initial vector or a recurrence")
        self.target: Variable = statement.target
        self.expr: Expr = self._written_out(statement.expr) if isinstance(statement, Nonlin) else statement.target
        self._span = Span(text=f"the conditional law of {name}")
        self._free = tuple(slot.bare for slot in self.target.slots if slot.bare is not None)  # its indices
        self.last = self._last()

    # -- the combination --------------------------------------------------------------------------------------------

    def _definition(self, name: str) -> Statement | None:
        """The one statement behind a family, if it is no recurrence."""
        places = self.netsor.families[name].statements
        single = len(places) == 1 and not self.editor.structure.loops(places[0], places[0])
        return self.netsor.body[places[0]] if single else None

    def _written_out(self, expr: Expr) -> Expr:
        """A combination with linear Nonlins of vectors written out, as long as that is not too long."""

        def opened(reference: Variable) -> Expr | None:
            nonlin = self._definition(reference.name) if reference in terms else None
            if not isinstance(nonlin, Nonlin) or self.editor.beyond(reference):
                return None
            if isinstance(nonlin.expr, Variable) or self._linear(nonlin.expr):
                with suppress(Stuck):
                    return self.editor.instance(nonlin, reference, taken)
            return None

        terms = self._terms(expr)
        taken = bound_indices(expr) | {index for slot in self.target.slots for index in slot.indices}
        longer = replace_variables(expr, opened)
        return expr if longer == expr or sum(1 for _ in walk(longer)) > MAX_NODES else self._written_out(longer)

    def _linear(self, node: Expr) -> tuple[int, ...]:
        """Which children of an expression it combines, with scalars, if it is a combination."""
        return linear_arguments(node, [not self.editor.vector(child) for child in node.children])

    def _picked(self, node: Expr, term: Callable[[Expr], Expr | None]) -> Expr | None:
        """A combination with other terms, None for 0."""
        if not self.editor.vector(node) or not self._linear(node):
            return term(node)
        if isinstance(node, Reduction):
            inner = self._picked(node.arg, term)
            return None if inner is None else replace(node, arg=inner)
        assert isinstance(node, Call)
        places = self._linear(node)
        found = {k: self._picked(node.args[k], term) for k in places}
        kept = {k: part for k, part in found.items() if part is not None}
        if not kept:
            return None
        args = tuple(kept.get(k, Number(0) if k in places else arg) for k, arg in enumerate(node.args))
        if node.atom in ("add", "subtract") and len(kept) == 1:
            return args[0] if 0 in kept else args[1] if node.atom == "add" else Call("negative", args[1:])
        return replace(node, args=args)

    def _terms(self, expr: Expr) -> list[Expr]:
        found: list[Expr] = []
        self._picked(expr, found.append)
        return found

    def _product(self, term: Expr) -> MatMul | None:
        """The product that a term is, with the indices of the term, if it is one."""
        statement = self._definition(term.name) if isinstance(term, Variable) else None
        if not isinstance(term, Variable) or not isinstance(statement, MatMul) or statement.transposed:
            return None
        pairs = zip(statement.target.slots, term.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        weight, vector = reindexed(statement.weight, values), reindexed(statement.vector, values)
        beyond = self.editor.beyond(term) or self.editor.beyond(weight)
        return None if beyond else MatMul(term, weight, vector)

    # -- the weights used last --------------------------------------------------------------------------------------

    def _last(self) -> frozenset[str]:
        """Weights of products that nothing else in the output depends on."""
        terms = self._terms(self.expr)
        products = [product for product in map(self._product, terms) if product is not None]
        if not products:
            raise NotCompiledError(f"{self.name} is no linear combination of MatMul outputs")
        known = [product.target for product in products]
        fixed = {v.name for term in terms if term not in known for v in variables(term)}
        fixed |= {v.name for v in variables(self.expr) if self.netsor.families[v.name].kind == "scalar"}
        weights = last = used = {product.weight.name for product in products}
        while used:
            read = fixed | {(p.vector if p.weight.name in last else p.target).name for p in products}
            places = {place for name in upstream(self.netsor, read) for place in self.netsor.families[name].statements}
            used = {s.weight.name for s in map(self.netsor.body.__getitem__, places) if isinstance(s, MatMul)} & last
            last = last - used
        if not last:
            again = ", ".join(sorted(weights))
            raise NotCompiledError(f"{self.name}: what else it depends on uses {again} as well")
        return frozenset(last)

    def _reads(self, expr: Expr, weight: str) -> list[MatMul]:
        found = (self._product(v) for v in variables(expr))
        return [product for product in found if product is not None and product.weight.name == weight]

    # -- statements -------------------------------------------------------------------------------------------------

    def statements(self) -> tuple[list[Statement], str, str]:
        """What computes the law, and the families of variance and mean, the latter empty for 0."""
        made: list[Statement] = []
        parts = [self._part(weight, made) for weight in sorted(self.last)]
        total = reduce(lambda first, second: Call("add", (first, second)), parts)
        variance = self._nonlin(f"variance_{self.name}", total, made)
        own = {product.target for weight in self.last for product in self._reads(self.expr, weight)}
        rest = self._picked(self.expr, lambda term: None if term in own else term)
        return made, variance.name, "" if rest is None else self._nonlin(f"mean_{self.name}", rest, made).name

    def _nonlin(
        self, name: str, expr: Expr, made: list[Statement], slots: tuple[Affine, ...] | None = None
    ) -> Variable:
        """A new family, by default with the indices of the output."""
        target = Variable(self.editor.name(name), self.target.slots if slots is None else slots)
        width = "" if variables(expr) else self.netsor.families[self.name].width
        made.append(Nonlin(target, expr, width, self._span))
        return target

    def _part(self, weight: str, made: list[Statement]) -> Expr:
        """What the members of one weight add to the variance, after the statements that it reads."""
        declared = self.netsor.weight[weight]
        values = self._members(weight)
        fresh = {k: value.bare for k, value in enumerate(values) if value.bare and value.bare not in self._free}
        freed = self._freed(self.expr, weight, fresh)
        combination = self._picked(freed, lambda term: self._vector(term, weight, fresh))
        assert combination is not None
        slots = slots_of((*self._free, *fresh.values()))
        if not isinstance(combination, Variable):
            combination = self._nonlin(f"w_{self.name}_{weight}", combination, made, slots)
        square = Variable(self.editor.name(f"square_{self.name}_{weight}"), slots)
        made.append(Dot(square, combination, combination, "1/n", self._span))
        variance = substitute(declared.variance, dict(zip(declared.indices, values, strict=True)))
        part = square if variance == Number(1) else Call("multiply", (variance, square))
        return Reduction("sum", tuple(fresh.values()), part) if fresh else part

    def _members(self, weight: str) -> list[Affine]:
        """Which member of a weight an output reads, slot by slot: a form in its indices, or a new index."""
        slots = zip(*(product.weight.slots for product in self._reads(self.expr, weight)), strict=True)
        indices = self.netsor.weight[weight].indices
        values = []
        for index, forms in zip(indices, slots, strict=True) if indices else ():
            one = len(set(forms)) == 1 and set(forms[0].indices) <= set(self._free)
            values.append(forms[0] if one else Affine(((self.editor.copy_index(index), 1),)))
        return values

    def _freed(self, node: Expr, weight: str, fresh: Mapping[int, str]) -> Expr:
        """A combination whose sums do not run over the members of a weight, which the new indices name instead.

        sum_a 1[a = b] f(a) = f(b).
        """
        if isinstance(node, Call):
            return replace(node, args=tuple(self._freed(arg, weight, fresh) for arg in node.args))
        if not isinstance(node, Reduction) or not self._linear(node):
            return node
        arg, left, size = node.arg, list(node.indices), 1
        for place, new in fresh.items():
            old = {product.weight.slots[place].bare for product in self._reads(arg, weight)}
            index = old.pop() if len(old) == 1 else None
            if index in left and index is not None and self._replaceable(arg, index, new):
                arg = substitute(arg, {index: Affine(((new, 1),))})
                left.remove(index)
                size *= self.editor.size_of(index)
        arg = self._freed(arg, weight, fresh)
        rest = replace(node, indices=tuple(left), arg=arg) if left else arg
        return Call("divide", (rest, Number(size))) if node.reducer == "mean" and size > 1 else rest

    def _replaceable(self, expr: Expr, index: str, new: str) -> bool:
        """Whether an index may be renamed to one of the same range: no softmax runs over it."""
        kept = (node for node in walk(expr) if isinstance(node, Reduction) and not node.removes)
        return self.editor.alike(index, new) and not any(index in node.indices for node in kept)

    def _vector(self, term: Expr, weight: str, fresh: Mapping[int, str]) -> Expr | None:
        """The vector of a product by the member of a weight that the new indices name; None for other terms."""
        product = self._product(term)
        if product is None or product.weight.name != weight:
            return None
        result: Expr = product.vector
        for place, new in fresh.items():
            slot = product.weight.slots[place]
            if slot.bare != new:
                same = Call("equal", (affine_expr(slot), IndexValue(new)))
                result = Call("multiply", (Call("where", (same, Number(1), Number(0))), result))
        return result
