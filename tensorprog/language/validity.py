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
    Index,
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

__all__ = ["MAX_STATEMENTS", "check_declarations", "check_last", "statement_parts", "validate"]

MAX_EXPONENT = 1000
MAX_MEMBERS = 10**12  # members of one family
MAX_INDEX = 10_000_000  # values of one index
MAX_STATEMENTS = 2000
MAX_TABLE = 10**8  # entries of a constant given by an expression
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used
ASYMMETRY, INDEFINITE = 1e-10, 1e-8  # allowed whatever the precision of a covariance, relative to its largest entry
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", "min", "max", *REDUCTIONS}
MASKED = ("softmax", "logsumexp", "max")


class Checker:
    """State of one check; of the names `later`, defined further below, nothing is said."""

    def __init__(self, netsor: Draft, later: Collection[str] = ()) -> None:
        self.netsor, self.later = netsor, later
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
        known = ["n", *(width for width, *_ in self.netsor.widths), *dict(self.netsor.fixed_widths)]
        self.need(name in known, f"{name} is not a declared width", span, did_you_mean(name, known))


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    return statement.target, *((statement.expr,) if isinstance(statement, Nonlin) else statement.references)


# ---- expressions ---------------------------------------------------------------------------------------------------


def check_expression(
    checker: Checker, expr: Expr, bound: Collection[str], span: Span, families: Mapping[str, Family]
) -> None:
    """Names and indices of the right side of a Nonlin; `bound` are the indices in force."""
    place = span.at(getattr(expr, "column", 0))
    if isinstance(expr, Variable) and is_reference(checker, expr, bound, span, families):
        checker.need(
            families[expr.name].kind != "weight",
            f"{expr.name} is a weight; weights enter through MatMul only",
            place,
            f"g = MatMul({expr}, x) in a statement of its own",
        )
    elif isinstance(expr, Constant):
        check_constant_slots(checker, expr, bound, span)
    elif isinstance(expr, IndexValue):
        is_bound(checker, expr.name, bound, span)
    elif isinstance(expr, Call):
        check_call(checker, expr, place)
    elif isinstance(expr, Reduction):
        for name in expr.indices:
            checker.need(
                (name in bound) != expr.removes,
                f"{expr.reducer}[{name}] hides the index {name}, which is bound outside already"
                if expr.removes
                else f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed outside",
                place,
                "" if expr.removes else f"sum[{name}]({expr.reducer}[{name}](...) * ...)",
            )
        check_numbers(checker, [expr.arg], place)
        bound = {*bound, *expr.indices}
    for child in expr.children:
        check_expression(checker, child, bound, span, families)


def is_closed(checker: Checker, expr: Expr, indices: Iterable[str], what: str, span: Span) -> bool:
    """Whether an expression of a declaration is made of numbers, constants and the indices given; complains if not."""
    before, known = len(checker.problems), [*indices]
    for node in walk(expr):
        if isinstance(node, Constant):
            check_constant_slots(checker, node, known, span)
        elif isinstance(node, Call):
            check_call(checker, node, span.at(node.column))
        else:
            fix = did_you_mean(str(node), [*checker.netsor.constant, *known], "")
            checker.need(
                isinstance(node, Number) or (isinstance(node, IndexValue) and node.name in known),
                f"{what} must be made of constants{' and the indices ' * bool(known)}{', '.join(known)}, not of {node}",
                span,
                fix,
            )
    return len(checker.problems) == before


def check_call(checker: Checker, node: Call, span: Span) -> None:
    """Rules of single atoms: comparisons stand in conditions only, exponents are bounded, numbers are finite."""
    if node.atom in LOGICAL:
        checker.need(all(map(is_condition, node.args)), "& and | join comparisons", span, "(a < b) & (c < d)")
    elif node.atom == "where":
        said = "where(condition, x, y) needs a comparison as its condition"
        checker.need(is_condition(node.args[0]), said, span, "where(j <= i, x, y)")
        check_numbers(checker, node.args[1:], span)
    else:
        check_numbers(checker, node.args, span)
    if all(isinstance(p, Call | Number) or (isinstance(p, Constant) and not p.slots) for p in walk(node)):
        try:
            constant_value(node, checker.netsor.scalars)
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


def check_constant_slots(checker: Checker, constant: Constant, bound: Collection[str], span: Span) -> None:
    """A constant is defined, and has the slots that it needs."""
    definition = checker.netsor.constant.get(constant.name)
    if definition is None:
        fix = did_you_mean(constant.name, list(checker.netsor.constant))
        checker.need(False, f"{constant.name} is not defined", span.at(constant.column), fix)
    else:
        check_slots(checker, constant, *checker.slots(definition.indices), bound, span)


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
    if not checker.need(len(reference.slots) == count, said, span):
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
) -> bool:
    """Whether a name refers to a known family, with slots that fit; complains if not."""
    family, name = families.get(reference.name), reference.name
    if family is not None and name not in checker.later:
        return check_slots(checker, reference, family.ranges, family.boundaries, bound, span)
    said, fix = f"{name} is not defined", did_you_mean(name, [*families, *checker.netsor.constant])
    if name == "n":
        said, fix = "n may occur only as scale=1/n in Dot", "limits need programs that do not depend on the width"
    checker.need(name in checker.later, said, span.at(reference.column), fix)
    return False


# ---- numbers of declarations ---------------------------------------------------------------------------------------


def check_values(
    checker: Checker, value: Expr | Table, indices: Sequence[str], what: str, span: Span, sign: bool = False
) -> None:
    """A table has a value for each value of its indices, and all are finite; with `sign`, not negative either."""
    values: NDArray[np.float64] | None = None
    if isinstance(value, Table):
        shape = tuple(stop - start for start, stop in checker.slots(indices)[0])
        asked = f"{what} has shape {value.shape}, but its indices [{','.join(indices)}] ask for {shape}"
        if checker.need(value.shape == shape, asked, span):
            values = value.array
    elif is_closed(checker, value, indices, what, span):
        values = evaluated(checker, value, indices, what, span)
    if values is not None and checker.need(np.isfinite(values).all(), f"{what} has entries that are not finite", span):
        checker.need(not sign or (values >= 0).all(), f"{what} must not be negative", span)


def evaluated(
    checker: Checker, expr: Expr, indices: Sequence[str], what: str, span: Span
) -> NDArray[np.float64] | None:
    """Values of an expression over its indices; None if it is too large to look at, or has none."""
    size, said = checker.size(indices), f"{what} would have more than {MAX_TABLE} values"
    if not checker.need(size <= MAX_TABLE, said, span, "let it depend on fewer indices") or size > MAX_CHECKED:
        return None
    return index_array(checker.netsor, expr, indices)


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
    what, called, members = f"initial vector {name}", f"the cov of {name}", checker.size(indices)
    if initial.grid:
        first = next(v.name for v in checker.netsor.initial if v.grid and v.width == initial.width)
        checker.need(first == name, f"{what}: {first} is the coordinate vector of this width already", span)
        return
    check_values(checker, initial.mean, indices, f"the mean of {name}", span)
    if initial.data is not None:
        array, fix = initial.data.array, "one row per member, the first index slowest"
        fits = array.ndim == 2 and len(array) == members and array.shape[1] > 0
        checker.need(fits, f"{what}: data has shape {array.shape}, not ({members}, d)", span, fix)
        checker.need(np.isfinite(array).all(), f"{what}: data has entries that are not finite", span)
        check_values(checker, cov, (), f"the variance of {name}", span, sign=True)
    elif isinstance(cov, Table):
        sides = tuple(stop - start for start, stop in checker.slots(indices)[0])
        fits = cov.shape in ((members, members), (*sides, *sides))
        if checker.need(fits, f"{what}: cov has shape {cov.shape}, not {(members, members)}", span):
            check_semidefinite(checker, cov.array.reshape(members, members), what, span)
    elif not initial.joint:
        check_values(checker, cov, indices, called, span, sign=True)
    elif is_closed(checker, cov, [*indices, *(f"{index}_" for index in indices)], called, span):
        size = checker.size(initial.joint)
        said = f"{what}: a joint covariance of {size} members is too large"
        checker.need(size <= 20_000, said, span, "let fewer indices appear with a second copy")
        axes = [index for index in indices if index not in initial.joint]
        axes += [*initial.joint, *(f"{index}_" for index in initial.joint)]
        values = evaluated(checker, cov, axes, called, span) if size <= 20_000 else None
        if values is not None and size <= 2000:  # larger ones are looked at where they are used
            blocks = values.reshape(-1, size, size)[: max(1, 10**9 // size**3)]
            next((block for block in blocks if not check_semidefinite(checker, block, what, span)), None)


def check_semidefinite(checker: Checker, matrix: NDArray[np.float64], what: str, span: Span) -> bool:
    """A covariance must be finite, symmetric and positive semidefinite, up to the rounding that its entries show.

    Entries rounded to a relative u, after an operation or two, make a matrix E of errors with |E_ij| at most
    2 u sqrt(a_ii a_jj): its eigenvalues are at most 2 u times the trace, which is at most m times the largest of a.
    """
    if not checker.need(np.isfinite(matrix).all(), f"{what}: cov has entries that are not finite", span):
        return False
    unit, matrix = unit_roundoff(matrix), matrix / np.abs(matrix).max(initial=1e-300)
    even = np.abs(matrix - matrix.T).max() <= max(ASYMMETRY, 4 * unit)
    if not checker.need(even, f"{what}: cov is not symmetric", span, "it must not change when i and i_ swap"):
        return False
    try:  # much quicker than eigenvalues, which are needed for the message only
        np.linalg.cholesky(matrix + 0.5 * INDEFINITE * np.eye(len(matrix)))
        return True
    except np.linalg.LinAlgError:
        lowest = float(np.linalg.eigvalsh((matrix + matrix.T) / 2)[0])
    return checker.need(
        lowest >= -max(INDEFINITE, 2 * unit * float(np.trace(matrix))),
        f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g} of its largest entry)",
        span,
        "save it in double precision, or give the vectors themselves: data:",
    )


# ---- values of functions -------------------------------------------------------------------------------------------


def check_function(checker: Checker, statement: Nonlin) -> None:
    """No value is inf, and no row of a softmax is masked throughout where indices alone decide.

    Other masks are found by running.
    """
    said = "inf is no value: only -inf is one, as a mask under softmax, logsumexp or max"
    for node in [Call("negative", (statement.expr,)), *walk(statement.expr)]:
        parts = node.arguments if isinstance(node, Call) else node.children
        span = statement.span.at(getattr(node, "column", 0))
        checker.need(Number(math.inf) not in parts, said, span, "where(condition, x, -inf), or clip(x, 0, inf)")
        if is_call(node, "clip"):
            place = first_place(checker, Call("greater", node.args[1:]), ())
            checker.need(place is None, f"{node}: the lower bound is above the upper one{place}", span)
        if not isinstance(node, Reduction) or node.reducer not in MASKED:
            continue
        for mask in walk(node):
            if is_call(mask, "where") and not any(isinstance(part, Variable) for part in walk(mask.args[0])):
                condition, yes, no = mask.args
                hidden = condition if yes == Number(-math.inf) else Call("equal", (condition, Number(0)))
                place = first_place(checker, hidden, node.indices) if Number(-math.inf) in (yes, no) else None
                masked = f"{node.reducer}[{', '.join(node.indices)}]: every entry is masked{place}"
                checker.need(place is None, masked, span, "leave at least one entry of each row unmasked")


def first_place(checker: Checker, condition: Expr, over: Sequence[str]) -> str | None:
    """Where a condition on indices first holds, for all of `over`, as text; None if nowhere, or too many to look at."""
    free = sorted({name for node in walk(condition) for name in index_names(node)} - {*over})
    if checker.size([*free, *over]) > MAX_CHECKED:
        return None
    values = index_array(checker.netsor, condition, [*free, *over]).astype(bool)
    found = np.argwhere(values.reshape(*values.shape[: len(free)], -1).all(axis=-1))
    places = [
        f"{name}={checker.netsor.ranges[name][0] + k}" for row in found[:1] for name, k in zip(free, row, strict=False)
    ]
    return None if not len(found) else f" at {', '.join(places)}" if free else ""


# ---- declarations --------------------------------------------------------------------------------------------------


def check_names(checker: Checker) -> None:
    """Names bound once and not reserved; indices that are not empty and are declared where they are used."""
    netsor = checker.netsor
    widths = [(name, Span()) for name in (*(w[0] for w in netsor.widths), *dict(netsor.fixed_widths))]
    vectors: tuple[Initial | Weight, ...] = (*netsor.initial, *netsor.weights)
    named: tuple[ConstantDef | Index | Initial | Weight, ...] = (*netsor.constants, *netsor.indices, *vectors)
    seen: set[str] = set()
    for name, span in [*((entry.name, entry.span) for entry in named), *widths]:
        check_name(checker, name, span, seen)
        seen.add(name)
    for statement in netsor.body:
        check_name(checker, statement.target.name, statement.span, seen)
    for index in netsor.indices:
        size = index.stop - index.start
        said = f"index {index.name} has {size} values, more than the {MAX_INDEX} allowed" if size > 0 else ""
        checker.need(1 <= size <= MAX_INDEX, said or f"index {index.name} is empty", index.span)
    for declaration in (*netsor.constants, *vectors):
        for name in declaration.indices:
            said = f"{name} in {declaration.name}[{','.join(declaration.indices)}] is not a declared index"
            checker.need(name in netsor.index, said, declaration.span, did_you_mean(name, list(netsor.index)))
        once = len(set(declaration.indices)) == len(declaration.indices)
        checker.need(once, f"{declaration.name} carries an index twice", declaration.span, "two indices of one range")


def check_name(checker: Checker, name: str, span: Span, seen: Collection[str]) -> None:
    """A name that a program may give, and has not given yet."""
    if checker.need(name.isidentifier(), f"{name!r} is not a name", span, "use letters, digits and _"):
        checker.need(name not in seen, f"{name} is bound twice", span, "give one of them another name")
        free = name not in RESERVED and name not in ATOMS
        checker.need(free, f"{name} is reserved by the language", span, f"call it {name}1, say")
        said = f"{name}: a trailing underscore is reserved for second copies of indices"
        checker.need(name[-1] != "_", said, span, name.rstrip("_"))


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
        few = checker.size(entry.indices) <= MAX_MEMBERS
        checker.need(few, f"{entry.name} has more than {MAX_MEMBERS:.0e} members", entry.span)
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
        plain = not slot.terms or (slot.bare and not slot.bare.endswith("_"))
        said = f"{target}: the left side takes plain indices or whole numbers, not {slot}"
        checker.need(plain, said, span, "shift the index on the right side instead")
    twice = next((name for name in names if names.count(name) > 1), "")
    checker.need(not twice, f"{target}: index {twice} stands twice on the left", span)


def joined(
    checker: Checker, name: str, positions: Sequence[int], statements: Sequence[Statement], whole: bool
) -> Family:
    """The family that one or several statements define together: no overlaps and no gaps."""
    targets = [statement.target for statement in statements]
    boxes = [[slot.span(checker.netsor.ranges) for slot in target.slots] for target in targets]
    ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
    edges, before = np.array(boxes, dtype=np.int64).reshape(len(boxes), len(ranges), 2), len(checker.problems)
    for later in range(1, len(boxes)):
        own, earlier = edges[later], edges[:later]
        overlaps = np.all((earlier[..., 0] < own[:, 1]) & (own[:, 0] < earlier[..., 1]), axis=1)
        said = f"{name} is bound twice: {targets[later]} overlaps {targets[int(overlaps.argmax())]}"
        checker.need(not overlaps.any(), said, statements[later].span, "give the parts disjoint ranges")
    size, total = (sum(math.prod(b - a for a, b in box) for box in some) for some in ([ranges], boxes))
    said = f"the definitions of {name} leave a gap in {' x '.join(f'{a}..{b - 1}' for a, b in ranges)}"
    complete = not whole or len(checker.problems) > before or total >= size
    checker.need(complete, said, statements[-1].span, "define every member of the family")
    checker.need(size <= MAX_MEMBERS, f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
    rules = [
        next((checker.netsor.boundary(target.slots[k]) for target in targets if target.slots[k].bare), "")
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
        if is_reference(checker, reference, left, span, families):
            weight, place = isinstance(statement, MatMul) and reference is statement.weight, span.at(reference.column)
            name, matrix = reference.name, families[reference.name].kind == "weight"
            fix = f"declare it under `weights:`, or swap the arguments of {statement.target.name}"
            checker.need(matrix or not weight, f"{name} is not a weight", place, fix)
            fix = f"MatMul({reference}, x) makes a vector of it"
            checker.need(weight or not matrix, f"{name} is a weight; a vector is needed here", place, fix)


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
        if need(kind[vector] == "vector", f"{vector} is a scalar; MatMul needs a vector", place):
            said = f"{statement.matrix} has shape [{rows}, {columns}], but {vector} has width {width[vector]}"
            need(width[vector] == columns, said, place, f"give {weight.name} another shape, or transpose it")
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
        vectors = [reference for reference in statement.inputs if kind.get(reference.name) == "vector"]
        for reference in vectors:
            said = f"{name} has width {width[name]}, but {reference.name} has width {width[reference.name]}"
            need(width[reference.name] == width[name], said, span.at(reference.column))
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
    checker.need(len(set(outputs)) == len(outputs), "an output is named twice")


def unused(netsor: Draft) -> tuple[Problem, ...]:
    """Warnings about declarations and statements that nothing uses."""
    declarations: tuple[Any, ...] = (*netsor.constants, *netsor.indices, *netsor.initial, *netsor.weights)
    texts: list[Any] = [*netsor.expressions, *netsor.outputs, *(text for _, text in netsor.written)]
    texts += [text for _, _, text in netsor.widths] + [index.text for index in netsor.indices]
    texts += [name for declaration in declarations for name in getattr(declaration, "indices", ())]
    texts += [part for s in netsor.body for part in (*s.references, *s.target.slots)]
    used = set(re.findall(r"\w+", " ".join(map(str, texts))))
    called = {ConstantDef: "constant", Initial: "initial vector", Weight: "weight"}
    found = [
        (f"the {called.get(type(entry), 'index')} {entry.name} is not used", entry.span)
        for entry in declarations
        if entry.name not in used
    ]
    names = [(s.target.name, s.span) for s in netsor.body if s.target.name not in used]
    found += [(f"{name} is neither used nor an output", span) for name, span in names]
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
