"""Who depends on whom, which vectors are score operands, and which weights are reused; by statement, not member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import networkx as nx

from tensorprog.check.graph.overlaps import System, marked
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.facts import HOLDS, Verdict
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin
from tensorprog.language.schedule import Loop, dependencies, lag, schedule

__all__ = ["Operand", "Structure"]


@dataclass(frozen=True)
class Operand:
    """One side of a score, and one MatMul (or other) statement that defines what stands there."""

    dot: int
    side: str  # "left" or "right"
    reference: Variable
    definer: int | None  # None: an initial vector


class Structure:
    """Ancestry and weight use of a program, by positions of statements; nothing here has members."""

    def __init__(self, netsor: Netsor) -> None:
        self.netsor = netsor
        self.initial: dict[str, Initial] = {initial.name: initial for initial in netsor.initial}
        self.edges = dependencies(netsor.body, netsor.ranges, netsor.boundaries)
        self._later: dict[tuple[int, bool], frozenset[int]] = {}
        self._definers: dict[tuple[int, Variable], list[int]] = {}
        for user, definer, reference in self.edges:
            self._definers.setdefault((user, reference), []).append(definer)

    def definers(self, position: int, reference: Variable) -> tuple[int, ...]:
        """Statements that may bind what a reference in a statement reads."""
        return tuple(dict.fromkeys(self._definers.get((position, reference), ())))

    @cached_property
    def _graph(self) -> Any:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.netsor.body)))
        graph.add_edges_from((definer, user) for user, definer, _ in self.edges)
        return graph

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Statements in an order in which Nonlins come after the Nonlins they use; recurrences are one group."""
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(self.netsor.body)))
        for user, definer, _ in self.edges:
            if isinstance(self.netsor.body[user], Nonlin) and isinstance(self.netsor.body[definer], Nonlin):
                graph.add_edge(definer, user)
        condensed = nx.condensation(graph)
        order = nx.lexicographical_topological_sort(condensed, key=lambda c: min(condensed.nodes[c]["members"]))
        return tuple(tuple(sorted(condensed.nodes[c]["members"])) for c in order)

    @cached_property
    def _recurrent(self) -> frozenset[int]:
        itself = {user for user, definer, _ in self.edges if user == definer}
        several = (group for group in self.groups if len(group) > 1)
        return frozenset(p for p in (*itself, *chain(*several)) if isinstance(self.netsor.body[p], Nonlin))

    def cyclic(self, position: int) -> bool:
        """Whether a statement belongs to a recurrence of Nonlins."""
        return position in self._recurrent

    def ancestors(self, *positions: int) -> frozenset[int]:
        """Statements that some statements depend on, without themselves unless they recur, or one reads another."""
        return _reached(self._graph.pred, chain.from_iterable(self._graph.pred[position] for position in positions))

    @cached_property
    def users(self) -> dict[int, tuple[int, ...]]:
        """Statements that read what each statement binds."""
        return {position: tuple(self._graph.succ[position]) for position in self._graph}

    def chain(self, start: int, end: int) -> tuple[int, ...]:
        """Shortest chain of statements from one to a dependent other; empty if there is none."""
        try:
            return tuple(nx.shortest_path(self._graph, start, end))
        except nx.NetworkXNoPath:
            return ()

    @cached_property
    def _rounds(self) -> tuple[dict[int, tuple[str, ...]], Any]:
        """Recurrence indices around each statement, and the graph without what is read from earlier rounds."""
        netsor = self.netsor
        order, _ = schedule(netsor.body, netsor.ranges, netsor.boundaries)
        around: dict[int, tuple[str, ...]] = {}
        round_graph = self._graph.copy()

        def enter(entries: Sequence[int | Loop], indices: tuple[str, ...]) -> None:
            for entry in entries:
                if isinstance(entry, Loop):
                    enter(entry.body, (*indices, entry.index))
                else:
                    around[entry] = indices

        enter(order, ())
        for user, definer, reference in self.edges:
            for index in set(around[user]) & set(around[definer]):
                if lag(netsor.body[user], netsor.body[definer], reference, index, netsor.ranges, netsor.boundaries):
                    round_graph.remove_edges_from([(definer, user)])
        return around, round_graph

    def loops(self, first: int, second: int) -> tuple[str, ...]:
        """Indices of the recurrences that two statements have in common."""
        around, _ = self._rounds
        return tuple(index for index in around[first] if index in around[second])

    def precedes(self, first: int, second: int) -> bool:
        """Whether a statement depends on another, in the same round where both belong to one recurrence."""
        return second in self._descendants(first, bool(self.loops(first, second)))

    def _descendants(self, position: int, within: bool) -> frozenset[int]:
        """Statements that depend on one, `within` a round of its recurrence or at all."""
        key = position, within
        if key not in self._later:
            self._later[key] = frozenset(nx.descendants(self._rounds[1] if within else self._graph, position))
        return self._later[key]

    def tangled(self, together: Iterable[tuple[int, int]]) -> frozenset[int]:
        """Scores that cannot be taken layer after layer if the two of each pair belong to one layer.

        Rounds of a recurrence are layers of their own only if all scores of a layer belong to it: one that does not may
        tie a round to another.
        """
        layer = nx.utils.UnionFind(self.scores)
        for pair in together:
            layer.union(*pair)
        apart = {a for group in layer.to_sets() if all(self.loops(a, b) for a in group for b in group) for a in group}
        order = nx.DiGraph((layer[a], layer[b]) for a in self.scores for b in self.scores
                           if b in self._descendants(a, {a, b} <= apart and bool(self.loops(a, b)))
                           or (a == b and a not in apart and a in self.ancestors(a)))
        found: set[int] = set()
        for group in nx.strongly_connected_components(order):
            if len(group) > 1 or any(order.has_edge(one, one) for one in group):
                found |= {score for score in self.scores if layer[score] in group}
        return frozenset(found)

    @cached_property
    def relevant(self) -> frozenset[int]:
        """Statements that the outputs depend on."""
        bound = (self.netsor.families[name].statements for name in self.netsor.outputs)
        return _reached(self._graph.pred, (position for positions in bound for position in positions))

    @cached_property
    def scores(self) -> tuple[int, ...]:
        """Relevant Dots of scale n**-0.5."""
        return tuple(
            p
            for p, s in enumerate(self.netsor.body)
            if p in self.relevant and isinstance(s, Dot) and s.scale == "n**-0.5"
        )

    @cached_property
    def averages(self) -> frozenset[str]:
        """Names of families with an average (a Dot of scale 1/n) among their definitions."""
        return frozenset(s.target.name for s in self.netsor.body if isinstance(s, Dot) and s.scale == "1/n")

    @cached_property
    def score_dependent(self) -> frozenset[int]:
        """Statements downstream of a score, the scores included."""
        return _reached(self._graph.succ, self.scores)

    @cached_property
    def finite(self) -> tuple[int, ...]:
        """Relevant MatMuls onto a width that stays finite."""
        fixed = dict(self.netsor.fixed_widths)
        weight = self.netsor.weight
        return tuple(
            p
            for p, s in enumerate(self.netsor.body)
            if p in self.relevant and isinstance(s, MatMul) and s.sides(weight[s.weight.name])[0] in fixed
        )

    @cached_property
    def finite_dependent(self) -> frozenset[int]:
        """Statements downstream of vectors of a finite width, these included."""
        fixed = dict(self.netsor.fixed_widths)
        small = {v.name for v in self.netsor.initial if v.width in fixed}
        reading = [p for p, s in enumerate(self.netsor.body) if any(v.name in small for v in s.inputs)]
        return _reached(self._graph.succ, (*self.finite, *reading))

    @cached_property
    def random(self) -> frozenset[int]:
        """Statements whose averages are random in the limit: downstream of scores, or of vectors of a finite width."""
        return self.score_dependent | self.finite_dependent

    @cached_property
    def behind_scores(self) -> dict[int, tuple[int, ...]]:
        """Relevant MatMuls of vectors that depend on a score, with the statements that define these."""
        reads = {p: self.definers(p, s.vector) for p, s in enumerate(self.netsor.body) if isinstance(s, MatMul)}
        return {
            position: definers
            for position, definers in reads.items()
            if position in self.relevant and not self.score_dependent.isdisjoint(definers)
        }

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """Both sides of every score with the statements that define them."""
        found = []
        for position in self.scores:
            dot = self.netsor.body[position]
            assert isinstance(dot, Dot)
            for side, reference in (("left", dot.left), ("right", dot.right)):
                definers: Sequence[int | None] = self.definers(position, reference) or (None,)
                found += [Operand(position, side, reference, definer) for definer in definers]
        return tuple(found)

    def weight_uses(self, name: str) -> tuple[int, ...]:
        """Relevant MatMuls by a weight family."""
        return tuple(self._uses.get(name, ()))

    @cached_property
    def _uses(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for position, s in enumerate(self.netsor.body):
            if position in self.relevant and isinstance(s, MatMul):
                found.setdefault(s.weight.name, []).append(position)
        return found

    # -- can two uses touch the same member? ---------------------------------------------------------------------------

    def same_member(
        self, first: int, second: int, apart: str = "", read_by: Operand | None = None
    ) -> tuple[Verdict, dict[str, int]]:
        """Whether two MatMuls can use one member of a weight family: FAILS with index values, HOLDS if never.

        With `apart`, an index of both statements, the second's value of it must be larger; with `read_by` the first's
        product must be read by an operand.
        """
        one, two = self.netsor.body[first], self.netsor.body[second]
        assert isinstance(one, MatMul)
        assert isinstance(two, MatMul)
        if one.weight.name != two.weight.name:
            return HOLDS, {}
        system = System()
        system.variables(self.netsor.ranges, [n for s in one.weight.slots for n in s.indices], "")
        system.variables(self.netsor.ranges, [n for s in two.weight.slots for n in s.indices], "'")
        family = self.netsor.families[one.weight.name]
        first_member = system.member(family, [marked(slot, "") for slot in one.weight.slots])
        second_member = system.member(family, [marked(slot, "'") for slot in two.weight.slots])
        for a, b in zip(first_member, second_member, strict=True):
            system.equal(a, b)
        if read_by is not None:
            system.variables(self.netsor.ranges, [s.bare for s in one.target.slots if s.bare], "")
            dot = self.netsor.body[read_by.dot]
            system.variables(self.netsor.ranges, [s.bare for s in dot.target.slots if s.bare], '"')
            read = self.netsor.families[read_by.reference.name]
            members = system.member(read, [marked(slot, '"') for slot in read_by.reference.slots])
            for a, slot in zip(members, one.target.slots, strict=True):
                system.equal(a, marked(slot, ""))
        if apart:
            start, stop = self.netsor.ranges[apart]
            system.variables(self.netsor.ranges, [apart], "")
            system.variables(self.netsor.ranges, [apart], "'")
            system.within(Affine.index(f"{apart}'") - Affine.index(apart), (1, stop - start))
        return system.solve()

    def same_weight_in_score(
        self, left: Operand, right: Operand, vectors: bool = False
    ) -> tuple[Verdict, dict[str, int]]:
        """Whether both sides of a score can use one member of a weight family, at the same index values of the score.

        With `vectors` they must multiply the same vector as well.
        """
        dot = self.netsor.body[left.dot]
        assert left.definer is not None
        assert right.definer is not None
        one, two = self.netsor.body[left.definer], self.netsor.body[right.definer]
        assert isinstance(one, MatMul)
        assert isinstance(two, MatMul)
        if one.weight.name != two.weight.name or (vectors and one.vector.name != two.vector.name):
            return HOLDS, {}
        system = System()
        system.variables(self.netsor.ranges, [s.bare for s in dot.target.slots if s.bare], "")
        families = self.netsor.families
        forms = []
        for operand, statement in ((left, one), (right, two)):
            inside: dict[str, Affine] = {}
            slots = [marked(slot, "") for slot in operand.reference.slots]
            members = system.member(families[operand.reference.name], slots)
            for value, target in zip(members, statement.target.slots, strict=True):
                if target.bare is None:
                    system.equal(value, Affine((), target.offset))
                else:
                    inside[target.bare] = value
                    system.within(value, self.netsor.ranges[target.bare])
            read = (statement.weight, *((statement.vector,) if vectors else ()))
            forms.append([member for variable in read for member in system.member(
                families[variable.name], [slot.at(inside) for slot in variable.slots])])
        for a, b in zip(*forms, strict=True):
            system.equal(a, b)
        return system.solve()

    def same_operands(self, position: int) -> tuple[Verdict, dict[str, int]]:
        """Whether both operands of a Dot can be one vector: FAILS with index values, HOLDS if never."""
        dot = self.netsor.body[position]
        assert isinstance(dot, Dot)
        if dot.left.name != dot.right.name:
            return HOLDS, {}
        system = System()
        system.variables(self.netsor.ranges, [s.bare for s in dot.target.slots if s.bare], "")
        family = self.netsor.families[dot.left.name]
        members = (system.member(family, [marked(slot, "") for slot in side.slots]) for side in (dot.left, dot.right))
        for a, b in zip(*members, strict=True):
            system.equal(a, b)
        return system.solve()


def _reached(neighbours: Mapping[int, Iterable[int]], starts: Iterable[int]) -> frozenset[int]:
    """Some statements and all that is reached from them."""
    waiting = list(starts)
    found = set(waiting)
    while waiting:
        new = set(neighbours[waiting.pop()]) - found
        found |= new
        waiting += new
    return frozenset(found)
