"""In which order statements run: groups of mutually dependent statements become loops over a recurrence index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorprog.language.arrows import grouped, ordered, reached
from tensorprog.language.errors import Problem, ProgramError, fail
from tensorprog.language.expr import Affine, Variable
from tensorprog.language.records import Draft, Range, Statement

MOST_STEPS = 30_000  # of a network: planning takes a few seconds for them


@dataclass(frozen=True)
class Loop:
    """Statements (or inner loops) repeated for each value of a recurrence index, in increasing order."""

    index: str
    start: int
    stop: int
    body: tuple[int | Loop, ...]


@dataclass(frozen=True)
class Step:
    """One statement for fixed values of its recurrence indices and all values of its other indices."""

    position: int
    statement: Statement
    fixed: tuple[tuple[str, int], ...] = ()

    def ranges(self, ranges: Mapping[str, Range]) -> dict[str, Range]:
        """Ranges of all indices with the fixed ones pinned to one value."""
        return dict(ranges) | {name: (value, value + 1) for name, value in self.fixed}


def _uses(reference: Variable, definition: Variable, ranges: Mapping[str, Range], boundary: Sequence[str]) -> bool:
    """Whether a reference can read a member that this definition binds; beyond a boundary of zeros there is none."""
    places = zip(reference.slots, definition.slots, boundary, strict=True)
    ends = ((slot.bounds(ranges), target.bounds(ranges), rule) for slot, target, rule in places)
    return all(rule == "wrap" or (first <= high and low <= last) for (low, high), (first, last), rule in ends)


def dependencies(
    body: Sequence[Statement], ranges: Mapping[str, Range], boundaries: Mapping[str, Sequence[str]]
) -> list[tuple[int, int, Variable]]:
    """Triples (user, definer, reference) of statement positions."""
    defined = grouped((statement.target.name, position) for position, statement in enumerate(body))
    edges = []
    for position, statement in enumerate(body):
        for reference in statement.inputs:
            rules = boundaries.get(reference.name, [""] * len(reference.slots))
            for definer in defined.get(reference.name, ()):
                target = body[definer].target
                if len(target.slots) == len(reference.slots) and _uses(reference, target, ranges, rules):
                    edges.append((position, definer, reference))
    return edges


def lag(
    user: Statement,
    definer: Statement,
    reference: Variable,
    index: str,
    ranges: Mapping[str, Range],
    boundaries: Mapping[str, Sequence[str]],
) -> int | None:
    """By how much at least a reference lags behind the user along an index, whatever the other indices are.

    None if it may read ahead, or if the two are not defined along the index.
    """
    bare = [slot.bare for slot in definer.target.slots]
    if index not in bare or index not in [slot.bare for slot in user.target.slots]:
        return None
    place = bare.index(index)
    slot, rules = reference.slots[place], boundaries.get(reference.name, ())
    (low, high), (start, stop) = slot.bounds(ranges), ranges[index]
    if rules and rules[place] == "wrap" and (low < start or high >= stop):  # the first member would read the last
        return None
    least, _ = (Affine.index(index) - slot).bounds(ranges)
    return least if least >= 0 else None


def _order(
    nodes: Sequence[int],
    edges: Sequence[tuple[int, int, Variable]],
    body: Sequence[Statement],
    ranges: Mapping[str, Range],
    boundaries: Mapping[str, Sequence[str]],
    used: frozenset[str],
    key: Callable[[int], Any],
) -> tuple[int | Loop, ...]:
    readers = grouped((definer, user) for user, definer, _ in edges)
    order = ordered({node: readers.get(node, []) for node in nodes}, key)
    component_of = {node: number for number, members in enumerate(order) for node in members}
    within = grouped((component_of[edge[0]], edge) for edge in edges if component_of[edge[0]] == component_of[edge[1]])
    result: list[int | Loop] = []
    for component, members in enumerate(map(sorted, order)):
        inner = within.get(component)
        if not inner:
            result.append(members[0])
            continue
        candidates = [slot.bare for slot in body[members[0]].target.slots if slot.bare and slot.bare not in used]
        for index in candidates:
            lags = [
                lag(body[user], body[definer], reference, index, ranges, boundaries)
                for user, definer, reference in inner
            ]
            if any(lag is None for lag in lags) or not any(lags):
                continue
            rest = [edge for edge, lag in zip(inner, lags, strict=True) if lag == 0]
            inner_order = _order(members, rest, body, ranges, boundaries, used | {index}, key)
            result.append(Loop(index, *ranges[index], inner_order))
            break
        else:
            names = ", ".join(dict.fromkeys(str(body[m].target) for m in members))
            depend = "depends on itself" if len(members) == 1 else "depend on each other"
            raise fail(
                f"circular definition: {names} {depend} without an index that decreases, conditions not looked at",
                body[members[0]].span,
                "refer to earlier members only, e.g. s[t] = Nonlin(tanh(u[t])), u[t] = MatMul(W, s[t-1]), s[0] given "
                "(Sakai et al. 2025, footnote 2)",
            )
    return tuple(result)


def schedule(
    body: Sequence[Statement],
    ranges: Mapping[str, Range],
    boundaries: Mapping[str, Sequence[str]],
    key: Callable[[int], Any] | None = None,
) -> tuple[tuple[int | Loop, ...], list[Problem]]:
    """Order the statements of a body; problems are circular definitions and use before binding.

    Of statements that could run next, the one with the smallest `key` (by default its position) does.
    """
    edges = dependencies(body, ranges, boundaries)
    try:
        order = _order(range(len(body)), edges, body, ranges, boundaries, frozenset(), key or int)
    except ProgramError as error:
        return (), [*error.problems]
    group = {position: number for number, entry in enumerate(order) for position in positions([entry])}
    problems = [
        Problem(
            f"{reference.name} is used before it is bound",
            body[user].span.at(reference.column),
            f"move `{body[definer].target} = ...` above this statement",
        )
        for user, definer, reference in edges
        if definer > user and group[user] != group[definer]
    ]
    return order, problems


def around(entries: Sequence[int | Loop], indices: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The statements of a schedule in its order, those of loops once, each with the indices of the loops around it."""
    for entry in entries:
        if isinstance(entry, Loop):
            yield from around(entry.body, (*indices, entry.index))
        else:
            yield entry, indices


def positions(entries: Sequence[int | Loop]) -> Iterator[int]:
    """The statements of a schedule in its order, those of loops once."""
    return (position for position, _ in around(entries))


def steps_of(entries: Sequence[int | Loop]) -> int:
    """The number of steps of a schedule, which is not unrolled."""
    return sum((e.stop - e.start) * steps_of(e.body) if isinstance(e, Loop) else 1 for e in entries)


def upstream(netsor: Draft, names: Iterable[str]) -> frozenset[str]:
    """Families that some families depend on, these too, through vectors that are multiplied as well."""

    def read(name: str) -> Iterator[str]:
        return (v.name for position in netsor.families[name].statements for v in netsor.body[position].inputs)

    return reached(read, names)


def downstream(body: Iterable[Statement], names: Iterable[str]) -> frozenset[str]:
    """Families that depend on some families, these too, through these statements."""
    readers = grouped((reference.name, statement.target.name) for statement in body for reference in statement.inputs)
    return reached(lambda name: readers.get(name, []), names)


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of entries of a schedule one after the other, each made when it is its turn."""

    body: Sequence[Statement]
    entries: Sequence[int | Loop]

    def __iter__(self) -> Iterator[Step]:
        return self._run(self.entries, ())

    def _run(self, entries: Sequence[int | Loop], fixed: tuple[tuple[str, int], ...]) -> Iterator[Step]:
        for entry in entries:
            if isinstance(entry, int):
                yield Step(entry, self.body[entry], fixed)
            else:
                for value in range(entry.start, entry.stop):
                    yield from self._run(entry.body, (*fixed, (entry.index, value)))


def steps(netsor: Draft, key: Callable[[int], Any] | None = None) -> Steps:
    """All steps in an order of execution (see `schedule`); their number grows with recurrence indices only.

    Raises    ProgramError for more than MOST_STEPS
    """
    order, _ = schedule(netsor.body, netsor.ranges, netsor.boundaries, key)
    if steps_of(order) > MOST_STEPS:
        longest = max((entry for entry in order if isinstance(entry, Loop)), key=lambda loop: loop.stop - loop.start)
        what = f"{steps_of(order):,} steps one after the other, and {MOST_STEPS:,} are the most"
        raise fail(f"a network of {netsor.name} takes {what}", fix=f"give the index {longest.index} a smaller range")
    return Steps(netsor.body, order)
