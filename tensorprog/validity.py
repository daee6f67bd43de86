"""When a program is valid: names, indices, ranges, kinds and widths; every mistake is reported, together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tensorprog.atoms import ATOMS, REDUCTIONS
from tensorprog.errors import Problem, ProgramError, Span, did_you_mean
from tensorprog.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, walk
from tensorprog.ir import (
    ConstantDef,
    Dot,
    Family,
    Initial,
    Kind,
    MatMul,
    Netsor,
    Nonlin,
    Range,
    Statement,
    Table,
    Weight,
)
from tensorprog.order import schedule
from tensorprog.parse import constant_value

__all__ = ["MAX_INDEX", "Draft", "problems_of", "validate"]

MAX_INDEX = 10_000_000  # values of one index
MAX_MEMBERS = 10**12  # members of one family
MAX_TABLE = 10**8  # entries of a constant given by an expression
MAX_CHECKED = 10**7  # entries evaluated to check their values; larger ones are checked where they are used
MAX_STATEMENTS = 2000
MAX_EXPONENT = 1000
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", "min", "max", *REDUCTIONS, *ATOMS}


def validate(netsor: Netsor) -> tuple[Mapping[str, Family], tuple[Problem, ...]]:
    """Check a program and work out its families.

    Raises    ProgramError with all problems
    """
    checker = _Checker(netsor)
    families = checker.run()
    if checker.problems:
        raise ProgramError(sorted(dict.fromkeys(checker.problems), key=lambda p: (p.span.line, p.span.column)))
    return MappingProxyType(families), tuple(checker.warnings)


class Draft(Netsor):
    """A program that is not complete yet: no validation on construction, for `problems_of` to look at."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "families", MappingProxyType({}))
        object.__setattr__(self, "warnings", ())


def problems_of(draft: Netsor, unknown: Iterable[str] = (), last: bool = False) -> list[Problem]:
    """Mistakes that are certain while nothing is known about the names `unknown` (their declarations failed).

    With `last`, only those of the last statement, without values of declarations: quick, for the calls of a builder.
    """
    checker = _Checker(draft, unknown)
    if last:
        return checker.last_statement()
    checker.run()
    return checker.problems


class _Checker:
    """The rules; a name whose declaration is wrong joins `unknown`, and rules say nothing about what depends on it."""

    def __init__(self, netsor: Netsor, unknown: Iterable[str] = ()) -> None:
        self.netsor = netsor
        self.unknown = set(unknown)
        self.body: list[int] = []  # positions of the statements whose left sides can be relied on
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.used: set[str] = set()

    def error(self, message: str, span: Span = Span(), fix: str = "") -> None:
        self.problems.append(Problem(message, span, fix))

    def run(self) -> dict[str, Family]:
        self.declarations()
        self.constants()
        families = self.declared_families()
        self.readable()
        families |= self.defined_families()
        sound = self.references(families)
        families = self.kinds(families, sound)
        body = [self.netsor.body[position] for position in sound]
        _, problems = schedule(body, self.netsor.ranges, {name: f.boundaries for name, f in families.items()})
        self.problems += problems
        self.outputs(families)
        if not self.problems and not self.unknown:
            self.masks()
            self.unused()
        return families

    def last_statement(self) -> list[Problem]:
        """Problems of the last statement of a draft."""
        self.declarations()
        self.readable()
        families = self.declared_families(values=False)
        families |= self.defined_families(whole=False)
        statement = self.netsor.body[-1]
        if statement.target.name in families or statement.target.name in self.unknown:
            self.right_side(statement, families)
        if not self.problems:
            self.kinds(families, [position for position in self.body if self.known(position, families)])
        return [problem for problem in self.problems if problem.span.text == statement.span.text]

    def readable(self) -> None:
        """Keep the statements whose constants and indices are all known; a family with another one is unknown."""
        for statement in self.netsor.body:
            if self.doubtful(*statement_parts(statement)):
                self.unknown.add(statement.target.name)
        if len(self.netsor.body) > MAX_STATEMENTS:
            self.error(f"the program has {len(self.netsor.body)} statements, more than the {MAX_STATEMENTS} allowed",
                       self.netsor.body[MAX_STATEMENTS].span, "a family is one statement, whatever its size")
        self.body = [position for position, statement in enumerate(self.netsor.body[:MAX_STATEMENTS])
                     if statement.target.name not in self.unknown]

    def doubtful(self, *parts: Expr | Table) -> bool:
        """Whether an unknown constant or index occurs."""
        for part in parts:
            if isinstance(part, Expr) and not self.unknown.isdisjoint(_constants_and_indices(part)):
                return True
        return False

    # -- declarations -------------------------------------------------------------------------------------------

    def declarations(self) -> None:
        netsor = self.netsor
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
                    self.error(f"{name} is bound twice: as {seen[name]} and as {kind}", span,
                               "give one of them another name")
                    self.unknown.add(name)
                self.name(name, span)
                seen[name] = kind
        for statement in netsor.body:
            name = statement.target.name
            if name in seen:
                self.error(f"{name} is bound twice: as {seen[name]} and by this statement", statement.span,
                           "give the statement a new name on the left")
                self.unknown.add(name)
            self.name(name, statement.span)
        for index in netsor.indices:
            if not 0 < index.stop - index.start <= MAX_INDEX:
                self.unknown.add(index.name)
            if index.stop <= index.start:
                self.error(f"index {index.name} is empty: it runs from {index.start} to {index.stop - 1}", index.span,
                           "give it a size of at least 1")
            elif index.stop - index.start > MAX_INDEX:
                size = index.stop - index.start
                self.error(f"index {index.name} has {size} values, more than the {MAX_INDEX} allowed", index.span,
                           "choose a smaller size")
        known = [index.name for index in netsor.indices]
        declarations: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
        for declaration in declarations:
            for name in declaration.indices:
                if name not in known:
                    self.error(f"{name} in {declaration.name}[{','.join(declaration.indices)}] is not a declared index",
                               declaration.span, did_you_mean(name, known))
                    self.unknown.add(declaration.name)
                self.used.add(name)
            if len(set(declaration.indices)) != len(declaration.indices):
                self.error(f"{declaration.name} carries an index twice", declaration.span,
                           f"two indices with the same range: {declaration.name}[i,j]")
                self.unknown.add(declaration.name)
            if not self.unknown.isdisjoint(declaration.indices):
                self.unknown.add(declaration.name)

    def name(self, name: str, span: Span) -> None:
        if not name.isidentifier():
            self.error(f"{name!r} is not a name", span, "use letters, digits and _, beginning with a letter")
        elif name in RESERVED:
            self.error(f"{name} is reserved by the language", span, f"call it {name}1, say")
        elif name.endswith("_"):
            self.error(f"{name}: a trailing underscore is reserved for second copies of indices", span,
                       name.rstrip("_"))

    def declared_families(self, values: bool = True) -> dict[str, Family]:
        self.widths = {"n", *(name for name, *_ in self.netsor.widths), *dict(self.netsor.fixed_widths)}
        families: dict[str, Family] = {}
        entries: tuple[Initial | Weight, ...] = (*self.netsor.initial, *self.netsor.weights)
        for entry in entries:
            for width in (entry.width,) if isinstance(entry, Initial) else entry.shape:
                self.width(width, entry.span)
            if entry.name in self.unknown:
                continue
            kind: Kind = "vector" if isinstance(entry, Initial) else "weight"
            width = entry.width if isinstance(entry, Initial) else ""
            family = Family(entry.name, kind, self.index_ranges(entry.indices), width, (), self.rules(entry.indices))
            families[entry.name] = family
            if math.prod(family.shape) > MAX_MEMBERS:
                self.error(f"{family.name} has more than {MAX_MEMBERS:.0e} members", entry.span,
                           "choose smaller sizes for its indices")
            elif not values:
                continue
            elif isinstance(entry, Initial):
                self.initial(entry, family)
            elif not self.doubtful(entry.variance):
                what = f"the variance of {entry.name}"
                if self.closed(entry.variance, entry.indices, what, entry.span):
                    self.sign(entry.variance, entry.indices, what, entry.span)
        return families

    def size(self, names: Iterable[str]) -> int:
        """Number of values of several indices together."""
        return math.prod(stop - start for start, stop in map(self.netsor.ranges.__getitem__, names))

    def index_ranges(self, names: Sequence[str]) -> tuple[Range, ...]:
        return tuple(self.netsor.ranges[name] for name in names)

    def rules(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.netsor.index[name].boundary for name in names)

    def width(self, name: str, span: Span) -> None:
        self.used.add(name)
        if name not in self.widths and name not in self.unknown:
            hint = did_you_mean(name, sorted(self.widths))
            self.error(f"{name} is not a declared width", span, hint if "mean" in hint else f"widths: {{{name}: n/2}}")

    def closed(self, expr: Expr, indices: Sequence[str], what: str, span: Span, copies: bool = False) -> bool:
        """Complain about anything but numbers, constants and the indices given."""
        before = len(self.problems)
        allowed = {*indices, *(f"{name}_" for name in indices if copies)}
        for node in walk(expr):
            if isinstance(node, Variable):
                self.error(f"{what} must be made of constants and indices; {node.name} is neither", span,
                           did_you_mean(node.name, [*self.netsor.constant, *allowed]))
            elif isinstance(node, IndexValue) and node.name not in allowed:
                second = node.name.endswith("_") and node.name[:-1] in allowed
                self.error(f"{what} may not depend on the {'second copy' if second else 'index'} {node.name}", span,
                           f"use {node.name[:-1]}" if second else f"its indices are {', '.join(indices) or 'none'}")
            elif isinstance(node, Constant):
                self.constant(node, span, allowed)
            elif isinstance(node, Reduction | Call):
                self.shape_of(node, span, allowed)
        return len(self.problems) == before

    def shape_of(self, node: Reduction | Call, span: Span, allowed: Iterable[str] = ()) -> None:
        """Rules that hold wherever an expression stands."""
        if isinstance(node, Reduction):
            # a reduction would bind an index of its own; outside Nonlin there is nothing to reduce
            self.error(f"{node.reducer}[...] acts over indices of a Nonlin; it cannot stand here", span.at(node.column),
                       "write the values out, as a list or a .npy file")
            return
        self.conditions(node, span)

    def conditions(self, node: Call, span: Span) -> None:
        if node.atom == "where" and not _is_condition(node.args[0]):
            self.error("where(condition, x, y) needs a comparison as its condition", span.at(node.column),
                       "where(j <= i, x, y)")
        if node.atom in ("logical_and", "logical_or") and not all(map(_is_condition, node.args)):
            self.error("& and | join comparisons", span.at(node.column), "(a < b) & (c < d), each one in brackets")
        if all(isinstance(p, Call | Number) or (isinstance(p, Constant) and not p.slots) for p in walk(node)):
            self.finite(node, span)
        elif node.atom == "power" and isinstance(node.args[1], Number) and abs(node.args[1].value) > MAX_EXPONENT:
            self.error(f"the exponent {node.args[1]} is too large", span.at(node.column), f"at most {MAX_EXPONENT}")
        for arg in node.args[1 if node.atom == "where" else 0 :]:
            if _is_condition(arg) and node.atom not in ("logical_and", "logical_or"):
                self.error("a comparison can only be the condition of where(condition, x, y)", span.at(node.column),
                           f"where({arg}, 1, 0)")

    def finite(self, node: Call, span: Span) -> None:
        """A part made of numbers and constants must have a finite value."""
        try:
            constant_value(node, {c.name: c.value for c in self.netsor.constants if isinstance(c.value, int | float)})
        except (ProgramError, ArithmeticError, ValueError):
            self.error(f"{node} is not a finite number", span.at(node.column), "change its numbers or constants")

    def sign(self, expr: Expr, indices: Sequence[str], what: str, span: Span) -> None:
        values = self.values(expr, indices, what, span)
        if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
            self.error(f"{what} must be finite and not negative", span, "a variance is the square of a scale")

    def values(self, expr: Expr, indices: Sequence[str], what: str, span: Span) -> NDArray[np.float64] | None:
        from tensorprog.evaluate import index_array

        size = self.size(indices)
        if size > MAX_TABLE:
            self.error(f"{what} would have more than {MAX_TABLE} values", span, "let it depend on fewer indices")
        if size > MAX_CHECKED:
            return None
        try:
            return index_array(self.netsor, expr, indices)
        except (ProgramError, ArithmeticError, ValueError, TypeError) as error:
            self.error(f"{what} cannot be evaluated: {error}", span)
            return None

    def constants(self) -> None:
        for constant in self.netsor.constants:
            before = len(self.problems)
            if constant.name not in self.unknown and not (
                    isinstance(constant.value, Expr) and self.doubtful(constant.value)):
                self.one_constant(constant)
            else:
                self.unknown.add(constant.name)
            if len(self.problems) > before:
                self.unknown.add(constant.name)

    def one_constant(self, constant: ConstantDef) -> None:
        what = f"constant {constant.name}"
        if isinstance(constant.value, Table):
            shape = tuple(stop - start for start, stop in self.index_ranges(constant.indices))
            if constant.value.shape != shape:
                self.error(f"{what} has shape {constant.value.shape}, but its indices "
                           f"[{','.join(constant.indices)}] ask for {shape}", constant.span)
            elif not np.isfinite(constant.value.array).all():
                self.error(f"{what} has entries that are not finite", constant.span)
        elif isinstance(constant.value, Expr):
            if not self.closed(constant.value, constant.indices, what, constant.span):
                return
            if any(isinstance(self.netsor.constant[node.name].value, Expr)
                   for node in walk(constant.value) if isinstance(node, Constant)):
                self.error(f"{what} is made of another indexed expression", constant.span, "write it out")
                return
            values = self.values(constant.value, constant.indices, what, constant.span)
            if values is not None and not np.isfinite(values).all():
                self.error(f"{what} is not finite for some indices", constant.span)
        elif not math.isfinite(constant.value):
            self.error(f"{what} must be a finite number", constant.span)

    def initial(self, initial: Initial, family: Family) -> None:
        what = f"initial vector {initial.name}"
        members = math.prod(family.shape)
        if isinstance(initial.mean, Table):
            if initial.mean.shape != family.shape:
                self.error(f"{what}: mean has shape {initial.mean.shape}, not {family.shape}", initial.span)
            elif not np.isfinite(initial.mean.array).all():
                self.error(f"{what}: mean has entries that are not finite", initial.span)
        elif not self.doubtful(initial.mean) and self.closed(
                initial.mean, initial.indices, f"the mean of {initial.name}", initial.span):
            values = self.values(initial.mean, initial.indices, f"the mean of {initial.name}", initial.span)
            if values is not None and not np.isfinite(values).all():
                self.error(f"{what}: mean is not finite", initial.span)
        if initial.data is not None:
            self.data(initial, members)
            return
        if isinstance(initial.cov, Table):
            if initial.cov.shape not in ((members, members), (*family.shape, *family.shape)):
                self.error(f"{what}: cov has shape {initial.cov.shape}, not {(members, members)}", initial.span)
            else:
                self.semidefinite(initial.cov.array.reshape(members, members), what, initial.span)
            return
        if self.doubtful(initial.cov) or not self.closed(
                initial.cov, initial.indices, f"the cov of {initial.name}", initial.span, copies=True):
            return
        copies = {name[:-1] for name in _constants_and_indices(initial.cov, stripped=False) if name.endswith("_")}
        joint = [name for name in initial.indices if name in copies]
        size = math.prod(self.netsor.index[name].stop - self.netsor.index[name].start for name in joint)
        if size > 20_000:
            self.error(f"{what}: a joint covariance of {size} members is too large", initial.span,
                       "let fewer indices appear with a second copy")
        elif not joint:
            self.sign(initial.cov, initial.indices, f"the cov of {initial.name}", initial.span)
        else:
            rest = [name for name in initial.indices if name not in copies]
            axes = [*rest, *joint, *(f"{name}_" for name in joint)]
            values = self.values(initial.cov, axes, f"the cov of {initial.name}", initial.span)
            if values is not None and size <= 2000:
                blocks = values.reshape(-1, size, size)
                for block in blocks[: max(1, 10**9 // size**3)]:
                    before = len(self.problems)
                    self.semidefinite(block, what, initial.span)
                    if len(self.problems) > before:
                        break

    def data(self, initial: Initial, members: int) -> None:
        what = f"initial vector {initial.name}"
        assert initial.data is not None
        if len(initial.data.shape) != 2 or initial.data.shape[0] != members or not initial.data.shape[1]:
            self.error(f"{what}: data has shape {initial.data.shape}, not ({members}, d)", initial.span,
                       "one row per member, the first index slowest")
        elif not np.isfinite(initial.data.array).all():
            self.error(f"{what}: data has entries that are not finite", initial.span)
        if isinstance(initial.cov, Table):
            self.error(f"{what}: the variance that goes with data is one number", initial.span, "variance: 1")
            return
        what = f"the variance of {initial.name}"
        if not self.doubtful(initial.cov) and self.closed(initial.cov, (), what, initial.span):
            self.sign(initial.cov, (), what, initial.span)

    def semidefinite(self, matrix: NDArray[np.float64], what: str, span: Span) -> None:
        if not np.isfinite(matrix).all():
            self.error(f"{what}: cov has entries that are not finite", span)
        elif np.abs(matrix - matrix.T).max() > 1e-10 * np.abs(matrix).max(initial=1e-300):
            self.error(f"{what}: cov is not symmetric", span, "it must not change when i and i_ swap")
        else:
            scale = np.abs(matrix).max(initial=1e-300)
            try:  # much quicker than eigenvalues, which are needed for the message only
                np.linalg.cholesky(matrix + 0.5e-8 * scale * np.eye(len(matrix)))
                return
            except np.linalg.LinAlgError:
                lowest = float(np.linalg.eigvalsh(matrix)[0])
            if lowest < -1e-8 * scale:
                self.error(f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g})", span)

    # -- the body -----------------------------------------------------------------------------------------------

    def defined_families(self, whole: bool = True) -> dict[str, Family]:
        groups: dict[str, list[int]] = {}
        for position in self.body:
            groups.setdefault(self.netsor.body[position].target.name, []).append(position)
        families = {}
        for name, positions in groups.items():
            statements = [self.netsor.body[position] for position in positions]
            counts = {len(s.target.slots) for s in statements}
            if len(counts) > 1:
                self.error(f"{name} is defined with {' and with '.join(map(str, sorted(counts)))} indices",
                           statements[-1].span, "one name has one list of indices")
                self.unknown.add(name)
                continue
            sides = [self.left_side(s) for s in statements]
            if not all(sides):
                self.unknown.add(name)
                continue
            before = len(self.problems)
            family = self.family(name, positions, statements, whole)
            if len(self.problems) == before:
                families[name] = family
            else:
                self.unknown.add(name)
        return families

    def left_side(self, statement: Statement) -> bool:
        ok = True
        seen = set()
        for slot in statement.target.slots:
            if slot.bare is None and slot.terms:
                self.error(f"{statement.target}: the left side takes plain indices or whole numbers, not {slot}",
                           statement.span, "shift the index on the right side instead")
                ok = False
            if slot.bare in seen and slot.bare is not None:
                self.error(f"{statement.target}: index {slot.bare} stands twice on the left", statement.span)
                ok = False
            if slot.bare is not None and slot.bare.endswith("_"):
                self.error(f"{statement.target}: {slot.bare} is reserved for second copies of indices", statement.span)
                ok = False
            seen.add(slot.bare)
        return ok

    def family(
        self, name: str, positions: Sequence[int], statements: Sequence[Statement], whole: bool = True
    ) -> Family:
        boxes = []
        for statement in statements:
            box = []
            for slot in statement.target.slots:
                low, high = slot.bounds(self.netsor.ranges)
                box.append((low, high + 1))
            boxes.append(box)
        ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
        before = len(self.problems)
        for later in range(len(boxes)):
            for earlier in range(later):
                if all(a < d and c < b for (a, b), (c, d) in zip(boxes[later], boxes[earlier], strict=True)):
                    second, first = statements[later], statements[earlier].target
                    self.error(f"{name} is bound twice: {second.target} overlaps {first} of an earlier statement",
                               second.span, "give the parts disjoint ranges, or the statement a new name")
        total = sum(math.prod(b - a for a, b in box) for box in boxes)
        if whole and len(self.problems) == before and total < math.prod(b - a for a, b in ranges):
            whole_box = " x ".join(f"{a}..{b - 1}" for a, b in ranges)
            self.error(f"the definitions of {name} leave a gap in {whole_box}", statements[-1].span,
                       "define every member of the family")
        if math.prod(b - a for a, b in ranges) > MAX_MEMBERS:
            self.error(f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
        rules = [next((self.netsor.boundary(s.target.slots[k]) for s in statements if s.target.slots[k].bare), "")
                 for k in range(len(ranges))]
        return Family(name, "scalar", ranges, "", tuple(positions), tuple(rules))

    def references(self, families: Mapping[str, Family]) -> list[int]:
        """Check the right sides; positions of the statements without mistakes whose names are all known."""
        sound = []
        for position in self.body:
            before = len(self.problems)
            self.right_side(self.netsor.body[position], families)
            if len(self.problems) == before and self.known(position, families):
                sound.append(position)
        return sound

    def known(self, position: int, families: Mapping[str, Family]) -> bool:
        """Whether a statement mentions known families only."""
        return all(node.name in families for part in statement_parts(self.netsor.body[position])
                   for node in walk(part) if isinstance(node, Variable))

    def right_side(self, statement: Statement, families: Mapping[str, Family]) -> None:
        left = {name for slot in statement.target.slots for name in slot.indices}
        self.used |= left
        if isinstance(statement, Nonlin):
            self.expression(statement.expr, left, statement, families)
            if statement.width:
                self.width(statement.width, statement.span)
            return
        parts = ((statement.weight, True), (statement.vector, False)) if isinstance(statement, MatMul) else (
            (statement.left, False), (statement.right, False))
        for reference, is_weight in parts:
            if not self.reference(reference, left, statement, families):
                continue
            kind = families[reference.name].kind
            if is_weight and kind != "weight":
                self.error(f"{reference.name} is not a weight", statement.span.at(reference.column),
                           f"declare it under `weights:`, or swap the arguments of {statement.target.name}")
            if not is_weight and kind == "weight":
                self.error(f"{reference.name} is a weight; a vector is needed here",
                           statement.span.at(reference.column), f"MatMul({reference}, x) makes a vector of it")

    def expression(self, expr: Expr, bound: set[str], statement: Statement, families: Mapping[str, Family]) -> None:
        span = statement.span
        if isinstance(expr, Variable):
            if self.reference(expr, bound, statement, families) and families[expr.name].kind == "weight":
                self.error(f"{expr.name} is a weight; weights enter through MatMul only", span.at(expr.column),
                           f"g = MatMul({expr}, x) in a statement of its own")
        elif isinstance(expr, Constant):
            self.constant(expr, span, bound)
        elif isinstance(expr, IndexValue):
            self.index_name(expr.name, bound, span)
        elif isinstance(expr, Reduction):
            for name in expr.indices:
                self.used.add(name)
                if name in bound and expr.removes:
                    self.error(f"{expr.reducer}[{name}] hides the index {name}, which is bound outside already",
                               span.at(expr.column), "use another index with the same range")
                if not expr.removes and name not in bound:
                    self.error(f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed "
                               "outside", span.at(expr.column), f"sum[{name}]({expr.reducer}[{name}](...) * ...)")
            self.expression(expr.arg, bound | set(expr.indices), statement, families)
        elif isinstance(expr, Call):
            for arg in expr.args:
                self.expression(arg, bound, statement, families)
            self.conditions(expr, span)
        elif isinstance(expr, Number) and math.isnan(expr.value):
            self.error("nan is not a number", span)

    def index_name(self, name: str, bound: Iterable[str], span: Span, column: int = 0) -> bool:
        if name in bound:
            return True
        if name.endswith("_"):
            self.error(f"{name}: second copies of indices occur in covariances only", span.at(column))
        else:
            self.error(f"the index {name} is neither on the left nor reduced", span.at(column),
                       f"put {name} on the left, or write sum[{name}](...)")
        return False

    def slots(self, reference: Variable | Constant, ranges: Sequence[Range], rules: Sequence[str],
              bound: Iterable[str], span: Span) -> bool:
        span = span.at(reference.column)
        if len(reference.slots) != len(ranges):
            self.error(f"{reference.name} has {len(ranges)} {'index' if len(ranges) == 1 else 'indices'}, "
                       f"{len(reference.slots)} given", span,
                       f"{reference.name}[{', '.join('...' for _ in ranges)}]" if ranges else reference.name)
            return False
        ok = True
        for slot, (start, stop), rule in zip(reference.slots, ranges, rules, strict=True):
            found = [self.index_name(name, bound, span) for name in slot.indices]
            if not all(found):
                ok = False
                continue
            self.used |= set(slot.indices)
            low, high = slot.bounds(self.netsor.ranges)
            if not rule and (low < start or high >= stop):
                self.error(f"{reference.name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}",
                           span, "shorten the index, or declare it as {size: ..., boundary: zero}, or boundary: wrap")
                ok = False
        return ok

    def constant(self, node: Constant, span: Span, bound: Iterable[str]) -> None:
        self.used.add(node.name)
        definition = self.netsor.constant.get(node.name)
        if definition is None:
            hint = did_you_mean(node.name, list(self.netsor.constant))
            self.error(f"{node.name} is not defined", span.at(node.column), hint)
            return
        self.slots(node, self.index_ranges(definition.indices), self.rules(definition.indices), bound, span)

    def reference(
        self, reference: Variable, bound: set[str], statement: Statement, families: Mapping[str, Family]
    ) -> bool:
        self.used.add(reference.name)
        family = families.get(reference.name)
        if family is None:
            defined = {s.target.name for s in self.netsor.body}
            if reference.name in defined or reference.name in self.unknown:
                return False  # its declaration is wrong and has been reported
            if reference.name == "n":
                self.error("n may occur only as scale=1/n in Dot", statement.span.at(reference.column),
                           "limits need programs whose text does not depend on the width")
                return False
            known = [*families, *self.netsor.constant, *self.netsor.index]
            self.error(f"{reference.name} is not defined", statement.span.at(reference.column),
                       did_you_mean(reference.name, known))
            return False
        return self.slots(reference, family.ranges, family.boundaries, bound, statement.span)

    # -- kinds, widths, outputs ---------------------------------------------------------------------------------

    def kinds(self, families: Mapping[str, Family], sound: Sequence[int]) -> dict[str, Family]:
        """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
        body = [self.netsor.body[position] for position in sound]
        unsure = self.unknown | {s.target.name for p, s in enumerate(self.netsor.body) if p not in set(sound)}
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
                    kind[name], width[name] = "vector", self.netsor.weight[statement.weight.name].shape[0]
                elif isinstance(statement, Dot):
                    kind.setdefault(name, "scalar")
                else:
                    self.nonlin_kind(statement, kind, width, unsure)
            if before == (kind, width):
                break
        for statement in body:
            if all(reference.name in kind for reference in statement.inputs) and statement.target.name in kind:
                self.check_kinds(statement, kind, width)
        return {name: replace(family, kind=kind.get(name, "scalar"), width=width.get(name, ""))
                for name, family in families.items()}

    def nonlin_kind(
        self, statement: Nonlin, kind: dict[str, Kind], width: dict[str, str], unsure: set[str]
    ) -> None:
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

    def check_kinds(self, statement: Statement, kind: Mapping[str, Kind], width: Mapping[str, str]) -> None:
        span = statement.span
        name = statement.target.name
        if isinstance(statement, MatMul):
            weight, vector = statement.weight.name, statement.vector.name
            if kind[vector] != "vector":
                self.error(f"{vector} is a scalar; MatMul needs a vector", span.at(statement.vector.column),
                           "a scalar enters vectors inside a Nonlin")
            elif width[vector] != self.netsor.weight[weight].shape[1]:
                rows, columns = self.netsor.weight[weight].shape
                self.error(f"{weight} has shape [{rows}, {columns}], but {vector} has width {width[vector]}",
                           span.at(statement.vector.column), f"shape: [{rows}, {width[vector]}] for {weight}")
            if width.get(name) != self.netsor.weight[weight].shape[0]:
                self.error(f"{name} has definitions of different widths", span)
        elif isinstance(statement, Dot):
            for operand in (statement.left, statement.right):
                if kind[operand.name] != "vector":
                    self.error(f"{operand.name} is a scalar; Dot needs two vectors", span.at(operand.column),
                               "multiply scalars inside a Nonlin")
            left, right = width.get(statement.left.name), width.get(statement.right.name)
            if left and right and left != right:
                self.error(f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})",
                           span, "both operands need the same width")
            if kind[name] == "vector":
                self.error(f"{name} is a vector in one definition and a Dot in another", span)
        else:
            vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
            for reference in vectors:
                if width[reference.name] != width[name]:
                    other = width[reference.name]
                    self.error(f"{name} has width {width[name]}, but {reference.name} has width {other}",
                               span.at(reference.column), "coordinatewise functions need equal widths")
            if statement.width and not vectors and statement.inputs and kind[name] == "scalar":
                self.error(f"{name} is a scalar; it has no width", span)

    def outputs(self, families: Mapping[str, Family]) -> None:
        if "outputs" in self.unknown:  # they could not be read
            return
        known = list(dict.fromkeys(s.target.name for s in self.netsor.body))
        if not self.netsor.outputs:
            self.error("the program has no outputs", Span(), "outputs: [name, ...]")
        for name in self.netsor.outputs:
            self.used.add(name)
            if name in self.unknown:
                continue
            if name not in families or families[name].kind == "weight":
                self.error(f"the output {name} is not defined", Span(), did_you_mean(name, known))
        if len(set(self.netsor.outputs)) != len(self.netsor.outputs):
            self.error("an output is named twice", Span())

    def masks(self) -> None:
        """A softmax row whose every entry is -inf has no value: found here, before anything runs."""
        from tensorprog.evaluate import index_array

        for statement in self.netsor.body:
            if not isinstance(statement, Nonlin):
                continue
            for node in walk(statement.expr):
                if not (isinstance(node, Reduction) and node.reducer in ("softmax", "logsumexp", "max")):
                    continue
                hidden = _hidden(node.arg)
                if hidden is None:
                    continue
                free = _constants_and_indices(hidden) & self.netsor.index.keys() - {*node.indices}
                axes = [*sorted(free), *node.indices]
                if self.size(axes) > MAX_CHECKED:
                    continue
                masked = index_array(self.netsor, hidden, axes).astype(bool)
                rows = masked.reshape(*masked.shape[: len(axes) - len(node.indices)], -1).all(axis=-1)
                if rows.any():
                    where = np.argwhere(rows)[0]
                    values = zip(axes, where, strict=False)
                    row = ", ".join(f"{name}={self.netsor.ranges[name][0] + value}" for name, value in values)
                    what = f"{node.reducer}[{', '.join(node.indices)}]"
                    self.error(f"{what}: every entry is masked{' at ' + row if row else ''}",
                               statement.span.at(node.column), "leave at least one entry of each row unmasked")

    def unused(self) -> None:
        for statement in self.netsor.body:
            self.used |= {reference.name for reference in statement.inputs}
            if isinstance(statement, MatMul):
                self.used.add(statement.weight.name)
            for part in statement_parts(statement):
                for node in walk(part):
                    if isinstance(node, Constant | Variable):
                        self.used.update(*(_words(slot.text) for slot in node.slots))
        for text in (*(index.text for index in self.netsor.indices), *(text for _, _, text in self.netsor.widths),
                     *(text for _, text in self.netsor.written)):
            self.used |= _words(text)
        for kind, entries in (("constant", self.netsor.constants), ("index", self.netsor.indices),
                              ("initial vector", self.netsor.initial), ("weight", self.netsor.weights)):
            for entry in entries:
                if entry.name not in self.used:
                    self.warnings.append(Problem(f"the {kind} {entry.name} is not used", entry.span))
        for statement in self.netsor.body:
            if statement.target.name not in self.used:
                self.warnings.append(Problem(f"{statement.target.name} is neither used nor an output", statement.span))


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())


def statement_parts(statement: Statement) -> tuple[Expr, ...]:
    """Left side and arguments of a statement."""
    if isinstance(statement, MatMul):
        return statement.target, statement.weight, statement.vector
    if isinstance(statement, Dot):
        return statement.target, statement.left, statement.right
    return statement.target, statement.expr


def _constants_and_indices(expr: Expr, stripped: bool = True) -> set[str]:
    """Names of the constants and indices in an expression, second copies under the name of the first if `stripped`."""
    names: set[str] = set()
    for node in walk(expr):
        if isinstance(node, IndexValue | Constant):
            names.add(node.name)
        if isinstance(node, Reduction):
            names.update(node.indices)
        if isinstance(node, Constant | Variable):
            names.update(name for slot in node.slots for name in slot.indices)
    return {name.rstrip("_") for name in names} if stripped else names


def _is_condition(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.atom in (
        "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "logical_and", "logical_or")


def _hidden(expr: Expr) -> Expr | None:
    """Condition (1 where true) under which an expression is -inf because of masks on indices, if there is one."""
    if not (isinstance(expr, Call) and expr.atom == "where"):
        return None
    condition, first, second = expr.args
    if any(isinstance(node, Variable) for node in walk(condition)):
        return None

    def masked(branch: Expr) -> Expr | None:
        if isinstance(branch, Number) and branch.value == -math.inf:
            return Number(1)
        return _hidden(branch)

    yes, no = masked(first), masked(second)
    if yes is None and no is None:
        return None
    return Call("where", (condition, Number(0) if yes is None else yes, Number(0) if no is None else no))


def affine_slots(slots: Sequence[Affine]) -> str:
    """Slots as they are written."""
    return ",".join(map(str, slots))
