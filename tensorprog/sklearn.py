"""A network's limit as a kernel of scikit-learn, for Gaussian processes and every estimator that takes kernels.

Needs scikit-learn, the extra `sklearn`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import MemoryLimitError, ProgramError, WrongTypeError, fail, how_to_install
from tensorprog.program import Program

if find_spec("sklearn") is None:
    raise fail("scikit-learn is not installed, and kernels for it need it", fix=how_to_install("sklearn"))

from sklearn.gaussian_process.kernels import Hyperparameter, Kernel

__all__ = ["ProgramKernel"]

Array = NDArray[np.float64]

ROWS = 128  # inputs of one program where only the diagonal is wanted
STEP = 1e-4  # of the logarithm of a constant, on either side


class ProgramKernel(Kernel):  # type: ignore[misc]
    """The covariance of a network's outputs at infinite width, as a function of two inputs.

    `program(X, **constants)` returns the program whose inputs are the rows of X.  Its output, the first one or the
    one that `output` names, has one member for each row.  Constants named in `bounds`, {"w": (0.1, 10)}, are
    hyperparameters: they are positive, and fitting an estimator moves them; all others stay as they are.

    It adds, multiplies, clones and pickles like kernels of scikit-learn; `set_params(w=3.0)` moves a constant.  It
    computes the covariance of all rows together, so that evaluating it on X and Y costs (len(X) + len(Y))**2 entries;
    where they do not fit into `max_memory`, halves of the inputs are taken with each other, and so on.

    Shapes    X (N, ..), Y (M, ..), such as N vectors or N images -> (N, M); with `eval_gradient` also
              (N, N, hyperparameters), in their logarithms
    Accuracy  that of `Law.cov`; gradients are central differences
    Raises    ProgramError where the limit is no kernel: outputs have a mean, or an entry depends on other inputs;
              MemoryLimitError where two inputs take more than `max_memory`
    """

    def __init__(
        self,
        program: Callable[..., Program],
        constants: Mapping[str, float] | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        output: str | None = None,
        max_memory: str | int = "1GiB",
    ) -> None:
        self.program = program
        self.constants = constants
        self.bounds_of = bounds
        self.output = output
        self.max_memory = max_memory

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments that the kernel was made with, by name."""
        known = {"program": self.program, "constants": self.constants, "bounds": self.bounds_of}
        return known | {"output": self.output, "max_memory": self.max_memory}

    def set_params(self, **params: Any) -> ProgramKernel:
        """Replace arguments, or constants, by name."""
        constants = params.pop("constants", self.constants)
        moved = {name: params.pop(name) for name in constants or {} if name in params}
        constants = {**constants, **moved} if moved else constants
        self.__init__(**{**self.get_params(), "constants": constants, **params})  # type: ignore[misc]
        return self

    # -- hyperparameters

    @property
    def hyperparameters(self) -> list[Any]:
        """One for each constant with bounds, in alphabetical order."""
        for name, (low, high) in (self.bounds_of or {}).items():
            if not 0 < low <= (self.constants or {}).get(name, -1) <= high < np.inf:
                raise ProgramError(f"{name} must be a constant within its bounds, {low:g} to {high:g}, and positive")
        return [Hyperparameter(name, "numeric", bounds) for name, bounds in sorted((self.bounds_of or {}).items())]

    @property
    def theta(self) -> Array:
        """Logarithms of the hyperparameters."""
        return np.log([(self.constants or {})[parameter.name] for parameter in self.hyperparameters])

    @theta.setter
    def theta(self, theta: Any) -> None:
        """Move the constants, within their bounds."""
        moved = zip(self.hyperparameters, theta, strict=True)
        found = {own.name: float(np.clip(np.exp(value), *own.bounds.ravel())) for own, value in moved}
        self.constants = {**(self.constants or {}), **found}

    # -- values

    def __call__(self, X: Any, Y: Any = None, eval_gradient: bool = False) -> Any:
        """The kernel of the inputs X against Y, or against each other."""
        rows = _rows(X)
        if not eval_gradient:
            return self._between(rows, rows if Y is None else _rows(Y), {})
        if Y is not None:
            raise ValueError("the gradient can be evaluated only if Y is None")
        gradient = np.empty((len(rows), len(rows), len(self.hyperparameters)))
        for k, parameter in enumerate(self.hyperparameters):
            value = (self.constants or {})[parameter.name]
            up, down = (self._between(rows, rows, {parameter.name: value * np.exp(s)}) for s in (STEP, -STEP))
            gradient[:, :, k] = (up - down) / (2 * STEP)
        return self._between(rows, rows, {}), gradient

    def diag(self, X: Any) -> Array:
        """The variances of the outputs, without the covariances of most pairs."""
        rows = _rows(X)
        parts = [rows[start : start + ROWS] for start in range(0, len(rows), ROWS)]
        return np.concatenate([np.zeros(0), *(np.diagonal(self._between(part, part, {})) for part in parts)])

    def is_stationary(self) -> bool:
        """No: networks see more than differences of inputs."""
        return False

    def __repr__(self) -> str:
        name = getattr(self.program, "__name__", type(self.program).__name__)
        given = "".join(f", {key}={value:.3g}" for key, value in (self.constants or {}).items())
        return f"ProgramKernel({name}{given})"

    def _between(self, rows: Array, others: Array, moved: Mapping[str, float]) -> Array:
        """Covariances of inputs with others, or with themselves: of all together, or of halves where that is much."""
        same = rows is others
        try:
            joint = self._joint(rows if same else np.concatenate([rows, others]), moved)
            return joint[: len(rows), len(joint) - len(others) :]
        except MemoryLimitError:
            if len(rows) < 2 and len(others) < 2:
                raise
        first, second = np.array_split(rows, 2)
        if same:
            corner = self._between(first, second, moved)
            ends = (self._between(half, half, moved) for half in (first, second))
            return np.block([[next(ends), corner], [corner.T, next(ends)]])
        parts = [half for half in (first, second) if len(half)]
        halves = [half for half in np.array_split(others, 2) if len(half)]
        return np.block([[self._between(part, half, moved) for half in halves] for part in parts])

    def _joint(self, rows: Array, moved: Mapping[str, float]) -> Array:
        """The covariance of all rows, which must be the same for a pair of them by itself."""
        value, error = self._covariance(rows, moved)
        if len(rows) > 2 and not moved:
            ends = [0, len(rows) - 1]
            alone, rounding = self._covariance(rows[ends], moved)
            allowed = 4 * (error + rounding) + 1e-9 * np.abs(alone).max()
            if np.abs(value[np.ix_(ends, ends)] - alone).max() > allowed:
                raise ProgramError(
                    "this is not a kernel: the covariance of two outputs depends on the other inputs, "
                    "as it does behind batch normalisation"
                )
        return value

    def _covariance(self, rows: Array, moved: Mapping[str, float]) -> tuple[Array, float]:
        """The covariance and the largest error of its entries."""
        made = self.program(rows, **{**(self.constants or {}), **moved}) if callable(self.program) else None
        if not isinstance(made, Program):
            raise WrongTypeError("program must be a function that takes inputs and constants and returns a Program")
        law = made.limit(max_memory=self.max_memory)
        output = self.output or law.outputs[0]
        mean = np.asarray(law.mean(output), dtype=np.float64)
        if mean.shape != (len(rows),):
            raise ProgramError(
                f"{output} has shape {mean.shape}, and a kernel needs one member for each of {len(rows)} inputs"
            )
        value, error = law.cov(output, with_error=True)
        scale = float(np.sqrt(np.abs(np.diagonal(value)).max(initial=0.0)))
        if np.abs(mean).max(initial=0.0) > 1e-9 * scale:
            raise ProgramError(
                f"{output} has the mean {mean[np.abs(mean).argmax()]:.3g}, and Gaussian processes of "
                "scikit-learn have mean zero: read the output through a weight of its own, which has"
            )
        return np.array(value, dtype=np.float64), float(np.max(error, initial=0.0))


def _rows(X: Any) -> Array:
    """Inputs one after the other, each an array of numbers."""
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim < 2:
        raise ValueError(f"inputs are rows of a matrix or of an array of more axes, and these have shape {rows.shape}")
    return rows
