"""Covariances and means of Gaussian families: initial vectors, clause (i), and outputs of MatMul, clause (ii)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Affine, Expr, Variable
from tensorprog.language.ir import Initial, MatMul, Range
from tensorprog.language.named_arrays import BATCH, COORDINATE, Open, align
from tensorprog.language.substitute import compose, indices_of, reindexed
from tensorprog.limit.form.definitions import Reading, indicator, positions_of, readings
from tensorprog.limit.moment.moments import Moment, Term, Value, difference, solve

if TYPE_CHECKING:
    from tensorprog.limit.moment.covariance import Compiler

__all__ = ["Gaussians", "initial_draws"]

Array = NDArray[Any]


class Gaussians:
    """The Gaussian families of one program."""

    def __init__(self, compiler: Compiler) -> None:
        self.compiler, self.netsor = compiler, compiler.netsor

    def covariance(self, f: str, g: str, ranges: Mapping[str, Range]) -> Moment:
        """Covariance of two Gaussian families over members in some ranges."""
        first, second = (self.netsor.families[name].statements for name in (f, g))
        if not first or not second:
            return self._initial(f, dict(ranges)) if f == g else Moment((), ranges)
        a, b = self.netsor.body[first[0]], self.netsor.body[second[0]]
        assert isinstance(a, MatMul) and isinstance(b, MatMul)
        total = Moment((), ranges)
        if a.weight.name != b.weight.name:
            return total
        for one, weight, held in self._products(a, "", ranges):
            for two, other, also in self._products(b, "_", ranges):
                forms = {difference(s, t) for s, t in zip(weight, other, strict=True)} - {None}
                equations = frozenset(form for form in forms if form is not None)
                solution = solve(equations, ())
                names = {str(k): compose(slot, solution) for k, slot in enumerate(one)}
                names |= {f"{k}_": compose(slot, solution) for k, slot in enumerate(two)}
                declared = self.netsor.weight[a.weight.name]
                factor = Value.of(*self._at_slots(declared.variance, declared.indices, weight, ranges))
                for condition in (held, also):
                    factor = factor * self.compiler.number(condition, ranges)
                moment = self.compiler.between(a.vector.name, b.vector.name, names, ranges)
                total = total + moment.rename(names, ranges).times(factor, equations).simplified()
        return total.merged()

    def _products(
        self, statement: MatMul, copy: str, ranges: Mapping[str, Range]
    ) -> Iterator[tuple[tuple[Affine, ...], tuple[Affine, ...], Expr]]:
        """Slots of the vector and of the weight in every case of a MatMul, and 1 where it holds, over positions."""
        names = positions_of(statement.target, copy)
        cases = [self.cases(reference, names, ranges) for reference in (statement.vector, statement.weight)]
        for vector in cases[0]:
            for weight in cases[1]:
                yield vector.slots, weight.slots, indicator((*vector.inside, *weight.inside))

    def cases(self, reference: Variable, names: Mapping[str, Affine], ranges: Mapping[str, Range]) -> list[Reading]:
        """The cases of a reference whose indices are replaced by positions."""
        return readings(reindexed(reference, names), self.netsor.families[reference.name], ranges)

    def _at_slots(
        self, expr: Expr, indices: Sequence[str], slots: Sequence[Affine], ranges: Mapping[str, Range]
    ) -> tuple[Array, tuple[str, ...]]:
        """An expression in declared indices, read at affine forms of other indices."""
        used = [name for name in indices if any(name == n for n in indices_of(expr, self.netsor.ranges))]
        data = index_array(self.netsor, expr, used)
        value = Value.of(data, used)
        where = dict(zip(indices, slots, strict=True))
        starts = {name: self.netsor.ranges[name][0] for name in used}
        placed = value.gather({name: where[name] for name in used}, dict(ranges), starts)
        return placed.estimate.value, placed.axes

    def _initial(self, name: str, ranges: Mapping[str, Range]) -> Moment:
        law = self.compiler.initials[name]
        indices = next(entry.indices for entry in self.netsor.initial if entry.name == name)
        position = {index: str(k) for k, index in enumerate(indices)}
        shape = [ranges[position[index]][1] - ranges[position[index]][0] for index in law.joint]
        data = law.blocks.reshape((*law.blocks.shape[: len(law.independent)], *shape, *shape))
        axes = (
            *(position[i] for i in law.independent),
            *(position[i] for i in law.joint),
            *(f"{position[i]}_" for i in law.joint),
        )
        equations = frozenset(
            form
            for form in (
                difference(Affine(((position[i], 1),)), Affine(((f"{position[i]}_", 1),))) for i in law.independent
            )
            if form is not None
        )
        if law.independent and data.size and np.all(data == data[(slice(0, 1),) * len(law.independent)]):
            data, axes = data[(0,) * len(law.independent)], axes[len(law.independent) :]
        # only laws without independent members have errors
        error = np.broadcast_to(law.error, law.blocks.shape).reshape(data.shape) if law.error.any() else None
        return Moment((Term(equations, Value.of(data, axes, error)),), dict(ranges)).merged()

    def mean(self, reference: Variable, ranges: Mapping[str, Range]) -> Value:
        """Mean of a Gaussian variable: zero for MatMul outputs."""
        family = self.netsor.families[reference.name]
        if family.statements:
            return Value.of(0.0)
        mean_array = self.compiler.initials[reference.name].mean
        names = [str(k) for k in range(len(family.ranges))]
        starts = {name: span[0] for name, span in zip(names, family.ranges, strict=True)}
        if np.all(mean_array == 0):
            return Value.of(0.0)
        return Value.of(mean_array, names).gather(dict(zip(names, reference.slots, strict=True)), ranges, starts)


def initial_draws(compiler: Compiler, initial: Initial, block: Array) -> Array:
    """Coordinates of initial vectors from standard normals.

    Shapes    block (draws, independent members, joint members, coordinates) -> (draws, *members, coordinates)
    """
    law, family = compiler.initials[initial.name], compiler.netsor.families[initial.name]
    drawn = np.einsum("...ij,b...jc->b...ic", law.factor, block)
    names = (*law.independent, *law.joint)
    sizes = [family.shape[initial.indices.index(name)] for name in names]
    value = Open((BATCH, *names, COORDINATE), drawn.reshape(len(drawn), *sizes, block.shape[-1]))
    return np.asarray(align(value, (BATCH, *initial.indices, COORDINATE)) + law.mean[..., None])
