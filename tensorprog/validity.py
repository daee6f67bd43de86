"""When a program is valid: names, indices, ranges, kinds and widths; every mistake is reported, together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from tensorprog.atoms import ATOMS, REDUCTIONS
from tensorprog.errors import Problem, ProgramError, Span, did_you_mean
from tensorprog.expr import Affine, Call, Constant, Expr, IndexValue, Number, Reduction, Variable, walk
from tensorprog.ir import Dot, Family, Initial, Kind, MatMul, Nonlin, Range, Statement, Table
from tensorprog.order import schedule

if TYPE_CHECKING:
    from tensorprog.ir import Netsor

__all__ = ["MAX_INDEX", "validate"]

MAX_INDEX = 10_000_000  # values of one index
MAX_MEMBERS = 10**12  # members of one family
MAX_TABLE = 10**8  # entries of a constant given by an expression
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


class _Checker:
    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.used: set[str] = set()

    def error(self, message: str, span: Span = Span(), fix: str = "") -> None:
        self.problems.append(Problem(message, span, fix))

    def run(self) -> dict[str, Family]:
        self.declarations()
        if self.problems:  # ranges mean nothing while indices are broken
            return {}
        self.widths = {"n", *(name for name, _, _ in self.netsor.widths), *(name for name, _ in self.netsor.fixed_widths)}
        families = self.declared_families()
        self.constants()
        families |= self.defined_families(families)
        if self.problems:  # the rules below would only repeat what is wrong on the left sides
            self.references(families)
            return families
        self.references(families)
        if not self.problems:
            families = self.kinds(families)
        if not self.problems:
            _, problems = schedule(self.netsor.body, self.netsor.ranges,
                                   {name: family.boundaries for name, family in families.items()})
            self.problems += problems
        self.outputs(families)
        if not self.problems:
            self.masks()
            self.unused()
        return families

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
                    self.error(f"{name} is bound twice: as {seen[name]} and as {kind}", span, "give one of them another name")
                self.name(name, span)
                seen[name] = kind
        for statement in netsor.body:
            name = statement.target.name
            if name in seen:
                self.error(f"{name} is bound twice: as {seen[name]} and by this statement", statement.span,
                           "give the statement a new name on the left")
            self.name(name, statement.span)
        for index in netsor.indices:
            if index.stop <= index.start:
                self.error(f"index {index.name} is empty: it runs from {index.start} to {index.stop - 1}", index.span,
                           "give it a size of at least 1")
            elif index.stop - index.start > MAX_INDEX:
                self.error(f"index {index.name} has {index.stop - index.start} values, more than the {MAX_INDEX} allowed",
                           index.span, "choose a smaller size")
        known = [index.name for index in netsor.indices]
        for declaration in (*netsor.constants, *netsor.initial, *netsor.weights):
            for name in declaration.indices:
                if name not in known:
                    self.error(f"{name} in {declaration.name}[{','.join(declaration.indices)}] is not a declared index",
                               declaration.span, did_you_mean(name, known))
                self.used.add(name)
            if len(set(declaration.indices)) != len(declaration.indices):
                self.error(f"{declaration.name} carries an index twice", declaration.span)

    def name(self, name: str, span: Span) -> None:
        if not name.isidentifier():
            self.error(f"{name!r} is not a name", span, "use letters, digits and _, beginning with a letter")
        elif name in RESERVED:
            self.error(f"{name} is reserved by the language", span, f"call it {name}1, say")
        elif name.endswith("_"):
            self.error(f"{name}: a trailing underscore is reserved for second copies of indices", span, name.rstrip("_"))

    def declared_families(self) -> dict[str, Family]:
        families: dict[str, Family] = {}
        for initial in self.netsor.initial:
            families[initial.name] = Family(initial.name, "vector", self.index_ranges(initial.indices), initial.width, (),
                                            self.rules(initial.indices))
            self.initial(initial, families[initial.name])
            self.width(initial.width, initial.span)
        for weight in self.netsor.weights:
            families[weight.name] = Family(weight.name, "weight", self.index_ranges(weight.indices), "", (),
                                           self.rules(weight.indices))
            self.closed(weight.variance, weight.indices, f"the variance of {weight.name}", weight.span)
            self.sign(weight.variance, weight.indices, f"the variance of {weight.name}", weight.span)
            for width in weight.shape:
                self.width(width, weight.span)
        for family in families.values():
            if math.prod(family.shape) > MAX_MEMBERS:
                self.error(f"{family.name} has more than {MAX_MEMBERS:.0e} members", self.span_of(family.name))
        return families

    def span_of(self, name: str) -> Span:
        entries = (*self.netsor.initial, *self.netsor.weights)
        return next((entry.span for entry in entries if entry.name == name), Span())

    def index_ranges(self, names: Sequence[str]) -> tuple[Range, ...]:
        return tuple(self.netsor.ranges[name] for name in names)

    def rules(self, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(self.netsor.index[name].boundary for name in names)

    def width(self, name: str, span: Span) -> None:
        self.used.add(name)
        if name not in self.widths:
            self.error(f"{name} is not a declared width", span,
                       did_you_mean(name, sorted(self.widths)) or f"widths: {{{name}: n/2}}")

    def closed(self, expr: Expr, indices: Sequence[str], what: str, span: Span, copies: bool = False) -> None:
        """Complain about anything but numbers, constants and the indices given."""
        allowed = {*indices, *(f"{name}_" for name in indices if copies)}
        for node in walk(expr):
            if isinstance(node, Variable):
                self.error(f"{what} must be made of constants and indices; {node.name} is neither", span,
                           did_you_mean(node.name, [*self.netsor.constant, *allowed]))
            elif isinstance(node, IndexValue) and node.name not in allowed:
                self.error(f"{what} may not depend on the index {node.name}", span)
            elif isinstance(node, Constant):
                self.constant(node, span, allowed)

    def sign(self, expr: Expr, indices: Sequence[str], what: str, span: Span) -> None:
        values = self.values(expr, indices, what, span)
        if values is not None and not (np.isfinite(values).all() and (values >= 0).all()):
            self.error(f"{what} must be finite and not negative", span)

    def values(self, expr: Expr, indices: Sequence[str], what: str, span: Span) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
        from tensorprog.evaluate import index_array

        if self.problems:
            return None
        if math.prod(self.netsor.ranges[name][1] - self.netsor.ranges[name][0] for name in indices) > MAX_TABLE:
            self.error(f"{what} would have more than {MAX_TABLE} values", span)
            return None
        try:
            return index_array(self.netsor, expr, indices)
        except ProgramError as error:
            self.error(f"{what}: {error}", span)
            return None

    def constants(self) -> None:
        for constant in self.netsor.constants:
            what = f"constant {constant.name}"
            if isinstance(constant.value, Table):
                shape = tuple(stop - start for start, stop in self.index_ranges(constant.indices))
                if constant.value.shape != shape:
                    self.error(f"{what} has shape {constant.value.shape}, but its indices "
                               f"[{','.join(constant.indices)}] ask for {shape}", constant.span)
                elif not np.isfinite(constant.value.array).all():
                    self.error(f"{what} has entries that are not finite", constant.span)
            elif isinstance(constant.value, Expr):
                self.closed(constant.value, constant.indices, what, constant.span)
                if any(isinstance(node, Constant) and isinstance(self.netsor.constant[node.name].value, Expr)
                       for node in walk(constant.value) if not isinstance(node, Constant) or node.name in self.netsor.constant):
                    self.error(f"{what} is made of another indexed expression", constant.span, "write it out")
                values = self.values(constant.value, constant.indices, what, constant.span)
                if values is not None and np.isnan(values).any():
                    self.error(f"{what} is not a number for some indices", constant.span)

    def initial(self, initial: Initial, family: Family) -> None:
        what = f"initial vector {initial.name}"
        members = math.prod(family.shape)
        if isinstance(initial.mean, Table):
            if initial.mean.shape != family.shape:
                self.error(f"{what}: mean has shape {initial.mean.shape}, not {family.shape}", initial.span)
        else:
            self.closed(initial.mean, initial.indices, f"the mean of {initial.name}", initial.span)
        if initial.data is not None and (len(initial.data.shape) != 2 or initial.data.shape[0] != members):
            self.error(f"{what}: data has shape {initial.data.shape}, not ({members}, d)", initial.span)
        if isinstance(initial.cov, Table):
            if initial.cov.shape not in ((members, members), (*family.shape, *family.shape)):
                self.error(f"{what}: cov has shape {initial.cov.shape}, not {(members, members)}", initial.span)
                return
            matrix = initial.cov.array.reshape(members, members)
            self.semidefinite(matrix, what, initial.span)
            return
        self.closed(initial.cov, initial.indices, f"the cov of {initial.name}", initial.span, copies=True)
        copies = {node.name[:-1] for node in walk(initial.cov) if isinstance(node, IndexValue) and node.name.endswith("_")}
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
                self.semidefinite(blocks[0], what, initial.span)

    def semidefinite(self, matrix: np.ndarray[tuple[int, ...], np.dtype[np.float64]], what: str, span: Span) -> None:
        if not np.isfinite(matrix).all():
            self.error(f"{what}: cov has entries that are not finite", span)
        elif np.abs(matrix - matrix.T).max() > 1e-10 * np.abs(matrix).max(initial=1e-300):
            self.error(f"{what}: cov is not symmetric", span, "a covariance between i and i_ must not change when they swap")
        else:
            lowest = float(np.linalg.eigvalsh(matrix)[0])
            if lowest < -1e-8 * np.abs(matrix).max(initial=1e-300):
                self.error(f"{what}: cov is not positive semidefinite (lowest eigenvalue {lowest:.3g})", span)

    # -- the body -----------------------------------------------------------------------------------------------

    def defined_families(self, declared: Mapping[str, Family]) -> dict[str, Family]:
        groups: dict[str, list[int]] = {}
        for position, statement in enumerate(self.netsor.body):
            groups.setdefault(statement.target.name, []).append(position)
        families = {}
        for name, positions in groups.items():
            statements = [self.netsor.body[position] for position in positions]
            counts = {len(s.target.slots) for s in statements}
            if len(counts) > 1:
                self.error(f"{name} is defined with {' and with '.join(map(str, sorted(counts)))} indices",
                           statements[-1].span, "one name has one list of indices")
                continue
            if not all(self.left_side(s) for s in statements):
                continue
            families[name] = self.family(name, positions, statements)
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

    def family(self, name: str, positions: Sequence[int], statements: Sequence[Statement]) -> Family:
        boxes = []
        for statement in statements:
            box = []
            for slot in statement.target.slots:
                low, high = slot.bounds(self.netsor.ranges)
                box.append((low, high + 1))
            boxes.append(box)
        ranges = tuple((min(b[k][0] for b in boxes), max(b[k][1] for b in boxes)) for k in range(len(boxes[0])))
        for later in range(len(boxes)):
            for earlier in range(later):
                if all(a < d and c < b for (a, b), (c, d) in zip(boxes[later], boxes[earlier], strict=True)):
                    first = statements[earlier].target
                    self.error(f"{name} is bound twice: {statements[later].target} overlaps {first} of an earlier statement",
                               statements[later].span, "give the parts disjoint ranges, or the statement a new name")
        total = sum(math.prod(b - a for a, b in box) for box in boxes)
        if not self.problems and total < math.prod(b - a for a, b in ranges):
            self.error(f"the definitions of {name} leave a gap", statements[-1].span, "define every member of the family")
        if math.prod(b - a for a, b in ranges) > MAX_MEMBERS:
            self.error(f"{name} has more than {MAX_MEMBERS:.0e} members", statements[0].span)
        rules = [next((self.netsor.boundary(s.target.slots[k]) for s in statements if s.target.slots[k].bare), "")
                 for k in range(len(ranges))]
        return Family(name, "scalar", ranges, "", tuple(positions), tuple(rules))

    def references(self, families: Mapping[str, Family]) -> None:
        for statement in self.netsor.body:
            left = {slot.bare for slot in statement.target.slots if slot.bare}
            self.used |= left
            if isinstance(statement, Nonlin):
                self.expression(statement.expr, left, statement, families)
                if statement.width:
                    self.width(statement.width, statement.span)
                continue
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
                    self.error(f"{reference.name} is a weight; a vector is needed here", statement.span.at(reference.column))

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
                    self.error(f"{expr.reducer}[{name}] keeps the index {name}, so it must be on the left or summed outside",
                               span.at(expr.column))
            self.expression(expr.arg, bound | set(expr.indices), statement, families)
        elif isinstance(expr, Call):
            for arg in expr.args:
                self.expression(arg, bound, statement, families)
            if expr.atom in ("where",) and not _is_condition(expr.args[0]):
                self.error("where(condition, x, y) needs a comparison as its condition", span.at(expr.column),
                           "where(j <= i, x, y)")
            for arg in expr.args[1 if expr.atom == "where" else 0 :]:
                if _is_condition(arg) and expr.atom not in ("logical_and", "logical_or"):
                    self.error("a comparison can only be the condition of where(condition, x, y)", span.at(expr.column))
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
            if not all([self.index_name(name, bound, span) for name in slot.indices]):
                ok = False
                continue
            self.used |= set(slot.indices)
            low, high = slot.bounds(self.netsor.ranges)
            if not rule and (low < start or high >= stop):
                self.error(f"{reference.name}: the index {slot} runs over {low}..{high}, outside {start}..{stop - 1}", span,
                           "shorten the index, or declare it {size: ..., boundary: zero} or {..., boundary: wrap}")
                ok = False
        return ok

    def constant(self, node: Constant, span: Span, bound: Iterable[str]) -> None:
        self.used.add(node.name)
        definition = self.netsor.constant.get(node.name)
        if definition is None:
            self.error(f"{node.name} is not defined", span.at(node.column), did_you_mean(node.name, list(self.netsor.constant)))
            return
        self.slots(node, self.index_ranges(definition.indices), self.rules(definition.indices), bound, span)

    def reference(self, reference: Variable, bound: set[str], statement: Statement, families: Mapping[str, Family]) -> bool:
        self.used.add(reference.name)
        family = families.get(reference.name)
        if family is None:
            defined = {s.target.name for s in self.netsor.body}
            if reference.name in defined:
                return False  # its left side is wrong and has been reported
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

    def kinds(self, families: Mapping[str, Family]) -> dict[str, Family]:
        """Vector or scalar, and the width, of every family: a fixpoint, because definitions may be mutual."""
        kind: dict[str, Kind] = {name: f.kind for name, f in families.items() if not f.statements}
        width = {name: f.width for name, f in families.items() if not f.statements}
        for _ in range(len(self.netsor.body) + 1):
            before = dict(kind), dict(width)
            for statement in self.netsor.body:
                name = statement.target.name
                if isinstance(statement, MatMul):
                    kind[name], width[name] = "vector", self.netsor.weight[statement.weight.name].shape[0]
                elif isinstance(statement, Dot):
                    kind.setdefault(name, "scalar")
                else:
                    self.nonlin_kind(statement, kind, width)
            if before == (kind, width):
                break
        for statement in self.netsor.body:
            self.check_kinds(statement, kind, width)
        return {name: Family(f.name, kind.get(name, "scalar"), f.ranges, width.get(name, ""), f.statements, f.boundaries)
                for name, f in families.items()}

    def nonlin_kind(self, statement: Nonlin, kind: dict[str, Kind], width: dict[str, str]) -> None:
        name = statement.target.name
        names = [reference.name for reference in statement.inputs]
        vectors = [other for other in names if kind.get(other) == "vector"]
        if vectors:
            kind[name] = "vector"
            width.setdefault(name, statement.width or next((width[v] for v in vectors if v in width), "n"))
        elif not names:
            kind[name] = "vector"  # a constant vector
            width.setdefault(name, statement.width or "n")
        else:
            kind.setdefault(name, "scalar")

    def check_kinds(self, statement: Statement, kind: Mapping[str, Kind], width: Mapping[str, str]) -> None:
        span = statement.span
        name = statement.target.name
        if isinstance(statement, MatMul):
            weight, vector = statement.weight.name, statement.vector.name
            if kind[vector] != "vector":
                self.error(f"{vector} is a scalar; MatMul needs a vector", span.at(statement.vector.column))
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
                self.error(f"Dot of {statement.left.name} (width {left}) and {statement.right.name} (width {right})", span)
            if kind[name] == "vector":
                self.error(f"{name} is a vector in one definition and a Dot in another", span)
        else:
            vectors = [r for r in statement.inputs if kind.get(r.name) == "vector"]
            for reference in vectors:
                if width[reference.name] != width[name]:
                    self.error(f"{name} has width {width[name]}, but {reference.name} has width {width[reference.name]}",
                               span.at(reference.column), "coordinatewise functions need equal widths")
            if statement.width and not vectors and statement.inputs and kind[name] == "scalar":
                self.error(f"{name} is a scalar; it has no width", span)

    def outputs(self, families: Mapping[str, Family]) -> None:
        known = [s.target.name for s in self.netsor.body]
        if not self.netsor.outputs:
            self.error("the program has no outputs", Span(), "outputs: [name, ...]")
        for name in self.netsor.outputs:
            self.used.add(name)
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
                names = list(dict.fromkeys([n.name for n in walk(hidden) if isinstance(n, IndexValue)] + [
                    name for n in walk(hidden) if isinstance(n, Constant) for slot in n.slots for name in slot.indices]))
                axes = [*(name for name in names if name not in node.indices), *node.indices]
                if math.prod(self.netsor.ranges[name][1] - self.netsor.ranges[name][0] for name in axes) > MAX_TABLE:
                    continue
                masked = index_array(self.netsor, hidden, axes).astype(bool)
                rows = masked.reshape(*masked.shape[: len(axes) - len(node.indices)], -1).all(axis=-1)
                if rows.any():
                    where = np.argwhere(rows)[0]
                    row = ", ".join(f"{name}={self.netsor.ranges[name][0] + value}" for name, value in zip(axes, where, strict=False))
                    self.error(f"{node.reducer}[{', '.join(node.indices)}]: every entry is masked{' at ' + row if row else ''}",
                               statement.span.at(node.column), "leave at least one entry of each row unmasked")

    def unused(self) -> None:
        for statement in self.netsor.body:
            self.used |= {reference.name for reference in statement.inputs}
            if isinstance(statement, MatMul):
                self.used.add(statement.weight.name)
        for index in self.netsor.indices:
            for constant in self.netsor.constant:
                if constant in index.text.replace(".", " ").split() or constant in _words(index.text):
                    self.used.add(constant)
        for _, _, text in self.netsor.widths:
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
    return Call("where", (condition, yes or Number(0), no or Number(0)))


def affine_slots(slots: Sequence[Affine]) -> str:
    """Slots as they are written."""
    return ",".join(map(str, slots))
