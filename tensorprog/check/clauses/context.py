"""What the rules of Assumption 1 read, and the form in which they answer.

The rules decide by structure alone wherever they can.  Three questions are left for numbers of the limit: does a
score have a mean, are functions finite at the limits of averages, and is a vector 0 there with some probability.
`LimitNumbers` has the questions; who answers them, the check does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from tensorprog.check.clauses.report import Claim, Finding, Says
from tensorprog.check.facts import Calculus
from tensorprog.check.graph import SIDES, Operand, Structure
from tensorprog.check.overlaps import FAILS, UNKNOWN, Verdict
from tensorprog.check.rewrites import Rewritten
from tensorprog.check.signs import coordinatewise
from tensorprog.language.expr import Expr, Number, replace_variables
from tensorprog.language.formats import label
from tensorprog.language.ir import Dot, Initial, MatMul, Netsor, Nonlin, Weight

SAKAI = "Sakai et al. 2025, Theorem 1"
ASSUMPTION = "Sakai et al. 2025, Assumption 1"
YANG = "Yang 2019, Theorem 5.4"
GRADIENTS = "Yang 2020 (arXiv 2006.14548), BP-like programs"
NETSOR_PLUS = "Yang 2019, Netsor+ master theorem"
DIVERGES, NOT_COVERED = "diverges", "not covered"
ROUNDING = 1e-12
SAYS: Mapping[Verdict, Says] = {FAILS: "fails", UNKNOWN: "unknown"}  # of a clause that is not known to hold


@dataclass(frozen=True)
class ScoreMean:
    """E[Z^left Z^right] of the member of a Dot that is furthest from 0 beyond its error.

    With scores upstream it is random, and `value` is its value in the draw of them that is furthest from 0.
    """

    value: float
    error: float
    place: Mapping[str, int] = field(default_factory=dict)
    random: bool = False
    whole: bool = True  # whether all members were looked at

    @property
    def zero(self) -> bool:
        """Whether it is 0 within its error."""
        return abs(self.value) <= max(self.error, ROUNDING)


class LimitNumbers:
    """The questions, with the answer that nothing is known, so that the rules say what structure alone can tell.

    `netsor` is the program as written, unless something else is said; None stands for: not known.
    """

    def mean(self, netsor: Netsor, dot: Dot) -> ScoreMean | None:
        """The mean of a score over sqrt(n), or of an average, of the member for which it is furthest from 0."""
        return None

    def singular(self, netsor: Netsor, expr: Expr) -> str | None:
        """What is wrong with an expression of averages at their limits: not finite, or a jump; '' if nothing."""
        return None

    def zero_probability(self, netsor: Netsor, expr: Expr) -> float | None:
        """The largest limiting probability of a = 0 over the members of a family a of vectors, an expression.

        `netsor` is the program after its rewrites.
        """
        return None


@dataclass(frozen=True)
class Rule:
    """One clause: its name, where it comes from, and the function that yields findings, and claims where it needs them.

    `holds` is what to say of a clause about scores when there are some and nothing is found.
    """

    name: str
    source: str
    apply: Callable[[Context], Iterator[Finding | Claim]]
    holds: str = ""


def rule(name: str, source: str, holds: str = "") -> Callable[[Callable[[Context], Iterator[Finding | Claim]]], Rule]:
    """Make a function a rule."""
    return lambda apply: Rule(name, source, apply, holds)


@dataclass
class Context:
    """What the rules read.

    Rules judge the rewritten program and speak of the one that was written: `text` and the nodes of findings are its.
    """

    written: Netsor
    rewritten: Rewritten
    structure: Structure
    calculus: Calculus
    numbers: LimitNumbers
    rule: Rule | None = None  # whose turn it is

    @property
    def netsor(self) -> Netsor:
        """The rewritten program."""
        return self.rewritten.netsor

    def text(self, position: int) -> str:
        """What a statement defines, as written."""
        return self.rewritten.origin[position]

    def pairs(self, dot: int) -> Iterator[tuple[Operand, Operand]]:
        """The left and the right operands of a score, in pairs, as far as MatMuls make them."""
        made = makers(self.sides[dot])
        yield from ((one, two) for one in made for two in made if (one.side, two.side) == SIDES)

    def finding(
        self,
        verdict: Says | Verdict,
        positions: tuple[int, ...],
        message: str,
        fix: str | Sequence[str] = (),
        consequence: str = "",
        ways: Iterable[tuple[int, ...]] = (),
        weights: tuple[str, ...] = (),
        source: str | None = None,
    ) -> Finding:
        """A finding of the current rule at some statements, the first of them to blame; by default with its source.

        Each of the fixes is enough.  `ways` are chains of statements, and `weights` nodes, that belong to the finding.
        """
        assert self.rule is not None
        said = SAYS[verdict] if isinstance(verdict, Verdict) else verdict
        line = self.netsor.body[positions[0]].span.line if positions else 0
        names = dict.fromkeys(self.text(p) for p in positions)
        added = [str(self.netsor.body[p]) for p in positions if str(self.netsor.body[p].target) != self.text(p)]
        message += f" (after rewriting: {'; '.join(added)})" if added else ""
        nodes = tuple(dict.fromkeys((*names, *map(self.text, chain(*ways)), *weights)))
        source = self.rule.source if source is None else source
        fixes = tuple(filter(None, [fix] if isinstance(fix, str) else fix))
        return Finding(self.rule.name, said, ", ".join(names), line, message, fixes, source, nodes, consequence)

    def used_again(
        self,
        verdict: Verdict,
        first: int,
        second: int,
        message: str,
        ways: Iterable[tuple[int, ...]],
        apart: str = "",
    ) -> Finding:
        """A finding at the second of two MatMuls by one weight, which is to have a weight of its own.

        `apart` is the index of a recurrence of which the second is in a later round.
        """
        two = self.source(second)
        advice = f"give {two.target} a weight of its own" + (f" for each {apart}" if apart and first == second else "")
        weights = (self.weight(self.source(first).weight.name),)
        return self.finding(verdict, (second, first), message, advice, NOT_COVERED, ways, weights)

    def weight(self, name: str) -> str:
        """The node of a weight in the graph of the program as written, or of the initial vectors it stands for."""
        known = self.rewritten.initials.get(name, name)
        entries: tuple[Initial | Weight, ...] = (*self.written.initial, *self.written.weights)
        return next(label(known, entry.indices) for entry in entries if entry.name == known)

    def source(self, position: int) -> Any:
        """The statement as written that a statement comes from, of its kind, or itself where that is a declaration."""
        written = (s for s in self.written.body if str(s.target) == self.text(position))
        return next(written, self.netsor.body[position])

    @cached_property
    def zeros(self) -> frozenset[int]:
        """Statements that make nothing but zeros, at every width, because what they read is zero or a variance is."""
        found: set[int] = set()
        for position, statement in enumerate(self.netsor.body):
            profiles = [(v, self.calculus.vector(v, position)) for v in statement.inputs]
            made = {v: self.structure.definers(position, v) for v in statement.inputs}
            zero = [(f.constant and f.low == 0) or (made[v] != () and found.issuperset(made[v])) for v, f in profiles]
            match statement:
                case MatMul():
                    variance = self.netsor.weight[statement.weight.name].variance
                    known = zero[0] or self.calculus.closed(variance) == (0, 0)
                case Dot():
                    known = any(zero)
                case Nonlin(_, expr):
                    at_zero = replace_variables(expr, lambda _: Number(0)) if all(zero) else expr
                    with np.errstate(all="ignore"):
                        known = self.calculus.closed(at_zero) == (0, 0)
            if known:
                found.add(position)
        return frozenset(found)

    @cached_property
    def sides(self) -> Mapping[int, tuple[Operand, ...]]:
        """Scores over a width that goes to infinity, with the statements that define both sides.

        Over a fixed width a score is exact, whatever its operands are.
        """
        growing = (dot for dot in self.structure.scores if not self.structure.fixed(dot))
        own = {dot: tuple(o for o in self.structure.operands if o.dot == dot) for dot in growing}
        return {**own, **self.coordinatewise}

    @cached_property
    def coordinatewise(self) -> Mapping[int, tuple[Operand, ...]]:
        """Scores whose operands are functions of MatMul outputs, with the MatMuls behind both sides in their place."""
        return coordinatewise(self.structure, self.zeros)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The operands of these scores."""
        return tuple(chain.from_iterable(self.sides.values()))

    def chain_text(self, chain: tuple[int, ...]) -> str:
        """A chain of statements as text, by what they come from in the program as written."""
        return " -> ".join(dict.fromkeys(map(self.text, chain)))

    def nonlins(self) -> Iterator[tuple[int, Nonlin]]:
        """The Nonlins that outputs depend on, with their positions."""
        for position in sorted(self.structure.relevant):
            statement = self.netsor.body[position]
            if isinstance(statement, Nonlin):
                yield position, statement

    def sinks(self) -> Iterator[int]:
        """Nonlins whose value a weight, a Dot or an output reads; the others are inlined into these."""
        for position, nonlin in self.nonlins():
            users = (self.netsor.body[user] for user in self.structure.readers[position])
            if nonlin.target.name in self.netsor.outputs or not all(isinstance(user, Nonlin) for user in users):
                yield position


def makers(operands: Iterable[Operand]) -> list[Operand]:
    """The operands that MatMuls make."""
    return [operand for operand in operands if isinstance(operand.statement, MatMul)]


def shown_place(place: Mapping[str, int]) -> str:
    """Index values at which something happens, as text; without those of second copies and bound indices."""
    shown = {name: value for name, value in place.items() if "#" not in name and not name.endswith(("'", '"'))}
    return f" at {', '.join(f'{name}={value}' for name, value in sorted(shown.items()))}" if shown else ""
