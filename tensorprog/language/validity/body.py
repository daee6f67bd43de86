"""The statements: left sides that cover each family once, and right sides whose names and ranges exist."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tensorprog.language.errors import did_you_mean
from tensorprog.language.expr import Call, Constant, Expr, IndexValue, Number, Reduction, Variable, walk
from tensorprog.language.ir import Family, MatMul, Nonlin, Statement
from tensorprog.language.validity.checker import MAX_MEMBERS, Checker, statement_parts
from tensorprog.language.validity.expressions import check_call, check_constant_use, check_slots, is_bound

MAX_STATEMENTS = 2000


def keep_readable(checker: Checker) -> None:
    """Keep the statements whose constants and indices are all known; a family with another one is unknown."""
    for statement in checker.netsor.body:
        if checker.doubtful(*statement_parts(statement)):
            checker.unknown.add(statement.target.name)
    if len(checker.netsor.body) > MAX_STATEMENTS:
        checker.error(f"the program has {len(checker.netsor.body)} statements, more than the {MAX_STATEMENTS} allowed",
                      checker.netsor.body[MAX_STATEMENTS].span, "a family is one statement, whatever its size")
    checker.body = [position for position, statement in enumerate(checker.netsor.body[:MAX_STATEMENTS])
                    if statement.target.name not in checker.unknown]


def defined_families(checker: Checker, whole: bool = True) -> dict[str, Family]:
    """Families that statements define; `whole` asks for every member."""
    groups: dict[str, list[int]] = {}
    for position in checker.body:
        groups.setdefault(checker.netsor.body[position].target.name, []).append(position)
    families = {}
    for name, positions in groups.items():
        statements = [checker.netsor.body[position] for position in positions]
        counts = {len(s.target.slots) for s in statements}
        if len(counts) > 1:
            checker.error(f"{name} is defined with {' and with '.join(map(str, sorted(counts)))} indices",
                          statements[-1].span, "one name has one list of indices")
            checker.unknown.add(name)
            continue
        sides = [is_left_side(checker, s) for s in statements]
        if not all(sides):
            checker.unknown.add(name)
            continue
        before = len(checker.problems)
        family = joined(checker, name, positions, statements, whole)
        if len(checker.problems) == before:
            families[name] = family
        else:
            checker.unknown.add(name)
    return families


def is_left_side(checker: Checker, statement: Statement) -> bool:
    """Whether a left side consists of different plain indices and whole numbers."""
    ok = True
    seen = set()
    for slot in statement.target.slots:
        if slot.bare is None and slot.terms:
            checker.error(f"{statement.target}: the left side takes plain indices or whole numbers, not {slot}",
                          statement.span, "shift the index on the right side instead")
            ok = False
        if slot.bare in seen and slot.bare is not None:
            checker.error(f"{statement.target}: index {slot.bare} stands twice on the left", statement.span)
            ok = False
        if slot.bare is not None and slot.bare.endswith("_"):
            checker.error(f"{statement.target}: {slot.bare} is reserved for second copies of indices", statement.span)
            ok = False
        seen.add(slot.bare)
    return ok


def joined(
    checker: Checker, name: str, positions: Sequence[int], statements: Sequence[Statement], whole: bool = True
) -> Family:
    """The family that one or several statements define together: no overlaps and no gaps."""
    boxes = []
    for statement in statements:
        box = []
        for slot in statement.target.slots:
            low, high = slot.bounds(checker.netsor.ranges)
            box.append((low, high + 1))
        boxes.append(box)
    ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
    before = len(checker.problems)
    edges = np.array(boxes, dtype=np.int64).reshape(len(boxes), len(ranges), 2)
    for later in range(1, len(boxes)):
        own, before_it = edges[later], edges[:later]
        overlaps = np.all((before_it[..., 0] < own[:, 1]) & (own[:, 0] < before_it[..., 1]), axis=1)
        if overlaps.any():
            second, first = statements[later], statements[int(overlaps.argmax())].target
            checker.error(f"{name} is bound twice: {second.target} overlaps {first} of an earlier statement",
                          second.span, "give the parts disjoint ranges, or the statement a new name")
    total = sum(math.prod(b - a for a, b in box) for box in boxes)
    if whole and len(checker.problems) == before and total < math.prod(b - a for a, b in ranges):
        whole_box = " x ".join(f"{a}..{b - 1}" for a, b in ranges)
        checker.error(f"the definitions of {name} leave a gap in {whole_box}", statements[-1].span,
                      "define every member of the family")
    if math.prod(b - a for a, b in ranges) > MAX_MEMBERS:
        checker.error(f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
    rules = [next((checker.netsor.boundary(s.target.slots[k]) for s in statements if s.target.slots[k].bare), "")
             for k in range(len(ranges))]
    return Family(name, "scalar", ranges, "", tuple(positions), tuple(rules))


def sound_statements(checker: Checker, families: Mapping[str, Family]) -> list[int]:
    """Check the right sides; positions of the statements without mistakes whose names are all known."""
    sound = []
    for position in checker.body:
        before = len(checker.problems)
        check_right_side(checker, checker.netsor.body[position], families)
        if len(checker.problems) == before and is_known(checker, position, families):
            sound.append(position)
    return sound


def is_known(checker: Checker, position: int, families: Mapping[str, Family]) -> bool:
    """Whether a statement mentions known families only."""
    return all(node.name in families for part in statement_parts(checker.netsor.body[position])
               for node in walk(part) if isinstance(node, Variable))


def check_right_side(checker: Checker, statement: Statement, families: Mapping[str, Family]) -> None:
    """Names, slots and roles on the right side of a statement."""
    left = {name for slot in statement.target.slots for name in slot.indices}
    checker.used |= left
    if isinstance(statement, Nonlin):
        check_expression(checker, statement.expr, left, statement, families)
        if statement.width:
            checker.width(statement.width, statement.span)
        return
    parts = ((statement.weight, True), (statement.vector, False)) if isinstance(statement, MatMul) else (
        (statement.left, False), (statement.right, False))
    for reference, is_weight in parts:
        if not is_reference(checker, reference, left, statement, families):
            continue
        kind = families[reference.name].kind
        if is_weight and kind != "weight":
            checker.error(f"{reference.name} is not a weight", statement.span.at(reference.column),
                          f"declare it under `weights:`, or swap the arguments of {statement.target.name}")
        if not is_weight and kind == "weight":
            checker.error(f"{reference.name} is a weight; a vector is needed here",
                          statement.span.at(reference.column), f"MatMul({reference}, x) makes a vector of it")


def check_expression(
    checker: Checker, expr: Expr, bound: set[str], statement: Statement, families: Mapping[str, Family]
) -> None:
    """Names and indices in the argument of a Nonlin; `bound` are the indices in force."""
    span = statement.span
    if isinstance(expr, Variable):
        if is_reference(checker, expr, bound, statement, families) and families[expr.name].kind == "weight":
            checker.error(f"{expr.name} is a weight; weights enter through MatMul only", span.at(expr.column),
                          f"g = MatMul({expr}, x) in a statement of its own")
    elif isinstance(expr, Constant):
        check_constant_use(checker, expr, span, bound)
    elif isinstance(expr, IndexValue):
        is_bound(checker, expr.name, bound, span)
    elif isinstance(expr, Reduction):
        for name in expr.indices:
            checker.used.add(name)
            if name in bound and expr.removes:
                checker.error(f"{expr.reducer}[{name}] hides the index {name}, which is bound outside already",
                              span.at(expr.column), "use another index with the same range")
            if not expr.removes and name not in bound:
                checker.error(f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed "
                              "outside", span.at(expr.column), f"sum[{name}]({expr.reducer}[{name}](...) * ...)")
        check_expression(checker, expr.arg, bound | set(expr.indices), statement, families)
    elif isinstance(expr, Call):
        for arg in expr.args:
            check_expression(checker, arg, bound, statement, families)
        check_call(checker, expr, span)
    elif isinstance(expr, Number) and math.isnan(expr.value):
        checker.error("nan is not a number", span)


def is_reference(
    checker: Checker, reference: Variable, bound: set[str], statement: Statement, families: Mapping[str, Family]
) -> bool:
    """Whether a name refers to a known family, with slots that fit; complains if not."""
    checker.used.add(reference.name)
    family = families.get(reference.name)
    if family is None:
        defined = {s.target.name for s in checker.netsor.body}
        if reference.name in defined or reference.name in checker.unknown:
            return False  # its declaration is wrong and has been reported
        if reference.name == "n":
            checker.error("n may occur only as scale=1/n in Dot", statement.span.at(reference.column),
                          "limits need programs whose text does not depend on the width")
            return False
        known = [*families, *checker.netsor.constant, *checker.netsor.index]
        checker.error(f"{reference.name} is not defined", statement.span.at(reference.column),
                      did_you_mean(reference.name, known))
        return False
    return check_slots(checker, reference, family.ranges, family.boundaries, bound, statement.span)
