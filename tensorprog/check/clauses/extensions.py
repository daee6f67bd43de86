"""Averages and widths, which results beyond Assumption 1 cover; and the induction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorprog.check.clauses.context import NETSOR_PLUS, Context
from tensorprog.check.clauses.layers import ITERATED
from tensorprog.check.clauses.report import Claim, Finding
from tensorprog.check.clauses.scales import values
from tensorprog.language.facts import HOLDS
from tensorprog.language.ir import MatMul

__all__ = ["averages", "induction", "widths"]

FEW = 4  # of what averages depend on, named


def averages(check: Context) -> Iterator[Finding]:
    """Dots of scale 1/n over a growing width are averages: numbers in the limit, or functions of what is random."""
    good: list[int] = []
    given: list[int] = []
    for position in sorted(check.converging):
        (given if position in check.structure.random else good).append(position)
    if good:
        names = ", ".join(check.text(p) for p in good)
        check.claim(Claim("averages", "proved", f"{names} converge to numbers ({NETSOR_PLUS})"))
        yield check.finding(
            "holds", tuple(good), f"{names}: 1/n scale, so averages, which converge to numbers"
        )
    if given:
        names = ", ".join(dict.fromkeys(check.text(p) for p in given))
        sources, ways = _sources(check, given)
        check.claim(Claim(ITERATED, "conjecture", f"{names}: averages of vectors that depend on {sources}"))
        yield check.finding(
            "holds",
            (given[0],),
            f"{names}: averages over vectors that depend on {sources}, random in the limit, through "
            f"{'; '.join(map(check.chain_text, ways))}; so they are random too, functions of it (a conjecture)",
            ways=ways,
            source="",
        )


def _sources(check: Context, given: Sequence[int]) -> tuple[str, list[tuple[int, ...]]]:
    """What is random behind some averages, as text, and a way from each of the first few to an average."""
    structure = check.structure
    ancestors = structure.ancestors(*given)
    random = ancestors.intersection((*structure.scores, *structure.finite))
    first: dict[str, int] = {}  # of one statement, several may have been made
    for position in sorted(random or {min(ancestors & structure.random)}):
        first.setdefault(check.text(position), position)
    few = list(first)[:FEW]
    chains = (structure.chain(first[name], average) for name in few for average in reversed(given))
    ways = {way[0]: way for way in chains if way}  # for each, one
    return ", ".join(few) + ", .." * (len(first) > FEW), list(ways.values())


def widths(check: Context) -> Iterator[Finding]:
    """Several widths go to infinity together; fixed ones stay finite."""
    used = {
        check.netsor.families[v.name].width
        for p in check.structure.relevant
        for v in (check.netsor.body[p].target, *check.netsor.body[p].inputs)
    } - {""}
    fixed = [name for name, _ in check.netsor.fixed_widths if name in used]
    growing = used - set(fixed)
    if len(growing) > 1:
        names = ", ".join(sorted(growing))
        check.claim(
            Claim(
                "several widths",
                "proved",
                f"the widths {names} go to infinity together, in fixed ratios "
                "(Yang 2019, Theorem 5.4 with several widths; beside scores by the argument of the theory page)",
            )
        )
        yield check.finding("holds", (), f"the widths {names} go to infinity together, in fixed ratios")
    if fixed:
        names = ", ".join(fixed)
        check.claim(
            Claim(
                "fixed width",
                "exact",
                f"{names} stays finite: vectors of this width are random in the limit, with Gaussian coordinates where "
                "a weight makes them, and scores over it are exact functions of them",
            )
        )
        said = f"the width {names} stays finite; its vectors and scores are random, exactly"
        yield check.finding("holds", (), said, source="")
        yield from _behind_fixed(check)


def _behind_fixed(check: Context) -> Iterator[Finding]:
    """Weights of growing width behind vectors of finite width: a further layer, given these vectors."""
    structure, body = check.structure, check.netsor.body
    fixed = dict(check.netsor.fixed_widths)
    behind = []
    for position, statement in enumerate(body):
        if position in structure.relevant and isinstance(statement, MatMul):
            _, columns = statement.sides(check.netsor.weight[statement.weight.name])
            definers = structure.definers(position, statement.vector)
            if columns not in fixed and not structure.finite_dependent.isdisjoint(definers):
                behind.append(position)
    for position in behind:
        for maker in structure.finite:
            apart = structure.loops(maker, position)
            rounds = ("", *apart) if structure.precedes(maker, position) else apart
            met = ((index, *structure.same_member(maker, position, apart=index)) for index in rounds)
            found = next((each for each in met if each[1] is not HOLDS), None)
            if found is not None:
                index, verdict, place = found
                one, two = check.written_product(maker), check.written_product(position)
                message = (
                    f"{one.matrix} makes {one.target}, a vector of finite width, and is used again behind it"
                    f"{values(place)}, for {two.target}: given the first, {two} is no fresh Gaussian vector"
                )
                way = structure.chain(maker, position)
                yield check.used_again(verdict, maker, position, message, (way,), index)
                return
    if behind:
        names = ", ".join(dict.fromkeys(check.text(p) for p in behind))
        check.claim(Claim(ITERATED, "conjecture", f"{names}: weights behind vectors of finite width"))


def induction(check: Context) -> Iterator[Finding]:
    """Definitions are inductive; the program's construction has checked it."""
    yield check.finding(
        "holds",
        (),
        "every vector is made of earlier ones; recurrences decrease along an index",
    )
