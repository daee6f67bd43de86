"""When a program is valid: names, indices, ranges, kinds and widths; all mistakes of a phase are reported together.

A rule is a function on the `Checker`, which collects what the rules find.  Phases follow each other as in a compiler:
names, constants, declarations and left sides, right sides, kinds and order, masks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, in_order
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    index_names,
    is_call,
    walk,
)
from tensorprog.language.linalg import unit_roundoff
from tensorprog.language.parse import constant_value
from tensorprog.language.records import (
    ConstantDef,
    Dot,
    Draft,
    Family,
    Initial,
    Kind,
    MatMul,
    Nonlin,
    Range,
    Statement,
    Table,
    Weight,
)
from tensorprog.language.schedule import schedule

__all__ = ["MAX_INDEX", "MAX_STATEMENTS", "check_declarations", "check_last", "statement_parts", "validate"]

MAX_EXPONENT = 1000
MAX_MEMBERS = 10**12  # members of one family
MAX_INDEX = 10_000_000  # values of one index
MAX_STATEMENTS = 2000
MAX_TABLE = 10**8  # entries of a constant given by an expression
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used
LARGE = 1e200  # entries of a covariance whose sums may overflow
ASYMMETRY, INDEFINITE = 1e-10, 1e-8  # allowed whatever the precision of a covariance, relative to its largest entry
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", "min", "max", *REDUCTIONS, *ATOMS}


class Checker:
    """State of one check."""

    def __init__(self, netsor: Draft, later: Collection[str] = ()) -> None:
        self.netsor = netsor
        self.later = later  # names that are to be defined further below: nothing is said of them
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.used: set[str] = set()

    def error(self, message: str, span: Span = Span(), fix: str = "") -> None:
        """Note a problem."""
        self.problems.append(Problem(message, span, fix))

    def done(self) -> None:
        """The end of a phase."""
        if self.problems:
            raise ProgramError(in_order(self.problems))

    def size(self, names: Iterable[str]) -> int:
        """Number of values of several indices together."""
        return math.prod(stop - start for start, stop in map(self.netsor.ranges.__getitem__, names))

    def index_ranges(self, names: Sequence[str]) -> tuple[Range, ...]:
        """Ranges of several indices."""
        return tuple(self.netsor.ranges[name] for name in names)

    def rules(self, names: Sequence[str]) -> tuple[str, ...]:
        """Boundary rules of several indices."""
        return tuple(self.netsor.index[name].boundary for name in names)

    @cached_property
    def widths(self) -> set[str]:
        """Names of all widths."""
        return {"n", *(name for name, *_ in self.netsor.widths), *dict(self.netsor.fixed_widths)}

    def width(self, name: str, span: Span) -> None:
        """A width where it is used: it is declared."""
        self.used.add(name)
        if name not in self.widths:
            fix = did_you_mean(name, sorted(self.widths), f"widths: {{{name}: n/2}}")
            self.error(f"{name} is not a declared width", span, fix)


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    return statement.target, *((statement.expr,) if isinstance(statement, Nonlin) else statement.references)


def is_closed(
    checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span, copies: bool = False
) -> bool:
    """Complain about anything but numbers, constants and the indices given."""
    before = len(checker.problems)
    allowed = {*indices, *(f"{name}_" for name in indices if copies)}
    for node in walk(expr):
        if isinstance(node, Variable):
            fix = did_you_mean(node.name, [*checker.netsor.constant, *allowed])
            checker.error(f"{what} must be made of constants and indices; {node.name} is neither", span, fix)
        elif isinstance(node, IndexValue) and node.name not in allowed:
            second = node.name.endswith("_") and node.name[:-1] in allowed
            checker.error(
                f"{what} may not depend on the {'second copy' if second else 'index'} {node.name}",
                span,
                f"use {node.name[:-1]}" if second else f"its indices are {', '.join(indices) or 'none'}",
            )
        elif isinstance(node, Constant):
            check_constant_use(checker, node, span, allowed)
        elif isinstance(node, Reduction):
            # a reduction would bind an index of its own; outside Nonlin there is nothing to reduce
            checker.error(
                f"{node.reducer}[...] acts over indices of a Nonlin; it cannot stand here",
                span.at(node.column),
                "write the values out, as a list or a .npy file",
            )
        elif isinstance(node, Call):
            check_call(checker, node, span)
    return len(checker.problems) == before


def check_call(checker: Checker, node: Call, span: Span) -> None:
    """Rules of single atoms: comparisons stand in conditions only, exponents are bounded."""
    if node.atom == "where" and not is_condition(node.args[0]):
        checker.error(
            "where(condition, x, y) needs a comparison as its condition", span.at(node.column), "where(j <= i, x, y)"
        )
    if node.atom in LOGICAL and not all(map(is_condition, node.args)):
        checker.error("& and | join comparisons", span.at(node.column), "(a < b) & (c < d), each one in brackets")
    if all(isinstance(p, Call | Number) or (isinstance(p, Constant) and not p.slots) for p in walk(node)):
        check_finite(checker, node, span)
    elif node.atom == "power" and isinstance(node.args[1], Number) and abs(node.args[1].value) > MAX_EXPONENT:
        checker.error(f"the exponent {node.args[1]} is too large", span.at(node.column), f"at most {MAX_EXPONENT}")
    if node.atom not in LOGICAL:
        check_numbers(checker, node.args[1 if node.atom == "where" else 0 :], node.column, span)


def check_numbers(checker: Checker, args: Iterable[Expr], column: int, span: Span) -> None:
    """What is computed with is no comparison."""
    for arg in filter(is_condition, args):
        checker.error(
            "a comparison can only be the condition of where(condition, x, y)", span.at(column), f"where({arg}, 1, 0)"
        )


def check_finite(checker: Checker, node: Call, span: Span) -> None:
    """A part made of numbers and constants must have a finite value."""
    try:
        constant_value(node, {c.name: c.value for c in checker.netsor.constants if isinstance(c.value, int | float)})
    except (ProgramError, ArithmeticError, ValueError):
        checker.error(f"{node} is not a finite number", span.at(node.column), "change its numbers or constants")


def is_bound(checker: Checker, name: str, bound: Iterable[str], span: Span) -> bool:
    """Whether an index is on the left or reduced outside; complains if not."""
    if name in bound:
        return True
    if name.endswith("_"):
        checker.error(f"{name}: second copies of indices occur in covariances only", span)
    else:
        checker.error(
            f"the index {name} is neither on the left nor reduced",
            span,
            f"put {name} on the left, or write sum[{name}](...)",
        )
    return False


def check_slots(
    checker: Checker,
    reference: Variable | Constant,
    ranges: Sequence[Range],
    rules: Sequence[str],
    bound: Iterable[str],
    span: Span,
) -> bool:
    """Whether a reference has the slots its name needs, within range; complains if not."""
    span = span.at(reference.column)
    if len(reference.slots) != len(ranges):
        checker.error(
            f"{reference.name} has {len(ranges)} {'index' if len(ranges) == 1 else 'indices'}, "
            f"{len(reference.slots)} given",
            span,
            f"{reference.name}[{', '.join('...' for _ in ranges)}]" if ranges else reference.name,
        )
        return False
    ok = True
    for slot, (start, stop), rule in zip(reference.slots, ranges, rules, strict=True):
        found = [is_bound(checker, name, bound, span) for name in slot.indices]
        if not all(found):
            ok = False
            continue
        checker.used |= set(slot.indices)
        low, high = slot.bounds(checker.netsor.ranges)
        if not rule and (low < start or high >= stop):
            checker.error(
                f"{reference.name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}",
                span,
                "shorten the index, or declare it as {size: ..., boundary: zero}, or boundary: wrap",
            )
            ok = False
    return ok


def check_constant_use(checker: Checker, node: Constant, span: Span, bound: Iterable[str]) -> None:
    """A constant where it is used: it exists, and its slots fit."""
    checker.used.add(node.name)
    definition = checker.netsor.constant.get(node.name)
    if definition is None:
        hint = did_you_mean(node.name, list(checker.netsor.constant))
        checker.error(f"{node.name} is not defined", span.at(node.column), hint)
        return
    check_slots(checker, node, checker.index_ranges(definition.indices), checker.rules(definition.indices), bound, span)


def is_condition(expr: Expr) -> bool:
    """Whether an expression is a comparison, or several joined by & and |."""
    return is_call(expr, *COMPARISONS, *LOGICAL)


def check_values(
    checker: Checker, value: Expr | Table, indices: Sequence[str], what: str, span: Span, sign: bool = False
) -> None:
    """A table has a value for each value of its indices, and all are finite; with `sign`, not negative either."""
    shape = tuple(stop - start for start, stop in checker.index_ranges(indices))
    if isinstance(value, Table) and value.shape != shape:
        asked = f"its indices [{','.join(indices)}] ask for {shape}" if indices else "it has no indices"
        checker.error(f"{what} has shape {value.shape}, but {asked}", span)
        return
    if isinstance(value, Expr) and not is_closed(checker, value, indices, what, span):
        return
    values = value.array if isinstance(value, Table) else evaluated(checker, value, indices, what, span)
    if values is not None and not np.isfinite(values).all():
        checker.error(f"{what} has entries that are not finite", span)
    elif values is not None and sign and not (values >= 0).all():
        checker.error(f"{what} must not be negative", span, "a variance is the square of a scale")


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
    if initial.grid:
        first = next(v for v in checker.netsor.initial if v.grid and v.width == initial.width)
        if first.name != initial.name:
            said = f"{what}: {first.name} is the coordinate vector of width {initial.width} already"
            checker.error(said, initial.span, f"read {first.name} instead of {initial.name}")
        return
    check_values(checker, initial.mean, initial.indices, f"the mean of {initial.name}", initial.span)
    if initial.data is not None:
        check_data(checker, initial, members)
        return
    joint, size = initial.joint, checker.size(initial.joint)
    if isinstance(initial.cov, Table):
        if initial.cov.shape not in ((members, members), (*family.shape, *family.shape)):
            checker.error(f"{what}: cov has shape {initial.cov.shape}, not {(members, members)}", initial.span)
            return
        values: NDArray[np.float64] | None = initial.cov.array
    else:
        called = f"the cov of {initial.name}"
        if not joint:
            check_values(checker, initial.cov, initial.indices, called, initial.span, sign=True)
            return
        if not is_closed(checker, initial.cov, initial.indices, called, initial.span, copies=True):
            return
        if size > 20_000:
            checker.error(
                f"{what}: a joint covariance of {size} members is too large",
                initial.span,
                "let fewer indices appear with a second copy",
            )
            return
        rest = [name for name in initial.indices if name not in joint]
        axes = [*rest, *joint, *(f"{name}_" for name in joint)]
        values = evaluated(checker, initial.cov, axes, called, initial.span)
        if size > 2000:  # looked at where it is used
            return
    if values is None:
        return
    for block in values.reshape(-1, size, size)[: max(1, 10**9 // size**3)]:
        before = len(checker.problems)
        check_semidefinite(checker, block, what, initial.span)
        if len(checker.problems) > before:
            break


def check_data(checker: Checker, initial: Initial, members: int) -> None:
    """Input vectors and the variance that goes with them."""
    what = f"initial vector {initial.name}"
    assert initial.data is not None
    if len(initial.data.shape) != 2 or initial.data.shape[0] != members or not initial.data.shape[1]:
        checker.error(
            f"{what}: data has shape {initial.data.shape}, not ({members}, d)",
            initial.span,
            "one row per member, the first index slowest",
        )
    elif not np.isfinite(initial.data.array).all():
        row = int(np.argmin(np.isfinite(initial.data.array).all(axis=1)))
        checker.error(
            f"{what}: data has entries that are not finite, the first in row {row}",
            initial.span,
            "rows are counted from 0",
        )
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
    if scale > LARGE:  # sums of entries overflow; a power of two changes no bit
        check_semidefinite(checker, matrix * 2.0**-512, what, span)
        return
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
        checker.error(
            f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g})",
            span,
            "save it in double precision, or give the vectors themselves: data:",
        )


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


def check_masks(checker: Checker, statement: Nonlin) -> None:
    """A softmax row whose every entry is masked, where the mask is written in it; others are found by running."""
    for node in walk(statement.expr):
        if not isinstance(node, Reduction) or node.reducer not in ("softmax", "logsumexp", "max"):
            continue
        for mask in walk(node.arg):
            if not is_call(mask, "where") or any(isinstance(part, Variable) for part in walk(mask.args[0])):
                continue
            condition, yes, no = mask.args
            hidden = condition if yes == Number(-math.inf) else Call("equal", (condition, Number(0)))
            place = first_place(checker, hidden, node.indices) if Number(-math.inf) in (yes, no) else None
            if place is not None:
                checker.error(
                    f"{node.reducer}[{', '.join(node.indices)}]: every entry is masked{place}",
                    statement.span.at(node.column),
                    "leave at least one entry of each row unmasked",
                )


def first_place(checker: Checker, condition: Expr, over: Sequence[str] = ()) -> str | None:
    """Where a condition on indices first holds, for all of `over`, as text; None if nowhere, or too many to look at."""
    free = sorted({name for node in walk(condition) for name in index_names(node)} - {*over})
    if checker.size([*free, *over]) > MAX_CHECKED:
        return None
    values = index_array(checker.netsor, condition, [*free, *over]).astype(bool)
    found = np.argwhere(values.reshape(*values.shape[: len(free)], -1).all(axis=-1))
    if not len(found):
        return None
    place = ", ".join(f"{name}={checker.netsor.ranges[name][0] + k}" for name, k in zip(free, found[0], strict=True))
    return f" at {place}" if place else ""


def check_infinity(checker: Checker, expr: Expr, statement: Nonlin, bound: bool = False) -> None:
    """No value is inf; `bound`: whether it may stand here, as a bound that is none, of a clip or of some members."""
    if isinstance(expr, Number) and expr.value == math.inf and not bound:
        checker.error(
            "inf is no value: only -inf is one, as a mask under softmax, logsumexp or max",
            statement.span,
            "where(condition, x, -inf) masks x where the condition does not hold",
        )
    if is_call(expr, "minimum") and Number(math.inf) in expr.children:
        checker.error(
            f"{expr}: inf bounds nothing, so that this is its other argument",
            statement.span.at(expr.column),
            "write that alone",
        )
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
        place = first_place(checker, Call("greater", (low, high)))
        if place is not None:
            checker.error(
                f"{node}: the lower bound is above the upper one{place}",
                statement.span.at(node.column),
                "clip(x, lower, upper)",
            )


# ---- declarations --------------------------------------------------------------------------------------------------


def check_names(checker: Checker) -> None:
    """Names bound once and not reserved; indices that are not empty and are declared where they are used."""
    netsor = checker.netsor
    groups: tuple[tuple[str, list[tuple[str, Span]]], ...] = (
        ("a constant", [(c.name, c.span) for c in netsor.constants]),
        ("an index", [(i.name, i.span) for i in netsor.indices]),
        ("a width", [(name, Span()) for name in (*(w[0] for w in netsor.widths), *dict(netsor.fixed_widths))]),
        ("an initial vector", [(v.name, v.span) for v in netsor.initial]),
        ("a weight", [(w.name, w.span) for w in netsor.weights]),
    )
    seen: dict[str, str] = {}
    for kind, names in groups:
        for name, span in names:
            check_name(checker, name, span, seen, kind)
            seen.setdefault(name, kind)
    for statement in netsor.body:
        check_name(checker, statement.target.name, statement.span, seen, "this statement")
    for index in netsor.indices:
        size = index.stop - index.start
        if not 1 <= size <= MAX_INDEX:
            beyond = f"has {size} values, more than the {MAX_INDEX} allowed" if size > 0 else "is empty"
            checker.error(f"index {index.name} {beyond}", index.span, "choose another size")
    known = [index.name for index in netsor.indices]
    declarations: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
    for declaration in declarations:
        checker.used |= {*declaration.indices}
        listed = f"{declaration.name}[{','.join(declaration.indices)}]"
        for name in declaration.indices:
            if name not in known:
                said = f"{name} in {listed} is not a declared index"
                checker.error(said, declaration.span, did_you_mean(name, known))
        if len(set(declaration.indices)) != len(declaration.indices):
            fix = f"two indices with the same range: {declaration.name}[i,j]"
            checker.error(f"{declaration.name} carries an index twice", declaration.span, fix)


def check_name(checker: Checker, name: str, span: Span, seen: Mapping[str, str], kind: str) -> None:
    """A name that a program may give, and has not given yet."""
    if name in seen:
        checker.error(f"{name} is bound twice: as {seen[name]} and as {kind}", span, "give one of them another name")
    elif not name.isidentifier():
        checker.error(f"{name!r} is not a name", span, "use letters, digits and _, beginning with a letter")
    elif name in RESERVED or name in ATOMS:  # those declared since are no less
        checker.error(f"{name} is reserved by the language", span, f"call it {name}1, say")
    elif name.endswith("_"):
        checker.error(f"{name}: a trailing underscore is reserved for second copies of indices", span, name.rstrip("_"))


def declared_families(checker: Checker, values: bool = True) -> dict[str, Family]:
    """Families of the initial vectors and weights; their numbers are checked if `values`."""
    families: dict[str, Family] = {}
    entries: tuple[Initial | Weight, ...] = (*checker.netsor.initial, *checker.netsor.weights)
    for entry in entries:
        for width in (entry.width,) if isinstance(entry, Initial) else entry.shape:
            checker.width(width, entry.span)
        kind: Kind = "vector" if isinstance(entry, Initial) else "weight"
        width = entry.width if isinstance(entry, Initial) else ""
        family = Family(entry.name, kind, checker.index_ranges(entry.indices), width, (), checker.rules(entry.indices))
        families[entry.name] = family
        if math.prod(family.shape) > MAX_MEMBERS:
            checker.error(
                f"{family.name} has more than {MAX_MEMBERS:.0e} members",
                entry.span,
                "choose smaller sizes for its indices",
            )
        elif not values:
            continue
        elif isinstance(entry, Initial):
            check_initial(checker, entry, family)
        else:
            what = f"the variance of {entry.name}"
            check_values(checker, entry.variance, entry.indices, what, entry.span, sign=True)
    return families


# ---- statements ----------------------------------------------------------------------------------------------------


def defined_families(checker: Checker, whole: bool = True) -> dict[str, Family]:
    """Families that statements define; `whole` asks for every member."""
    groups: dict[str, list[int]] = {}
    for position, statement in enumerate(checker.netsor.body):
        groups.setdefault(statement.target.name, []).append(position)
    families = {}
    for name, places in groups.items():
        statements = [checker.netsor.body[position] for position in places]
        counts = {len(s.target.slots) for s in statements}
        if len(counts) > 1:
            said = f"{name} is defined with {' and with '.join(map(str, sorted(counts)))} indices"
            checker.error(said, statements[-1].span, "one name has one list of indices")
            continue
        before = len(checker.problems)
        for statement in statements:
            check_left_side(checker, statement)
        if len(checker.problems) == before:
            families[name] = joined(checker, name, places, statements, whole)
    return families


def check_left_side(checker: Checker, statement: Statement) -> None:
    """A left side consists of different plain indices and whole numbers."""
    seen = set()
    for slot in statement.target.slots:
        if slot.bare is None and slot.terms:
            checker.error(
                f"{statement.target}: the left side takes plain indices or whole numbers, not {slot}",
                statement.span,
                "shift the index on the right side instead",
            )
        if slot.bare in seen and slot.bare is not None:
            checker.error(f"{statement.target}: index {slot.bare} stands twice on the left", statement.span)
        if slot.bare is not None and slot.bare.endswith("_"):
            checker.error(f"{statement.target}: {slot.bare} is reserved for second copies of indices", statement.span)
        seen.add(slot.bare)


def joined(
    checker: Checker, name: str, positions: Sequence[int], statements: Sequence[Statement], whole: bool = True
) -> Family:
    """The family that one or several statements define together: no overlaps and no gaps."""
    boxes = []
    for statement in statements:
        boxes.append([slot.span(checker.netsor.ranges) for slot in statement.target.slots])
    ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
    before = len(checker.problems)
    edges = np.array(boxes, dtype=np.int64).reshape(len(boxes), len(ranges), 2)
    for later in range(1, len(boxes)):
        own, before_it = edges[later], edges[:later]
        overlaps = np.all((before_it[..., 0] < own[:, 1]) & (own[:, 0] < before_it[..., 1]), axis=1)
        if overlaps.any():
            second, first = statements[later], statements[int(overlaps.argmax())].target
            checker.error(
                f"{name} is bound twice: {second.target} overlaps {first} of an earlier statement",
                second.span,
                "give the parts disjoint ranges, or the statement a new name",
            )
    total = sum(math.prod(b - a for a, b in box) for box in boxes)
    if whole and len(checker.problems) == before and total < math.prod(b - a for a, b in ranges):
        whole_box = " x ".join(f"{a}..{b - 1}" for a, b in ranges)
        checker.error(
            f"the definitions of {name} leave a gap in {whole_box}",
            statements[-1].span,
            "define every member of the family",
        )
    if math.prod(b - a for a, b in ranges) > MAX_MEMBERS:
        checker.error(f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
    rules = [
        next((checker.netsor.boundary(s.target.slots[k]) for s in statements if s.target.slots[k].bare), "")
        for k in range(len(ranges))
    ]
    return Family(name, "scalar", ranges, "", tuple(positions), tuple(rules))


def check_right_side(checker: Checker, statement: Statement, families: Mapping[str, Family]) -> None:
    """Names, slots and roles on the right side of a statement."""
    left = {name for slot in statement.target.slots for name in slot.indices}
    checker.used |= left
    if isinstance(statement, Nonlin):
        check_expression(checker, statement.expr, left, statement, families)
        if statement.width:
            checker.width(statement.width, statement.span)
        return
    parts = (
        ((statement.weight, True), (statement.vector, False))
        if isinstance(statement, MatMul)
        else ((statement.left, False), (statement.right, False))
    )
    for reference, is_weight in parts:
        if not is_reference(checker, reference, left, statement, families, is_weight):
            continue
        kind = families[reference.name].kind
        if is_weight and kind != "weight":
            checker.error(
                f"{reference.name} is not a weight",
                statement.span.at(reference.column),
                f"declare it under `weights:`, or swap the arguments of {statement.target.name}",
            )
        if not is_weight and kind == "weight":
            checker.error(
                f"{reference.name} is a weight; a vector is needed here",
                statement.span.at(reference.column),
                f"MatMul({reference}, x) makes a vector of it",
            )


def check_expression(
    checker: Checker, expr: Expr, bound: set[str], statement: Statement, families: Mapping[str, Family]
) -> None:
    """Names and indices in the argument of a Nonlin; `bound` are the indices in force."""
    span = statement.span
    if isinstance(expr, Variable):
        if is_reference(checker, expr, bound, statement, families) and families[expr.name].kind == "weight":
            checker.error(
                f"{expr.name} is a weight; weights enter through MatMul only",
                span.at(expr.column),
                f"g = MatMul({expr}, x) in a statement of its own",
            )
    elif isinstance(expr, Constant):
        check_constant_use(checker, expr, span, bound)
    elif isinstance(expr, IndexValue):
        is_bound(checker, expr.name, bound, span)
    elif isinstance(expr, Reduction):
        for name in expr.indices:
            checker.used.add(name)
            if name in bound and expr.removes:
                checker.error(
                    f"{expr.reducer}[{name}] hides the index {name}, which is bound outside already",
                    span.at(expr.column),
                    "use another index with the same range",
                )
            if not expr.removes and name not in bound:
                checker.error(
                    f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed outside",
                    span.at(expr.column),
                    f"sum[{name}]({expr.reducer}[{name}](...) * ...)",
                )
        check_numbers(checker, [expr.arg], expr.column, span)
        check_expression(checker, expr.arg, bound | set(expr.indices), statement, families)
    elif isinstance(expr, Call):
        for arg in expr.args:
            check_expression(checker, arg, bound, statement, families)
        check_call(checker, expr, span)
    elif isinstance(expr, Number) and math.isnan(expr.value):
        checker.error("nan is not a number", span)


def is_reference(
    checker: Checker,
    reference: Variable,
    bound: set[str],
    statement: Statement,
    families: Mapping[str, Family],
    weight: bool = False,
) -> bool:
    """Whether a name refers to a known family, with slots that fit; complains if not."""
    checker.used.add(reference.name)
    family = families.get(reference.name)
    if reference.name in checker.later:
        return False
    if family is not None:
        return check_slots(checker, reference, family.ranges, family.boundaries, bound, statement.span)
    place = statement.span.at(reference.column)
    if reference.name == "n":
        fix = "limits need programs whose text does not depend on the width"
        checker.error("n may occur only as scale=1/n in Dot", place, fix)
        return False
    kinds = [name for name, family in families.items() if (family.kind == "weight") == weight]
    known = kinds if weight else [*kinds, *checker.netsor.constant, *checker.netsor.index]
    listed = f"[{','.join(map(str, reference.slots))}]" if reference.slots else ""
    declare = f"`{reference.name}{listed}: {'1` under weights:' if weight else '{cov: 1}` under initial:'}"
    checker.error(f"{reference.name} is not defined", place, did_you_mean(reference.name, known, declare))
    return False


# ---- kinds and widths ----------------------------------------------------------------------------------------------


def with_kinds(checker: Checker, families: Mapping[str, Family]) -> dict[str, Family]:
    """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
    body = checker.netsor.body
    kind: dict[str, Kind] = {name: f.kind for name, f in families.items() if not f.statements}
    width = {name: f.width for name, f in families.items() if not f.statements}
    unsure = set(checker.later) - kind.keys()
    for statement in body if unsure else ():  # in the order of the text: what follows from unsure is unsure
        if isinstance(statement, Nonlin) and not unsure.isdisjoint(ref.name for ref in statement.inputs):
            unsure.add(statement.target.name)
    for _ in range(len(body) + 1):
        before = dict(kind), dict(width)
        for statement in body:
            name = statement.target.name
            if isinstance(statement, MatMul):
                weight = checker.netsor.weight.get(statement.weight.name)
                if weight is not None:
                    kind[name], width[name] = "vector", statement.sides(weight)[0]
            elif isinstance(statement, Dot):
                kind.setdefault(name, "scalar")
            else:
                spread_kind(statement, kind, width, unsure)
        if before == (kind, width):
            break
    for statement in body:
        if all(reference.name in kind for reference in statement.inputs) and statement.target.name in kind:
            check_kinds(checker, statement, kind, width)
    return {
        name: replace(family, kind=kind.get(name, "scalar"), width=width.get(name, ""))
        for name, family in families.items()
    }


def spread_kind(statement: Nonlin, kind: dict[str, Kind], width: dict[str, str], unsure: set[str]) -> None:
    """Kind and width that a Nonlin inherits from its inputs."""
    name = statement.target.name
    names = [reference.name for reference in statement.inputs]
    vectors = [other for other in names if kind.get(other) == "vector"]
    if vectors:
        kind[name] = "vector"
        width.setdefault(name, statement.width or next((width[v] for v in vectors if v in width), "n"))
    elif not names:
        kind[name] = "vector"  # a constant vector
        width.setdefault(name, statement.width or "n")
    elif unsure.isdisjoint(names):
        kind.setdefault(name, "scalar")


def check_kinds(checker: Checker, statement: Statement, kind: Mapping[str, Kind], width: Mapping[str, str]) -> None:
    """Kinds and widths of one statement against each other."""
    span = statement.span
    name = statement.target.name
    if isinstance(statement, MatMul):
        weight, vector = checker.netsor.weight[statement.weight.name], statement.vector.name
        rows, columns = statement.sides(weight)
        if kind[vector] != "vector":
            checker.error(
                f"{vector} is a scalar; MatMul needs a vector",
                span.at(statement.vector.column),
                "a scalar enters vectors inside a Nonlin",
            )
        elif width[vector] != columns:
            shape = (width[vector], rows) if statement.transposed else (rows, width[vector])
            turned = replace(statement, transposed=not statement.transposed)
            checker.error(
                f"{statement.matrix} has shape [{rows}, {columns}], but {vector} has width {width[vector]}",
                span.at(statement.vector.column),
                (f"{turned}, or " if width[vector] == rows else "") + f"shape: [{', '.join(shape)}] for {weight.name}",
            )
        if width.get(name) != rows:
            checker.error(f"{name} has definitions of different widths", span)
    elif isinstance(statement, Dot):
        for operand in (statement.left, statement.right):
            if kind[operand.name] != "vector":
                checker.error(
                    f"{operand.name} is a scalar; Dot needs two vectors",
                    span.at(operand.column),
                    "multiply scalars inside a Nonlin",
                )
        left, right = width.get(statement.left.name), width.get(statement.right.name)
        if left and right and left != right:
            checker.error(
                f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})",
                span,
                "both operands need the same width",
            )
        if kind[name] == "vector":
            checker.error(f"{name} is a vector in one definition and a Dot in another", span)
    else:
        vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
        for reference in vectors:
            if width[reference.name] != width[name]:
                other = width[reference.name]
                checker.error(
                    f"{name} has width {width[name]}, but {reference.name} has width {other}",
                    span.at(reference.column),
                    "coordinatewise functions need equal widths",
                )
        if statement.width and not vectors and statement.inputs and kind[name] == "scalar":
            checker.error(f"{name} is a scalar; it has no width", span)


# ---- outputs -------------------------------------------------------------------------------------------------------


def check_outputs(checker: Checker, families: Mapping[str, Family]) -> None:
    """Outputs exist, and each is named once."""
    netsor = checker.netsor
    if not netsor.outputs:
        checker.error("the program has no outputs", Span(), "outputs: [y] in a file, P.outputs(y) in Python")
    checker.used |= {*netsor.outputs}
    for name in netsor.outputs:
        if name not in families or families[name].kind == "weight":
            known = list(dict.fromkeys(statement.target.name for statement in netsor.body))
            checker.error(f"the output {name} is not defined", Span(), did_you_mean(name, known))
    if len(set(netsor.outputs)) != len(netsor.outputs):
        checker.error("an output is named twice", Span())


def note_unused(checker: Checker) -> None:
    """Warn about declarations and statements that nothing uses."""
    for statement in checker.netsor.body:
        checker.used |= {reference.name for reference in statement.inputs}
        if isinstance(statement, MatMul):
            checker.used.add(statement.weight.name)
        for part in statement_parts(statement):
            for node in walk(part):
                if isinstance(node, Constant | Variable):
                    checker.used.update(*(_words(slot.text) for slot in node.slots))
    for text in (
        *(index.text for index in checker.netsor.indices),
        *(text for _, _, text in checker.netsor.widths),
        *(text for _, text in checker.netsor.written),
    ):
        checker.used |= _words(text)
    for kind, entries in (
        ("constant", checker.netsor.constants),
        ("index", checker.netsor.indices),
        ("initial vector", checker.netsor.initial),
        ("weight", checker.netsor.weights),
    ):
        for entry in entries:
            if entry.name not in checker.used:
                checker.warnings.append(Problem(f"the {kind} {entry.name} is not used", entry.span))
    for statement in checker.netsor.body:
        if statement.target.name not in checker.used:
            checker.warnings.append(Problem(f"{statement.target.name} is neither used nor an output", statement.span))


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def validate(netsor: Draft) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program and work out its families.

    Raises    ProgramError with all problems of the first phase that has any
    """
    checker = Checker(netsor)
    families = _declared(checker)
    if len(netsor.body) > MAX_STATEMENTS:
        said = f"the program has {len(netsor.body)} statements, more than the {MAX_STATEMENTS} allowed"
        checker.error(said, netsor.body[MAX_STATEMENTS].span, "a family is one statement, whatever its size")
    families |= defined_families(checker)
    checker.done()
    for statement in netsor.body:
        check_right_side(checker, statement, families)
    checker.done()
    families = with_kinds(checker, families)
    boundaries = {name: family.boundaries for name, family in families.items()}
    checker.problems += schedule(netsor.body, netsor.ranges, boundaries)[1]
    check_outputs(checker, families)
    checker.done()
    for statement in netsor.body:
        if isinstance(statement, Nonlin):
            check_infinity(checker, statement.expr, statement)
            check_clips(checker, statement)
            check_masks(checker, statement)
    checker.done()
    note_unused(checker)
    return families, tuple(checker.warnings)


def check_declarations(draft: Draft) -> None:
    """Raise ProgramError for mistakes in declarations, with all of the first phase that has any."""
    checker = Checker(draft)
    _declared(checker)
    checker.done()


def check_last(draft: Draft, later: Collection[str]) -> None:
    """Raise ProgramError for mistakes in the last statement; of the names `later` nothing is known yet.

    Values of declarations are not looked at: quick, for the calls of a builder.
    """
    checker, statement = Checker(draft, later), draft.body[-1]
    check_names(checker)
    families = declared_families(checker, values=False) | defined_families(checker, whole=False)
    check_right_side(checker, statement, families)
    if not checker.problems:
        with_kinds(checker, families)
    found = [problem for problem in checker.problems if problem.span.text == statement.span.text]
    if found:
        raise ProgramError(found)


def _declared(checker: Checker) -> dict[str, Family]:
    """The families that are declared, phase by phase."""
    check_names(checker)
    checker.done()
    for constant in checker.netsor.constants:
        check_constant(checker, constant)
    checker.done()
    return declared_families(checker)
