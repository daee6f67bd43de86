"""What results beyond Assumption 1 cover: several layers of scores, averages, several widths.

Each finding that rests on such a result comes with a claim, which says how it is proved.

Source    Sakai et al. 2025, Theorem 1; the theory page on layers of scores; Yang 2019 for averages and widths
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice, product

from tensorprog.check.clauses.context import NETSOR_PLUS, Context, makers, rule, shown_place
from tensorprog.check.clauses.report import Claim, Finding
from tensorprog.check.graph import Operand
from tensorprog.check.overlaps import FAILS, HOLDS, Verdict
from tensorprog.language.arrows import grouped
from tensorprog.language.ir import MatMul

ITERATED = "iterated layers"


@rule("one layer of scores", "Sakai et al. 2025, Theorem 1", "no weight multiplies a vector that depends on a score")
def one_layer(check: Context) -> Iterator[Finding | Claim]:
    """No weight multiplies a vector that depends on a score; else no weight of a score is used in a later layer."""
    behind = list(check.structure.behind_scores)
    if not behind:
        return
    reused = list(_reused(check))
    yield from reused
    if reused:
        return
    names = ", ".join(dict.fromkeys(check.text(p) for p in behind))
    yield Claim(
        ITERATED,
        "conjecture",
        f"{names}: weights behind scores; given the scores of one layer the next is a Netsor program whose covariances "
        "depend on them, because no weight that made a score operand is used again",
    )
    ancestors = check.structure.ancestors(behind[0])
    score = next(p for p in check.structure.scores if p in ancestors)
    chain = check.structure.chain(score, behind[0])
    yield check.finding(
        "holds",
        (behind[0],),
        f"{check.netsor.body[behind[0]]} depends on the score {check.text(score)} through {check.chain_text(chain)}, "
        "beyond Theorem 1, which covers one layer of scores; the layers are taken one after another (a conjecture)",
        ways=(chain,),
        source="",
    )


def _reused(check: Context) -> Iterator[Finding]:
    """Weights that make an operand of a score and, in a layer that may depend on it, of another score."""
    fixed = (o for o in check.structure.operands if o.dot not in check.sides)
    made = makers((*check.operands, *fixed))
    by_weight = grouped((check.structure.product(maker.definer).weight.name, maker) for maker in made)
    for alike in by_weight.values():
        met = (found for first, second in product(alike, repeat=2) for found in _met(check, first, second))
        yield from islice(met, 1)


def _met(check: Context, first: Operand, second: Operand) -> Iterator[Finding]:
    """Where a weight of a score operand is used again, in a later round of a recurrence or for a score behind it.

    Scores of one layer may share weights, unless one is of a recurrence: that might tie its rounds to each other.
    """
    structure = check.structure
    layers = [structure.layers[maker.dot] for maker in (first, second)]
    recurrent = structure.recurs(first.dot) or structure.recurs(second.dot)
    if max(layers) == 1 and not recurrent:
        return
    behind = layers[0] < layers[1] or (recurrent and layers[0] == layers[1] and first.dot < second.dot)
    for verdict, _, apart in _used_twice(check, first.definer, second.definer, behind):
        old, new = check.source(first.definer), check.source(second.definer)
        where = f" at a later {apart}" if apart else ""
        may = "is used" if verdict is FAILS else "may be used"
        message = (
            f"{old.matrix} makes {old.target}, an operand of the score {check.text(first.dot)}, and {may} again{where} "
            f"for {new.target}, an operand of the score {check.text(second.dot)} in a layer behind it. Layers can be "
            "taken one after another only if no weight that made a score operand is used again"
        )
        back = structure.chain(first.dot, second.definer)
        message += f"; the way there: {check.chain_text(back)}" if back else ""
        ways = ((first.definer, first.dot), back, (second.definer, second.dot))
        yield check.used_again(verdict, first.definer, second.definer, message, ways, apart)


def _used_twice(
    check: Context, first: int, second: int, behind: bool
) -> Iterator[tuple[Verdict, Mapping[str, int], str]]:
    """How two MatMuls may use one matrix, and where: in a later round of an index, or at once if one is `behind`."""
    at_once = ("",) if behind and first != second else ()  # one vector may serve many layers
    for index in (*check.structure.loops(first, second), *at_once):
        verdict, place = check.structure.same_member(first, second, apart=index)
        if verdict is not HOLDS:
            yield verdict, place, index


@rule("averages", NETSOR_PLUS)
def averages(check: Context) -> Iterator[Finding | Claim]:
    """Dots of scale 1/n over a growing width are averages: numbers in the limit, or functions of what is random."""
    converging, random = check.structure.converging, check.structure.random
    good, given = sorted(converging - random), sorted(converging & random)
    if good:
        names = ", ".join(check.text(p) for p in good)
        yield Claim("averages", "proved", f"{names} converge to numbers ({NETSOR_PLUS})")
        yield check.finding("holds", tuple(good), f"{names}: 1/n scale, so averages, which converge to numbers")
    if given:
        names = ", ".join(dict.fromkeys(check.text(p) for p in given))
        yield Claim(ITERATED, "conjecture", f"{names}: averages of vectors that depend on scores or on finite widths")
        said = f"{names}: averages of what is random in the limit, so random too, functions of it (a conjecture)"
        yield check.finding("holds", (given[0],), said, source="")


@rule("coordinate vectors", "the law of large numbers (theory page)")
def coordinates(check: Context) -> Iterator[Finding | Claim]:
    """Vectors whose coordinates are numbers, (a + 1/2)/n."""
    read = {v.name for p in check.structure.relevant for v in check.netsor.body[p].inputs}
    names = ", ".join(v.name for v in check.netsor.initial if v.grid and v.name in read)
    if names:
        message = f"{names}: coordinates that are not of one law; averages over them converge"
        yield Claim("coordinate vectors", "proved", message)
        yield check.finding("holds", (), f"{names}: a coordinate vector, uniform on (0, 1) in the limit")


@rule("widths", "Yang 2019")
def widths(check: Context) -> Iterator[Finding | Claim]:
    """Several widths go to infinity together; fixed ones stay finite."""
    used = {
        check.netsor.families[v.name].width
        for p in check.structure.relevant
        for v in (check.netsor.body[p].target, *check.netsor.body[p].inputs)
    } - {""}
    fixed = [name for name, _ in check.netsor.fixed_widths if name in used]
    growing = used - set(fixed)
    ratios = {name: ratio for name, ratio, _ in check.netsor.widths}
    if len({ratios.get(name, 1) for name in growing}) > 1:
        names = ", ".join(sorted(growing))
        yield Claim(
            "several widths",
            "proved",
            f"the widths {names} go to infinity together, in fixed ratios "
            "(Yang 2019, Theorem 5.4 with several widths; beside scores by the argument of the theory page)",
        )
        yield check.finding("holds", (), f"the widths {names} go to infinity together, in fixed ratios")
    if fixed:
        names = ", ".join(fixed)
        yield Claim(
            "fixed width",
            "exact",
            f"{names} stays finite: vectors of this width are random in the limit, with Gaussian coordinates where "
            "a weight makes them, and scores over it are exact functions of them",
        )
        said = f"the width {names} stays finite; its vectors and scores are random, exactly"
        yield check.finding("holds", (), said, source="")
        yield from _behind_fixed(check)


def _behind_fixed(check: Context) -> Iterator[Finding | Claim]:
    """Weights of growing width behind vectors of finite width: a further layer, given these vectors."""
    structure, body = check.structure, check.netsor.body
    fixed = dict(check.netsor.fixed_widths)
    behind = [
        p
        for p in sorted(structure.relevant)
        if isinstance(s := body[p], MatMul)
        and s.sides(check.netsor.weight[s.weight.name])[1] not in fixed
        and not structure.finite_dependent.isdisjoint(structure.definers(p, s.vector))
    ]
    for maker, position in product(structure.finite, behind):
        for verdict, place, index in _used_twice(check, maker, position, maker in structure.ancestors(position)):
            one, two = check.source(maker), check.source(position)
            message = (
                f"{one.matrix} makes {one.target}, a vector of finite width, and is used again behind it"
                f"{shown_place(place)}, for {two.target}: given the first, {two} is no fresh Gaussian vector"
            )
            yield check.used_again(verdict, maker, position, message, (structure.chain(maker, position),), index)
            return
    if behind:
        names = ", ".join(dict.fromkeys(check.text(p) for p in behind))
        yield Claim(ITERATED, "conjecture", f"{names}: weights behind vectors of finite width")
