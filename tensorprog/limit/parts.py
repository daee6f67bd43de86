"""Vectors as sums of simple parts: coefficient * function(affine form of Gaussian variables), summed over indices.

Gaussian variables are the outputs of MatMul and the initial vectors.  Scores and averages count as numbers here: a
coefficient may contain them.  Definitions of other vectors are written in (inlined) first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorprog.atoms import REDUCTIONS
from tensorprog.errors import OutsideError
from tensorprog.expr import Affine, Call, Expr, Number, Reduction, Variable, variables, walk
from tensorprog.ir import MatMul, Netsor, Nonlin, Range
from tensorprog.rename import replace_variables, substitute

__all__ = ["FORMAL", "Part", "Parts", "position_names"]

FORMAL = Variable(".")  # the argument of a one-argument function
ONE, ZERO = Number(1), Number(0)
MAX_PARTS = 10_000


@dataclass(frozen=True)
class Part:
    """coefficient * function(sum of weight * variable + offset), summed over the bound indices.

    `function` is an expression in FORMAL; None stands for the constant 1 (no variable at all).  A function of several
    arguments keeps its variables in place and has `joint` set.
    """

    coefficient: Expr
    bound: tuple[str, ...] = ()
    function: Expr | None = None
    inner: tuple[tuple[Expr, Variable], ...] = ()
    offset: Expr = ZERO
    joint: bool = False

    @property
    def linear(self) -> bool:
        """Whether the part is a constant or a multiple of a variable."""
        return self.function is None or self.function == FORMAL

    def renamed(self, names: dict[str, Affine]) -> Part:
        """The same part with other index names (bound ones must stay bare)."""
        bound = []
        for name in self.bound:
            bare = names[name].bare if name in names else name
            assert bare is not None
            bound.append(bare)
        return Part(
            substitute(self.coefficient, names), tuple(bound),
            None if self.function is None else substitute(self.function, names),
            tuple((substitute(c, names), Variable(v.name, substitute(v, names).slots)) for c, v in self.inner),  # type: ignore[attr-defined]
            substitute(self.offset, names), self.joint,
        )


def position_names(netsor: Netsor, family: str, suffix: str = "") -> dict[str, Range]:
    """Ranges of the position names '0', '1', ... of a family's slots."""
    return {f"{k}{suffix}": span for k, span in enumerate(netsor.families[family].ranges)}


class Parts:
    """Splits families of one program into parts; index names are slot positions '0', '1', ... and fresh bound ones."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.bound_ranges: dict[str, Range] = {}
        self._cache: dict[str, tuple[Part, ...]] = {}
        self._inlined: dict[str, Expr] = {}
        self._fresh = 0

    def is_base(self, name: str) -> bool:
        """Whether a family is Gaussian by itself: a MatMul output or an initial vector."""
        positions = self.netsor.families[name].statements
        return not positions or isinstance(self.netsor.body[positions[0]], MatMul)

    def is_vector(self, expr: Expr) -> bool:
        """Whether vectors occur in an expression."""
        return any(
            isinstance(node, Variable) and (node == FORMAL or self.netsor.families[node.name].kind == "vector")
            for node in walk(expr)
        )

    def definition(self, name: str) -> Nonlin:
        """The single Nonlin that defines a family.

        Raises    OutsideError for families with several definitions
        """
        positions = self.netsor.families[name].statements
        statement = self.netsor.body[positions[0]]
        assert isinstance(statement, Nonlin)
        return statement

    def inlined(self, name: str) -> Expr:
        """The definition of a Nonlin family over its position names, with other Nonlins written in."""
        if name not in self._inlined:
            statement = self.definition(name)
            names = {slot.bare: Affine(((str(k), 1),)) for k, slot in enumerate(statement.target.slots) if slot.bare}
            self._inlined[name] = replace_variables(self.fresh(statement.expr, names), self._write_in)
        return self._inlined[name]

    def _write_in(self, reference: Variable) -> Expr | None:
        family = self.netsor.families[reference.name]
        if not family.statements or not isinstance(self.netsor.body[family.statements[0]], Nonlin):
            return None
        values = {str(k): slot for k, slot in enumerate(reference.slots)}
        return self.fresh(self.inlined(reference.name), values)

    def fresh(self, expr: Expr, names: dict[str, Affine]) -> Expr:
        """Substitute, giving every reduction index a name of its own."""
        mapping = dict(names)
        for node in walk(expr):
            if isinstance(node, Reduction) and node.removes:
                for name in node.indices:
                    self._fresh += 1
                    new = f"{name.split('~')[0]}~{self._fresh}"
                    self.bound_ranges[new] = self.bound_ranges.get(name) or self.netsor.ranges[name]
                    mapping[name] = Affine(((new, 1),))
        return substitute(expr, mapping)

    def of(self, name: str) -> tuple[Part, ...]:
        """Parts of a vector family (or of a scalar one, whose only part is a number)."""
        if name not in self._cache:
            family = self.netsor.families[name]
            if self.is_base(name):
                slots = tuple(Affine(((str(k), 1),)) for k in range(len(family.ranges)))
                parts: list[Part] = [Part(ONE, (), FORMAL, ((ONE, Variable(name, slots)),))]
            else:
                parts = self.split(self.inlined(name))
            if len(parts) > MAX_PARTS:
                raise OutsideError(f"{name} is a sum of {len(parts)} different terms, more than the {MAX_PARTS} this version "
                                   "expands")
            self._cache[name] = tuple(parts)
        return self._cache[name]

    def split(self, expr: Expr) -> list[Part]:
        """Write an expression as a sum of parts."""
        if not self.is_vector(expr):
            return [Part(expr)]
        if isinstance(expr, Variable):
            return [Part(ONE, (), FORMAL, ((ONE, expr),))]
        if isinstance(expr, Call):
            if expr.atom in ("add", "subtract"):
                left, right = (self.split(arg) for arg in expr.args)
                return left + ([self.scale(part, Number(-1)) for part in right] if expr.atom == "subtract" else right)
            if expr.atom == "negative":
                return [self.scale(part, Number(-1)) for part in self.split(expr.args[0])]
            if expr.atom == "multiply":
                for number, other in (expr.args, expr.args[::-1]):
                    if not self.is_vector(number):
                        return [self.scale(part, number) for part in self.split(other)]
            if expr.atom == "divide" and not self.is_vector(expr.args[1]):
                inverse = Call("divide", (ONE, expr.args[1]))
                return [self.scale(part, inverse) for part in self.split(expr.args[0])]
        if isinstance(expr, Reduction) and REDUCTIONS[expr.reducer].linear:
            factor: Expr = ONE
            if expr.reducer == "mean":
                count = 1
                for name in expr.indices:
                    start, stop = self.bound_ranges.get(name) or self.netsor.ranges[name]
                    count *= stop - start
                factor = Number(1 / count)
            return [
                self.scale(Part(p.coefficient, (*expr.indices, *p.bound), p.function, p.inner, p.offset, p.joint), factor)
                for p in self.split(expr.arg)
            ]
        return [self.function_part(expr)]

    @staticmethod
    def scale(part: Part, factor: Expr) -> Part:
        """The part times a number."""
        if factor == ONE:
            return part
        coefficient = factor if part.coefficient == ONE else Call("multiply", (factor, part.coefficient))
        return Part(coefficient, part.bound, part.function, part.inner, part.offset, part.joint)

    def function_part(self, expr: Expr) -> Part:
        """A nonlinear expression as a function of one affine form, where it is one."""
        vectors = [v for v in variables(expr) if self.netsor.families[v.name].kind == "vector"]
        if any(isinstance(node, Reduction) for node in walk(expr)):
            return Part(ONE, (), expr, tuple((ONE, v) for v in vectors), ZERO, True)
        if len(vectors) == 1:
            return Part(ONE, (), replace_variables(expr, lambda v: FORMAL if v == vectors[0] else None), ((ONE, vectors[0]),))
        forms: dict[tuple[tuple[Expr, Variable], ...], None] = {}

        def rewrite(node: Expr) -> Expr:
            if not self.is_vector(node):
                return node
            parts = self.split(node) if _is_sum(node) else []
            if parts and all(part.linear and not part.bound for part in parts):
                inner: dict[Variable, Expr] = {}
                offset: Expr = ZERO
                for part in parts:
                    if part.function is None:
                        offset = part.coefficient if offset == ZERO else Call("add", (offset, part.coefficient))
                    else:
                        for weight, variable in part.inner:
                            total = part.coefficient if weight == ONE else Call("multiply", (part.coefficient, weight))
                            inner[variable] = Call("add", (inner[variable], total)) if variable in inner else total
                forms[tuple((c, v) for v, c in sorted(inner.items(), key=lambda item: str(item[0])))] = None
                return FORMAL if offset == ZERO else Call("add", (FORMAL, offset))
            if isinstance(node, Call):
                return Call(node.atom, tuple(rewrite(arg) for arg in node.args))
            forms[((ONE, node),)] = None  # type: ignore[index]
            return FORMAL

        function = rewrite(expr)
        if len(forms) == 1:
            return Part(ONE, (), function, next(iter(forms)))
        return Part(ONE, (), expr, tuple((ONE, v) for v in vectors), ZERO, True)


def _is_sum(node: Expr) -> bool:
    return isinstance(node, Call) and node.atom in ("add", "subtract", "negative", "multiply", "divide")


Reader = Callable[[Variable], Expr | None]
