"""Rules for numbers: declarations are finite, of the right shape and semidefinite; masks leave something unmasked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import ProgramError, Span
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Affine, Call, Constant, Expr, Number, Reduction, Variable, fold, is_call, walk
from tensorprog.language.linalg import unit_roundoff
from tensorprog.language.records import ConstantDef, Family, Initial, Nonlin, Table
from tensorprog.language.schedule import Loop
from tensorprog.language.substitute import substitute
from tensorprog.language.validity.expressions import Checker, constants_and_indices, is_closed

MAX_TABLE = 10**8  # entries of a constant given by an expression
ASYMMETRY, INDEFINITE = 1e-10, 1e-8  # allowed whatever the precision of a covariance, relative to its largest entry
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used


def check_values(
    checker: Checker, value: Expr | Table, indices: Sequence[str], what: str, span: Span, sign: bool = False
) -> None:
    """A table has a value for each value of its indices, and all are finite; with `sign`, not negative either."""
    shape = tuple(stop - start for start, stop in checker.index_ranges(indices))
    if isinstance(value, Table) and value.shape != shape:
        asked = f"its indices [{','.join(indices)}] ask for {shape}" if indices else "it has no indices"
        checker.error(f"{what} has shape {value.shape}, but {asked}", span)
    elif isinstance(value, Table) and not np.isfinite(value.array).all():
        checker.error(f"{what} has entries that are not finite", span)
    elif isinstance(value, Expr) and not checker.doubtful(value) and is_closed(checker, value, indices, what, span):
        values = evaluated(checker, value, indices, what, span)
        finite = values is None or bool(np.isfinite(values).all())
        if values is not None and sign and not (finite and (values >= 0).all()):
            checker.error(f"{what} must be finite and not negative", span, "a variance is the square of a scale")
        elif not finite:
            checker.error(f"{what} is not finite for some indices", span)


def check_constant(checker: Checker, constant: ConstantDef) -> None:
    """Value of one constant."""
    what, value = f"constant {constant.name}", constant.value
    if isinstance(value, int | float):
        if not math.isfinite(value):
            checker.error(f"{what} must be a finite number", constant.span)
        return
    used = {node.name for node in walk(value) if isinstance(node, Constant)} if isinstance(value, Expr) else set()
    if any(isinstance(other.value, Expr) for other in checker.netsor.constants if other.name in used):
        checker.error(f"{what} is made of another indexed expression", constant.span, "write it out")
    else:
        check_values(checker, value, constant.indices, what, constant.span)


def check_initial(checker: Checker, initial: Initial, family: Family) -> None:
    """Mean and covariance of an initial vector."""
    what = f"initial vector {initial.name}"
    members = math.prod(family.shape)
    check_values(checker, initial.mean, initial.indices, f"the mean of {initial.name}", initial.span)
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
        check_values(checker, initial.cov, initial.indices, f"the cov of {initial.name}", initial.span, sign=True)
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
    check_values(checker, initial.cov, (), f"the variance of {initial.name}", initial.span, sign=True)


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


# ---- masks ---------------------------------------------------------------------------------------------------------

MAX_NODES = 1000  # of a condition; larger ones are checked where they are used

Hidden = Mapping[str, tuple[list[str], Expr]]  # by family: the indices of its definition, and a condition on them


def check_masks(checker: Checker, order: Sequence[int | Loop]) -> None:
    """A softmax row whose every entry is -inf has no value: found here, before anything runs."""
    known = _definitions(checker, order)
    for statement in checker.netsor.body:
        if not isinstance(statement, Nonlin):
            continue
        check_infinity(checker, statement.expr, statement)
        check_clips(checker, statement)
        for node in walk(statement.expr):
            if not (isinstance(node, Reduction) and node.reducer in ("softmax", "logsumexp", "max")):
                continue
            hidden = _hidden(node.arg, known)
            if hidden is None:
                continue
            free = constants_and_indices(hidden) & checker.netsor.index.keys() - {*node.indices}
            axes = [*sorted(free), *node.indices]
            if checker.size(axes) > MAX_CHECKED:
                if not _seen(checker, hidden, sorted(free), node.indices):
                    what = f"{node.reducer}[{', '.join(node.indices)}]"
                    checker.error(f"{what}: its mask is too large to tell whether some row has every entry masked",
                                  statement.span.at(node.column), "leave the first or the last entry of each row "
                                  "unmasked, or the diagonal")
                continue
            masked = index_array(checker.netsor, hidden, axes).astype(bool)
            rows = masked.reshape(*masked.shape[: len(axes) - len(node.indices)], -1).all(axis=-1)
            if rows.any():
                where = np.argwhere(rows)[0]
                values = zip(axes, where, strict=False)
                row = ", ".join(f"{name}={checker.netsor.ranges[name][0] + value}" for name, value in values)
                what = f"{node.reducer}[{', '.join(node.indices)}]"
                checker.error(f"{what}: every entry is masked{' at ' + row if row else ''}",
                              statement.span.at(node.column), "leave at least one entry of each row unmasked")


def check_infinity(checker: Checker, expr: Expr, statement: Nonlin, bound: bool = False) -> None:
    """No value is inf; `bound`: whether it may stand here, as a bound that is none, of a clip or of some members."""
    if isinstance(expr, Number) and expr.value == math.inf and not bound:
        checker.error("inf is no value: only -inf is one, as a mask under softmax, logsumexp or max", statement.span,
                      "where(condition, x, -inf) masks x where the condition does not hold")
    if is_call(expr, "minimum") and Number(math.inf) in expr.children:
        checker.error(f"{expr}: inf bounds nothing, so that this is its other argument",
                      statement.span.at(expr.column), "write that alone")
        return
    for k, child in enumerate(expr.children):
        if isinstance(expr, Call):
            last = expr.atom != "where" and k >= ATOMS[expr.atom].arity
            free = last or expr.atom == "minimum" or (expr.atom == "where" and k > 0 and bound)
        else:
            free = False
        check_infinity(checker, child, statement, free)


def check_clips(checker: Checker, statement: Nonlin) -> None:
    """The lower bound of a clip is not above the upper one: numpy would give the one, a formula the other."""
    for node in walk(statement.expr):
        if not is_call(node, "clip"):
            continue
        _, low, high = node.args
        names = sorted(constants_and_indices(Call("less", (low, high))) & checker.netsor.index.keys())
        if checker.size(names) > MAX_CHECKED:
            continue
        wrong = np.argwhere(index_array(checker.netsor, Call("greater", (low, high)), names))
        if len(wrong):
            place = zip(names, wrong[0], strict=True)
            at = ", ".join(f"{name}={checker.netsor.ranges[name][0] + value}" for name, value in place)
            checker.error(f"{node}: the lower bound is above the upper one{' at ' + at if at else ''}",
                          statement.span.at(node.column), "clip(x, lower, upper)")


def _seen(checker: Checker, hidden: Expr, free: Sequence[str], reduced: Sequence[str]) -> bool:
    """Whether one entry of each row is seen: the first, the last, or that at the row's own place."""
    ranges = checker.netsor.ranges
    spans = [ranges[name] for name in reduced]
    columns = [[Affine((), start) for start, _ in spans], [Affine((), stop - 1) for _, stop in spans]]
    columns += [[Affine.index(name)] for name in free if len(reduced) == 1 and ranges[name] == spans[0]]
    if checker.size(free) > MAX_CHECKED:
        return False
    rows = [index_array(checker.netsor, substitute(hidden, dict(zip(reduced, column, strict=True))), free)
            for column in columns]  # fmt: skip
    return bool((np.min(rows, axis=0) == 0).all())


def _flat(order: Sequence[int | Loop]) -> Iterator[int]:
    for entry in order:
        if isinstance(entry, Loop):
            yield from _flat(entry.body)
        else:
            yield entry


def _hidden(expr: Expr, known: Hidden) -> Expr | None:
    """Condition (1 where true) under which an expression is -inf because of masks on indices, if there is one."""
    return fold(expr, HIDDEN, lambda node: _hidden_leaf(node, known), lambda *_: None)


def _hidden_leaf(node: Expr, known: Hidden) -> Expr | None:
    """The same for references, and for functions of constants and indices."""
    if isinstance(node, Variable):
        return _hidden_at(node, known)
    if isinstance(node, Number):
        return Number(1) if node.value == -math.inf else None
    if not isinstance(node, Call) or node.atom == "where" or any(isinstance(n, Variable) for n in walk(node)):
        return None
    infinite = any(is_call(n, "log", "divide", "power") for n in walk(node))
    infinite = infinite or any(isinstance(n, Number) and math.isinf(n.value) for n in walk(node))
    return Call("equal", (node, Number(-math.inf))) if infinite else None


def _either(_: Expr, *parts: Expr | None) -> Expr | None:
    found = dict.fromkeys(part for part in parts if part is not None)
    return reduce(lambda a, b: Call("maximum", (a, b)), found) if found else None


def _both(_: Expr, first: Expr | None, second: Expr | None) -> Expr | None:
    return None if first is None or second is None else Call("minimum", (first, second))


def _chosen(node: Call, _: Expr | None, yes: Expr | None, no: Expr | None) -> Expr | None:
    if (yes is None and no is None) or any(isinstance(inner, Variable) for inner in walk(node.args[0])):
        return None
    return Call("where", (node.args[0], Number(0) if yes is None else yes, Number(0) if no is None else no))


HIDDEN: dict[str, Callable[..., Expr | None]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "minimum"), _either), "maximum": _both,
    "where": _chosen,
}


def _hidden_at(reference: Variable, known: Hidden) -> Expr | None:
    """The same for a reference to a Nonlin, in the reference's indices."""
    if reference.name not in known:
        return None
    own, found = known[reference.name]
    return substitute(found, dict(zip(own, reference.slots, strict=True)))


def _definitions(checker: Checker, order: Sequence[int | Loop]) -> Hidden:
    """The same for each family with one definition; of what recurs nothing is known."""
    count = Counter(statement.target.name for statement in checker.netsor.body)
    known: dict[str, tuple[list[str], Expr]] = {}
    for position in _flat(order):
        statement = checker.netsor.body[position]
        own = [slot.bare or "" for slot in statement.target.slots]
        if not isinstance(statement, Nonlin) or count[statement.target.name] > 1:
            continue
        if any(checker.netsor.index[name].boundary for name in own if name):
            continue
        found = _hidden(statement.expr, known)
        nodes = [] if found is None else list(islice(walk(found), MAX_NODES))
        if found is not None and len(nodes) < MAX_NODES and not any(isinstance(node, Reduction) for node in nodes):
            known[statement.target.name] = own, found
    return known
