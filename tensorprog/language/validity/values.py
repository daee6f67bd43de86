"""The numbers behind declarations and masks: finite, of the right shape, and for covariances semidefinite."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.errors import ProgramError, Span
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Constant, Expr, walk
from tensorprog.language.ir import ConstantDef, Family, Initial, Table
from tensorprog.language.linalg import unit_roundoff
from tensorprog.language.validity.checker import Checker, constants_and_indices
from tensorprog.language.validity.expressions import is_closed

MAX_TABLE = 10**8  # entries of a constant given by an expression
ASYMMETRY, INDEFINITE = 1e-10, 1e-8  # allowed whatever the precision of a covariance, relative to its largest entry
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used


def check_constant(checker: Checker, constant: ConstantDef) -> None:
    """Value of one constant."""
    what = f"constant {constant.name}"
    if isinstance(constant.value, Table):
        shape = tuple(stop - start for start, stop in checker.index_ranges(constant.indices))
        if constant.value.shape != shape:
            checker.error(f"{what} has shape {constant.value.shape}, but its indices "
                          f"[{','.join(constant.indices)}] ask for {shape}", constant.span)
        elif not np.isfinite(constant.value.array).all():
            checker.error(f"{what} has entries that are not finite", constant.span)
    elif isinstance(constant.value, Expr):
        if not is_closed(checker, constant.value, constant.indices, what, constant.span):
            return
        if any(isinstance(checker.netsor.constant[node.name].value, Expr)
               for node in walk(constant.value) if isinstance(node, Constant)):
            checker.error(f"{what} is made of another indexed expression", constant.span, "write it out")
            return
        values = evaluated(checker, constant.value, constant.indices, what, constant.span)
        if values is not None and not np.isfinite(values).all():
            checker.error(f"{what} is not finite for some indices", constant.span)
    elif not math.isfinite(constant.value):
        checker.error(f"{what} must be a finite number", constant.span)


def check_initial(checker: Checker, initial: Initial, family: Family) -> None:
    """Mean and covariance of an initial vector."""
    what = f"initial vector {initial.name}"
    members = math.prod(family.shape)
    if isinstance(initial.mean, Table):
        if initial.mean.shape != family.shape:
            checker.error(f"{what}: mean has shape {initial.mean.shape}, not {family.shape}", initial.span)
        elif not np.isfinite(initial.mean.array).all():
            checker.error(f"{what}: mean has entries that are not finite", initial.span)
    elif not checker.doubtful(initial.mean) and is_closed(
            checker, initial.mean, initial.indices, f"the mean of {initial.name}", initial.span):
        values = evaluated(checker, initial.mean, initial.indices, f"the mean of {initial.name}", initial.span)
        if values is not None and not np.isfinite(values).all():
            checker.error(f"{what}: mean is not finite", initial.span)
    if initial.data is not None:
        check_data(checker, initial, members)
        return
    if isinstance(initial.cov, Table):
        if initial.cov.shape not in ((members, members), (*family.shape, *family.shape)):
            checker.error(f"{what}: cov has shape {initial.cov.shape}, not {(members, members)}", initial.span)
        else:
            check_semidefinite(checker, initial.cov.array.reshape(members, members), what, initial.span)
        return
    if checker.doubtful(initial.cov) or not is_closed(
            checker, initial.cov, initial.indices, f"the cov of {initial.name}", initial.span, copies=True):
        return
    copies = {name[:-1] for name in constants_and_indices(initial.cov, stripped=False) if name.endswith("_")}
    joint = [name for name in initial.indices if name in copies]
    size = checker.size(joint)
    if size > 20_000:
        checker.error(f"{what}: a joint covariance of {size} members is too large", initial.span,
                      "let fewer indices appear with a second copy")
    elif not joint:
        check_sign(checker, initial.cov, initial.indices, f"the cov of {initial.name}", initial.span)
    else:
        rest = [name for name in initial.indices if name not in copies]
        axes = [*rest, *joint, *(f"{name}_" for name in joint)]
        values = evaluated(checker, initial.cov, axes, f"the cov of {initial.name}", initial.span)
        if values is not None and size <= 2000:
            blocks = values.reshape(-1, size, size)
            for block in blocks[: max(1, 10**9 // size**3)]:
                before = len(checker.problems)
                check_semidefinite(checker, block, what, initial.span)
                if len(checker.problems) > before:
                    break


def check_data(checker: Checker, initial: Initial, members: int) -> None:
    """Input vectors and the variance that goes with them."""
    what = f"initial vector {initial.name}"
    assert initial.data is not None
    if len(initial.data.shape) != 2 or initial.data.shape[0] != members or not initial.data.shape[1]:
        checker.error(f"{what}: data has shape {initial.data.shape}, not ({members}, d)", initial.span,
                      "one row per member, the first index slowest")
    elif not np.isfinite(initial.data.array).all():
        row = int(np.argmin(np.isfinite(initial.data.array).all(axis=1)))
        checker.error(f"{what}: data has entries that are not finite, the first in row {row}", initial.span,
                      "rows are counted from 0")
    if isinstance(initial.cov, Table):
        checker.error(f"{what}: the variance that goes with data is one number", initial.span, "variance: 1")
        return
    what = f"the variance of {initial.name}"
    if not checker.doubtful(initial.cov) and is_closed(checker, initial.cov, (), what, initial.span):
        check_sign(checker, initial.cov, (), what, initial.span)


def check_semidefinite(checker: Checker, matrix: NDArray[np.float64], what: str, span: Span) -> None:
    """A covariance must be finite, symmetric and positive semidefinite, up to the rounding that its entries show.

    Entries rounded to a relative u, after an operation or two, make a matrix E of errors with |E_ij| at most
    2 u sqrt(a_ii a_jj): its eigenvalues are at most 2 u times the trace, which is at most m times the largest of a.
    """
    if not np.isfinite(matrix).all():
        checker.error(f"{what}: cov has entries that are not finite", span)
        return
    scale = np.abs(matrix).max(initial=1e-300)
    skew = np.abs(matrix - matrix.T).max()
    if skew > ASYMMETRY * scale and skew > 4 * unit_roundoff(matrix) * scale:
        checker.error(f"{what}: cov is not symmetric", span, "it must not change when i and i_ swap")
        return
    try:  # much quicker than eigenvalues, which are needed for the message only
        np.linalg.cholesky(matrix + 0.5 * INDEFINITE * scale * np.eye(len(matrix)))
        return
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
    if lowest < -max(INDEFINITE * scale, 2 * unit_roundoff(matrix) * float(np.trace(matrix))):
        checker.error(f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g})", span,
                      "save it in double precision, or give the vectors themselves: data:")


def check_sign(checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span) -> None:
    """A variance must be finite and not negative for all its indices."""
    values = evaluated(checker, expr, indices, what, span)
    if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
        checker.error(f"{what} must be finite and not negative", span, "a variance is the square of a scale")


def evaluated(
    checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span
) -> NDArray[np.float64] | None:
    """Values of an expression over its indices; None if it is too large to look at, or has none."""
    size = checker.size(indices)
    if size > MAX_TABLE:
        checker.error(f"{what} would have more than {MAX_TABLE} values", span, "let it depend on fewer indices")
    if size > MAX_CHECKED:
        return None
    try:
        return index_array(checker.netsor, expr, indices)
    except (ProgramError, ArithmeticError, ValueError, TypeError) as error:
        checker.error(f"{what} cannot be evaluated: {error}", span)
        return None
