"""When a program is valid: names and declarations; indices and ranges; expressions; widths, order and values.

All mistakes of the first phase that has any are reported together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.atoms import ATOMS
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, refuse, shorten
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import (
    COMPARISONS,
    LOGICAL,
    RESERVED,
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
from tensorprog.language.linalg import fault_of_covariance
from tensorprog.language.parse import constant_value
from tensorprog.language.records import (
    EXPRESSIONS,
    ConstantDef,
    Dot,
    Draft,
    Family,
    Initial,
    MatMul,
    Nonlin,
    Range,
    Statement,
    Table,
    Weight,
)
from tensorprog.language.schedule import schedule

MAX_EXPONENT = 1000
MAX_MEMBERS = 10**12  # members of one family
MAX_INDEX = 10_000_000  # values of one index
MAX_STATEMENTS = 2000
MAX_TABLE = 10**8  # entries of a constant given by an expression
MAX_JOINT, LOOKED_AT = 2000, 2 * 10**10  # members of a covariance, and operations, for which it is looked at here
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used
MASKED = ("softmax", "logsumexp", "max")
INFINITE, HIDDEN = Number(math.inf), Number(-math.inf)
MENDED = "give the vectors themselves, data:, or more digits"


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    return tuple(getattr(statement, name) for name in EXPRESSIONS[type(statement)])


def validate(netsor: Draft) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program; gives its families, and warnings.

    Raises    ProgramError with all problems of the first phase that has any
    """
    checker = _Checker(netsor)
    checker.declarations()
    checker.definitions()
    refuse(checker.problems)
    for statement in netsor.body:
        checker.right_side(statement)
    refuse(checker.problems)
    checker.widths()
    boundaries = {name: family.boundaries for name, family in checker.families.items()}
    checker.problems += schedule(netsor.body, netsor.ranges, boundaries)[1]
    checker.outputs()
    refuse(checker.problems)
    for statement in netsor.body:
        if isinstance(statement, Nonlin):
            checker.masks(statement)
    refuse(checker.problems)
    return checker.families, _unused(netsor)


def check_declarations(draft: Draft) -> None:
    """Raise ProgramError for mistakes in declarations, with all of the first phase that has any."""
    checker = _Checker(draft)
    checker.declarations()
    refuse(checker.problems)


def check_last(draft: Draft, later: Collection[str]) -> None:
    """Raise ProgramError for mistakes in the last statement; of the names `later` nothing is known yet.

    Values of declarations are not looked at: quick, for the calls of a builder.
    """
    checker = _Checker(draft, later)
    checker.names()
    checker.declared()
    checker.definitions(whole=False)
    checker.right_side(draft.body[-1])
    if not checker.problems and not later:
        checker.widths()
    refuse(checker.problems)


class _Checker:
    """State of one check; of the names `later`, defined further below, nothing is said."""

    def __init__(self, netsor: Draft, later: Collection[str] = ()) -> None:
        self.netsor, self.later = netsor, later
        self.known_widths = ["n", *(name for name, *_ in netsor.widths), *dict(netsor.fixed_widths)]
        self.families: dict[str, Family] = {}
        self.problems: list[Problem] = []

    def need(self, condition: Any, message: str, span: Span = Span(), fix: str = "") -> bool:
        """Note a problem where the condition does not hold; gives the condition."""
        if not condition:
            self.problems.append(Problem(message, span, fix))
        return bool(condition)

    def slots(self, names: Iterable[str]) -> tuple[tuple[Range, ...], tuple[str, ...]]:
        """Ranges and boundary rules of several indices."""
        indices = [self.netsor.index[name] for name in names]
        return tuple((index.start, index.stop) for index in indices), tuple(index.boundary for index in indices)

    def shape(self, names: Iterable[str]) -> tuple[int, ...]:
        """Numbers of values of several indices and second copies."""
        return tuple(stop - start for start, stop in map(self.netsor.ranges.__getitem__, names))

    # -- names and declarations ----------------------------------------------------------------------------------------

    def declarations(self) -> None:
        """Names, then constants, then vectors and weights with their numbers."""
        self.names()
        refuse(self.problems)
        for constant in self.netsor.constants:
            self.constant(constant)
        refuse(self.problems)
        self.declared()
        for entry in () if self.problems else self.netsor.initial:
            self.initial(entry)
        for weight in () if self.problems else self.netsor.weights:
            what = f"the variance of {weight.name}"
            self.numbers(weight.variance, weight.indices, what, weight.span, positive=True)

    def names(self) -> None:
        """Names are bound once and not reserved; indices are declared where they are used."""
        netsor, seen = self.netsor, set[str]()
        carrying: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
        entries: tuple[Any, ...] = (*netsor.constants, *netsor.indices, *netsor.initial, *netsor.weights)
        named = [(entry.name, entry.span) for entry in entries]
        named += [(name, netsor.places.get(name, Span())) for name in self.known_widths[1:]]
        for name, span in [*named, *{s.target.name: s.span for s in reversed(netsor.body)}.items()]:
            if self.need(name.isidentifier(), f"{name!r} is not a name", span, "use letters, digits and _"):
                self.need(name not in seen, f"{name} is bound twice", span, "give one of them another name")
                free = name not in RESERVED and name not in ATOMS
                self.need(free, f"{name} is reserved by the language", span, f"call it {name}1, say")
                self.need(
                    name[-1] != "_",
                    f"{name}: a trailing underscore is reserved for second copies of indices",
                    span,
                    name.rstrip("_"),
                )
                seen.add(name)
        for index in netsor.indices:
            self.need(
                index.stop - index.start <= MAX_INDEX,
                f"index {index.name} has {index.stop - index.start} values, more than the {MAX_INDEX} allowed",
                index.span,
            )
        for entry in carrying:
            for name in entry.indices:
                self.need(
                    name in netsor.index,
                    f"{name} in {entry.name}[{','.join(entry.indices)}] is not a declared index",
                    entry.span,
                    did_you_mean(name, list(netsor.index)),
                )
            once = len(set(entry.indices)) == len(entry.indices)
            self.need(once, f"{entry.name} carries an index twice", entry.span, "two indices of one range")

    def declared(self) -> None:
        """The families of initial vectors and weights."""
        for vector in self.netsor.initial:
            self.width(vector.width, vector.span)
            ranges, rules = self.slots(vector.indices)
            self.add(Family(vector.name, "vector", ranges, vector.width, (), rules), vector.span)
        for weight in self.netsor.weights:
            for width in weight.shape:
                self.width(width, weight.span)
            ranges, rules = self.slots(weight.indices)
            self.add(Family(weight.name, "weight", ranges, "", (), rules), weight.span)

    def width(self, name: str, span: Span) -> None:
        """A width is declared where it is used."""
        known = self.known_widths
        self.need(name in known, f"{name} is not a declared width", span, did_you_mean(name, known))

    def add(self, family: Family, span: Span) -> None:
        """A family, which is not too large."""
        few = math.prod(family.shape) <= MAX_MEMBERS
        self.need(few, f"{family.name} has more than {MAX_MEMBERS:.0e} members", span)
        self.families[family.name] = family

    def constant(self, constant: ConstantDef) -> None:
        """The value of one constant."""
        what, value = f"constant {constant.name}", constant.value
        if isinstance(value, int | float):
            self.need(math.isfinite(value), f"{what} must be a finite number", constant.span)
            return
        used = {node.name for node in walk(value) if isinstance(node, Constant)} if isinstance(value, Expr) else set()
        plain = not any(isinstance(other.value, Expr) for other in self.netsor.constants if other.name in used)
        if self.need(plain, f"{what} is made of another indexed expression", constant.span, "write it out"):
            self.numbers(value, constant.indices, what, constant.span)

    def numbers(
        self, value: Expr | Table, indices: Sequence[str], what: str, span: Span, positive: bool = False
    ) -> None:
        """The values of a declaration are finite, and not negative if they must be `positive`."""
        values = self.values(value, indices, what, span)
        if values is not None and self.need(np.isfinite(values).all(), f"{what} has entries that are not finite", span):
            self.need(not positive or (values >= 0).all(), f"{what} must not be negative", span)

    def values(self, value: Expr | Table, indices: Sequence[str], what: str, span: Span) -> NDArray[np.float64] | None:
        """The values over the indices; None if there are none, or too many to look at."""
        shape, before = self.shape(indices), len(self.problems)
        if isinstance(value, Table):
            said = f"{what} has shape {value.shape}, but its indices [{','.join(indices)}] ask for {shape}"
            return value.array if self.need(value.shape == shape, said, span) else None
        self.sized(value, indices, what, span)
        known = len(self.problems) == before and math.prod(shape) <= MAX_CHECKED
        return index_array(self.netsor, value, indices) if known else None

    def sized(self, value: Expr, indices: Sequence[str], what: str, span: Span) -> None:
        """An expression of constants and indices, of not too many values."""
        self.expression(value, indices, span, what)
        few, fix = math.prod(self.shape(indices)) <= MAX_TABLE, "let it depend on fewer indices"
        self.need(few, f"{what} would have more than {MAX_TABLE} values", span, fix)

    def initial(self, entry: Initial) -> None:
        """Mean and covariance of an initial vector."""
        name, span, cov, indices = entry.name, entry.span, entry.cov, entry.indices
        what, called, sides = f"initial vector {name}", f"the cov of {name}", self.families[name].shape
        members = math.prod(sides)
        if entry.grid:
            first = next(v.name for v in self.netsor.initial if v.grid and v.width == entry.width)
            self.need(first == name, f"{what}: {first} is the coordinate vector of this width already", span)
            return
        self.numbers(entry.mean, indices, f"the mean of {name}", span)
        if entry.data is not None:
            array, fix = entry.data.array, "one row per member, the first index slowest"
            fits = array.ndim == 2 and len(array) == members and array.shape[1] > 0
            self.need(fits, f"{what}: data has shape {array.shape}, not ({members}, d)", span, fix)
            self.need(np.isfinite(array).all(), f"{what}: data has entries that are not finite", span)
            self.numbers(cov, (), f"the variance of {name}", span, positive=True)
        elif isinstance(cov, Table):
            fits = cov.shape in ((members, members), (*sides, *sides))
            if self.need(fits, f"{what}: cov has shape {cov.shape}, not {(members, members)}", span):
                fault = fault_of_covariance(cov.array.reshape(members, members))
                self.need(not fault, f"{what}: cov {fault}", span, MENDED)
        elif not entry.joint:
            self.numbers(cov, indices, called, span, positive=True)
        else:
            problems = len(self.problems)
            self.sized(cov, _axes(entry), called, span)
            if len(self.problems) == problems:
                used = {node.name for node in walk(cov) if isinstance(node, Constant)}
                constants = tuple(constant for constant in self.netsor.constants if constant.name in used)
                own = Draft("", constants=constants, indices=self.netsor.indices)
                fault = _fault(own, entry)
                self.need(not fault, f"{what}: cov {fault}", span, MENDED)

    # -- left sides ----------------------------------------------------------------------------------------------------

    def definitions(self, whole: bool = True) -> None:
        """The families that statements define; `whole` asks for every member."""
        body, groups, before = self.netsor.body, dict[str, list[int]](), len(self.problems)
        for position, statement in enumerate(body):
            target, span = statement.target, statement.span
            groups.setdefault(target.name, []).append(position)
            names = [slot.bare or "_" for slot in target.slots if slot.terms]
            said = f"{target}: the left side takes plain indices or whole numbers"
            plain = not any(name.endswith("_") for name in names)
            if self.need(plain, said, span, "shift the index on the right side instead"):
                self.need(len(set(names)) == len(names), f"{target}: an index stands twice on the left", span)
        if len(body) > MAX_STATEMENTS:
            said, fix = f"the statements are more than the {MAX_STATEMENTS} allowed", "a family is one statement"
            self.need(False, said, body[MAX_STATEMENTS].span, fix)
        for name, places in groups.items():
            counts = sorted({len(body[position].target.slots) for position in places})
            self.need(
                len(counts) == 1,
                f"{name} is defined with {' and with '.join(map(str, counts))} indices",
                body[places[-1]].span,
                "one name has one list of indices",
            )
        for name, places in groups.items() if len(self.problems) == before else ():
            self.joined(name, places, whole)

    def joined(self, name: str, places: Sequence[int], whole: bool) -> None:
        """The family that one or several statements define together: no overlaps and no gaps."""
        targets, spans = zip(*((self.netsor.body[p].target, self.netsor.body[p].span) for p in places), strict=True)
        boxes = [[slot.span(self.netsor.ranges) for slot in target.slots] for target in targets]
        edges, before = np.array(boxes, dtype=np.int64).reshape(len(boxes), -1, 2), len(self.problems)
        for later in range(1, len(boxes)):
            own, earlier = edges[later], edges[:later]
            overlaps = np.all((earlier[..., 0] < own[:, 1]) & (own[:, 0] < earlier[..., 1]), axis=1)
            self.need(
                not overlaps.any(),
                f"{name} is bound twice: {targets[later]} overlaps {targets[int(overlaps.argmax())]}",
                spans[later],
                "give the parts disjoint ranges",
            )
        ranges = tuple(
            (min(low for low, _ in slot), max(high for _, high in slot)) for slot in zip(*boxes, strict=True)
        )
        rules = [
            [self.netsor.boundary(slot) for slot in slots if slot.bare]
            for slots in zip(*(t.slots for t in targets), strict=True)
        ]
        family = Family(name, "scalar", ranges, "", tuple(places), tuple((rule or [""])[0] for rule in rules))
        total = sum(math.prod(high - low for low, high in box) for box in boxes)
        complete = not whole or len(self.problems) > before or total >= math.prod(family.shape)
        self.need(
            complete,
            f"the definitions of {name} leave a gap in {' x '.join(f'{low}..{high - 1}' for low, high in ranges)}",
            spans[-1],
            "define every member of the family",
        )
        self.add(family, spans[0])

    # -- right sides ---------------------------------------------------------------------------------------------------

    def right_side(self, statement: Statement) -> None:
        """Names, slots and roles on the right side of a statement."""
        left, span = {name for slot in statement.target.slots for name in slot.indices}, statement.span
        if isinstance(statement, Nonlin):
            self.operands([statement.expr], span)
            self.expression(statement.expr, left, span)
            self.width(statement.width or "n", span)
            return
        for reference in statement.references:
            self.reference(reference, left, span, isinstance(statement, MatMul) and reference is statement.weight)

    def expression(self, expr: Expr, bound: Collection[str], span: Span, what: str = "") -> None:
        """Names, indices and functions of an expression, `bound` being the indices in force.

        It is the right side of a Nonlin, or declares `what`, and then is made of constants and indices only.
        """
        place = span.at(getattr(expr, "column", 0))
        if what and not isinstance(expr, Number | Constant | Call) and getattr(expr, "name", "") not in bound:
            self.need(
                False,
                f"{what} must be made of constants{' and the indices ' * bool(bound)}{', '.join(bound)}, not of {expr}",
                span,
                did_you_mean(str(expr), [*self.netsor.constant, *bound], ""),
            )
            return
        match expr:
            case Variable() | Constant():
                self.reference(expr, bound, span)
            case IndexValue(name):
                self.is_bound(name, bound, span)
            case Call():
                self.call(expr, place)
            case Reduction(reducer, indices, arg):
                shown = f"{reducer}[{','.join(indices)}]"
                for name in indices:
                    if expr.removes:
                        said = f"{shown} hides the index {name}, which is bound outside already"
                        self.need(name not in bound, said, place)
                    else:
                        said = f"{shown} keeps the index {name}, so it must be on the left or summed outside"
                        self.need(name in bound, said, place, f"sum[{name}]({shown}(...) * ...)")
                self.operands([arg], place)
                bound = {*bound, *indices}
        for child in expr.children:
            self.expression(child, bound, span, what)

    def call(self, node: Call, span: Span) -> None:
        """Comparisons stand in conditions only, exponents are bounded, and numbers are finite."""
        match node:
            case Call("logical_and" | "logical_or", args):
                self.need(all(map(_is_condition, args)), "& and | join comparisons", span, "(a < b) & (c < d)")
            case Call("where", (condition, *branches)):
                said = "where(condition, x, y) needs a comparison as its condition"
                self.need(_is_condition(condition), said, span, "where(j <= i, x, y)")
                self.operands(branches, span)
            case _:
                self.operands(node.arguments, span)
        if all(
            isinstance(part, Call | Number) or (isinstance(part, Constant) and not part.slots) for part in walk(node)
        ):
            try:
                constant_value(node, self.netsor.scalars)
            except (ProgramError, ArithmeticError, ValueError):
                self.need(False, f"{node} is not a finite number", span, "change its numbers or constants")
        elif node.atom == "power" and isinstance(node.args[1], Number):
            small = abs(node.args[1].value) <= MAX_EXPONENT
            self.need(small, f"the exponent {node.args[1]} is too large", span, f"at most {MAX_EXPONENT}")

    def operands(self, parts: Iterable[Expr], span: Span) -> None:
        """What is computed with is a number: no comparison, and not infinite."""
        for part in parts:
            self.need(
                not _is_condition(part),
                "a comparison can only be the condition of where(condition, x, y)",
                span,
                f"where({part}, 1, 0)",
            )
            self.need(
                part != INFINITE,
                "inf is no value: only -inf is one, as a mask under softmax, logsumexp or max",
                span,
                "where(condition, x, -inf), or clip(x, 0, inf)",
            )

    def is_bound(self, name: str, bound: Collection[str], span: Span) -> bool:
        """Whether an index is on the left or reduced outside; complains if not."""
        said, fix = (
            f"the index {name} is neither on the left nor reduced",
            f"put {name} on the left, or sum[{name}](...)",
        )
        if name.endswith("_"):
            said, fix = f"{name}: second copies of indices occur in covariances only", f"write {name[:-1]}"
        return self.need(name in bound, said, span, fix)

    def reference(
        self, reference: Variable | Constant, bound: Collection[str], span: Span, weight: bool = False
    ) -> None:
        """A name is known and of the right kind, and has the slots that it needs, within range."""
        name, place, netsor = reference.name, span.at(reference.column), self.netsor
        family = self.families.get(name) if isinstance(reference, Variable) else None
        entry = netsor.constant.get(name) if isinstance(reference, Constant) else family
        if entry is None or name in self.later:
            said, fix = f"{name} is not defined", did_you_mean(name, [*self.families, *netsor.constant])
            if name == "n":
                said, fix = (
                    "n may occur only as scale=1/n in Dot",
                    "limits need programs that do not depend on the width",
                )
            self.need(name in self.later, said, place, fix)
            return
        ranges, rules = (
            self.slots(entry.indices) if isinstance(entry, ConstantDef) else (entry.ranges, entry.boundaries)
        )
        count = len(ranges)
        if not self.need(
            len(reference.slots) == count,
            f"{name} has {count} {'index' if count == 1 else 'indices'}, {len(reference.slots)} given",
            place,
        ):
            return
        for slot, (start, stop), rule in zip(reference.slots, ranges, rules, strict=True):
            if all(self.is_bound(index, bound, place) for index in slot.indices) and not rule:
                low, high = slot.bounds(netsor.ranges)
                said = f"{name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}"
                self.need(
                    start <= low and high < stop,
                    said,
                    place,
                    "shorten the index, or declare it as {size: ..., boundary: zero}, or boundary: wrap",
                )
        matrix, fix = (
            family is not None and family.kind == "weight",
            f"g = MatMul({reference}, x) in a statement of its own",
        )
        self.need(
            weight or not matrix,
            f"{name} is a weight; weights enter through MatMul only, as its first argument",
            place,
            fix,
        )
        self.need(
            matrix or not weight, f"{name} is not a weight", place, "declare it under `weights:`, or swap the arguments"
        )

    # -- widths and outputs --------------------------------------------------------------------------------------------

    def widths(self) -> None:
        """Which families are vectors, and of what width: a fixpoint, because definitions may be mutual."""
        netsor, known = self.netsor, -1
        width = {name: family.width for name, family in self.families.items() if family.kind == "vector"}
        while known < len(width):
            known = len(width)
            for statement in netsor.body:
                name, given = statement.target.name, [width[v.name] for v in statement.inputs if v.name in width]
                if isinstance(statement, MatMul):
                    width[name] = statement.sides(netsor.weight[statement.weight.name])[0]
                elif isinstance(statement, Nonlin) and (given or not statement.inputs):
                    width.setdefault(name, statement.width or (given or ["n"])[0])
        for statement in netsor.body:
            self.fits(statement, width)
        for name, family in self.families.items():
            if family.statements and name in width:
                self.families[name] = replace(family, kind="vector", width=width[name])

    def fits(self, statement: Statement, width: Mapping[str, str]) -> None:
        """Kinds and widths of one statement against each other."""
        span, name, need, inputs = statement.span, statement.target.name, self.need, statement.inputs
        own, given = width.get(name, ""), [width.get(operand.name, "") for operand in inputs]
        for operand, found in zip(inputs, given, strict=True):
            place, scalar = span.at(operand.column), f"{operand.name} is a scalar"
            if isinstance(statement, MatMul) and need(found, f"{scalar}; MatMul needs a vector", place):
                rows, columns = statement.sides(self.netsor.weight[statement.weight.name])
                need(
                    found == columns,
                    f"{statement.matrix} has shape [{rows}, {columns}], but {operand.name} has width {found}",
                    place,
                    f"give {statement.weight.name} another shape, or transpose it",
                )
                need(own == rows, f"{name} has definitions of different widths", span)
            elif isinstance(statement, Dot):
                need(found, f"{scalar}; Dot needs two vectors", place, "multiply scalars inside a Nonlin")
            elif isinstance(statement, Nonlin):
                need(found in ("", own), f"{name} has width {own}, but {operand.name} has width {found}", place)
        if isinstance(statement, Dot):
            need(
                "" in given or given[0] == given[-1],
                f"Dot of {inputs[0].name} (width {given[0]}) and {inputs[-1].name} (width {given[-1]})",
                span,
                "both operands need the same width",
            )
            need(not own, f"{name} is a vector in one definition and a Dot in another", span)
        elif isinstance(statement, Nonlin):
            need(own or not statement.width, f"{name} is a scalar; it has no width", span)

    def outputs(self) -> None:
        """Outputs exist, and each is named once."""
        outputs, known = self.netsor.outputs, list(dict.fromkeys(s.target.name for s in self.netsor.body))
        self.need(outputs, "the program has no outputs", Span(), "outputs: [y] in a file, P.outputs(y) in Python")
        for name in outputs:
            family, place = self.families.get(name), self.netsor.places.get(name, Span())
            if family is None or family.kind == "weight":
                fix = f"name the whole family {name.split('[')[0]}" if "[" in name else did_you_mean(name, known)
                self.need(False, f"the output {name} is not defined", place, fix)
            self.need(outputs.count(name) == 1, f"the output {name} is named twice", place)

    # -- values of functions -------------------------------------------------------------------------------------------

    def masks(self, statement: Nonlin) -> None:
        """No row of a softmax is masked throughout where indices alone decide, and no clip is empty.

        Other masks are found by running.
        """
        for node in walk(statement.expr):
            span = statement.span.at(getattr(node, "column", 0))
            if is_call(node, "clip"):
                place = self.first_place(Call("greater", node.params), ())
                self.need(place is None, f"{node}: the lower bound is above the upper one{place}", span)
            over = node.indices if isinstance(node, Reduction) and node.reducer in MASKED else ()
            for mask in walk(node) if over else ():
                if is_call(mask, "where") and HIDDEN in mask.args[1:]:
                    condition, yes, _ = mask.args
                    hidden = condition if yes == HIDDEN else Call("equal", (condition, Number(0)))
                    place = self.first_place(hidden, over)
                    self.need(
                        place is None,
                        f"{shorten(str(node))}: every entry is masked{place}",
                        span,
                        "leave at least one entry of each row unmasked",
                    )

    def first_place(self, condition: Expr, over: Sequence[str]) -> str | None:
        """Where a condition on indices first holds, for all of `over`, as text; None if nowhere, or not known."""
        nodes = [*walk(condition)]
        free = sorted({name for node in nodes for name in index_names(node)} - {*over})
        shape = self.shape([*free, *over])
        if math.prod(shape) > MAX_CHECKED or any(isinstance(node, Variable) for node in nodes):
            return None
        values = index_array(self.netsor, condition, [*free, *over]).astype(bool)
        found = np.argwhere(values.reshape(*shape[: len(free)], -1).all(axis=-1))
        ranges = map(self.netsor.ranges.__getitem__, free)
        places = [
            f"{name}={start + k}" for row in found[:1] for name, (start, _), k in zip(free, ranges, row, strict=False)
        ]
        return None if not len(found) else f" at {', '.join(places)}" if free else ""


def _is_condition(expr: Expr) -> bool:
    """Whether an expression is a comparison, or several joined by & and |."""
    return is_call(expr, *COMPARISONS, *LOGICAL)


def _unused(netsor: Draft) -> tuple[Problem, ...]:
    """Warnings about declarations and statements that nothing uses."""
    declarations: tuple[Any, ...] = (*netsor.constants, *netsor.indices, *netsor.initial, *netsor.weights)
    texts: list[Any] = [*netsor.expressions, *netsor.outputs, *(text for _, text in netsor.written)]
    texts += [text for _, _, text in netsor.widths] + [index.text for index in netsor.indices]
    texts += [name for declaration in declarations for name in getattr(declaration, "indices", ())]
    texts += [part for s in netsor.body for part in (*s.references, *s.target.slots)]
    used = set(re.findall(r"\w+", " ".join(map(str, texts))))
    called = {ConstantDef: "constant", Initial: "initial vector", Weight: "weight"}
    found = [(f"the {called.get(type(entry), 'index')} {entry.name} is not used", entry) for entry in declarations]
    found += [(f"{s.target.name} is neither used nor an output", s) for s in netsor.body]
    names = [*(entry.name for entry in declarations), *(s.target.name for s in netsor.body)]
    return tuple(
        Problem(said, entry.span) for name, (said, entry) in zip(names, found, strict=True) if name not in used
    )


def _axes(entry: Initial) -> list[str]:
    """The indices of the covariance of an initial vector: of independent members, and two copies of the others."""
    own = [index for index in entry.indices if index not in entry.joint]
    return [*own, *entry.joint, *(f"{index}_" for index in entry.joint)]


@lru_cache(maxsize=32)
def _fault(declared: Draft, entry: Initial) -> str:
    """What keeps the cov of an initial vector from being one: of many members the first are looked at, and the others
    where they are used.  Programs that are made of one another ask for it once.
    """
    assert isinstance(entry.cov, Expr)
    most, ranges = max(1, int(MAX_JOINT ** (1 / len(entry.joint)))), dict(declared.ranges)
    blocks = math.prod(ranges[index][1] - ranges[index][0] for index in entry.indices if index not in entry.joint)
    for index in entry.joint:
        start, stop = ranges[index]
        ranges[index] = ranges[f"{index}_"] = start, min(stop, start + most)
    size = math.prod(ranges[index][1] - ranges[index][0] for index in entry.joint)
    if blocks * size**2 > MAX_CHECKED:
        return ""
    found = index_array(declared, entry.cov, _axes(entry), ranges).reshape(-1, size, size)
    return next(filter(None, map(fault_of_covariance, found[: max(1, LOOKED_AT // size**3)])), "")
