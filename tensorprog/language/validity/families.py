"""Rules for what declarations and statements define: names bound once, whole families, kinds, widths, and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Problem, Span, did_you_mean
from tensorprog.language.expr import Call, Constant, Expr, IndexValue, Number, Reduction, Variable, walk
from tensorprog.language.records import ConstantDef, Dot, Family, Initial, Kind, MatMul, Nonlin, Statement, Weight
from tensorprog.language.validity.expressions import (
    MAX_MEMBERS,
    Checker,
    check_call,
    check_constant_use,
    check_slots,
    is_bound,
    statement_parts,
)
from tensorprog.language.validity.numbers import check_constant, check_initial, check_values

# ---- declarations --------------------------------------------------------------------------------------------------

MAX_INDEX = 10_000_000  # values of one index
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", "min", "max", *REDUCTIONS, *ATOMS}


def check_names(checker: Checker) -> None:
    """Names bound once and not reserved; indices that are not empty and are declared where they are used."""
    netsor = checker.netsor
    seen: dict[str, str] = {}
    groups: list[tuple[str, Iterable[tuple[str, Span]]]] = [
        ("a constant", ((c.name, c.span) for c in netsor.constants)),
        ("an index", ((i.name, i.span) for i in netsor.indices)),
        ("a width", ((name, Span()) for name, _, _ in netsor.widths)),
        ("a width", ((name, Span()) for name, _ in netsor.fixed_widths)),
        ("an initial vector", ((v.name, v.span) for v in netsor.initial)),
        ("a weight", ((w.name, w.span) for w in netsor.weights)),
    ]
    for kind, names in groups:
        for name, span in names:
            if name in seen:
                checker.error(f"{name} is bound twice: as {seen[name]} and as {kind}", span,
                              "give one of them another name", breaks=name)
            check_name(checker, name, span)
            seen[name] = kind
    for statement in netsor.body:
        name = statement.target.name
        if name in seen:
            checker.error(f"{name} is bound twice: as {seen[name]} and by this statement", statement.span,
                          "give the statement a new name on the left", breaks=name)
        check_name(checker, name, statement.span)
    for index in netsor.indices:
        size = index.stop - index.start
        if size < 1:
            checker.error(f"index {index.name} is empty: it runs from {index.start} to {index.stop - 1}", index.span,
                          "give it a size of at least 1", breaks=index.name)
        elif size > MAX_INDEX:
            checker.error(f"index {index.name} has {size} values, more than the {MAX_INDEX} allowed", index.span,
                          "choose a smaller size", breaks=index.name)
    known = [index.name for index in netsor.indices]
    declarations: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
    for declaration in declarations:
        for name in declaration.indices:
            if name not in known:
                checker.error(f"{name} in {declaration.name}[{','.join(declaration.indices)}] is not a declared index",
                              declaration.span, did_you_mean(name, known), breaks=declaration.name)
            checker.used.add(name)
        if len(set(declaration.indices)) != len(declaration.indices):
            checker.error(f"{declaration.name} carries an index twice", declaration.span,
                          f"two indices with the same range: {declaration.name}[i,j]", breaks=declaration.name)
        if not checker.unknown.isdisjoint(declaration.indices):
            checker.unknown.add(declaration.name)


def check_name(checker: Checker, name: str, span: Span) -> None:
    """A name that a program may give."""
    if not name.isidentifier():
        checker.error(f"{name!r} is not a name", span, "use letters, digits and _, beginning with a letter")
    elif name in RESERVED or name in ATOMS:  # those declared since are no less
        checker.error(f"{name} is reserved by the language", span, f"call it {name}1, say")
    elif name.endswith("_"):
        checker.error(f"{name}: a trailing underscore is reserved for second copies of indices", span,
                      name.rstrip("_"))


def check_constants(checker: Checker) -> None:
    """Values of the constants; one whose value is wrong becomes unknown."""
    for constant in checker.netsor.constants:
        before = len(checker.problems)
        doubtful = isinstance(constant.value, Expr) and checker.doubtful(constant.value)
        if constant.name not in checker.unknown and not doubtful:
            check_constant(checker, constant)
        if doubtful or len(checker.problems) > before:
            checker.unknown.add(constant.name)


def declared_families(checker: Checker, values: bool = True) -> dict[str, Family]:
    """Families of the initial vectors and weights; their numbers are checked if `values`."""
    families: dict[str, Family] = {}
    entries: tuple[Initial | Weight, ...] = (*checker.netsor.initial, *checker.netsor.weights)
    for entry in entries:
        for width in (entry.width,) if isinstance(entry, Initial) else entry.shape:
            checker.width(width, entry.span)
        if entry.name in checker.unknown:
            continue
        kind: Kind = "vector" if isinstance(entry, Initial) else "weight"
        width = entry.width if isinstance(entry, Initial) else ""
        family = Family(entry.name, kind, checker.index_ranges(entry.indices), width, (), checker.rules(entry.indices))
        families[entry.name] = family
        if math.prod(family.shape) > MAX_MEMBERS:
            checker.error(f"{family.name} has more than {MAX_MEMBERS:.0e} members", entry.span,
                          "choose smaller sizes for its indices")
        elif not values:
            continue
        elif isinstance(entry, Initial):
            check_initial(checker, entry, family)
        else:
            what = f"the variance of {entry.name}"
            check_values(checker, entry.variance, entry.indices, what, entry.span, sign=True)
    return families


# ---- statements ----------------------------------------------------------------------------------------------------

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
                          statements[-1].span, "one name has one list of indices", breaks=name)
            continue
        before = len(checker.problems)
        for statement in statements:
            check_left_side(checker, statement)
        family = joined(checker, name, positions, statements, whole) if len(checker.problems) == before else None
        if family is not None and len(checker.problems) == before:
            families[name] = family
        else:
            checker.unknown.add(name)
    return families


def check_left_side(checker: Checker, statement: Statement) -> None:
    """A left side consists of different plain indices and whole numbers."""
    seen = set()
    for slot in statement.target.slots:
        if slot.bare is None and slot.terms:
            checker.error(f"{statement.target}: the left side takes plain indices or whole numbers, not {slot}",
                          statement.span, "shift the index on the right side instead")
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


# ---- kinds and widths ----------------------------------------------------------------------------------------------

def with_kinds(checker: Checker, families: Mapping[str, Family], sound: Sequence[int]) -> dict[str, Family]:
    """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
    body = [checker.netsor.body[position] for position in sound]
    unsure = checker.unknown | {s.target.name for p, s in enumerate(checker.netsor.body) if p not in set(sound)}
    for statement in body if unsure else ():  # in the order of the text: what follows from unsure is unsure
        if isinstance(statement, Nonlin) and not unsure.isdisjoint(ref.name for ref in statement.inputs):
            unsure.add(statement.target.name)
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
                spread_kind(statement, kind, width, unsure)
        if before == (kind, width):
            break
    for statement in body:
        if all(reference.name in kind for reference in statement.inputs) and statement.target.name in kind:
            check_kinds(checker, statement, kind, width)
    return {name: replace(family, kind=kind.get(name, "scalar"), width=width.get(name, ""))
            for name, family in families.items()}


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
            checker.error(f"{vector} is a scalar; MatMul needs a vector", span.at(statement.vector.column),
                          "a scalar enters vectors inside a Nonlin")
        elif width[vector] != columns:
            shape = (width[vector], rows) if statement.transposed else (rows, width[vector])
            turned = replace(statement, transposed=not statement.transposed)
            checker.error(f"{statement.matrix} has shape [{rows}, {columns}], but {vector} has width {width[vector]}",
                          span.at(statement.vector.column), (f"{turned}, or " if width[vector] == rows else "")
                          + f"shape: [{', '.join(shape)}] for {weight.name}")
        if width.get(name) != rows:
            checker.error(f"{name} has definitions of different widths", span)
    elif isinstance(statement, Dot):
        for operand in (statement.left, statement.right):
            if kind[operand.name] != "vector":
                checker.error(f"{operand.name} is a scalar; Dot needs two vectors", span.at(operand.column),
                              "multiply scalars inside a Nonlin")
        left, right = width.get(statement.left.name), width.get(statement.right.name)
        if left and right and left != right:
            checker.error(f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})",
                          span, "both operands need the same width")
        if kind[name] == "vector":
            checker.error(f"{name} is a vector in one definition and a Dot in another", span)
    else:
        vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
        for reference in vectors:
            if width[reference.name] != width[name]:
                other = width[reference.name]
                checker.error(f"{name} has width {width[name]}, but {reference.name} has width {other}",
                              span.at(reference.column), "coordinatewise functions need equal widths")
        if statement.width and not vectors and statement.inputs and kind[name] == "scalar":
            checker.error(f"{name} is a scalar; it has no width", span)


# ---- outputs -------------------------------------------------------------------------------------------------------

def check_outputs(checker: Checker, families: Mapping[str, Family]) -> None:
    """Outputs exist, and each is named once."""
    if "outputs" in checker.unknown:  # they could not be read
        return
    known = list(dict.fromkeys(s.target.name for s in checker.netsor.body))
    if not checker.netsor.outputs:
        checker.error("the program has no outputs", Span(), "outputs: [name, ...]")
    for name in checker.netsor.outputs:
        checker.used.add(name)
        if name in checker.unknown:
            continue
        if name not in families or families[name].kind == "weight":
            checker.error(f"the output {name} is not defined", Span(), did_you_mean(name, known))
    if len(set(checker.netsor.outputs)) != len(checker.netsor.outputs):
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
    for text in (*(index.text for index in checker.netsor.indices), *(text for _, _, text in checker.netsor.widths),
                 *(text for _, text in checker.netsor.written)):
        checker.used |= _words(text)
    for kind, entries in (("constant", checker.netsor.constants), ("index", checker.netsor.indices),
                          ("initial vector", checker.netsor.initial), ("weight", checker.netsor.weights)):
        for entry in entries:
            if entry.name not in checker.used:
                checker.warnings.append(Problem(f"the {kind} {entry.name} is not used", entry.span))
    for statement in checker.netsor.body:
        if statement.target.name not in checker.used:
            checker.warnings.append(Problem(f"{statement.target.name} is neither used nor an output", statement.span))


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
