"""Graphs of the family-level program: ancestry, reuse of weights, and what plays which part in Assumption 1.

Everything is by positions of statements: a family of a million members is one node.  networkx, which is slow to
import, is for the graph that users see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

from tensorprog.check.overlaps import HOLDS, System, Verdict, marked
from tensorprog.language.arrows import components, grouped, ordered, reached
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.formats import label
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Range, Statement, Weight
from tensorprog.language.schedule import around, dependencies, schedule

SIDES = ("left", "right")


@dataclass(frozen=True)
class Operand:
    """One side of a score, and one MatMul (or other) statement that defines what stands there."""

    dot: int
    side: str  # "left" or "right"
    reference: Variable
    definer: int = -1  # its position; none for an initial vector
    statement: Statement | None = None  # that stands there
    bound: tuple[tuple[str, Range], ...] = field(default=(), kw_only=True)  # indices in it that are reduced over


class Structure:
    """Ancestry and weight use of a program, by positions of statements; nothing here has members."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.initial: dict[str, Initial] = {initial.name: initial for initial in netsor.initial}
        self.readers: dict[int, dict[int, None]] = {p: {} for p in range(len(netsor.body))}  # of what a statement makes
        self.sources: dict[int, dict[int, None]] = {p: {} for p in range(len(netsor.body))}  # of what it reads
        self._definers: dict[tuple[int, Variable], dict[int, None]] = {}
        for user, definer, reference in dependencies(netsor.body, netsor.ranges, netsor.boundaries):
            self._definers.setdefault((user, reference), {})[definer] = None
            self.readers[definer][user] = self.sources[user][definer] = None

    @classmethod
    def of(cls, netsor: Netsor) -> Structure:
        """The structure of a program, worked out once."""
        known: Structure | None = netsor.remembered.get(cls)
        if known is None:
            known = netsor.remembered[cls] = cls(netsor)
        return known

    def definers(self, position: int, reference: Variable) -> tuple[int, ...]:
        """Statements that may bind what a reference in a statement reads."""
        return tuple(self._definers.get((position, reference), ()))

    def definition(self, position: int, reference: Variable) -> Nonlin | None:
        """The one Nonlin that binds all that a reference in a statement reads."""
        definers = self.definers(position, reference)
        statement = self.netsor.body[definers[0]] if len(definers) == 1 else None
        return statement if isinstance(statement, Nonlin) else None

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Statements in an order in which Nonlins come after the Nonlins they use; recurrences are one group."""
        nonlins = {p for p, s in enumerate(self.netsor.body) if isinstance(s, Nonlin)}
        after = {p: [q for q in users if p in nonlins and q in nonlins] for p, users in self.readers.items()}
        return tuple(map(tuple, ordered(after, int)))

    @cached_property
    def cyclic(self) -> frozenset[int]:
        """Statements that belong to a recurrence of Nonlins."""
        nonlins = (group for group in self.groups if isinstance(self.netsor.body[group[0]], Nonlin))
        return frozenset(p for group in nonlins for p in group if len(group) > 1 or p in self.readers[p])

    def ancestors(self, *positions: int) -> frozenset[int]:
        """Statements that some statements depend on, without themselves unless they recur, or one reads another."""
        return reached(self.sources.__getitem__, chain.from_iterable(self.sources[position] for position in positions))

    def chain(self, start: int, end: int) -> tuple[int, ...]:
        """Shortest chain of statements from one to a dependent other; empty if there is none."""
        before, waiting = {start: start}, [start]
        for position in waiting:
            new = [reader for reader in self.readers[position] if reader not in before]
            before |= dict.fromkeys(new, position)
            waiting += new
        way = [end] if end in before else []
        while way and way[-1] != start:
            way.append(before[way[-1]])
        return tuple(reversed(way))

    @cached_property
    def _rounds(self) -> dict[int, tuple[str, ...]]:
        """Recurrence indices around each statement."""
        order, _ = schedule(self.netsor.body, self.netsor.ranges, self.netsor.boundaries)
        return dict(around(order))

    def loops(self, first: int, second: int) -> tuple[str, ...]:
        """Indices of the recurrences that two statements have in common."""
        return tuple(index for index in self._rounds[first] if index in self._rounds[second])

    @cached_property
    def _together(self) -> dict[int, tuple[int, ...]]:
        """By position, the statements that depend on each other both ways; those that others depend on come first."""
        return {position: group for group in components(self.sources) for position in group}

    def recurs(self, score: int) -> bool:
        """Whether a score depends on itself."""
        return len(self._together[score]) > 1

    @cached_property
    def layers(self) -> dict[int, int]:
        """In which layer of scores each score is, the first being 1; those of one recurrence are in one layer."""
        before = dict[int, int]()
        for group in dict.fromkeys(self._together.values()):
            scored = not set(group).isdisjoint(self.scores)
            earlier = {source for position in group for source in self.sources[position]}.difference(group)
            before |= dict.fromkeys(group, scored + max((before[source] for source in earlier), default=0))
        return {score: before[score] for score in self.scores}

    @cached_property
    def relevant(self) -> frozenset[int]:
        """Statements that the outputs depend on."""
        families = self.netsor.families
        return reached(self.sources.__getitem__, (p for name in self.netsor.outputs for p in families[name].statements))

    def _relevant(self, kind: type) -> list[tuple[int, Any]]:
        """Relevant statements of a kind, with their positions."""
        return [(p, self.netsor.body[p]) for p in sorted(self.relevant) if isinstance(self.netsor.body[p], kind)]

    @cached_property
    def scores(self) -> tuple[int, ...]:
        """Relevant Dots of scale n**-0.5."""
        return tuple(p for p, dot in self._relevant(Dot) if dot.scale == "n**-0.5")

    @cached_property
    def score_dependent(self) -> frozenset[int]:
        """Statements downstream of a score, the scores included."""
        return reached(self.readers.__getitem__, self.scores)

    def fixed(self, position: int) -> bool:
        """Whether a Dot is over a width that stays finite."""
        dot = self.netsor.body[position]
        return isinstance(dot, Dot) and self.netsor.families[dot.left.name].width in dict(self.netsor.fixed_widths)

    @cached_property
    def converging(self) -> frozenset[int]:
        """Relevant averages over a width that goes to infinity."""
        return frozenset(p for p, dot in self._relevant(Dot) if dot.scale == "1/n" and not self.fixed(p))

    @cached_property
    def finite(self) -> tuple[int, ...]:
        """Relevant MatMuls onto a width that stays finite."""
        fixed, weight = dict(self.netsor.fixed_widths), self.netsor.weight
        return tuple(p for p, s in self._relevant(MatMul) if s.sides(weight[s.weight.name])[0] in fixed)

    @cached_property
    def finite_dependent(self) -> frozenset[int]:
        """Statements downstream of vectors of a finite width, these included."""
        fixed = dict(self.netsor.fixed_widths)
        small = {v.name for v in self.netsor.initial if v.width in fixed}
        reading = [p for p, s in enumerate(self.netsor.body) if any(v.name in small for v in s.inputs)]
        return reached(self.readers.__getitem__, (*self.finite, *reading))

    @cached_property
    def random(self) -> frozenset[int]:
        """Statements whose averages are random in the limit: downstream of scores, or of vectors of a finite width."""
        return self.score_dependent | self.finite_dependent

    @cached_property
    def behind_scores(self) -> dict[int, tuple[int, ...]]:
        """Relevant MatMuls of vectors that depend on a score, with the statements that define these."""
        reads = {p: self.definers(p, product.vector) for p, product in self._relevant(MatMul)}
        return {p: definers for p, definers in reads.items() if not self.score_dependent.isdisjoint(definers)}

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Both sides of every score with the statements that define them."""
        return tuple(
            Operand(p, side, reference, definer, None if definer < 0 else self.netsor.body[definer])
            for p in self.scores
            for side, reference in zip(SIDES, self.netsor.body[p].inputs, strict=True)
            for definer in self.definers(p, reference) or (-1,)
        )

    @cached_property
    def uses(self) -> Mapping[str, Sequence[int]]:
        """By weight family, the relevant MatMuls by it."""
        found = grouped((product.weight.name, position) for position, product in self._relevant(MatMul))
        return {weight.name: found.get(weight.name, []) for weight in self.netsor.weights}

    # -- can two uses touch the same member? ---------------------------------------------------------------------------

    def same_member(
        self, first: int, second: int, apart: str = "", read_by: Operand | None = None
    ) -> tuple[Verdict, dict[str, int]]:
        """Whether two MatMuls can use one member of a weight family: FAILS with index values, HOLDS if never.

        With `apart`, an index of both statements, the second's value of it must be larger; with `read_by` the first's
        product must be read by an operand.
        """
        if self.product(first).weight.name != self.product(second).weight.name:
            return HOLDS, {}
        system = System()
        system.all_equal(self._used(system, first, "", read_by, '"'), self._used(system, second, "'"))
        if apart:
            start, stop = self.netsor.ranges[apart]
            system.variables(self.netsor.ranges, [apart], "")
            system.variables(self.netsor.ranges, [apart], "'")
            system.confined.append((Affine.index(f"{apart}'") - Affine.index(apart), (1, stop - start)))
        return system.solve()

    def same_weight_in_score(self, left: Operand, right: Operand) -> tuple[Verdict, dict[str, int]]:
        """Whether both sides of one member of a score can use one member of a weight family."""
        if self.product(left.definer).weight.name != self.product(right.definer).weight.name:
            return HOLDS, {}
        system = System()
        used = (self._used(system, o.definer, mark, o, "") for o, mark in ((left, "'"), (right, "''")))
        system.all_equal(*used)
        return system.solve()

    def _used(
        self, system: System, position: int, mark: str, read_by: Operand | None = None, inner: str = ""
    ) -> list[Affine]:
        """The member of its weight that a MatMul uses, what it makes being read by an operand; indices are marked."""
        product, ranges = self.product(position), self.netsor.ranges
        system.variables(ranges, _indices(product.weight), mark)
        if read_by is not None:
            system.variables(ranges, _indices(product.target), mark)
            bound = dict(read_by.bound)
            system.variables(ranges | bound, [*_indices(self.netsor.body[read_by.dot].target), *bound], inner)
            target = [marked(slot, mark) for slot in product.target.slots]
            read = system.member(self.netsor.families[read_by.reference.name], read_by.reference, inner)
            system.all_equal(read, target)
        return system.member(self.netsor.families[product.weight.name], product.weight, mark)

    def product(self, position: int) -> MatMul:
        """The MatMul at a position."""
        statement = self.netsor.body[position]
        assert isinstance(statement, MatMul)
        return statement


def _indices(reference: Variable) -> list[str]:
    return [name for slot in reference.slots for name in slot.indices]


# -- the graph that is drawn -------------------------------------------------------------------------------------------


def build(netsor: Netsor) -> Any:
    """Return a networkx MultiDiGraph of initial vectors, weights and statements.

    Shapes    nodes: `x[i]` as written on the left, attributes kind, name, text, indices, position (-1: declared),
              line, roles; edges from what is read to what reads it, attribute role: weight, vector, left, right or
              argument
    """
    import networkx as nx

    graph = nx.MultiDiGraph(name=netsor.name)
    structure = Structure.of(netsor)
    found = roles(structure)
    nodes: dict[str, str] = {}
    declared: tuple[Initial | Weight, ...] = (*netsor.initial, *netsor.weights)
    for entry in declared:
        kind, node = "initial" if isinstance(entry, Initial) else "weight", label(entry.name, entry.indices)
        nodes[entry.name] = node
        about = {"indices": entry.indices, "line": entry.span.line, "roles": found[entry.name]}
        graph.add_node(node, kind=kind, name=entry.name, text=node, position=-1, **about)
    for position, s in enumerate(netsor.body):
        indices = tuple(slot.bare for slot in s.target.slots if slot.bare)
        about = {"indices": indices, "line": s.span.line, "roles": found[position]}
        graph.add_node(
            str(s.target), kind=type(s).__name__, name=s.target.name, text=str(s), position=position, **about
        )
    for position, s in enumerate(netsor.body):
        parts = {MatMul: ("vector",), Dot: SIDES}.get(type(s)) or ("argument",) * len(s.inputs)
        arrows = {(nodes[s.weight.name], "weight"): None} if isinstance(s, MatMul) else {}
        for part, reference in zip(parts, s.inputs, strict=True):
            for source in _sources(structure, position, reference):
                name = nodes[source] if isinstance(source, str) else str(netsor.body[source].target)
                arrows[name, part] = None
        for name, part in arrows:
            graph.add_edge(name, str(s.target), role=part)
    return graph


def roles(structure: Structure) -> dict[str | int, tuple[str, ...]]:
    """The roles of declared names and of positions of statements, the most telling first.

    initial     an initial vector                       score    n**-0.5 times a product of two operands
    weight      a matrix that makes no operand          average  1/n times a product
    dedicated   W^{i,j}: makes an operand of a score    output   h^j = phi^j(g; p)
    G-var       a MatMul output g                       later    a MatMul of a vector that depends on scores
    operand     W^{i,j} x^{i,j}, or a sum of such       phi      a Nonlin that is none of these
    input       x^{i,j}, what W^{i,j} multiplies        unused   no output depends on it

    Scale     independent of the sizes of families
    Source    Sakai et al. 2025, Assumption 1
    """
    netsor, body, standing = structure.netsor, structure.netsor.body, set[str | int]()
    waiting: list[tuple[int, Variable]] = [(dot, side) for dot in structure.scores for side in body[dot].inputs]
    while waiting:  # what stands in a score, directly or as a vector of a Nonlin that does
        position, reference = waiting.pop()
        if netsor.families[reference.name].kind == "vector":
            new = set(_sources(structure, position, reference)) - standing
            standing |= new
            made = [p for p in new if isinstance(p, int) and isinstance(body[p], Nonlin)]
            waiting += [(p, v) for p in made for v in body[p].inputs]
    makers = [(p, s) for p in standing if isinstance(p, int) and isinstance(s := body[p], MatMul)]
    inputs = {source for position, maker in makers for source in _sources(structure, position, maker.vector)}
    dedicated = {maker.weight.name for _, maker in makers}
    read = {v.name for position in structure.relevant for v in body[position].inputs}.union(netsor.outputs)
    found: dict[str | int, tuple[str, ...]] = {}
    for initial in netsor.initial:
        stands = ("input",) * (initial.name in inputs) + ("operand",) * (initial.name in standing)
        found[initial.name] = ("initial", *stands) if initial.name in read else ("unused",)
    for weight in netsor.weights:
        role = "dedicated" if weight.name in dedicated else "weight"
        found[weight.name] = (role,) if structure.uses[weight.name] else ("unused",)
    for position, s in enumerate(body):
        match s:
            case Dot():
                kind = "score" if s.scale == "n**-0.5" else "average"
            case MatMul() if position in structure.behind_scores:
                kind = "later"
            case _:
                kind = "G-var" if isinstance(s, MatMul) and position not in standing else ""
        parts = {"output": s.target.name in netsor.outputs, "operand": position in standing}
        parts |= {"input": position in inputs, kind: bool(kind)}
        own = tuple(part for part, plays in parts.items() if plays) or ("phi",)
        found[position] = own if position in structure.relevant else ("unused",)
    return found


def _sources(structure: Structure, position: int, reference: Variable) -> tuple[str | int, ...]:
    """What a reference reads: an initial vector by name, or statements by position."""
    return (reference.name,) if reference.name in structure.initial else structure.definers(position, reference)
