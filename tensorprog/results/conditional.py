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

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
    Variable,
    affine_expr,
    product_of,
    reindexed,
    slots_of,
    substitute,
    sum_of,
    variables,
    walk,
)
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Statement
from tensorprog.language.samples import Samples
from tensorprog.language.schedule import upstream
from tensorprog.limit.form.definitions import ONE, ZERO
from tensorprog.limit.form.sums_of_functions import Term, branches_apart, linear_terms, summed

__all__ = ["ConditionalProgram", "gaussians", "with_conditional"]

Array = NDArray[Any]


@dataclass(frozen=True)
class ConditionalProgram:
    """A program with the statements of the conditional laws of its outputs.

    `mean` and `variance` have the family of each by output that has such a law, without means that are 0.
    """

    original: Netsor
    netsor: Netsor
    mean: Mapping[str, str]
    variance: Mapping[str, str]

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
        values = np.zeros(len(output), output.dtype) if family is None else samples.arrays[family]
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
    refused: list[str] = []
    for name in netsor.outputs:
        try:
            statements, variance[name], own = _Output(editor, name).statements()
        except NotCompiledError as error:
            refused.append(str(error))
            continue
        added += statements
        mean |= {name: own} if own else {}
    if not variance:
        raise NotCompiledError("no output has a conditional law: " + "; ".join(refused))
    larger, _ = editor.result()
    outputs = (*netsor.outputs, *variance.values(), *mean.values())
    larger = replace(larger, body=(*larger.body, *added), outputs=outputs)
    return ConditionalProgram(netsor, larger, mean, variance)


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
    """One output as a sum of terms, and what its conditional law takes.

    `products` has the product that each term is a multiple of, None for other terms; `last` the weights used last.
    """

    def __init__(self, editor: Editor, name: str) -> None:
        self.editor, self.netsor, self.name = editor, editor.netsor, name
        if self.netsor.families[name].kind != "vector":
            raise NotCompiledError(f"{name} is a scalar")
        statement = self._definition(name)
        if statement is None:
            raise NotCompiledError(f"{name} has several definitions, or is an initial vector or a recurrence")
        self.target = statement.target
        self._span = Span(text=f"the conditional law of {name}")
        self._free = tuple(slot.bare for slot in self.target.slots if slot.bare is not None)  # its indices
        self.terms = self._written_out([(ONE, (), self.target)])
        self.products = [self._product(vector) for _, _, vector in self.terms]
        self.last = self._last()

    # -- the terms ---------------------------------------------------------------------------------------------------

    def _definition(self, name: str) -> Statement | None:
        """The one statement behind a family, if it is no recurrence."""
        places = self.netsor.families[name].statements
        single = len(places) == 1 and not self.editor.structure.loops(places[0], places[0])
        return self.netsor.body[places[0]] if single else None

    def _written_out(self, terms: list[Term]) -> list[Term]:
        """Terms with linear Nonlins of vectors written out, as long as that is not too long."""
        longer = [one for term in terms for one in self._opened(term)]
        nodes = sum(
            1
            for number, _, vector in longer
            for part in (number, ONE if vector is None else vector)
            for _ in walk(part)
        )
        return terms if longer == terms or nodes > MAX_NODES else self._written_out(longer)

    def _opened(self, term: Term) -> list[Term]:
        number, bound, vector = term
        nonlin = self._definition(vector.name) if isinstance(vector, Variable) else None
        if isinstance(vector, Variable) and isinstance(nonlin, Nonlin):
            with suppress(Stuck):
                expr = self.editor.instance(nonlin, vector, {*self._free, *bound})
                found = linear_terms(branches_apart(self.editor.vector, expr), self.editor.vector, self.editor.size_of)
                if found != [(ONE, (), expr)] or isinstance(expr, Variable):
                    return [(product_of((number, factor)), (*bound, *over), part) for factor, over, part in found]
        return [term]

    def _product(self, vector: Expr | None) -> MatMul | None:
        """The product that a vector is, with its indices, if it is one."""
        statement = self._definition(vector.name) if isinstance(vector, Variable) else None
        if not isinstance(vector, Variable) or not isinstance(statement, MatMul) or statement.transposed:
            return None
        pairs = zip(statement.target.slots, vector.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        weight = reindexed(statement.weight, values)
        beyond = self.editor.beyond(vector) or self.editor.beyond(weight)
        return None if beyond else MatMul(vector, weight, reindexed(statement.vector, values))

    def _last(self) -> frozenset[str]:
        """Weights of products that nothing else in the output depends on."""
        products = [product for product in self.products if product is not None]
        if not products:
            raise NotCompiledError(f"{self.name} is no linear combination of MatMul outputs")
        fixed = {v.name for number, _, _ in self.terms for v in variables(number)}
        for (_, _, vector), product in zip(self.terms, self.products, strict=True):
            fixed |= set() if vector is None or product is not None else {v.name for v in variables(vector)}
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

    # -- statements -------------------------------------------------------------------------------------------------

    def statements(self) -> tuple[list[Statement], str, str]:
        """What computes the law, and the families of variance and mean, the latter empty for 0."""
        made: list[Statement] = []
        total = sum_of([self._part(weight, made) for weight in sorted(self.last)])
        variance = self._nonlin(f"variance_{self.name}", total, made)
        rest = sum_of(
            summed(bound, number if vector is None else product_of((number, vector)))
            for (number, bound, vector), product in zip(self.terms, self.products, strict=True)
            if product is None or product.weight.name not in self.last
        )
        return made, variance.name, "" if rest == ZERO else self._nonlin(f"mean_{self.name}", rest, made).name

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
        terms = [
            (number, bound, product)
            for (number, bound, _), product in zip(self.terms, self.products, strict=True)
            if product is not None and product.weight.name == weight
        ]
        values: list[Affine] = []  # which member is read, slot by slot: a form in the indices, or a new index
        for place, index in enumerate(declared.indices):
            forms = {product.weight.slots[place] for _, _, product in terms}
            one = len(forms) == 1 and {name for form in forms for name in form.indices} <= set(self._free)
            values.append(forms.pop() if one else Affine.index(self.editor.copy_index(index)))
        fresh = [value for value in values if value.bare and value.bare not in self._free]
        combination = sum_of(self._of_member(*term, values) for term in terms)
        slots = slots_of((*self._free, *(str(value) for value in fresh)))
        if not isinstance(combination, Variable):
            combination = self._nonlin(f"w_{self.name}_{weight}", combination, made, slots)
        square = Variable(self.editor.name(f"square_{self.name}_{weight}"), slots)
        made.append(Dot(square, combination, combination, "1/n", self._span))
        variance = substitute(declared.variance, dict(zip(declared.indices, values, strict=True)))
        return summed(tuple(map(str, fresh)), product_of((variance, square)))

    def _of_member(self, number: Expr, bound: tuple[str, ...], product: MatMul, values: Sequence[Affine]) -> Expr:
        """The vector that a term multiplies one member of a weight by; sum_a 1[a = b] f(a) = f(b)."""
        weight, vector = product.weight, product.vector
        for place, value in enumerate(values):
            form = weight.slots[place]
            if form.bare in bound and value.bare and self.editor.alike(form.bare, value.bare):
                named, bound = {form.bare: value}, tuple(name for name in bound if name != form.bare)
                number = substitute(number, named, along=True)
                weight, vector = reindexed(weight, named), reindexed(vector, named)
            elif form != value:
                same = Call("equal", (affine_expr(form), affine_expr(value)))
                number = product_of((Call("where", (same, ONE, ZERO)), number))
        return summed(bound, product_of((number, vector)))
