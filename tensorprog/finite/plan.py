"""The plan of a finite run: how every vector is represented, in which order things are drawn, and what it costs.

Nothing is drawn for it, and nothing depends on the seed: a plan follows from program, width, method and what is
reported alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tensorprog.blocks import Block, Grid, code
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.finite.demand import Demand, Form, demand, form_of, vectors_of
from tensorprog.finite.frames import Draw, Layout, layout, products_of
from tensorprog.language.errors import ProgramError, fail
from tensorprog.language.initials import InitialLaw, initial_laws
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Range, Statement
from tensorprog.language.schedule import Step, steps
from tensorprog.language.weight_members import Grouping

__all__ = ["METHODS", "Op", "Plan", "PlanRow", "plan"]

@dataclass(frozen=True)
class Op:
    """One action on a block of networks.

    "gram" makes the inner products of packed vectors, "factor" a matrix L with L L^T equal to them; MatMuls of weights
    used once share these by their `key`.  An op is `large` if it touches arrays over all coordinates.
    """

    kind: Literal["initial", "gram", "factor", "matmul", "dot", "nonlin"]
    at: int  # place in `Plan.order`; for "initial" in `Netsor.initial`
    large: bool
    key: str = ""
    reads: tuple[str, ...] = ()
    writes: str = ""


@dataclass(frozen=True)
class PlanRow:
    """What the plan says of one line of the program."""

    line: str
    representation: str
    normals: int
    chi_squares: int


@dataclass(frozen=True)
class Plan(Shown):
    """The decisions taken before any number is drawn; `str` prints them as a table.

    Shapes    `normals` and `chi_squares` are drawn per network; `work` are rough nanoseconds per network on one core
    Source    the law is that of the dense program at every width: conditional Gaussians given earlier products, and
              Bartlett's decomposition where only inner products are read
    """

    netsor: Netsor = field(repr=False)
    width: int
    method: str
    coordinates: int
    kept: tuple[str, ...]
    widths: Mapping[str, int]
    full: frozenset[str]  # vectors in all coordinates
    lengths: Mapping[str, int] = field(repr=False)  # numbers per vector of every family
    seen: Mapping[str, int] = field(repr=False)  # of framed families: coordinates in front of the frame
    ones: Mapping[str, int | None] = field(repr=False)  # of framed families: place of the constant's direction
    draws: Mapping[str | int, Draw] = field(repr=False)  # by initial family or place in the order
    order: tuple[Step, ...] = field(repr=False)
    groups: tuple[Grouping | None, ...] = field(repr=False)
    fresh: Mapping[int, int] = field(repr=False)  # Gaussian vectors per weight member of each MatMul step
    later: frozenset[int] = field(repr=False)  # MatMul steps whose weight is used again
    capacity: Mapping[str, int] = field(repr=False)  # products of one member of each weight, at most
    offset: frozenset[int] = field(repr=False)  # statements: Nonlins with a constant summand
    ops: tuple[Op, ...] = field(repr=False)
    initials: Mapping[str, InitialLaw] = field(repr=False)
    rows: tuple[PlanRow, ...] = field(repr=False)
    normals: int = 0
    chi_squares: int = 0
    work: float = 0.0
    matrices: str = ""  # why no other method will do

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        return {
            "width": self.width,
            "method": self.method,
            "normals": self.normals,
            "chi_squares": self.chi_squares,
            "statements": [vars(row) for row in self.rows],
        }

    @property
    def title(self) -> str:
        """Method and random numbers of the whole."""
        return (
            f"{self.netsor.name} at n = {self.width}: method {self.method}"
            + (f" ({self.matrices})" if self.matrices else "")
            + f", {self.normals:,} normals"
            + (f" and {self.chi_squares:,} chi-squares" if self.chi_squares else "")
            + " per network"
        )

    def blocks(self) -> list[Block]:
        """The title, and one row for each line of the program."""
        header = ("statement", "representation", "normals", "chi-squares")[: 4 if self.chi_squares else 3]
        rows = tuple(
            (code(row.line), row.representation, f"{row.normals:,}" if row.normals else "", f"{row.chi_squares or ''}")
            [: len(header)] for row in self.rows
        )
        return [Grid(self.title, header, rows, text_columns=(0, 1))]

    def __str__(self) -> str:
        return to_text(self.blocks())


METHODS = ("dense", "lazy", "collapsed")
MANY_FAMILIES = 400  # that meet each other: working out their frames would take longer than it saves
# nanoseconds on one current core: a normal, a chi variable, a multiplication in a matrix product, an entry touched
NORMAL, CHI, MULTIPLY, TOUCH = 6.6, 12.5, 0.15, 1.0


def resolve_widths(netsor: Netsor, width: int) -> dict[str, int]:
    """Whole-number widths at n = width.

    Raises    ProgramError where a declared width is not a positive whole number at this n
    """
    result = {}
    for name in ("n", *(name for name, _, _ in netsor.widths), *(name for name, _ in netsor.fixed_widths)):
        value = netsor.width_of(name, width)
        if value.denominator != 1 or value < 1:
            raise ProgramError(
                f"at n = {width} the width {name} would be {value}; choose n so that it is a whole number"
            )
        result[name] = int(value)
    return result


def plan(netsor: Netsor, width: int, coordinates: int, kept: Sequence[str], method: str) -> Plan:
    """Plan a run; "auto" takes the collapsed plan where it promises less work than the lazy one.

    The products of a matrix and those of its transpose condition each other, so there the matrix itself is drawn.

    Raises    ProgramError for a method that has no matrices where one is used transposed, or a width that makes a
              declared width no whole number
    """
    widths = resolve_widths(netsor, width)
    asked = demand(netsor, kept)
    initials = initial_laws(netsor)
    turned = next((s for s in netsor.body if s.target.name in asked.needed and _transposed(s)), None)
    why = f"{turned} needs the matrix" if turned else ""
    if turned and method not in ("auto", "dense"):
        raise fail(f"method {method!r} draws no matrices, but {why}", turned.span, 'method="dense"')
    methods: Sequence[str] = METHODS[1:] if method == "auto" else (method,)
    choices = [
        _Planner(netsor, width, widths, coordinates, kept, chosen, asked, initials).plan()
        for chosen in (("dense",) if turned else methods)
    ]
    return replace(min(choices, key=lambda choice: choice.work), matrices=why)


def _transposed(statement: Statement) -> bool:
    return isinstance(statement, MatMul) and statement.transposed


def _sizes(names: Collection[str | None], ranges: Mapping[str, Range]) -> int:
    return math.prod(ranges[name][1] - ranges[name][0] for name in names if name)


class _Planner:
    """Fills in a plan, in the order of the functions below."""

    def __init__(
        self,
        netsor: Netsor,
        width: int,
        widths: Mapping[str, int],
        coordinates: int,
        kept: Sequence[str],
        method: str,
        asked: Demand,
        initials: Mapping[str, InitialLaw],
    ) -> None:
        self.netsor, self.width, self.widths, self.method = netsor, width, widths, method
        self.coordinates, self.kept, self.asked, self.initials = coordinates, tuple(kept), asked, initials
        self.lengths: dict[str, int] = {}
        self.seen: dict[str, int] = {}
        self.ones: dict[str, int | None] = {}
        self.draws: dict[str | int, Draw] = {}
        self.fresh: dict[int, int] = {}

    def plan(self) -> Plan:
        full = self.full = self._full()
        self.order = self._order()
        ranges, families = self.netsor.ranges, self.netsor.families
        self.groups = tuple(
            Grouping(step.statement, families[step.statement.weight.name], step.ranges(ranges))
            if isinstance(step.statement, MatMul)
            else None
            for step in self.order
        )
        uses: dict[str, list[int]] = {}
        for at, group in enumerate(self.groups):
            if group is not None:
                uses.setdefault(group.weight.name, []).append(at)
        self.again = frozenset(at for places in uses.values() if len(places) > 1 for at in places)
        capacity = {
            name: sum(group.columns for at in places if (group := self.groups[at]) is not None)
            for name, places in uses.items()
        }
        later = frozenset(at for places in uses.values() for at in places[:-1])
        vectors = vectors_of(self.netsor)
        offset = frozenset(
            position
            for position, statement in enumerate(self.netsor.body)
            if isinstance(statement, Nonlin) and form_of(statement.expr, vectors) in (Form.CONSTANT, Form.AFFINE)
        )
        self._represent()
        ops = self._ops()
        normals, chis, rows = self._rows()
        work = (
            sum(NORMAL * n + CHI * c for n, c in zip(normals, chis, strict=True))
            + self._work()
            + TOUCH * self._touched()
        )
        return Plan(
            netsor=self.netsor,
            width=self.width,
            method=self.method,
            coordinates=self.coordinates,
            kept=self.kept,
            widths=self.widths,
            full=full,
            lengths=self.lengths,
            seen=self.seen,
            ones=self.ones,
            draws=self.draws,
            order=self.order,
            groups=self.groups,
            fresh=self.fresh,
            later=later,
            capacity=capacity,
            offset=offset,
            ops=ops,
            initials=self.initials,
            rows=rows,
            normals=sum(normals),
            chi_squares=sum(chis),
            work=work,
        )

    def _full(self) -> frozenset[str]:
        vectors = [name for name in self.asked.needed if self.netsor.families[name].kind == "vector"]
        if self.method == "dense":
            return frozenset(vectors)
        groups = self.asked.groups
        if self.method == "collapsed":
            groups = tuple(
                group for group in groups if self.asked.explicit.intersection(group) or len(group) > MANY_FAMILIES
            )
        return frozenset(name for group in groups for name in group)

    def _order(self) -> tuple[Step, ...]:
        """Vectors in all coordinates first; of framed ones the smaller families first, which open fewer directions."""
        netsor = self.netsor

        def key(position: int) -> tuple[int, int, int]:
            statement = netsor.body[position]
            framed = isinstance(statement, MatMul) and statement.target.name not in self.full
            members = math.prod(netsor.families[statement.target.name].shape) if framed else 0
            return int(framed), members, position

        found = steps(netsor, key if self.method == "collapsed" else None)
        return tuple(step for step in found if step.statement.target.name in self.asked.needed)

    def _represent(self) -> None:
        """Lengths and draws of all vectors, group by group in the order of the program."""
        families, needed = self.netsor.families, self.asked.needed
        for name, family in families.items():
            if family.kind == "vector" and name in needed:
                own = self.widths[family.width]
                self.lengths[name] = own if name in self.full else min(self.coordinates, own)
        pending = [group for group in self.asked.groups if not self.full.intersection(group)]
        place = {step.statement.target.name: at for at, step in reversed(list(enumerate(self.order)))}
        products = products_of(self.netsor, self.order, self.groups) if pending else []
        known = set(self.lengths) - {name for group in pending for name in group}
        for group in sorted(
            pending, key=lambda names: min((place[name] for name in names if name in place), default=-1)
        ):
            self._fresh(group, known)
            seen = self.coordinates if self.asked.seen.intersection(group) else 0
            own = self.widths[families[group[0]].width]
            found: Layout = layout(
                self.netsor, group, min(seen, own), own, self.order, self.groups, products, self.fresh, self.initials
            )
            self.draws |= found.draws
            for name in group:
                self.lengths[name], self.seen[name], self.ones[name] = found.length, found.seen, found.ones
            known.update(group)
        self._fresh([name for name in self.lengths if name not in self.ones], known)
        for initial in self.netsor.initial:
            if initial.name in self.lengths:
                length = self.lengths[initial.name]
                self.draws.setdefault(initial.name, Draw(length, length))
        for at, step in enumerate(self.order):
            if self.groups[at] is not None:
                length = self.lengths[step.statement.target.name]
                self.draws.setdefault(at, Draw(length, length))

    def _fresh(self, names: Collection[str], known: Collection[str]) -> None:
        """Fresh vectors of the MatMuls that make `names`: one for each product, or each coordinate of the inputs."""
        for at, step in enumerate(self.order):
            group = self.groups[at]
            if group is None or step.statement.target.name not in names:
                continue
            assert isinstance(step.statement, MatMul)
            vector = step.statement.vector.name
            self.fresh[at] = group.columns
            if at not in self.again and vector in known and vector not in self.full:
                self.fresh[at] = min(group.columns, self.lengths[vector])

    def _direct(self, at: int) -> bool:
        """Whether the inputs' coordinates are no more than the inputs: then they are a factor of their Gram matrix."""
        statement, group = self.order[at].statement, self.groups[at]
        assert isinstance(statement, MatMul) and group is not None
        name = statement.vector.name
        return name not in self.full and self.lengths[name] == self.fresh[at]

    def _key(self, at: int) -> str:
        """One key for all MatMul steps that pack the same vectors in the same way."""
        statement, group = self.order[at].statement, self.groups[at]
        assert isinstance(statement, MatMul) and group is not None
        if not group.separable:
            return f"{statement.vector.name} for step {at}"
        varies = group.reads_members
        axes = [*(group.member_axes if varies else ()), *group.column_axes]
        slots = [(tuple((axes.index(n), c) for n, c in slot.terms), slot.offset) for slot in statement.vector.slots]
        boxes = [tuple(group.ranges[name]) for name in axes]
        return f"{statement.vector.name} {slots} {boxes} {len(group.member_axes) if varies else 0}"

    def _ops(self) -> tuple[Op, ...]:
        ops: list[Op] = []
        for number, initial in enumerate(self.netsor.initial):
            if initial.name in self.lengths:
                ops.append(Op("initial", number, initial.name in self.full, writes=initial.name))
        made = set()
        for at, step in enumerate(self.order):
            statement = step.statement
            target = statement.target.name
            reads = tuple(dict.fromkeys(reference.name for reference in statement.inputs))
            if isinstance(statement, MatMul):
                if self.method == "dense" or at in self.again:
                    large = target in self.full or reads[0] in self.full
                    ops.append(Op("matmul", at, large, reads=reads, writes=target))
                    continue
                key = self._key(at)
                direct = self._direct(at)
                for kind in ("gram", "factor") if not direct else ("factor",):
                    name = f"{kind} {key}"
                    if name not in made:
                        made.add(name)
                        source = f"gram {key}" if kind == "factor" and not direct else reads[0]
                        large = source in self.full
                        ops.append(Op(kind, at, large, source, (source,), name))  # type: ignore[arg-type]
                ops.append(Op("matmul", at, target in self.full, f"factor {key}", (f"factor {key}",), target))
            elif isinstance(statement, Dot):
                ops.append(Op("dot", at, bool(self.full.intersection(reads)), reads=reads, writes=target))
            else:
                ops.append(Op("nonlin", at, target in self.full, reads=reads, writes=target))
        return tuple(ops)

    def _rows(self) -> tuple[list[int], list[int], tuple[PlanRow, ...]]:
        """Normals and chi variables, line by line of the program."""
        netsor = self.netsor
        rows = []
        normals, chis = [0], [0]

        def add(line: str, name: str, normal: int, chi: int) -> None:
            normals.append(normal)
            chis.append(chi)
            rows.append(PlanRow(line, self._representation(name), normal, chi))

        if self.method == "dense":
            for weight in netsor.weights:
                entries = math.prod(netsor.families[weight.name].shape) * math.prod(
                    self.widths[side] for side in weight.shape
                )
                slots = f"[{','.join(weight.indices)}]" if weight.indices else ""
                rows.append(PlanRow(f"{weight.name}{slots}", "matrix", entries, 0))
                normals.append(entries)
                chis.append(0)
        for initial in netsor.initial:
            slots = f"[{','.join(initial.indices)}]" if initial.indices else ""
            counted = (0, 0)
            if initial.name in self.lengths:
                draw = self.draws[initial.name]
                sizes = dict(zip(initial.indices, netsor.families[initial.name].shape, strict=True))
                members = math.prod(sizes[index] for index in draw.batch)
                counted = draw.counts(members, math.prod(sizes.values()) // members)
            add(f"{initial.name}{slots}", initial.name, *counted)
        for position, statement in enumerate(netsor.body):
            normal = chi = 0
            for at, step in enumerate(self.order):
                group = self.groups[at]
                if step.position == position and group is not None and self.method != "dense":
                    draw = self.draws[at]
                    members = _sizes(draw.batch, group.ranges)
                    counted = draw.counts(members, len(group.members) // members * self.fresh[at])
                    normal, chi = normal + counted[0], chi + counted[1]
            add(str(statement), statement.target.name, normal, chi)
        return normals, chis, tuple(rows)

    def _representation(self, name: str) -> str:
        family = self.netsor.families[name]
        if family.kind == "scalar":
            return "a number"
        if name not in self.lengths:
            return "not needed"
        width = self.widths[family.width]
        if name in self.full:
            return f"all {width} coordinates" if width > 1 else "its one coordinate"
        seen = self.seen.get(name, self.lengths[name])
        parts = [f"{seen} coordinate{'s' if seen > 1 else ''}"] if seen else []
        if name in self.seen:
            directions = self.lengths[name] - seen
            parts.append(f"inner products ({directions} direction{'s' if directions != 1 else ''})")
        return " and ".join(parts)

    def _members(self, step: Step) -> int:
        ranges = step.ranges(self.netsor.ranges)
        return _sizes([slot.bare for slot in step.statement.target.slots], ranges)

    def _touched(self) -> int:
        """Numbers of all arrays of a network."""
        total = 0
        for name in self.asked.needed:
            family = self.netsor.families[name]
            total += math.prod(family.shape) * (self.lengths[name] if family.kind == "vector" else 1)
        for at, group in enumerate(self.groups):
            if group is not None and self.method != "dense":
                total += len(group.members) * self.fresh[at] * self.draws[at].length
        if self.method == "dense":
            for weight in self.netsor.weights:
                total += math.prod(self.netsor.families[weight.name].shape) * math.prod(
                    self.widths[side] for side in weight.shape
                )
        return total

    def _work(self) -> float:
        """Rough nanoseconds of the matrix products per network."""
        total = 0.0
        columns: dict[str, int] = {}
        keys = set()
        for at, step in enumerate(self.order):
            statement, group = step.statement, self.groups[at]
            if isinstance(statement, Dot):
                total += self._members(step) * self.lengths[statement.left.name]
            elif isinstance(statement, Nonlin):
                vector = statement.target.name in self.lengths
                total += 4 * self._members(step) * (self.lengths[statement.target.name] if vector else 1)
            elif group is not None:
                assert isinstance(statement, MatMul)
                length, inputs = self.lengths[statement.target.name], self.lengths[statement.vector.name]
                if self.method == "dense":
                    total += len(group.members) * group.columns * length * inputs
                    continue
                before = columns.get(group.weight.name, 0) if at in self.again else 0
                columns[group.weight.name] = before + group.columns
                total += len(group.members) * group.columns * (before + self.fresh[at]) * length
                if at in self.again or self._key(at) not in keys:
                    keys.add(self._key(at))
                    total += group.columns * (before + group.columns) * inputs
        return MULTIPLY * total
