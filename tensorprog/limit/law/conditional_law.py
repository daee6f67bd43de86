"""`ConditionalLaw`: the Gaussian law of the outputs given scores, what `Law.given` returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError, ProgramError, check_count, did_you_mean
from tensorprog.language.evaluate import BATCH, Open
from tensorprog.language.expr import Expr
from tensorprog.language.linalg import psd_cholesky
from tensorprog.limit.draw.layers import ARRAYS, Conditioned
from tensorprog.limit.draw.normals import Points
from tensorprog.limit.draw.sampler import Sampler
from tensorprog.limit.form.weight_columns import Columns
from tensorprog.limit.memory import Budget, budgeted, need, pieces
from tensorprog.limit.moment.averages import ConditionalAverage
from tensorprog.limit.moment.compilable import refuse_cells
from tensorprog.limit.moment.compiler import Compiler

__all__ = ["ConditionalLaw"]

Array = NDArray[Any]
Extended = Callable[[str | Expr], tuple[Compiler, str]]  # a program with an average, and the average's name
NUMBERS = 1 << 20  # scores of the draws that are worked on together


@budgeted
class ConditionalLaw:
    """The Gaussian law of the outputs given scores; leading axes of the scores are draws."""

    def __init__(
        self, compiler: Compiler, scores: Mapping[str, Array], linear: Callable[[str], bool], extended: Extended,
        budget: Budget,
    ) -> None:  # fmt: skip
        self._compiler, self._is_linear, self._extended, self.budget = compiler, linear, extended, budget
        self._families = families = compiler.netsor.families
        known = [name for name in compiler.netsor.scores if name in compiler.random]
        if not isinstance(scores, Mapping):
            raise ProgramError('given takes a mapping from scores to values, for example {"p": values}')
        for name in scores:
            if name not in known:
                raise ProgramError(f"given: {name} is not a score of the program; {did_you_mean(name, known)}")
        missing = [name for name in known if name not in scores]
        if missing:
            raise ProgramError(f"given: values for {', '.join(missing)} are missing")
        lead: tuple[int, ...] = ()
        arrays = {}
        for name, values in scores.items():
            try:
                array = np.asarray(values, dtype=np.float64)
            except (TypeError, ValueError):
                raise ProgramError(f"given: the values of {name} are not numbers") from None
            shape = families[name].shape
            if array.shape[array.ndim - len(shape) :] != shape:
                raise ProgramError(
                    f"given: {name} must have shape (..., {', '.join(map(str, shape))}), not {array.shape}"
                )
            lead = np.broadcast_shapes(lead, array.shape[: array.ndim - len(shape)])
            arrays[name] = array
        self._lead = lead
        self._values = {}
        for name, array in arrays.items():
            shape = families[name].shape
            flat = np.broadcast_to(array, (*lead, *shape)).reshape(-1, *shape)
            self._values[name] = Open((BATCH, *(str(k) for k in range(len(shape)))), flat)

    def _one(self, name: str | None) -> str:
        outputs = self._compiler.netsor.outputs
        if name is None:
            if len(outputs) > 1:
                raise ProgramError(f"name one of the outputs: {', '.join(outputs)}")
            return outputs[0]
        if name not in outputs:
            raise ProgramError(f"{name} is not an output; {did_you_mean(name, outputs)}")
        return name

    def _parts(self, compiler: Compiler) -> Iterator[Conditioned]:
        """The moments of the vectors for every draw, some draws at a time."""
        if compiler.netsor.fixed_widths:
            width = compiler.netsor.fixed_widths[0][0]
            raise NotCompiledError(
                f"vectors of width {width}, which stays finite, are random given the scores: laws "
                "given scores are not compiled for them"
            )
        refuse_cells(compiler)
        columns, draws = Columns(compiler.netsor, compiler.recurrences.steps), math.prod(self._lead)
        together = pieces(NUMBERS, 2 * ARRAYS)
        size = max(1, together * draws // max(1, sum(value.data.size for value in self._values.values())))
        for start in range(0, max(draws, 1), size):
            part = {name: Open(v.axes, v.data[start : start + size]) for name, v in self._values.items()}
            nothing = Points([], np.zeros((min(size, draws - start), 0)))
            found = Conditioned(compiler, columns, nothing, part)
            yield found
            found.forget()

    def _linear(self, name: str, read: Callable[[Conditioned], Array]) -> Array:
        if not self._is_linear(name):
            raise ProgramError(f"{name} is not linear in the vectors: given the scores it is not Gaussian")
        value = np.concatenate([read(found) for found in self._parts(self._compiler)])
        return value.reshape((*self._lead, *value.shape[1:]))

    def mean(self, name: str | None = None) -> Array:
        """Conditional mean.

        Shapes    (*draws, *members)
        """
        name = self._one(name)
        return self._linear(name, lambda found: found.means(name))

    def cov(self, name: str | None = None) -> Array:
        """Conditional covariance.

        Shapes    (*draws, *members, *members)
        """
        name = self._one(name)
        draws, members = math.prod(self._lead), math.prod(self._families[name].shape)
        what = f"the covariance of {name} for each of {draws} draws of scores"
        need(2 * draws * members**2, what, "give fewer draws at a time, or raise max_memory")
        return self._linear(name, lambda found: found.covariances(name, name))

    def expectation(self, psi: str | Expr, with_error: bool = False) -> Any:
        """E[psi(Z) | p-ring] of a function of vectors and scores, such as 'tanh(y[0])**2': Theorem 1's limit.

        Shapes    (*draws, *free indices of psi)
        Source    Sakai et al. 2025, Theorem 1
        """
        compiler, name = self._extended(psi)
        data, error = (self._in_layers if compiler.layered else self._at_once)(compiler, name)
        data = data.reshape((*self._lead, *data.shape[1:]))
        result = data if data.shape else float(data)
        return (result, error) if with_error else result

    def _in_layers(self, compiler: Compiler, name: str) -> tuple[Array, float]:
        pairs = [(found.means(name), found.average(name).estimate.error) for found in self._parts(compiler)]
        return np.concatenate([means for means, _ in pairs]), max(float(np.max(e, initial=0.0)) for _, e in pairs)

    def _at_once(self, compiler: Compiler, name: str) -> tuple[Array, float]:
        """One layer: over all Gaussian variables that a function reads, which takes functions over indices too."""
        sampler = Sampler(compiler, {}, vectors=False)
        values = dict(self._values)
        for score, value in values.items():
            sampler.demand[score] = compiler.netsor.families[score].ranges
            assert value.data.shape[1:] == compiler.netsor.families[score].shape

        def draw(name: str) -> ConditionalAverage:
            box = compiler.netsor.families[name].ranges
            average = ConditionalAverage(compiler, name, box)
            for needed, _ in average.needs():  # averages that stand inside
                if needed not in values:
                    draw(needed)
            sampler.demand[name] = box
            values[name] = average.draw(values, sampler.reader)
            return average

        error = draw(name).error
        members = compiler.netsor.families[name].shape
        return np.broadcast_to(values[name].data, (math.prod(self._lead), *members)), error

    def sample(self, size: int, seed: int = 0, name: str | None = None) -> Array:
        """Draws of an output given the scores.

        Shapes    (size, *draws, *members)
        """
        size, name = check_count("size", size), self._one(name)
        members = math.prod(self._families[name].shape)
        draws = math.prod(self._lead)
        what = f"{size} draws of {name} for each of {draws} draws of scores"
        need(draws * members * (3 * size + 5 * members), what, "draw fewer at a time, or raise max_memory")
        mean, cov = self.mean(name), self.cov(name)
        factor = psd_cholesky(cov.reshape((*self._lead, members, members)))
        normals = np.random.Generator(np.random.SFC64(seed)).standard_normal((size, *self._lead, members, 1))
        return mean + (factor @ normals)[..., 0].reshape((size, *mean.shape))  # type: ignore[no-any-return]
