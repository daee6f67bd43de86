"""Expectations of products of functions of Gaussian variables, taken apart over independent blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, reduce
from itertools import combinations, product
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian import cross, integrate, mean
from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.function import RealFunction
from tensorprog.language.arrows import connected
from tensorprog.language.evaluate import COORDINATE, Open, Scope, align, broadcast, evaluate, union
from tensorprog.language.expr import (
    Affine,
    Expr,
    Reduction,
    Variable,
    index_names,
    indices_of,
    is_call,
    product_of,
    rebuild,
    replace_variables,
    substitute,
    variables,
    walk,
)
from tensorprog.language.ir import Range
from tensorprog.limit.form.definitions import ZERO
from tensorprog.limit.form.sums_of_functions import FORMAL, ONE, Inner, SumsOfFunctions, WeightedFunction
from tensorprog.limit.form.univariate import function, smooth
from tensorprog.limit.moment.indexed import Equations
from tensorprog.limit.moment.numbers import Numbers
from tensorprog.limit.moment.recursion import Copies, Forms
from tensorprog.limit.moment.values import REPLICATE, DeferredPairs, Value, check_memory

__all__ = ["Factors", "LawOfFactors", "NumberedFactor", "ProductOfFunctions", "merged"]

Array = NDArray[Any]
SEVERAL = 1e-10  # asked of functions of several variables, relative to their size
OF_DRAWS = 1e-8  # asked of products of two functions for each of many draws, whose average errs more


@dataclass(frozen=True)
class NumberedFactor:
    """A function of numbered variables, written ".0", ".1", ..."""

    body: Expr
    places: tuple[int, ...]

    @cached_property
    def plain(self) -> Expr:
        """The body of a function of one variable, written in FORMAL."""
        return replace_variables(self.body, lambda v: FORMAL if v.name.startswith(".") else None)

    @cached_property
    def shifted(self) -> tuple[Expr, Expr]:
        """The body of a function of one variable, and what it adds to the variable wherever it reads it.

        A shift that differs from draw to draw belongs to the law: functions whose parameters vary cost as many times
        more as there are draws.
        """
        sums = {node for node in walk(self.plain) if is_call(node, "add") and node.args[0] == FORMAL}
        if len(sums) != 1:
            return self.plain, ZERO
        (total,) = sums
        shift = total.args[1]
        body = rebuild(self.plain, lambda node: FORMAL if node == total else None)
        alone = list(variables(self.plain)).count(FORMAL) == list(variables(body)).count(FORMAL)
        return (body, shift) if alone and (self.averages or self.indices) else (self.plain, ZERO)

    @cached_property
    def averages(self) -> list[Variable]:
        """The averages that the body reads."""
        return [v for v in variables(self.body) if v.name[0] != "."]

    @cached_property
    def indices(self) -> tuple[str, ...]:
        """The indices that the body reads, but for those that it sums over."""
        nodes = list(walk(self.body))
        removed = {name for node in nodes if isinstance(node, Reduction) and node.removes for name in node.indices}
        return tuple(dict.fromkeys(n for node in nodes for n in index_names(node) if n not in removed))


class Factors:
    """A product of factors, as far as the program says: once for all members, steps and draws that it is averaged for.

    `forms` are the affine forms that the factors read, `constants` the factors that are numbers; `met` are the places
    (k, j), j <= k, of forms that are not independent.
    """

    def __init__(self, parts: SumsOfFunctions, found: Sequence[WeightedFunction]) -> None:
        self.constants = [factor.coefficient for factor in found if factor.function is None]
        self._numbered = [_numbered(parts, factor) for factor in found if factor.function is not None]
        self.forms = list(dict.fromkeys(form for _, forms in self._numbered for form in forms))
        self._placed: dict[Any, list[NumberedFactor]] = {}
        names = [{variable.name for _, variable, _ in form} for form in self.forms]
        self.met = [
            (k, j) for k in range(len(names)) for j in range(k + 1)
            if not all(parts.independent(u, v) for u, v in product(names[j], names[k]))
        ]  # fmt: skip
        centred = [all(parts.is_base(u) and parts.netsor.families[u].statements for u in own) for own in names]
        read = [(body, [self.forms.index(form) for form in forms]) for body, forms in self._numbered]
        # whether a factor is a variable of mean zero that no other meets
        self.vanish = any(
            body == Variable(".0") and centred[k] and not any(k in pair for pair in self.met if pair != (k, k))
            and sum(k in places for _, places in read) == 1 for body, (k, *_) in read
        )  # fmt: skip

    def placed(self, solution: Mapping[str, Affine]) -> list[NumberedFactor]:
        """The factors with some indices eliminated; forms that become equal have one number, the first."""
        key = tuple(solution.items())
        if key not in self._placed:
            forms = [renamed(form, solution) for form in self.forms]
            place = {form: forms.index(own) for form, own in zip(self.forms, forms, strict=True)}
            found = self._placed[key] = list[NumberedFactor]()
            for body, own in self._numbered:
                places = [place[form] for form in own]
                written = {Variable(f".{k}"): Variable(f".{place}") for k, place in enumerate(places)}
                body = substitute(replace_variables(body, written.get), solution)
                found.append(NumberedFactor(body, tuple(dict.fromkeys(places))))
        return self._placed[key]

    def copies(self, ranges: Mapping[str, Range]) -> Copies:
        """Forms that are one form of two copies of its indices, which have the same ranges.

        Variances that are read from covariances halve the time of convolutions on data.
        """
        return {
            k: found
            for k, found in self._copies.items()
            if all(ranges[n] == f.span(ranges) for n, f in found[1].items())
        }

    @cached_property
    def _copies(self) -> Copies:
        found = dict[int, tuple[tuple[int, int], dict[str, Affine]]]()
        for j, k in combinations(range(len(self.forms)), 2):
            form = self.forms[k]
            names = {name for weight, v, _ in form for node in (*walk(weight), v) for name in index_names(node)}
            first = {name: Affine.index(name[:-1]) for name in names if name.endswith("_")}
            if first and renamed(form, first) == self.forms[j]:
                found[j] = (k, j), first
                found[k] = (k, j), {name[:-1]: Affine.index(name) for name in first}
        return found


def _numbered(parts: SumsOfFunctions, factor: WeightedFunction) -> tuple[Expr, list[Inner]]:
    """A function of numbered variables, and the affine forms that these are."""
    assert factor.function is not None
    if factor.joint:
        return parts.numbered(factor.function)
    return replace_variables(factor.function, lambda v: Variable(".0") if v == FORMAL else None), [factor.inner]


def merged(block: Sequence[NumberedFactor]) -> Sequence[NumberedFactor]:
    """Two factors at most, or one for each set of variables."""
    if len(block) <= 2:
        return block
    bodies: dict[tuple[int, ...], list[Expr]] = {}
    for factor in block:
        bodies.setdefault(factor.places, []).append(factor.body)
    return [NumberedFactor(product_of(own), places) for places, own in bodies.items()]


class ProductOfFunctions:
    """A product of factors with the moments of what they read, before any equations hold."""

    def __init__(self, numbers: Numbers, factors: Factors, ranges: Mapping[str, Range]) -> None:
        self.numbers, self.factors, self.ranges = numbers, factors, ranges
        self.forms = Forms(numbers, factors.forms, factors.met, ranges, factors.copies(ranges))

    def law(self, equations: Equations, solution: Mapping[str, Affine]) -> LawOfFactors:
        """Their law where exactly these equations between indices hold, the indices in `solution` eliminated."""
        forms = self.forms
        return LawOfFactors(
            self.numbers, self.ranges, self.factors.placed(solution),
            [substitute(number, solution) for number in self.factors.constants],
            lambda k: forms.mean(k, solution), lambda j, k: forms.cov(j, k, equations, solution),
        )  # fmt: skip


class LawOfFactors:
    """Some factors with the joint law of their variables."""

    def __init__(
        self, numbers: Numbers, ranges: Mapping[str, Range], factors: Sequence[NumberedFactor],
        constants: Sequence[Expr], mean: Callable[[int], Value], cov: Callable[[int, int], Value],
    ) -> None:  # fmt: skip
        self.numbers, self.ranges, self.factors, self.constants = numbers, ranges, factors, constants
        self.mean, self._cov = cache(mean), cache(cov)

    def product(self) -> Value:
        """The expectation of the product of all factors."""
        found = [self.numbers.number(number, self.ranges) for number in self.constants]
        blocks = connected(self.factors, self.tied)
        # variables themselves first: where one has mean 0, and so has the product, nothing else is computed
        for block in sorted(blocks, key=lambda block: [f.plain != FORMAL for f in block]):
            found.append(self.expectation(block))
            if found[-1].zero():
                break
        return reduce(mul, found) if found else Value.of(1.0)

    def cov(self, j: int, k: int) -> Value:
        """Covariance of two variables."""
        return self._cov(min(j, k), max(j, k))

    def tied(self, one: NumberedFactor, two: NumberedFactor) -> bool:
        """Whether two factors are not independent: a variable is in both, or two have a covariance."""
        return any(j == k or not self.cov(j, k).zero() for j in one.places for k in two.places)

    def expectation(self, block: Sequence[NumberedFactor]) -> Value:
        """Of the product of the factors of one block, with the effect of errors of averages that are parameters."""
        block = merged(block)
        return self.numbers.of_averages(self.ranges, lambda scope: self._expectation(block, scope))

    def _expectation(self, block: Sequence[NumberedFactor], scope: Scope) -> Value:
        if len(block) > 2 or any(len(factor.places) > 1 for factor in block):
            return self._several(block, scope)
        bodies, shifts = zip(*(factor.shifted for factor in block), strict=True)
        places = [factor.places[0] for factor in block]
        means = [self.mean(place) for place in places]
        for k, shift in enumerate(shifts):
            if shift != ZERO:
                by = evaluate(shift, scope)
                means[k] = means[k] + Value.of(by.data, by.axes)
        if all(body == FORMAL for body in bodies):
            return means[0] if len(block) == 1 else self.cov(*places) + means[0] * means[1]
        moments = [*means, *(self.cov(place, place) for place in places)]
        if len(block) == 2:
            moments.append(self.cov(*places))
        axes, pairs = _paired_axes(self._axes(moments, block))
        f = self._function(bodies[0], scope, axes)
        if isinstance(moments[-1], DeferredPairs) and bodies[0] == bodies[1] and means[0].zero() and means[1].zero():
            deferred = moments[-1].under(f, moments[2:4])
            if deferred is not None:
                return deferred
        args = [moment.aligned(axes) for moment in moments]
        check_memory([self.ranges[name][1] - self.ranges[name][0] for name in axes])
        if len(block) == 1:
            found = mean(f, *args)
        else:
            g = f if bodies[0] == bodies[1] else self._function(bodies[1], scope, axes)
            found = cross(f, g, *args, slack=np.inf, pairs=pairs, **({"enough": OF_DRAWS} if REPLICATE in axes else {}))
        found = found.reshape(np.broadcast_shapes(found.value.shape, (1,) * len(axes)))
        sizes = (self.ranges[name][1] - self.ranges[name][0] for name in axes)
        # a function may read an average that is the same for all values of an index
        idle = tuple(k for k, size in enumerate(sizes) if found.value.shape[k] < size)
        kept = tuple(name for k, name in enumerate(axes) if k not in idle)
        return Value(kept, Estimate(np.squeeze(found.value, idle), np.squeeze(found.error, idle)))

    def _function(self, body: Expr, scope: Scope, axes: tuple[str, ...]) -> RealFunction:
        known, key = self.numbers.program.known, ("function", body)
        if key in known:
            return known[key]  # type: ignore[no-any-return]
        found = function(body, scope, axes)
        if not (found.shape or any(v != FORMAL for v in variables(body)) or indices_of(body, self.ranges)):
            known[key] = found  # reads nothing but its variable
        return found

    def _axes(self, moments: Sequence[Value], block: Sequence[NumberedFactor]) -> tuple[str, ...]:
        read = [name for factor in block for name in factor.indices if name in self.ranges]
        if REPLICATE in self.ranges and any(factor.averages for factor in block):
            read.append(REPLICATE)  # scores and averages have a value for each
        return union(*(moment.axes for moment in moments), read)

    def _several(self, block: Sequence[NumberedFactor], scope: Scope) -> Value:
        """Of functions that read more than two variables together, or of one that cannot be taken apart."""
        places = list(dict.fromkeys(place for factor in block for place in factor.places))
        means = [self.mean(place) for place in places]
        covs = [[self.cov(j, k) for k in places] for j in places]
        axes = self._axes([*means, *(value for row in covs for value in row)], block)
        sizes = {name: self.ranges[name][1] - self.ranges[name][0] for name in axes}
        check_memory((*sizes.values(), len(places) + 1, len(places)))

        def stacked(values: Sequence[Value]) -> Estimate:
            parts = [value.value for value in values], [value.error for value in values]
            return Estimate(*(np.stack([broadcast(part, axes, sizes) for part in each], axis=-1) for each in parts))

        call = _call(block, {f".{place}": number for number, place in enumerate(places)}, axes, scope)
        everywhere = all(smooth(factor.body) for factor in block)
        matrix = stacked([value for row in covs for value in row])
        shape = (*matrix.value.shape[:-1], len(places), len(places))
        matrix = Estimate(matrix.value.reshape(shape), matrix.error.reshape(shape))
        return Value(axes, integrate(call, stacked(means), matrix, everywhere, SEVERAL))


def _call(
    block: Sequence[NumberedFactor], number: Mapping[str, int], axes: tuple[str, ...], scope: Scope
) -> Callable[[Array], Array]:
    """The product as a function of z of shape batch + (dim, m)."""

    def call(z: Array) -> Array:
        def read(reference: Variable, box: Mapping[str, Range]) -> Open:
            if reference.name in number:
                return Open((*axes, COORDINATE), z[..., number[reference.name], :])
            return scope.variable(reference, box)

        inner = Scope(scope.netsor, scope.ranges, read)
        result: Array = np.ones(())
        for factor in block:
            result = result * align(evaluate(factor.body, inner), (*axes, COORDINATE))
        return result

    return call


def renamed(form: Inner, names: Mapping[str, Affine]) -> Inner:
    """An affine form with other index names."""
    return WeightedFunction(ONE, (), FORMAL, form).renamed(names).inner if names else form


def _paired_axes(used: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The axes as (*first copies, *second copies, *others), and how many first copies have a second one."""
    first = tuple(name for name in used if f"{name}_" in used)
    second = tuple(f"{name}_" for name in first)
    return (*first, *second, *(name for name in used if name not in (*first, *second))), len(first)
