"""`ConditionalLaw`: the Gaussian law of the outputs given scores, what `Law.given` returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import NotCompiledError, ProgramError, did_you_mean, fail
from tensorprog.language.evaluate import BATCH, Open
from tensorprog.language.expr import Expr
from tensorprog.language.formats import name_of, selected
from tensorprog.limit.draw.conditioned import ARRAYS, Conditioned
from tensorprog.limit.draw.normals import Points
from tensorprog.limit.law.marginals import check_points
from tensorprog.limit.memory import Budget, budgeted, need, numbers_at_once
from tensorprog.limit.moment.compilable import refuse_cells
from tensorprog.limit.moment.numeric_recursion import NumericRecursion

__all__ = ["ConditionalLaw"]

Array = NDArray[Any]
NUMBERS, DRAWS = 1 << 20, 4096  # that are worked on together
Extended = Callable[[str | Expr], tuple[NumericRecursion, str]]  # a program with an average, and the average's name


class ConditionalLaw:
    """The Gaussian law of the outputs given scores; leading axes of the scores are draws."""

    def __init__(
        self, recursion: NumericRecursion, scores: Mapping[str, Array], linear: Callable[[str], bool],
        extended: Extended,
        budget: Budget,
    ) -> None:  # fmt: skip
        self._recursion, self._is_linear, self._extended, self.budget = recursion, linear, extended, budget
        self._families = families = recursion.netsor.families
        known = [name for name in recursion.netsor.scores if name in recursion.random]
        if not isinstance(scores, Mapping) or set(scores) != set(known):
            hint = ", ".join(known) or "none: ask law.cov and law.density"
            raise fail("given takes a mapping from every score of the program to its values", fix=f"scores: {hint}")
        arrays, self._lead = {}, tuple[int, ...]()
        for name, values in scores.items():
            array, shape = check_points(f"given: the values of {name}", values), families[name].shape
            lead = array.shape[: array.ndim - len(shape)]
            if array.shape[len(lead) :] != shape:
                wanted = ", ".join(map(str, shape))
                raise ProgramError(f"given: {name} must have shape (..., {wanted}), not {array.shape}")
            self._lead, arrays[name] = np.broadcast_shapes(self._lead, lead), array
        self._values = {}
        for name, array in arrays.items():
            shape = families[name].shape
            flat = np.broadcast_to(array, (*self._lead, *shape)).reshape(-1, *shape)
            self._values[name] = Open((BATCH, *(str(k) for k in range(len(shape)))), flat)

    def _one(self, name: str | None) -> tuple[str, Any]:
        """The output meant, and where a member of it stands; () for all."""
        outputs = self._recursion.netsor.outputs
        if name is None:
            if len(outputs) > 1:
                raise ProgramError(f"name one of the outputs: {', '.join(outputs)}")
            return outputs[0], ()
        family = name_of(name).partition("[")[0]
        if family not in outputs:
            raise ProgramError(f"{name} is not an output; {did_you_mean(name, outputs)}")
        return selected(self._recursion.netsor, name)

    def _parts(self, recursion: NumericRecursion) -> Iterator[Conditioned]:
        """The moments of the vectors for every draw, some draws at a time."""
        if recursion.netsor.fixed_widths:
            width = recursion.netsor.fixed_widths[0][0]
            raise NotCompiledError(
                f"vectors of width {width}, which stays finite, are random given the scores: laws "
                "given scores are not computed for them; law.sample draws them"
            )
        refuse_cells(recursion)
        numbers = sum(math.prod(value.data.shape[1:]) for value in self._values.values())
        size = max(1, min(DRAWS, numbers_at_once(NUMBERS, 2 * ARRAYS) // max(1, numbers)))
        for start in range(0, max(math.prod(self._lead), 1), size):
            given = {name: (Open(value.axes, value.data[start : start + size]), self._families[name].ranges)
                     for name, value in self._values.items()}  # fmt: skip
            draws = min(size, math.prod(self._lead) - start)
            found = Conditioned(recursion, None, Points([], np.zeros((draws, 0))), given)
            yield found
            found.forget()

    def _linear(self, name: str, read: Callable[[Conditioned], Array]) -> Array:
        """Numbers of an output for every draw."""
        if not self._is_linear(name):
            raise ProgramError(
                f"{name} is not linear in the vectors, and not Gaussian given the scores; law.sample draws it"
            )
        values = np.concatenate([read(found) for found in self._parts(self._recursion)])
        return values.reshape((*self._lead, *values.shape[1:]))

    @budgeted
    def mean(self, name: str | None = None) -> Array:
        """Conditional mean.

        Shapes    (*draws, *members), (*draws) for a member such as 'y[0]'
        """
        name, at = self._one(name)
        return self._linear(name, lambda found: found.means(name))[(..., *at)]

    @budgeted
    def cov(self, name: str | None = None) -> Array:
        """Conditional covariance.

        Shapes    (*draws, *members, *members), (*draws) for a member
        """
        name, at = self._one(name)
        draws, members = math.prod(self._lead), math.prod(self._families[name].shape)
        what = f"the covariance of {name} for each of {draws} draws of scores"
        need(2 * draws * members**2, what, "give fewer draws at a time")
        return self._linear(name, lambda found: found.covariances(name, name))[(..., *at, *at)]

    @budgeted
    def expectation(self, psi: str | Expr, *, with_error: bool = False) -> Any:
        """E[psi(Z) | p-ring] of a function of vectors and scores, such as 'tanh(y[0])**2': Theorem 1's limit.

        Shapes    (*draws, *free indices of psi)
        Source    Sakai et al. 2025, Theorem 1
        """
        recursion, name = self._extended(psi)
        pairs = [(found.means(name), found.average(name).estimate.error) for found in self._parts(recursion)]
        data, error = np.concatenate([means for means, _ in pairs]), max(np.max(e, initial=0.0) for _, e in pairs)
        data = data.reshape((*self._lead, *data.shape[1:]))
        result = data if data.shape else float(data)
        return (result, float(error)) if with_error else result
