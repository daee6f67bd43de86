"""The plan of a finite run: how every vector is represented, in which order things are drawn, and what it costs.

Nothing is drawn for it, and nothing depends on the seed: a plan follows from program, width, method and what is
reported alone.  A job is a plan with a block size and a seed, all that a worker needs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, code, paragraph
from tensorprog.blocks.html import Printed
from tensorprog.finite.vectors import (
    LEAST,
    Demand,
    Frames,
    Layout,
    LeftOut,
    Recipe,
    demand,
    has_constant,
    without_inactive,
)
from tensorprog.language.errors import ProgramError, UnknownNameError, check_count, did_you_mean, fail
from tensorprog.language.expr import Expr, free_indices, is_call, variables, walk
from tensorprog.language.formats import name_of, selected
from tensorprog.language.initials import covariance_size, initial_laws
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Weight
from tensorprog.language.schedule import Step, steps
from tensorprog.language.weight_members import Grouping, variances

__all__ = ["METHODS", "History", "Job", "Op", "Plan", "kept_families", "make_job", "plan"]

Array = NDArray[Any]
BLOCK_BYTES = 32 << 20  # aimed at for the numbers of one block: they should stay in cache
OVERHEAD = 1 << 20  # bytes of objects of Python, and of what the allocator cannot use again
FEW, MAX_BLOCK = 16, 4096  # networks in a block
BLOCK_NANOSECONDS = 1e8  # results come in whole blocks: a few networks should not wait for many
METHODS = ("dense", "lazy", "collapsed")
NORMAL, CHI, TOUCH = 6.6, 12.5, 5.0  # nanoseconds on one current core: a normal, a chi variable, an entry made


@dataclass(frozen=True)
class Op:
    """One action on a block of networks.

    "gram" makes the inner products of packed vectors, "factor" a matrix L with L L^T equal to them; MatMuls of weights
    used once share these by their `key`.
    """

    kind: Literal["initial", "gram", "factor", "matmul", "dot", "nonlin"]
    at: int  # place in `Plan.order`; for "initial" in `Netsor.initial`
    key: str = ""
    reads: tuple[str, ...] = ()
    writes: str = ""


@dataclass(frozen=True)
class History:
    """Where a product stands among those of its weight.

    `start` columns of earlier products may stand before its own, `capacity` in all; `shared`: in every product all
    members of the weight see the same vectors; `alone`: the weight makes no other product, after the `last` none.
    """

    start: int
    capacity: int
    shared: bool
    alone: bool
    last: bool


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


@lru_cache(maxsize=32)
def plan(netsor: Netsor, width: int, coordinates: int, kept: tuple[str, ...], method: str) -> Plan:
    """Plan a run; "auto" takes the collapsed plan where it promises less work than the lazy one.

    The products of a matrix and those of its transpose condition each other in all coordinates, so there it is lazy.
    The methods "dense" and "lazy" draw every function as it is written; the others leave out clips that never act.

    Raises    ProgramError for a method that has no matrices where one is used transposed, or a width that makes a
              declared width no whole number
    """
    widths = resolve_widths(netsor, width)
    asked = demand(netsor, kept)
    products = (s for s in netsor.body if isinstance(s, MatMul) and s.target.name in asked.needed)
    turned = next((product for product in products if product.transposed), None)
    if turned and method == "collapsed":
        raise fail(f"{turned} needs all coordinates of its vectors", turned.span, 'method="lazy"')
    if turned or method in ("dense", "lazy"):
        return Plan(netsor, widths, coordinates, kept, "lazy" if method == "auto" else method, asked)
    left_out = without_inactive(netsor, widths, kept)
    simpler = {id(written): drawn for written, drawn in left_out}
    drawn = replace(netsor, body=tuple(simpler.get(id(s), s) for s in netsor.body)) if left_out else netsor
    asked = demand(drawn, kept)
    collapsed = Plan(drawn, widths, coordinates, kept, "collapsed", asked, left_out=left_out)
    if method == "collapsed":
        return collapsed
    lazy = Plan(drawn, widths, coordinates, kept, "lazy", asked, left_out=left_out)
    return min((lazy, collapsed), key=lambda choice: choice.work)


class Plan(Printed):
    """The decisions taken before any number is drawn; `str` prints them as a table.

    Shapes    `normals` and `chi_squares` are drawn per network; `work` are rough nanoseconds per network on one core
    Source    the law is that of the dense program at every width: conditional Gaussians given earlier products, and
              Bartlett's decomposition where only inner products are read
    """

    def __init__(
        self, netsor: Netsor, widths: Mapping[str, int], coordinates: int, kept: tuple[str, ...], method: str,
        asked: Demand, left_out: LeftOut = (),
    ) -> None:  # fmt: skip
        self.netsor, self.width, self.widths, self.method = netsor, widths["n"], widths, method
        self.coordinates, self.kept, self.asked, self.initials = coordinates, kept, asked, initial_laws(netsor)
        self.left_out = left_out  # statements drawn without a clip that never acts: as written, and as drawn
        self.full = self._full()  # vectors in all coordinates
        self.order = self._order()
        self.groups = tuple(map(self._grouping, self.order))  # of the MatMul steps
        self.histories = self._histories()  # of the MatMul steps
        self.lengths: dict[str, int] = {}  # numbers per vector of every family
        self.frames: dict[str, Layout] = {}  # of the families that have one
        self.recipes: dict[str | int, Recipe] = {}  # by initial family or place in the order
        self.fresh: dict[int, int] = {}  # Gaussian vectors per weight member of each MatMul step
        self._represent()
        self.offset = frozenset(  # statements that make framed vectors with a constant summand
            position for position, statement in enumerate(netsor.body) if isinstance(statement, Nonlin)
            and statement.target.name in self.frames and has_constant(statement.expr, asked.vectors)
        )  # fmt: skip
        self.ops = self._ops()
        self.counts = self._counts()  # normals and chi-squares of each line
        self.normals, self.chi_squares = (sum(column) for column in zip((0, 0), *self.counts.values(), strict=True))
        self.work: float = NORMAL * self.normals + CHI * self.chi_squares + TOUCH * self._touched()

    def blocks(self) -> list[Block]:
        """Method and random numbers of the whole, and one row for each line of the program."""
        netsor, written = self.netsor, {id(drawn): written for written, drawn in self.left_out}
        lines = [*netsor.weights] if self.method == "dense" else []
        rows = [(_named(weight), "matrix", *self.counts[weight.name]) for weight in lines]
        for initial in netsor.initial:
            counted = self.counts.get(initial.name, (0, 0))
            rows.append((_named(initial), self._representation(initial.name), *counted))
        for position, statement in enumerate(netsor.body):
            line, counted = str(written.get(id(statement), statement)), self.counts.get(position, (0, 0))
            rows.append((line, self._representation(statement.target.name), *counted))
        title = f"{netsor.name} at n = {self.width}: method {self.method}, {self.normals:,} normals"
        title += f" and {self.chi_squares:,} chi-squares" if self.chi_squares else ""
        header = ("statement", "representation", "normals", "chi-squares")[: 4 if self.chi_squares else 3]
        cells = tuple(
            (code(line), representation, f"{normals:,}" if normals else "", f"{chis or ''}")[: len(header)]
            for line, representation, normals, chis in rows
        )
        never = f" never acts: it would in one network of 1e{-LEAST}, at most"
        left_out = [paragraph(code(str(clip)), never, note=True) for clip, _ in self.left_out]
        return [Grid(f"{title} per network", header, cells, text_columns=(0, 1)), *left_out]

    def _grouping(self, step: Step) -> Grouping | None:
        statement, known = step.statement, self.netsor.remembered
        if not isinstance(statement, MatMul):
            return None
        if step not in known:  # plans that are compared share them
            family = self.netsor.families[statement.weight.name]
            known[step] = Grouping(statement, family, step.ranges(self.netsor.ranges))
        grouping: Grouping = known[step]
        return grouping

    def group(self, op: Op) -> Grouping:
        """The grouping of an op that belongs to a MatMul."""
        group = self.groups[op.at]
        assert group is not None
        return group

    def _full(self) -> frozenset[str]:
        vectors = [name for name in self.asked.needed if self.netsor.families[name].kind == "vector"]
        if self.method == "dense":
            return frozenset(vectors)
        groups = self.asked.groups
        if self.method == "collapsed":
            groups = tuple(group for group in groups if self.asked.explicit.intersection(group))
        return frozenset(name for group in groups for name in group)

    def _order(self) -> tuple[Step, ...]:
        """Of families that could be drawn next the smallest, which opens the fewest directions for those to come."""

        def key(position: int) -> tuple[int, int]:
            statement = self.netsor.body[position]
            framed = isinstance(statement, MatMul) and statement.target.name not in self.full
            return math.prod(self.netsor.families[statement.target.name].shape) if framed else 0, position

        found = steps(self.netsor, key if self.method == "collapsed" else None)
        return tuple(step for step in found if step.statement.target.name in self.asked.needed)

    def _histories(self) -> dict[int, History]:
        uses: dict[tuple[str, bool], list[tuple[int, Grouping]]] = {}
        ends: dict[str, list[int]] = {}  # the steps of a weight, either way
        for at, group in enumerate(self.groups):
            if group is not None:
                uses.setdefault((group.weight.name, group.statement.transposed), []).append((at, group))
                ends.setdefault(group.weight.name, []).append(at)
        found = {}
        for (name, _), own in uses.items():
            filled = np.zeros(math.prod(own[0][1].weight.shape), np.int64)
            starts = []
            for _, group in own:
                starts.append(int(filled[group.members].max(initial=0)))  # none are read beyond a boundary of zeros
                filled[group.members] = starts[-1] + group.columns
            shared = all(not group.reads_members and len(group.members) == filled.size for _, group in own)
            for k, (at, _) in enumerate(own):
                last = at == ends[name][-1]
                found[at] = History(starts[k], int(filled.max()), shared, last and at == ends[name][0], last)
        return found

    def _represent(self) -> None:
        """Lengths and recipes of all vectors, group by group in the order of the program."""
        families, needed = self.netsor.families, self.asked.needed
        for name, family in families.items():
            if family.kind == "vector" and name in needed:
                own = self.widths[family.width]
                self.lengths[name] = own if name in self.full else min(self.coordinates, own)
        pending = [group for group in self.asked.groups if not self.full.intersection(group)]
        place = {step.statement.target.name: at for at, step in reversed(list(enumerate(self.order)))}
        known = set(self.lengths) - {name for group in pending for name in group}
        frames = Frames(self.netsor, self.order, self.groups, self.initials)
        for group in sorted(
            pending, key=lambda names: min((place[name] for name in names if name in place), default=-1)
        ):
            self._count_fresh(group, known)
            own = self.widths[families[group[0]].width]
            seen = min(self.coordinates, own) if self.asked.seen.intersection(group) else 0
            found = frames.layout(group, seen, own, self.fresh)
            self.recipes |= found.recipes
            self.lengths |= dict.fromkeys(group, found.length)
            self.frames |= dict.fromkeys(group, found)
            known.update(group)
        self._count_fresh([name for name in self.lengths if name not in self.frames], known)
        made: dict[str | int, str] = {at: self.order[at].statement.target.name for at in self.histories}
        drawn = (initial.name for initial in self.netsor.initial if not initial.grid)
        made |= {name: name for name in drawn if name in self.lengths}
        for key, name in made.items():
            self.recipes.setdefault(key, Recipe(self.lengths[name], self.lengths[name]))

    def _count_fresh(self, names: Collection[str], known: Collection[str]) -> None:
        """Fresh vectors of the MatMuls that make `names`: one for each product, or each coordinate of the inputs."""
        for at, group in enumerate(self.groups):
            if group is not None and group.statement.target.name in names:
                vector = group.statement.vector.name
                self.fresh[at] = group.columns
                if self.histories[at].alone and vector in known:
                    self.fresh[at] = min(group.columns, self.lengths[vector])

    def _key(self, at: int, group: Grouping) -> str:
        """One key for all MatMul steps that pack the same vectors in the same way."""
        vector = group.statement.vector
        if not group.separable:
            return f"{vector.name} for step {at}"
        varies = group.reads_members
        axes = [*(group.member_axes if varies else ()), *group.column_axes]
        slots = [(tuple((axes.index(n), c) for n, c in slot.terms), slot.offset) for slot in vector.slots]
        boxes = [tuple(group.ranges[name]) for name in axes]
        return f"{vector.name} {slots} {boxes} {len(group.member_axes) if varies else 0}"

    def _ops(self) -> tuple[Op, ...]:
        ops: list[Op] = []
        for number, initial in enumerate(self.netsor.initial):
            if initial.name in self.lengths:
                ops.append(Op("initial", number, writes=initial.name))
        made = set()
        for at, (step, group) in enumerate(zip(self.order, self.groups, strict=True)):
            statement = step.statement
            target = statement.target.name
            reads = tuple(dict.fromkeys(reference.name for reference in statement.inputs))
            if group is None:
                ops.append(Op("dot" if isinstance(statement, Dot) else "nonlin", at, reads=reads, writes=target))
            elif self.method == "dense" or not self.histories[at].alone:
                ops.append(Op("matmul", at, reads=reads, writes=target))
            else:
                key = self._key(at, group)
                source = reads[0]
                direct = self.lengths[source] == self.fresh[at]  # no more coordinates than members: a factor already
                kinds: tuple[Literal["gram", "factor"], ...] = ("factor",) if direct else ("gram", "factor")
                for kind in kinds:
                    name = f"{kind} {key}"
                    if name not in made:
                        made.add(name)
                        ops.append(Op(kind, at, source, (source,), name))
                    source = name
                ops.append(Op("matmul", at, source, (source,), target))
        return tuple(ops)

    def _counts(self) -> dict[str | int, tuple[int, int]]:
        """Normals and chi-squares of weights and initial families by name, and of statements by position."""
        counts: dict[str | int, tuple[int, int]] = {}
        place: str | int
        if self.method == "dense":
            counts |= {weight.name: (self._entries(weight), 0) for weight in self.netsor.weights}
        drawn = {initial.name: initial for initial in self.netsor.initial}
        for key, recipe in self.recipes.items():
            if isinstance(key, str):
                place, vectors = key, math.prod(self.netsor.families[key].shape)
                sizes = dict(zip(drawn[key].indices, self.netsor.families[key].shape, strict=True))
            elif (group := self.groups[key]) is not None and self.method != "dense":
                place, vectors, sizes = self.order[key].position, len(group.members) * self.fresh[key], group.sizes
            else:
                continue
            members = math.prod(sizes[index] for index in recipe.batch)
            normals, chis = recipe.counts(members, vectors // members)
            before = counts.get(place, (0, 0))
            counts[place] = before[0] + normals, before[1] + chis
        return counts

    def _representation(self, name: str) -> str:
        family = self.netsor.families[name]
        if name not in self.asked.needed:
            return "not needed"
        if family.kind == "scalar":
            return "a number"
        width = self.widths[family.width]
        if name in self.full:
            return f"all {width} coordinates" if width > 1 else "its one coordinate"
        seen = self.frames[name].seen if name in self.frames else self.lengths[name]
        parts = [f"{seen} coordinate{'s' if seen > 1 else ''}"] if seen else []
        if name in self.frames:
            directions = self.lengths[name] - seen
            parts.append(f"inner products ({directions} direction{'s' if directions != 1 else ''})")
        return " and ".join(parts)

    def _entries(self, weight: Weight) -> int:
        return math.prod((*self.netsor.families[weight.name].shape, *(self.widths[side] for side in weight.shape)))

    def _touched(self) -> int:
        total = 0
        for name in self.asked.needed:
            total += math.prod(self.netsor.families[name].shape) * self.lengths.get(name, 1)
        if self.method == "dense":
            return total + sum(map(self._entries, self.netsor.weights))
        for at, group in enumerate(self.groups):
            if group is not None:
                total += len(group.members) * self.fresh[at] * self.recipes[at].length
        return total


def _named(family: Initial | Weight) -> str:
    return f"{family.name}[{','.join(family.indices)}]" if family.indices else family.name


# ---- a plan, a block size and a seed ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """All a worker needs to draw any block of networks.

    `netsor` is the program as it is written, that of the plan may have fewer functions.
    """

    netsor: Netsor
    plan: Plan
    seed: int
    block: int
    dtype: str

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of what one network reports, by name."""
        shapes = {}
        for name in self.plan.kept:
            family = self.netsor.families[name]
            coordinates = (self.plan.coordinates,) if family.kind == "vector" and self.plan.coordinates > 1 else ()
            shapes[name] = (*coordinates, *family.shape)
        return shapes

    @property
    def drawn(self) -> int:
        """Bytes of the results of one block."""
        return sum(map(math.prod, self.shapes.values())) * np.dtype(self.dtype).itemsize * self.block

    @property
    def memory(self) -> int:
        """Bytes that drawing one block takes, results included, within a factor of 2."""
        drawn = [initial for initial in self.netsor.initial if initial.name in self.plan.lengths]
        covariances = sum(covariance_size(self.netsor, initial) for initial in drawn)  # and their factors
        return self.block * self.network + 24 * covariances + OVERHEAD

    @property
    def seconds(self) -> float:
        """Seconds that drawing one block takes, roughly, on one current core: fitted to the shipped programs."""
        return 0.6e-9 * self.plan.work * self.block + 1.5e-4 * len(self.plan.ops) + 3e-3

    @cached_property
    def drops(self) -> tuple[tuple[str, ...], ...]:
        """What each op is the last to read."""
        last = {name: at for at, op in enumerate(self.plan.ops) for name in (*op.reads, op.writes)}
        return tuple(
            tuple(
                name for name in dict.fromkeys((*op.reads, op.writes)) if last[name] == at and name not in self.shapes
            )
            for at, op in enumerate(self.plan.ops)
        )

    @cached_property
    def network(self) -> int:
        """Bytes of the arrays of one network that are alive at once, at most."""
        sizes: dict[str, int] = {}
        most = 0
        for op, drops in zip(self.plan.ops, self.drops, strict=True):
            sizes |= self._made(op)
            most = max(most, sum(sizes.values()) + self._beside(op))
            if op.kind == "matmul" and not op.key and self.plan.histories[op.at].last:
                drops = (*drops, *(f"weight {self.plan.group(op).weight.name}{turned}" for turned in ("", ".T")))
            for name in drops:
                sizes.pop(name, None)
        return most * np.dtype(self.dtype).itemsize

    def _made(self, op: Op) -> dict[str, int]:
        """Numbers of the arrays that an op makes, by name: what it writes, and the weight that it needs."""
        plan = self.plan
        if op.kind in ("gram", "factor"):
            group = plan.group(op)
            return {op.writes: group.sets * group.columns * (group.columns if op.kind == "gram" else plan.fresh[op.at])}
        outputs = plan.lengths.get(op.writes, 1)
        made = {op.writes: math.prod(plan.netsor.families[op.writes].shape) * outputs}
        if op.kind == "matmul" and not op.key:
            group = plan.group(op)
            inputs = plan.lengths[group.statement.vector.name]
            kept = inputs * outputs if plan.method == "dense" else plan.histories[op.at].capacity * (inputs + outputs)
            side = ".T" if group.statement.transposed and plan.method != "dense" else ""
            made[f"weight {group.weight.name}{side}"] = math.prod(group.weight.shape) * kept
        return made

    def _beside(self, op: Op) -> int:
        """Numbers that an op needs in passing."""
        plan = self.plan
        if op.kind == "nonlin":
            return 2 * self._largest[plan.order[op.at].position]
        if op.kind == "matmul":
            group = plan.group(op)
            vectors = plan.fresh[op.at] + (0 if op.key and group.separable else 2 * group.columns)
            packed = 0 if op.key else 2 * group.sets * group.columns * plan.lengths[group.statement.vector.name]
            return len(group.members) * vectors * plan.lengths[op.writes] + packed
        return sum(self._made(op).values())

    @cached_property
    def _largest(self) -> dict[int, int]:
        """Numbers of the largest array on the way to the values of each Nonlin, for all rounds of a recurrence."""
        first = {step.position: step for step in reversed(self.plan.order) if isinstance(step.statement, Nonlin)}
        found = {}
        for at, step in first.items():
            assert isinstance(step.statement, Nonlin)
            ranges = step.ranges(self.plan.netsor.ranges)
            sizes = {name: stop - start for name, (start, stop) in ranges.items()}
            found[at] = _largest(step.statement.expr, self.plan, sizes)
        return found

    @cached_property
    def deviations(self) -> dict[str, Array]:
        """sigma n_in**-0.5 of every member of each weight family."""
        return {
            weight.name: np.sqrt(variances(self.netsor, weight.name) / self.plan.widths[weight.shape[1]])
            for weight in self.netsor.weights
        }


def _largest(expr: Expr, plan: Plan, sizes: Mapping[str, int]) -> int:
    """Numbers of the largest array on the way to a value; the terms of a sum of products are not formed."""
    most = 0
    for node in walk(expr):
        if node is expr or not is_call(node, "multiply", "divide", "negative", "add", "subtract"):
            length = max((plan.lengths.get(variable.name, 1) for variable in variables(node)), default=1)
            most = max(most, length * math.prod(sizes[name] for name in free_indices(node)))
    return most


def kept_families(netsor: Netsor, keep: Sequence[str]) -> tuple[str, ...]:
    """The families of vectors and scalars to keep, which are named by themselves or by members.

    Raises    ProgramError for other names
    """
    readable = [name for name, family in netsor.families.items() if family.kind != "weight"]
    for variable in keep:
        name = name_of(variable).partition("[")[0]
        if name not in readable:
            raise UnknownNameError(
                f"keep: {variable} is not a vector or scalar of the program; {did_you_mean(name, readable)}"
            )
    return tuple(dict.fromkeys(selected(netsor, variable)[0] for variable in keep))


def make_job(
    netsor: Netsor, width: int, seed: int = 0, method: str = "auto", coordinates: int = 1, keep: Sequence[str] = (),
    dtype: str = "float64",
) -> Job:  # fmt: skip
    """Check the arguments of a run, plan it and choose its block size.

    Raises    ProgramError
    """
    width, seed = check_count("width", width), check_count("seed", seed, 0)
    coordinates = check_count("coordinates", coordinates, 0)
    if coordinates < 1 or coordinates > width:
        raise ProgramError(f"coordinates must lie between 1 and the width {width}, not {coordinates}")
    if dtype not in ("float64", "float32"):
        raise ProgramError(f"dtype must be float64 or float32, not {dtype!r}")
    if method not in (*METHODS, "auto"):
        raise ProgramError(f"there is no method {method!r}; choose auto, {', '.join(METHODS)}")
    scores = [s.target.name for s in netsor.body if isinstance(s, Dot)]
    kept = tuple(dict.fromkeys([*netsor.outputs, *kept_families(netsor, keep), *scores]))
    decided = plan(netsor, width, coordinates, kept, method)
    for name in kept:
        has = decided.widths.get(netsor.families[name].width, coordinates)  # a scalar has no width
        if has < coordinates:
            raise ProgramError(f"{name} has only {has} coordinates at n = {width}, {coordinates} were asked for")
    one = Job(netsor, decided, seed, 1, dtype)
    fit = BLOCK_BYTES / max(one.network, 1)
    fit = max(fit, min(FEW, 4 * fit))  # fewer networks would not outweigh the interpreter
    fit = max(1.0, min(MAX_BLOCK, fit, BLOCK_NANOSECONDS / max(decided.work, 1)))
    return replace(one, block=1 << int(math.log2(fit)))
