"""Given the scores: E[Z^u Z^v | p-ring], the limit of an average n**-1 u.v, and moments of sums of linear parts.

A number for each draw of the scores.  Given p-ring the vectors are functions of Gaussian variables.  The product u v
is split into a sum of

    coefficient(p) * f(l_1, ..., l_D; p)        l_k: affine in Gaussian variables, coefficients functions of p

and (l_1, ..., l_D) is Gaussian given p.  D = 1: closed form or quadrature; products of functions of two forms, one of
them with a closed conditional mean: quadrature over a line; other smooth functions of few forms: Gauss-Hermite; what
is left: randomised quasi-Monte Carlo.

Source    Sakai et al. 2025, Theorem 1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.ladder import cross, integrate, mean
from tensorprog.language.errors import AccuracyError
from tensorprog.language.evaluate import (
    BATCH,
    COORDINATE,
    Open,
    Scope,
    add,
    affine_values,
    align,
    broadcast,
    contract,
    evaluate,
    gather,
    multiply,
)
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    factors,
    product_of,
    reindexed,
    replace_variables,
    substitute,
    variables,
    with_children,
)
from tensorprog.language.ir import Dot, Range
from tensorprog.limit.form.definitions import Box, indicator, not_compiled, positions_of, readings, reduces_numbered
from tensorprog.limit.form.sums_of_functions import FORMAL, Inner, Part, free_in_form, plain_text
from tensorprog.limit.form.univariate import function, smooth
from tensorprog.limit.moment.compiler import Compiler
from tensorprog.limit.moment.indexed import Equations, canonical
from tensorprog.limit.moment.numbers import inside_mask
from tensorprog.limit.moment.values import Value

__all__ = ["ConditionalAverage", "LinearCovariance", "linear_mean"]

Array = NDArray[Any]
Ranges = Mapping[str, Range]
ONE, ZERO = Number(1), Number(0)
POINTS = 1024  # of a function of several variables, evaluated at once for a member
MAX_FORMS = 64  # Gaussian variables in one function
CHUNK = 2048  # draws evaluated at once, at most
CHUNK_NUMBERS = 1 << 21


class _Form:
    """An affine combination of Gaussian variables, one for each member of its local indices."""

    def __init__(self, inner: Inner, local: Mapping[str, Range]) -> None:
        self.local = dict(local)
        self.parts = [Part(weight, bound, FORMAL, ((ONE, variable, ()),)) for weight, variable, bound in inner]
        self.key = (tuple(sorted(plain_text(*entry) for entry in inner)), tuple(local))
        self.name, self.start = "", 0

    @property
    def size(self) -> int:
        """Number of variables."""
        return math.prod(b - a for a, b in self.local.values())

    @property
    def place(self) -> slice:
        """Where they stand among those of all forms."""
        return slice(self.start, self.start + self.size)


class ConditionalAverage:
    """One family of averages over vectors that may depend on scores, for the members in a box.

    Raises    NotCompiledError for what this version does not compile
    """

    def __init__(self, compiler: Compiler, name: str, box: Box) -> None:
        self.compiler, self.netsor, self.name = compiler, compiler.netsor, name
        self.positions = {str(k): span for k, span in enumerate(box)}
        self.statement = statement = self.netsor.body[self.netsor.families[name].statements[0]]
        assert isinstance(statement, Dot)
        names = positions_of(statement.target)
        left, right = (self._written(reference, names) for reference in (statement.left, statement.right))
        self.expr = left if right == ONE else right if left == ONE else Call("multiply", (left, right))
        self._refuse()
        self.terms = [_Term(self, part) for part in compiler.parts.split(self.expr)]
        self.error = 0.0  # the largest error of the numbers given so far

    def _written(self, reference: Variable, names: Mapping[str, Affine]) -> Expr:
        """A vector that is read, as a function of Gaussian variables; elsewhere or zero beyond a boundary."""
        parts, family = self.compiler.parts, self.netsor.families[reference.name]
        cases = []
        for case in readings(reindexed(reference, names), family, self.positions):
            read: Expr = Variable(reference.name, case.slots)
            if not parts.is_base(reference.name):
                slots = {str(k): slot for k, slot in enumerate(case.slots)}
                read = parts.fresh(parts.inlined(reference.name), slots)
            cases.append(product_of((indicator(case.inside), read)))
        return reduce(lambda one, two: Call("add", (one, two)), cases)

    @classmethod
    def refuse(cls, shape: Any, name: str) -> None:
        """Raise NotCompiledError if this version does not compile a family of averages; `shape` has no numbers."""
        cls(shape, name, shape.netsor.families[name].ranges)

    def _refuse(self) -> None:
        for reference in variables(self.expr):
            if reference.name in self.compiler.parts.carried:
                raise not_compiled(
                    self.statement,
                    f"{self.name} reads {reference}, which a recurrence carries along without a MatMul, beside scores",
                    "a MatMul in the recurrence",
                )

    @property
    def ranges(self) -> dict[str, Range]:
        """Ranges of every index that can occur."""
        return dict(self.netsor.ranges) | dict(self.compiler.parts.bound_ranges) | self.positions

    def range_of(self, name: str) -> Range:
        """Range of one index; those that a softmax runs over carry a star."""
        return self.ranges[name.rstrip("*")] if name.endswith("*") else self.ranges[name]

    def needs(self) -> list[tuple[str, Box]]:
        """The random scalars that are read, with the members that are."""
        found = []
        for reference in variables(self.expr):
            if self.netsor.families[reference.name].kind == "scalar" and reference.name in self.compiler.random:
                ranges = {index: self.range_of(index) for slot in reference.slots for index in slot.indices}
                bounds = [slot.bounds(ranges) for slot in reference.slots]
                found.append((reference.name, tuple((low, high + 1) for low, high in bounds)))
        return found

    def draw(self, values: Mapping[str, Open], reader: Callable[[Mapping[str, Open]], Any]) -> Open:
        """The average for every draw of the scores; `reader` makes the reader of expressions from values.

        Shapes    over BATCH and the positions, all of them
        """
        used = {name for name, _ in self.needs()}
        batched = {name: value for name, value in values.items() if name in used}
        count = max((v.data.shape[0] for v in batched.values() if BATCH in v.axes), default=1)
        step = max(1, min(CHUNK, CHUNK_NUMBERS // self._cost()))
        results = []
        for start in range(0, count, step):
            part = {
                name: Open(v.axes, v.data[start : start + step]) if v.data.shape[0] == count else v
                for name, v in batched.items()
            }
            results.append(self._chunk(reader(part), min(step, count - start)))
        return Open((BATCH, *self.positions), np.concatenate(results))

    @property
    def quick(self) -> bool:
        """Whether every term is a function of one Gaussian variable, or of none."""
        return all(term.quick for term in self.terms)

    def _cost(self) -> int:
        """Numbers held for one draw."""
        members = math.prod(b - a for a, b in self.positions.values())
        return members * max((term.cost for term in self.terms), default=1)

    def _chunk(self, read: Any, count: int) -> Array:
        sizes = {name: b - a for name, (a, b) in self.positions.items()} | {BATCH: count}
        shape = (count, *(sizes[name] for name in self.positions))
        total, error = np.zeros(shape), np.zeros(shape)
        for term in self.terms:
            value, deviation = term.expectation(read, count)
            total = total + broadcast(value, (BATCH, *self.positions), sizes)
            error = error + broadcast(deviation, (BATCH, *self.positions), sizes)
        if np.isnan(total).any():
            raise AccuracyError(f"{self.statement}: not a number for some draws of the scores")
        self.error = max(self.error, float(np.max(error, initial=0.0)))
        return total


class _Term:
    """One part of the split: coefficient(p) * f(forms; p), summed over the part's bound indices."""

    def __init__(self, average: ConditionalAverage, part: Part) -> None:
        self.average, self.compiler, self.part = average, average.compiler, part
        self.axes = (*average.positions, *part.bound)
        self.base = average.positions | {name: average.range_of(name) for name in part.bound}
        self.forms: list[_Form] = []
        self.body: Expr | None = None
        if part.function is None or part.linear:
            pass
        elif part.joint:
            self.body = self._rewrite(part.function, ())
        else:
            self.body = replace_variables(
                part.function, lambda v: self._form(part.inner, ZERO, ()) if v == FORMAL else None
            )
        self.dim = sum(form.size for form in self.forms)
        if self.dim > MAX_FORMS:
            raise not_compiled(
                average.statement,
                f"{average.expr} is a nonlinear function of {self.dim} Gaussian variables, more than the {MAX_FORMS} "
                "that are integrated over",
                "smaller indices, or a function of fewer vectors",
            )

    @cached_property
    def _covariances(self) -> dict[tuple[int, int], LinearCovariance]:
        found: dict[tuple[int, int], LinearCovariance] = {}
        for a, first in enumerate(self.forms):
            for b, second in enumerate(self.forms[: a + 1]):
                plain = self.base | first.local | second.local
                ranges = plain | {f"{name}_": span for name, span in plain.items()}
                found[a, b] = LinearCovariance(self.compiler, first.parts, second.parts, ranges)
        return found

    @cached_property
    def relative(self) -> float:
        """The relative error of the covariances."""
        return max((c.error for c in self._covariances.values()), default=0.0)

    @property
    def cost(self) -> int:
        """Numbers held for one draw and member."""
        members = math.prod(b - a for name, (a, b) in self.base.items() if name in self.part.bound)
        if self.quick:
            return members
        return members * (self.dim + 4) * POINTS

    @property
    def quick(self) -> bool:
        """Whether this is a function of one Gaussian variable, or of none."""
        return self.body is None or (self.dim == 1 and self._plain)

    @property
    def _plain(self) -> bool:
        """Whether no reduction acts on the forms."""
        assert self.body is not None
        return not reduces_numbered(self.body) and not any(form.local for form in self.forms)

    # -- forms --------------------------------------------------------------------------------------------------

    def _rewrite(self, node: Expr, inside: tuple[str, ...]) -> Expr:
        """The expression with its largest affine parts replaced by Gaussian variables of their own."""
        parts = self.compiler.parts
        if not parts.is_vector(node):
            return node
        form = parts.affine(node)
        if form is not None:
            return self._form(tuple((c, *key) for key, c in form[0].items()), form[1], inside)
        deeper = (*inside, *node.indices) if isinstance(node, Reduction) else inside
        return with_children(node, *(self._rewrite(child, deeper) for child in node.children))

    def _form(self, inner: Inner, offset: Expr, inside: Collection[str]) -> Expr:
        own = {name for expr, variable, bound in inner for name in free_in_form(expr, variable, bound)}
        local = {name: self.average.range_of(name) for name in inside if name in own}
        form = _Form(inner, local)
        for known in self.forms:
            if known.key == form.key:
                form = known
                break
        else:
            form.start = sum(other.size for other in self.forms)
            form.name = f".{len(self.forms)}"
            self.forms.append(form)
        variable = Variable(form.name, tuple(Affine(((name, 1),)) for name in form.local))
        return variable if offset == ZERO else Call("add", (variable, offset))

    # -- numbers ------------------------------------------------------------------------------------------------

    def expectation(self, read: Any, count: int) -> tuple[Open, Open]:
        """Value and error for every draw.

        Shapes    Open over BATCH and positions, those missing that do not matter
        """
        ranges = self.average.ranges | self.base
        factor = coefficient(self.compiler, self.part, {}, ranges, read)
        inner, error = self._inner(read, count, ranges)
        size = Open(factor.axes, np.abs(factor.data))
        value = sum_product(factor, inner, self.part.bound, ranges)
        return value, sum_product(size, error, self.part.bound, ranges)

    def _inner(self, read: Any, count: int, ranges: Mapping[str, Range]) -> tuple[Open, Open]:
        if self.part.function is None:
            return Open((), np.ones(())), Open((), np.zeros(()))
        if self.body is None:  # a multiple of one variable
            (_, variable, _), *_ = self.part.inner
            linear = self.compiler.base_mean(variable, ranges)
            return linear.value, linear.error
        axes = (BATCH, *self.axes)
        sizes = {name: b - a for name, (a, b) in self.base.items()} | {BATCH: count}
        means = [self._mean(form, read, ranges, axes, sizes) for form in self.forms]
        scope = Scope(self.compiler.netsor, ranges, read)
        if self.quick:
            var = self._cov(0, 0, read, axes, sizes)[..., 0, 0]
            f = function(replace_variables(self.body, _formal), scope, axes)
            found = mean(f, means[0][..., 0], np.maximum(var, 0))
        else:
            mu = np.concatenate(means, axis=-1)
            cov = np.empty((*mu.shape, self.dim))
            for a, first in enumerate(self.forms):
                for b, second in enumerate(self.forms[: a + 1]):
                    block = self._cov(a, b, read, axes, sizes)
                    cov[..., first.place, second.place] = block
                    cov[..., second.place, first.place] = np.swapaxes(block, -1, -2)
            closed = self._product(mu, cov, scope, axes)
            call = self._call(scope, axes, mu.shape[:-1])
            found = closed if closed is not None else integrate(call, mu, cov, smooth(self.body))
        found = Estimate(found.value, found.error + self.relative * np.abs(found.value))
        return Open(axes, found.value), Open(axes, found.error)

    def _mean(
        self, form: _Form, read: Any, ranges: Mapping[str, Range], axes: Sequence[str], sizes: Mapping[str, int]
    ) -> Array:
        local = dict(ranges) | form.local
        value = linear_mean(self.compiler, form.parts, local, read)
        own = {name: b - a for name, (a, b) in form.local.items()}
        full = broadcast(value, (*axes, *form.local), {**sizes, **own})
        return full.reshape(*(sizes[name] for name in axes), form.size)

    def _cov(self, a: int, b: int, read: Any, axes: Sequence[str], sizes: Mapping[str, int]) -> Array:
        first, second = self.forms[a], self.forms[b]
        value = self._covariances[a, b].value(read, list(self.base))
        own = {name: hi - lo for name, (lo, hi) in first.local.items()}
        own |= {f"{name}_": hi - lo for name, (lo, hi) in second.local.items()}
        order = (*axes, *first.local, *(f"{name}_" for name in second.local))
        full = broadcast(value, order, {**sizes, **own})
        return full.reshape(*(sizes[name] for name in axes), first.size, second.size)

    def _call(self, scope: Scope, axes: tuple[str, ...], batch: tuple[int, ...]) -> Callable[[Array], Array]:
        """The function of all forms: z of shape batch + (dim, m) -> batch + (m,)."""
        assert self.body is not None
        body = self.body
        by_name = {form.name: form for form in self.forms}

        def call(z: Array) -> Array:
            def variable(reference: Variable, box: Mapping[str, Range]) -> Open:
                form = by_name.get(reference.name)
                if form is None:
                    return scope.variable(reference, box)  # type: ignore[no-any-return]
                local = tuple(b - a for a, b in form.local.values())
                data = z[..., form.place, :].reshape(*batch, *local, z.shape[-1])
                return Open((*axes, *form.local, COORDINATE), data)

            local = {name: span for form in self.forms for name, span in form.local.items()}
            value = evaluate(body, Scope(scope.netsor, {**scope.ranges, **local}, variable))
            return np.broadcast_to(align(value, (*axes, COORDINATE)), (*batch, z.shape[-1]))

        return call

    def _product(self, mu: Array, cov: Array, scope: Scope, axes: tuple[str, ...]) -> Estimate | None:
        """f(l_0) g(l_1) where a factor has closed conditional means; None for anything else."""
        if self.dim != 2 or not self._plain:
            return None
        assert self.body is not None
        groups: list[list[Expr]] = [[], []]
        for factor in factors(self.body, signs=True):
            names = {v.name for v in variables(factor) if v.name.startswith(".")}
            if len(names) > 1:
                return None
            groups[names == {".1"}].append(factor)
        f, g = (
            function(replace_variables(product_of(group), _formal), scope, axes) if group else None for group in groups
        )
        if f is None or g is None or (f.terms is None and g.terms is None):
            return None
        var = np.maximum(np.diagonal(cov, axis1=-2, axis2=-1), 0)
        edge = np.sqrt(var[..., 0] * var[..., 1])
        middle = np.where(edge > 0, np.clip(cov[..., 0, 1], -edge, edge), 0.0)
        return cross(f, g, mu[..., 0], mu[..., 1], var[..., 0], var[..., 1], middle)


def _formal(reference: Variable) -> Expr | None:
    return FORMAL if reference.name.startswith(".") else None


# ---- sums of parts that are linear given the scores -----------------------------------------------------------------


def coefficient(compiler: Compiler, part: Part, names: Mapping[str, Affine], ranges: Ranges, reader: Any) -> Open:
    """The coefficient of a part at affine forms of other indices, by a reader of scores that may evaluate it too."""
    full = dict(compiler.netsor.ranges) | dict(compiler.parts.bound_ranges) | dict(ranges)
    expr = substitute(part.coefficient, dict(names.items()))
    return getattr(reader, "walk", evaluate)(expr, Scope(compiler.netsor, full, reader))


def linear_mean(
    compiler: Compiler, parts: Sequence[Part], ranges: Ranges, reader: Any, absolute: bool = False
) -> Open:
    """E[sum of linear parts | p-ring]; `absolute`: of the sizes of the means of the variables.

    Shapes    over BATCH (if scores matter) and the indices that matter
    """
    total = Open((), np.zeros(()))
    for part in parts:
        local = dict(ranges) | {name: compiler.parts.bound_ranges[name] for name in part.bound}
        if part.function is not None:
            value: Value = Value.of(0.0)
            for weight, variable, _ in part.inner:
                value = value + compiler.number(weight, local) * compiler.base_mean(variable, local)
            if not np.any(value.estimate.value):
                continue
            inner = Open(value.axes, np.abs(value.value.data)) if absolute else value.value
        else:
            inner = Open((), np.ones(()))
        summed = sum_product(coefficient(compiler, part, {}, local, reader), inner, part.bound, local)
        total = add(total, summed)
    return total


class LinearCovariance:
    """Cov[f, g | p-ring] of two sums of linear parts, f over the indices in `ranges`, g over their second copies.

    Coefficients are evaluated for all draws at once; covariances of the variables stay structured.
    """

    def __init__(self, compiler: Compiler, first: Sequence[Part], second: Sequence[Part], ranges: Ranges) -> None:
        self.compiler = compiler
        size = worst = 0.0
        self._pairs: list[tuple[Part, Part, Ranges, Equations, Value]] = []
        for p in first:
            for q in second:
                if p.function is None or q.function is None:
                    continue
                p2, q2, local = compiler.paired(p, q, ranges)
                for equations, value in self._covariances(p2, q2, local):
                    self._pairs.append((p2, q2, local, equations, value))
                    size = max(size, float(np.max(np.abs(value.estimate.value), initial=0.0)))
                    worst = max(worst, float(np.max(value.estimate.error, initial=0.0)))
        self.error = worst / max(size, 1e-300)  # relative, of the variables' covariances

    def _covariances(self, p: Part, q: Part, ranges: Ranges) -> list[tuple[Equations, Value]]:
        (a, u, _), (b, v, _) = p.inner[0], q.inner[0]  # linear parts have one variable each
        moment = self.compiler.reference_covariance(u, v, ranges)
        factor = self.compiler.number(a, ranges) * self.compiler.number(b, ranges)
        return [(term.equations, term.value * factor) for term in moment.terms]

    def value(self, reader: Any, tied_names: Collection[str], absolute: bool = False) -> Open:
        """The covariance, where the second copies of the indices `tied_names` are equal to the first.

        `absolute`: with the sizes of the covariances of the variables, a bound where coefficients are bounds.

        Shapes    Open over BATCH (if scores matter) and the indices, those missing that do not matter
        """
        tie = {f"{name}_": Affine.index(name) for name in tied_names}
        total = Open((), np.zeros(()))
        for p, q, local, equations, value in self._pairs:
            starts = {name: span[0] for name, span in local.items()}
            tied: set[Affine] = set()
            holds = True
            for equation in equations:
                form = canonical(equation.at(tie))
                if form is not None:
                    holds = holds and bool(form.terms)
                    tied.add(form)
            if not holds:
                continue
            solved = self.compiler.eliminate(p, q, frozenset(tied), local)
            names = {key: form.at(solved.solution) for key, form in tie.items()} | solved.solution
            mask = inside_mask(solved.inside, local)
            middle = gather(value.value, names, local, starts)
            if absolute:
                middle = Open(middle.axes, np.abs(middle.data))
            if mask is not None:
                middle = multiply(middle, mask)
            first = coefficient(self.compiler, p, names, local, reader)
            second = coefficient(self.compiler, q, names, local, reader)
            only_first = [name for name in solved.over if name not in second.axes]
            left = sum_product(first, middle, only_first, local)
            result = sum_product(left, second, [name for name in solved.over if name in second.axes], local)
            for equation in solved.remaining:  # e.g. outputs of different heads are independent
                grid = affine_values(equation, local)
                result = multiply(result, Open(grid.axes, (grid.data == 0).astype(float)))
            total = add(total, result)
        return total


def sum_product(first: Open, second: Open, over: Sequence[str], ranges: Ranges) -> Open:
    """Sum of first * second over indices, those in neither counted with their size."""
    present = [name for name in over if name in first.axes or name in second.axes]
    count = 1
    for name in over:
        if name not in present:
            count *= ranges[name][1] - ranges[name][0]
    result = (
        contract(first, second, present)
        if present or BATCH in first.axes or BATCH in second.axes
        else multiply(first, second)
    )
    return Open(result.axes, result.data * count)
