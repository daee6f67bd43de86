"""When a program is valid: names, indices, ranges, kinds and widths; all mistakes of a phase are reported together.

A rule is a function on the `Checker`, which collects what the rules find.  Phases follow each other as in a compiler:
names, constants, declarations, left sides, right sides, kinds and order, values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
        self.widths = {"n", *(name for name, *_ in netsor.widths), *dict(netsor.fixed_widths)}
        self.problems: list[Problem] = []

    def need(self, condition: Any, message: str, span: Span = Span(), fix: str = "") -> bool:
        """Note a problem where the condition does not hold; gives the condition."""
        if not condition:
            self.problems.append(Problem(message, span, fix))
        return bool(condition)

    def done(self) -> None:
        """The end of a phase."""
        if self.problems:
            raise ProgramError(in_order(self.problems))

    def size(self, names: Iterable[str]) -> int:
        """Number of values of several indices together."""
        return math.prod(stop - start for start, stop in map(self.netsor.ranges.__getitem__, names))

    def slots(self, names: Sequence[str]) -> tuple[tuple[Range, ...], tuple[str, ...]]:
        """Ranges and boundary rules of several indices."""
        return tuple(map(self.netsor.ranges.__getitem__, names)), tuple(self.netsor.index[i].boundary for i in names)

    def width(self, name: str, span: Span) -> None:
        """A width where it is used: it is declared."""
        fix = did_you_mean(name, sorted(self.widths), f"widths: {{{name}: n/2}}")
        self.need(name in self.widths, f"{name} is not a declared width", span, fix)


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    return statement.target, *((statement.expr,) if isinstance(statement, Nonlin) else statement.references)


# ---- expressions ---------------------------------------------------------------------------------------------------


def check_expression(
    checker: Checker,
    expr: Expr,
    bound: Collection[str],
    span: Span,
    families: Mapping[str, Family] | None = None,
    what: str = "",
) -> None:
    """Names and indices of an expression; `bound` are the indices in force.

    Without `families` it is `what` is declared, and made of numbers, constants and these indices alone.
    """
    if isinstance(expr, Variable) and families is None:
        fix = did_you_mean(expr.name, [*checker.netsor.constant, *bound])
        checker.need(False, f"{what} must be made of constants and indices; {expr.name} is neither", span, fix)
    elif isinstance(expr, Variable) and families is not None:
        weight = is_reference(checker, expr, bound, span, families) and families[expr.name].kind == "weight"
        message = f"{expr.name} is a weight; weights enter through MatMul only"
        checker.need(not weight, message, span.at(expr.column), f"g = MatMul({expr}, x) in a statement of its own")
    elif isinstance(expr, Constant):
        definition = checker.netsor.constant.get(expr.name)
        fix = did_you_mean(expr.name, list(checker.netsor.constant))
        if checker.need(definition, f"{expr.name} is not defined", span.at(expr.column), fix) and definition:
            check_slots(checker, expr, *checker.slots(definition.indices), bound, span)
    elif isinstance(expr, IndexValue) and families is None:
        fix = did_you_mean(expr.name, sorted(bound), "it has no indices")
        checker.need(expr.name in bound, f"{what} may not depend on the index {expr.name}", span, fix)
    elif isinstance(expr, IndexValue):
        is_bound(checker, expr.name, bound, span)
    elif isinstance(expr, Reduction) and families is None:
        message = f"{expr.reducer}[...] acts over indices of a Nonlin; it cannot stand here"
        checker.need(False, message, span.at(expr.column), "write the values out, as a list or a .npy file")
    elif isinstance(expr, Reduction):
        name = next((name for name in expr.indices if (name in bound) == expr.removes), "")
        checker.need(
            not name or not expr.removes,
            f"{expr.reducer}[{name}] hides the index {name}, which is bound outside already",
            span.at(expr.column),
            "use another index with the same range",
        )
        checker.need(
            not name or expr.removes,
            f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed outside",
            span.at(expr.column),
            f"sum[{name}]({expr.reducer}[{name}](...) * ...)",
        )
        check_numbers(checker, [expr.arg], span.at(expr.column))
        check_expression(checker, expr.arg, {*bound, *expr.indices}, span, families)
    elif isinstance(expr, Call):
        for arg in expr.args:
            check_expression(checker, arg, bound, span, families, what)
        check_call(checker, expr, span.at(expr.column))
    elif isinstance(expr, Number):
        checker.need(not math.isnan(expr.value), "nan is not a number", span)


def check_call(checker: Checker, node: Call, span: Span) -> None:
    """Rules of single atoms: comparisons stand in conditions only, exponents are bounded, numbers are finite."""
    if node.atom == "where":
        said = "where(condition, x, y) needs a comparison as its condition"
        checker.need(is_condition(node.args[0]), said, span, "where(j <= i, x, y)")
    if node.atom in LOGICAL:
        joins = all(map(is_condition, node.args))
        checker.need(joins, "& and | join comparisons", span, "(a < b) & (c < d), each one in brackets")
    else:
        check_numbers(checker, node.args[1 if node.atom == "where" else 0 :], span)
    if all(isinstance(p, Call | Number) or (isinstance(p, Constant) and not p.slots) for p in walk(node)):
        try:
            numbers = {c.name: c.value for c in checker.netsor.constants if isinstance(c.value, int | float)}
            constant_value(node, numbers)
        except (ProgramError, ArithmeticError, ValueError):
            checker.need(False, f"{node} is not a finite number", span, "change its numbers or constants")
    elif node.atom == "power" and isinstance(node.args[1], Number):
        small = abs(node.args[1].value) <= MAX_EXPONENT
        checker.need(small, f"the exponent {node.args[1]} is too large", span, f"at most {MAX_EXPONENT}")


def is_condition(expr: Expr) -> bool:
    """Whether an expression is a comparison, or several joined by & and |."""
    return is_call(expr, *COMPARISONS, *LOGICAL)


def check_numbers(checker: Checker, args: Iterable[Expr], span: Span) -> None:
    """What is computed with is no comparison."""
    for arg in filter(is_condition, args):
        said = "a comparison can only be the condition of where(condition, x, y)"
        checker.need(False, said, span, f"where({arg}, 1, 0)")


def is_bound(checker: Checker, name: str, bound: Collection[str], span: Span) -> bool:
    """Whether an index is on the left or reduced outside; complains if not."""
    said, fix = f"the index {name} is neither on the left nor reduced", f"put {name} on the left, or sum[{name}](...)"
    if name.endswith("_"):
        said, fix = f"{name}: second copies of indices occur in covariances only", f"write {name[:-1]}"
    return checker.need(name in bound, said, span, fix)


def check_slots(
    checker: Checker,
    reference: Variable | Constant,
    ranges: Sequence[Range],
    rules: Sequence[str],
    bound: Collection[str],
    span: Span,
) -> bool:
    """Whether a reference has the slots its name needs, within range; complains if not."""
    span, count, before = span.at(reference.column), len(ranges), len(checker.problems)
    said = f"{reference.name} has {count} {'index' if count == 1 else 'indices'}, {len(reference.slots)} given"
    fix = f"{reference.name}[{', '.join('...' for _ in ranges)}]" if ranges else reference.name
    if not checker.need(len(reference.slots) == count, said, span, fix):
        return False
    for slot, (start, stop), rule in zip(reference.slots, ranges, rules, strict=True):
        fine = [is_bound(checker, name, bound, span) for name in slot.indices]
        if all(fine) and not rule:
            low, high = slot.bounds(checker.netsor.ranges)
            checker.need(
                start <= low and high < stop,
                f"{reference.name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}",
                span,
                "shorten the index, or declare it as {size: ..., boundary: zero}, or boundary: wrap",
            )
    return len(checker.problems) == before


def is_reference(
    checker: Checker,
    reference: Variable,
    bound: Collection[str],
    span: Span,
    families: Mapping[str, Family],
    weight: bool = False,
) -> bool:
    """Whether a name refers to a known family, with slots that fit; complains if not."""
    family, name = families.get(reference.name), reference.name
    if family is not None and name not in checker.later:
        return check_slots(checker, reference, family.ranges, family.boundaries, bound, span)
    kinds = [name for name, other in families.items() if (other.kind == "weight") == weight]
    known = kinds if weight else [*kinds, *checker.netsor.constant, *checker.netsor.index]
    listed = f"[{','.join(map(str, reference.slots))}]" if reference.slots else ""
    said = f"{name} is not defined"
    fix = did_you_mean(name, known, f"`{name}{listed}: {'1` under weights:' if weight else '{cov: 1}` under initial:'}")
    if name == "n":
        said = "n may occur only as scale=1/n in Dot"
        fix = "limits need programs whose text does not depend on the width"
    checker.need(name in checker.later, said, span.at(reference.column), fix)
    return False


# ---- numbers of declarations ---------------------------------------------------------------------------------------


def is_closed(checker: Checker, expr: Expr, indices: Iterable[str], what: str, span: Span) -> bool:
    """Complain about anything but numbers, constants and the indices given."""
    before = len(checker.problems)
    check_expression(checker, expr, {*indices}, span, None, what)
    return len(checker.problems) == before


def check_values(
    checker: Checker, value: Expr | Table, indices: Sequence[str], what: str, span: Span, sign: bool = False
) -> None:
    """A table has a value for each value of its indices, and all are finite; with `sign`, not negative either."""
    values: NDArray[np.float64] | None = None
    if isinstance(value, Table):
        shape = tuple(stop - start for start, stop in checker.slots(indices)[0])
        asked = f"its indices [{','.join(indices)}] ask for {shape}" if indices else "it has no indices"
        if checker.need(value.shape == shape, f"{what} has shape {value.shape}, but {asked}", span):
            values = value.array
    elif is_closed(checker, value, indices, what, span):
        values = evaluated(checker, value, indices, what, span)
    if values is not None and checker.need(np.isfinite(values).all(), f"{what} has entries that are not finite", span):
        fix = "a variance is the square of a scale"
        checker.need(not sign or (values >= 0).all(), f"{what} must not be negative", span, fix)


def evaluated(
    checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span
) -> NDArray[np.float64] | None:
    """Values of an expression over its indices; None if it is too large to look at, or has none."""
    size, said = checker.size(indices), f"{what} would have more than {MAX_TABLE} values"
    if not checker.need(size <= MAX_TABLE, said, span, "let it depend on fewer indices") or size > MAX_CHECKED:
        return None
    try:
        return index_array(checker.netsor, expr, indices)
    except (ProgramError, ArithmeticError, ValueError, TypeError) as error:
        checker.need(False, f"{what} cannot be evaluated: {error}", span)
        return None


def check_constant(checker: Checker, constant: ConstantDef) -> None:
    """Value of one constant."""
    what, value = f"constant {constant.name}", constant.value
    if isinstance(value, int | float):
        checker.need(math.isfinite(value), f"{what} must be a finite number", constant.span)
        return
    used = {node.name for node in walk(value) if isinstance(node, Constant)} if isinstance(value, Expr) else set()
    plain = not any(isinstance(other.value, Expr) for other in checker.netsor.constants if other.name in used)
    if checker.need(plain, f"{what} is made of another indexed expression", constant.span, "write it out"):
        check_values(checker, value, constant.indices, what, constant.span)


def check_initial(checker: Checker, initial: Initial) -> None:
    """Mean and covariance of an initial vector."""
    name, span, cov, indices = initial.name, initial.span, initial.cov, initial.indices
    what, called = f"initial vector {name}", f"the cov of {name}"
    if initial.grid:
        first = next(v.name for v in checker.netsor.initial if v.grid and v.width == initial.width)
        said = f"{what}: {first} is the coordinate vector of width {initial.width} already"
        checker.need(first == name, said, span, f"read {first} instead of {name}")
        return
    check_values(checker, initial.mean, indices, f"the mean of {name}", span)
    members, joint = checker.size(indices), initial.joint
    size = checker.size(joint)
    if initial.data is not None:
        check_data(checker, initial, members)
    elif isinstance(cov, Table):
        sides = tuple(stop - start for start, stop in checker.slots(indices)[0])
        fits = cov.shape in ((members, members), (*sides, *sides))
        if checker.need(fits, f"{what}: cov has shape {cov.shape}, not {(members, members)}", span):
            check_semidefinite(checker, cov.array.reshape(members, members), what, span)
    elif not joint:
        check_values(checker, cov, indices, called, span, sign=True)
    elif is_closed(checker, cov, [*indices, *(f"{index}_" for index in indices)], called, span) and checker.need(
        size <= 20_000,
        f"{what}: a joint covariance of {size} members is too large",
        span,
        "let fewer indices appear with a second copy",
    ):
        rest = [index for index in indices if index not in joint]
        values = evaluated(checker, cov, [*rest, *joint, *(f"{index}_" for index in joint)], called, span)
        if values is not None and size <= 2000:  # larger ones are looked at where they are used
            blocks = values.reshape(-1, size, size)[: max(1, 10**9 // size**3)]
            next((block for block in blocks if not check_semidefinite(checker, block, what, span)), None)


def check_data(checker: Checker, initial: Initial, members: int) -> None:
    """Input vectors and the variance that goes with them."""
    assert initial.data is not None
    what, array = f"initial vector {initial.name}: data has", initial.data.array
    fits = array.ndim == 2 and len(array) == members and array.shape[1] > 0
    fix = "one row per member, the first index slowest"
    if checker.need(fits, f"{what} shape {array.shape}, not ({members}, d)", initial.span, fix):
        finite = np.isfinite(array).all(axis=1)
        said = f"{what} entries that are not finite, the first in row {int(np.argmin(finite))}"
        checker.need(finite.all(), said, initial.span, "rows are counted from 0")
    check_values(checker, initial.cov, (), f"the variance of {initial.name}", initial.span, sign=True)


def check_semidefinite(checker: Checker, matrix: NDArray[np.float64], what: str, span: Span) -> bool:
    """A covariance must be finite, symmetric and positive semidefinite, up to the rounding that its entries show.

    Entries rounded to a relative u, after an operation or two, make a matrix E of errors with |E_ij| at most
    2 u sqrt(a_ii a_jj): its eigenvalues are at most 2 u times the trace, which is at most m times the largest of a.
    """
    if not checker.need(np.isfinite(matrix).all(), f"{what}: cov has entries that are not finite", span):
        return False
    scale = np.abs(matrix).max(initial=1e-300)
    if scale > LARGE:  # sums of entries overflow; a power of two changes no bit
        return check_semidefinite(checker, matrix * 2.0**-512, what, span)
    even = np.abs(matrix - matrix.T).max() <= max(ASYMMETRY, 4 * unit_roundoff(matrix)) * scale
    if not checker.need(even, f"{what}: cov is not symmetric", span, "it must not change when i and i_ swap"):
        return False
    try:  # much quicker than eigenvalues, which are needed for the message only
        np.linalg.cholesky(matrix + 0.5 * INDEFINITE * scale * np.eye(len(matrix)))
        return True
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
    return checker.need(
        lowest >= -max(INDEFINITE * scale, 2 * unit_roundoff(matrix) * float(np.trace(matrix))),
        f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g})",
        span,
        "save it in double precision, or give the vectors themselves: data:",
    )


# ---- values of functions -------------------------------------------------------------------------------------------


def check_function(checker: Checker, statement: Nonlin) -> None:
    """Rows of a softmax that are masked throughout, bounds of a clip in the wrong order, inf where it is no bound.

    Masks and bounds are looked at where indices alone decide; others are found by running.
    """
    check_infinity(checker, statement.expr, statement.span)
    for node in walk(statement.expr):
        span = statement.span.at(getattr(node, "column", 0))
        if is_call(node, "clip"):
            place = first_place(checker, Call("greater", (node.args[1], node.args[2])))
            said = f"{node}: the lower bound is above the upper one{place}"
            checker.need(place is None, said, span, "clip(x, lower, upper)")
        if not isinstance(node, Reduction) or node.reducer not in MASKED:
            continue
        for mask in walk(node.arg):
            if is_call(mask, "where") and not any(isinstance(part, Variable) for part in walk(mask.args[0])):
                condition, yes, no = mask.args
                hidden = condition if yes == Number(-math.inf) else Call("equal", (condition, Number(0)))
                place = first_place(checker, hidden, node.indices) if Number(-math.inf) in (yes, no) else None
                said = f"{node.reducer}[{', '.join(node.indices)}]: every entry is masked{place}"
                checker.need(place is None, said, span, "leave at least one entry of each row unmasked")


MASKED = ("softmax", "logsumexp", "max")


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


def check_infinity(checker: Checker, expr: Expr, span: Span, bound: bool = False) -> None:
    """No value is inf; `bound`: whether it may stand here, as a bound that is none, of a clip or of some members."""
    checker.need(
        expr != Number(math.inf) or bound,
        "inf is no value: only -inf is one, as a mask under softmax, logsumexp or max",
        span,
        "where(condition, x, -inf) masks x where the condition does not hold",
    )
    if is_call(expr, "minimum") and Number(math.inf) in expr.args:
        said = f"{expr}: inf bounds nothing, so that this is its other argument"
        checker.need(False, said, span.at(expr.column), "write that alone")
        return
    for k, child in enumerate(expr.children):
        free = is_call(expr, "minimum") or (is_call(expr, "where") and k > 0 and bound)
        free = free or (isinstance(expr, Call) and expr.atom != "where" and k >= ATOMS[expr.atom].arity)
        check_infinity(checker, child, span, free)


# ---- declarations --------------------------------------------------------------------------------------------------


def check_names(checker: Checker) -> None:
    """Names bound once and not reserved; indices that are not empty and are declared where they are used."""
    netsor = checker.netsor
    seen: dict[str, str] = {}
    for kind, names in (
        ("a constant", [(c.name, c.span) for c in netsor.constants]),
        ("an index", [(i.name, i.span) for i in netsor.indices]),
        ("a width", [(name, Span()) for name in (*(w[0] for w in netsor.widths), *dict(netsor.fixed_widths))]),
        ("an initial vector", [(v.name, v.span) for v in netsor.initial]),
        ("a weight", [(w.name, w.span) for w in netsor.weights]),
    ):
        for name, span in names:
            check_name(checker, name, span, seen, kind)
            seen.setdefault(name, kind)
    for statement in netsor.body:
        check_name(checker, statement.target.name, statement.span, seen, "this statement")
    for index in netsor.indices:
        size = index.stop - index.start
        beyond = f"has {size} values, more than the {MAX_INDEX} allowed" if size > 0 else "is empty"
        checker.need(1 <= size <= MAX_INDEX, f"index {index.name} {beyond}", index.span, "choose another size")
    known = [index.name for index in netsor.indices]
    declarations: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
    for declaration in declarations:
        listed = f"{declaration.name}[{','.join(declaration.indices)}]"
        for name in declaration.indices:
            said = f"{name} in {listed} is not a declared index"
            checker.need(name in known, said, declaration.span, did_you_mean(name, known))
        once = len(set(declaration.indices)) == len(declaration.indices)
        fix = f"two indices with the same range: {declaration.name}[i,j]"
        checker.need(once, f"{declaration.name} carries an index twice", declaration.span, fix)


def check_name(checker: Checker, name: str, span: Span, seen: Mapping[str, str], kind: str) -> None:
    """A name that a program may give, and has not given yet."""
    reserved = name in RESERVED or name in ATOMS  # those declared since are no less
    said, fix = f"{name}: a trailing underscore is reserved for second copies of indices", name.rstrip("_")
    if name in seen:
        said, fix = f"{name} is bound twice: as {seen[name]} and as {kind}", "give one of them another name"
    elif not name.isidentifier():
        said, fix = f"{name!r} is not a name", "use letters, digits and _, beginning with a letter"
    elif reserved:
        said, fix = f"{name} is reserved by the language", f"call it {name}1, say"
    checker.need(name.isidentifier() and name not in seen and not reserved and name[-1] != "_", said, span, fix)


def declared_families(checker: Checker) -> dict[str, Family]:
    """Families of the initial vectors and weights."""
    families: dict[str, Family] = {}
    entries: tuple[Initial | Weight, ...] = (*checker.netsor.initial, *checker.netsor.weights)
    for entry in entries:
        vector = isinstance(entry, Initial)
        for width in (entry.width,) if isinstance(entry, Initial) else entry.shape:
            checker.width(width, entry.span)
        ranges, rules = checker.slots(entry.indices)
        width = entry.width if isinstance(entry, Initial) else ""
        families[entry.name] = Family(entry.name, "vector" if vector else "weight", ranges, width, (), rules)
        said, fix = f"{entry.name} has more than {MAX_MEMBERS:.0e} members", "choose smaller sizes for its indices"
        checker.need(checker.size(entry.indices) <= MAX_MEMBERS, said, entry.span, fix)
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
        counts = sorted({len(s.target.slots) for s in statements})
        said, before = f"{name} is defined with {' and with '.join(map(str, counts))} indices", len(checker.problems)
        checker.need(len(counts) == 1, said, statements[-1].span, "one name has one list of indices")
        for statement in statements:
            check_left_side(checker, statement)
        if len(checker.problems) == before:
            families[name] = joined(checker, name, places, statements, whole)
    return families


def check_left_side(checker: Checker, statement: Statement) -> None:
    """A left side consists of different plain indices and whole numbers."""
    target, span = statement.target, statement.span
    names = [slot.bare for slot in target.slots if slot.bare]
    for slot in target.slots:
        said = f"{target}: the left side takes plain indices or whole numbers, not {slot}"
        checker.need(slot.bare or not slot.terms, said, span, "shift the index on the right side instead")
        copy = (slot.bare or "").endswith("_")
        checker.need(not copy, f"{target}: {slot.bare} is reserved for second copies of indices", span)
    twice = next((name for name in names if names.count(name) > 1), "")
    checker.need(not twice, f"{target}: index {twice} stands twice on the left", span)


def joined(
    checker: Checker, name: str, positions: Sequence[int], statements: Sequence[Statement], whole: bool = True
) -> Family:
    """The family that one or several statements define together: no overlaps and no gaps."""
    boxes = [[slot.span(checker.netsor.ranges) for slot in statement.target.slots] for statement in statements]
    ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
    before = len(checker.problems)
    edges = np.array(boxes, dtype=np.int64).reshape(len(boxes), len(ranges), 2)
    for later in range(1, len(boxes)):
        own, earlier, second = edges[later], edges[:later], statements[later]
        overlaps = np.all((earlier[..., 0] < own[:, 1]) & (own[:, 0] < earlier[..., 1]), axis=1)
        first = statements[int(overlaps.argmax())].target
        said = f"{name} is bound twice: {second.target} overlaps {first} of an earlier statement"
        fix = "give the parts disjoint ranges, or the statement a new name"
        checker.need(not overlaps.any(), said, second.span, fix)
    size, total = (sum(math.prod(b - a for a, b in box) for box in some) for some in ([ranges], boxes))
    said = f"the definitions of {name} leave a gap in {' x '.join(f'{a}..{b - 1}' for a, b in ranges)}"
    complete = not whole or len(checker.problems) > before or total >= size
    checker.need(complete, said, statements[-1].span, "define every member of the family")
    checker.need(size <= MAX_MEMBERS, f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
    rules = [
        next((checker.netsor.boundary(s.target.slots[k]) for s in statements if s.target.slots[k].bare), "")
        for k in range(len(ranges))
    ]
    return Family(name, "scalar", ranges, "", tuple(positions), tuple(rules))


def check_right_side(checker: Checker, statement: Statement, families: Mapping[str, Family]) -> None:
    """Names, slots and roles on the right side of a statement."""
    left, span = {name for slot in statement.target.slots for name in slot.indices}, statement.span
    if isinstance(statement, Nonlin):
        check_expression(checker, statement.expr, left, span, families)
        if statement.width:
            checker.width(statement.width, span)
        return
    for reference in statement.references:
        weight, place = isinstance(statement, MatMul) and reference is statement.weight, span.at(reference.column)
        if is_reference(checker, reference, left, span, families, weight):
            matrix = families[reference.name].kind == "weight"
            fix = f"declare it under `weights:`, or swap the arguments of {statement.target.name}"
            checker.need(matrix or not weight, f"{reference.name} is not a weight", place, fix)
            said = f"{reference.name} is a weight; a vector is needed here"
            checker.need(weight or not matrix, said, place, f"MatMul({reference}, x) makes a vector of it")


# ---- kinds and widths ----------------------------------------------------------------------------------------------


def with_kinds(checker: Checker, families: Mapping[str, Family]) -> dict[str, Family]:
    """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
    body = checker.netsor.body
    kind: dict[str, Kind] = {name: f.kind for name, f in families.items() if not f.statements}
    width = {name: f.width for name, f in families.items() if not f.statements}
    for _ in range(len(body) + 1):
        before = dict(kind), dict(width)
        for statement in body:
            name = statement.target.name
            if isinstance(statement, MatMul):
                kind[name], width[name] = "vector", statement.sides(checker.netsor.weight[statement.weight.name])[0]
            elif isinstance(statement, Dot):
                kind.setdefault(name, "scalar")
            else:
                spread_kind(statement, kind, width)
        if before == (kind, width):
            break
    for statement in body:
        if all(reference.name in kind for reference in statement.inputs) and statement.target.name in kind:
            check_kinds(checker, statement, kind, width)
    return {
        name: replace(family, kind=kind.get(name, "scalar"), width=width.get(name, ""))
        for name, family in families.items()
    }


def spread_kind(statement: Nonlin, kind: dict[str, Kind], width: dict[str, str]) -> None:
    """Kind and width that a Nonlin inherits from its inputs; of none it is a constant vector."""
    name, names = statement.target.name, [reference.name for reference in statement.inputs]
    vectors = [other for other in names if kind.get(other) == "vector"]
    if vectors or not names:
        kind[name] = "vector"
        width.setdefault(name, statement.width or next((width[v] for v in vectors if v in width), "n"))
    else:
        kind.setdefault(name, "scalar")


def check_kinds(checker: Checker, statement: Statement, kind: Mapping[str, Kind], width: Mapping[str, str]) -> None:
    """Kinds and widths of one statement against each other."""
    span, name, need = statement.span, statement.target.name, checker.need
    if isinstance(statement, MatMul):
        weight, vector = checker.netsor.weight[statement.weight.name], statement.vector.name
        (rows, columns), place = statement.sides(weight), span.at(statement.vector.column)
        said, fix = f"{vector} is a scalar; MatMul needs a vector", "a scalar enters vectors inside a Nonlin"
        if need(kind[vector] == "vector", said, place, fix):
            found = width[vector]
            shape = (found, rows) if statement.transposed else (rows, found)
            turned = f"{replace(statement, transposed=not statement.transposed)}, or " if found == rows else ""
            said = f"{statement.matrix} has shape [{rows}, {columns}], but {vector} has width {found}"
            need(found == columns, said, place, f"{turned}shape: [{', '.join(shape)}] for {weight.name}")
        need(width.get(name) == rows, f"{name} has definitions of different widths", span)
    elif isinstance(statement, Dot):
        for operand in (statement.left, statement.right):
            said, place = f"{operand.name} is a scalar; Dot needs two vectors", span.at(operand.column)
            need(kind[operand.name] == "vector", said, place, "multiply scalars inside a Nonlin")
        left, right = (width.get(operand.name) for operand in (statement.left, statement.right))
        said = f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})"
        need(not left or not right or left == right, said, span, "both operands need the same width")
        need(kind[name] != "vector", f"{name} is a vector in one definition and a Dot in another", span)
    else:
        vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
        for reference in vectors:
            said = f"{name} has width {width[name]}, but {reference.name} has width {width[reference.name]}"
            place, fix = span.at(reference.column), "coordinatewise functions need equal widths"
            need(width[reference.name] == width[name], said, place, fix)
        plain = statement.width and statement.inputs and not vectors and kind[name] == "scalar"
        need(not plain, f"{name} is a scalar; it has no width", span)


# ---- programs ------------------------------------------------------------------------------------------------------


def check_outputs(checker: Checker, families: Mapping[str, Family]) -> None:
    """Outputs exist, and each is named once."""
    outputs, known = checker.netsor.outputs, list(dict.fromkeys(s.target.name for s in checker.netsor.body))
    checker.need(outputs, "the program has no outputs", Span(), "outputs: [y] in a file, P.outputs(y) in Python")
    for name in outputs:
        family = name in families and families[name].kind != "weight"
        checker.need(family, f"the output {name} is not defined", Span(), did_you_mean(name, known))
    checker.need(len(set(outputs)) == len(outputs), "an output is named twice", Span())


def unused(netsor: Draft) -> tuple[Problem, ...]:
    """Warnings about declarations and statements that nothing uses."""
    texts: list[Any] = [*netsor.expressions, *netsor.outputs, *(text for _, text in netsor.written)]
    texts += [text for _, _, text in netsor.widths] + [index.text for index in netsor.indices]
    declarations: tuple[Any, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
    texts += [name for declaration in declarations for name in declaration.indices]
    texts += [part for s in netsor.body for part in (*s.references, *s.target.slots)]
    used = set(re.findall(r"\w+", " ".join(map(str, texts))))
    called = ("constant", netsor.constants), ("index", netsor.indices), ("initial vector", netsor.initial)
    groups: tuple[tuple[str, tuple[Any, ...]], ...] = (*called, ("weight", netsor.weights))
    found = [(f"the {kind} {e.name} is not used", e.span) for kind, es in groups for e in es if e.name not in used]
    found += [
        (f"{s.target.name} is neither used nor an output", s.span) for s in netsor.body if s.target.name not in used
    ]
    return tuple(Problem(message, span) for message, span in found)


def validate(netsor: Draft) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program and work out its families.

    Raises    ProgramError with all problems of the first phase that has any
    """
    checker = Checker(netsor)
    families = _declared(checker)
    if len(netsor.body) > MAX_STATEMENTS:
        said = f"the program has {len(netsor.body)} statements, more than the {MAX_STATEMENTS} allowed"
        checker.need(False, said, netsor.body[MAX_STATEMENTS].span, "a family is one statement, whatever its size")
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
            check_function(checker, statement)
    checker.done()
    return families, unused(netsor)


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
    families = declared_families(checker) | defined_families(checker, whole=False)
    check_right_side(checker, statement, families)
    if not checker.problems and not later:
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
    families = declared_families(checker)
    for entry in checker.netsor.initial if not checker.problems else ():
        check_initial(checker, entry)
    for weight in checker.netsor.weights if not checker.problems else ():
        what = f"the variance of {weight.name}"
        check_values(checker, weight.variance, weight.indices, what, weight.span, sign=True)
    return families
