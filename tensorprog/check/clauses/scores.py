"""Scores: their operands are MatMul outputs of bounded inputs, their means vanish, and their variances do not.

A score on the scale n**-0.5 has a limit only if its mean is 0: else it grows like sqrt(n), and its scale is to be 1/n.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorprog.check.clauses.context import (
    ASSUMPTION,
    DIVERGES,
    NOT_COVERED,
    Context,
    Maker,
    rule,
    shown_place,
)
from tensorprog.check.clauses.report import Finding, Fix, Replacement, Says
from tensorprog.check.graph import Operand
from tensorprog.check.limit_numbers import ScoreMean
from tensorprog.language.expr import Call, Constant, Expr, IndexValue, Number, Variable, slots_of, walk
from tensorprog.language.facts import FAILS, HOLDS
from tensorprog.language.ir import Dot, MatMul, Nonlin, Statement, Weight

__all__ = ["average_fix", "bounded", "mean_of", "operands", "renamed", "scales", "variance"]

EXACT = 1e-9  # an error that is rounding
SHOWN = 1e-4  # a relative error that four digits show
BOUND = 10  # stands for any bound of a clip


# -- means -------------------------------------------------------------------------------------------------------------


def mean_of(check: Context, position: int) -> tuple[bool, str]:
    """Whether the mean of a score as written is known to be other than zero, and what is known of it.

    All parts of one score have one mean.
    """
    dot = check.source(position)
    assert isinstance(dot, Dot)
    product = f"E[Z^{dot.left} Z^{dot.right}]"
    mean = check.numbers.mean(check.written, dot)
    known = "which is not known" if mean is None else _told(mean, product)
    grows = mean is not None and not mean.zero
    return grows, f"sqrt({check.written.families[dot.left.name].width}) {product}, {known}"


def _told(mean: ScoreMean, product: str) -> str:
    """What is known of a mean, `product` being E[Z^left Z^right]: 'which is 0', 'and E[Z^q Z^k] is 0.25'."""
    given = f" in each of {mean.draws} draws of the scores upstream" if mean.draws else ""
    if mean.zero:
        within = f" within {mean.error:.1g}" if mean.error > EXACT else ""
        some = "" if mean.whole else ", for the members looked at, the first few of each index"
        return f"which is 0{within}{given}{some}"
    where = shown_place(mean.place) + (f" (within {mean.error:.1g})" if mean.error > SHOWN * abs(mean.value) else "")
    rests = " (a conjecture, by iterated layers)" if mean.conjecture else ""
    if not mean.draws:
        return f"and {product} is {mean.value:.4g}{where}"
    if mean.high - mean.low <= 2 * mean.within:
        return f"and {product} is {mean.average:.4g}{where}{given}{rests}"
    return (
        f"and {product} given the scores upstream is random{where}: from {mean.low:.4g} to {mean.high:.4g} in "
        f"{mean.draws} draws of them, {mean.average:.4g} on average (standard error {mean.deviation:.1g}){rests}"
    )


def average_fix(dot: Statement) -> Fix:
    """The score as an average."""
    assert isinstance(dot, Dot)
    return Fix("an average", (replace(dot, scale="1/n"),))


def _not_centred(check: Context) -> dict[int, str]:
    """Scores with parts that are products of initial or constant vectors, and whose mean is not zero; what it is."""
    found = {}
    for dot in check.scores:
        makers = [None if o.definer is None else check.netsor.body[o.definer] for o in check.sides[dot]]
        if all(s is None or (isinstance(s, Nonlin) and not s.inputs) for s in makers):
            grows, why = mean_of(check, dot)
            if grows:
                found[dot] = why
    return found


@rule("scales", "Sakai et al. 2025, Definition 1 (iv): scores have mean zero")
def scales(check: Context) -> Iterator[Finding]:
    """No initial vectors with a mean or a covariance stand in both operands of a score: it would grow like sqrt(n)."""
    independent = "independent initial vectors of mean 0 in the two operands"
    for dot, why in _not_centred(check).items():
        yield check.finding(
            "fails", (dot,), f"the mean of the score {check.text(dot)} is {why}, so it grows like sqrt(n) and diverges",
            (average_fix(check.source(dot)), independent), DIVERGES,
        )
    for dot in check.scores:
        for left, right in check.pairs(dot):
            weight = left.statement.weight.name
            name = check.rewritten.initials.get(weight)
            verdict, _ = check.structure.same_weight_in_score(left.operand, right.operand)
            if name is None or verdict is HOLDS or {left.position, right.position} & check.zeros:
                continue
            grows, why = mean_of(check, dot)
            then = "so it grows like sqrt(n) and diverges" if grows else "and no theorem covers such a score"
            yield check.finding(
                verdict,
                (dot,),
                f"initial vectors {name} that may depend on each other stand in both operands of the score "
                f"{check.text(dot)}: its mean is {why}, {then}",
                (average_fix(check.source(dot)), independent),
                DIVERGES if grows else NOT_COVERED,
                ((left.position, dot), (right.position, dot)),
                (check.weight(weight),),
            )


# -- operands ----------------------------------------------------------------------------------------------------------


@rule("score operands are MatMul outputs", ASSUMPTION, "both operands of every score are MatMul outputs")
def operands(check: Context) -> Iterator[Finding]:
    """Both operands of every score are MatMul outputs, or zero."""
    made = {p for p, s in enumerate(check.netsor.body) if isinstance(s, MatMul)} | check.zeros
    diverging = {check.text(dot) for dot in _not_centred(check)}  # said there
    for dot in check.scores:
        sides = check.sides[dot]
        wrong = [o for o in sides if o.definer not in made]
        if not wrong or check.text(dot) in diverging:
            continue
        names = {str(o.reference): _kind(check, o) for o in wrong}
        unsure = not check.rewritten.complete or "an initial vector of too many members" in names.values()
        what = " and ".join(f"{name}, {kind}," for name, kind in names.items())
        message = f"{what} in the score {check.text(dot)}: a score takes two MatMul outputs"
        grows, why = mean_of(check, dot)
        fixes = [_own_products(check, dot, wrong)]
        if grows:
            message += f". Its mean is {why}, so the score grows like sqrt(n)"
            fixes.insert(0, average_fix(check.source(dot)))
        definers = [o.definer for o in wrong if o.definer is not None]
        message += "" if check.rewritten.complete else "; the program is too long for the rewrites that might mend it"
        verdict: Says = "unknown" if unsure and not grows else "fails"
        consequence = DIVERGES if grows else NOT_COVERED
        yield check.finding(verdict, (dot, *definers), message, fixes, consequence, [(d, dot) for d in definers])


def _own_products(check: Context, dot: int, wrong: Sequence[Operand]) -> Fix:
    """How operands of a score become MatMul outputs: by weights of their own, one for each side."""
    written = check.source(dot)
    assert isinstance(written, Dot)
    sides = {"left": written.left, "right": written.right}
    products: list[MatMul] = []
    weights: list[Weight] = []
    for side in dict.fromkeys(operand.side for operand in wrong):
        old = sides[side]
        names = tuple(dict.fromkeys(name for slot in old.slots for name in slot.indices))
        family = check.fresh(f"{old.name}_own")
        family = f"{family}_{side}" if any(made.target.name == family for made in products) else family
        sides[side] = Variable(family, slots_of(names))
        width = check.written.families[old.name].width
        weights.append(Weight(check.fresh(f"W_{family}"), (), Number(1), (width, width)))
        products.append(MatMul(sides[side], Variable(weights[-1].name), old))
    new = replace(written, left=sides["left"], right=sides["right"])
    return Fix("operands that MatMuls make", (*products, new), tuple(weights))


def _kind(check: Context, operand: Operand) -> str:
    """What an operand is that is no MatMul output."""
    if operand.definer is not None:
        return "a Nonlin output"
    initial = check.structure.initial[operand.reference.name]
    centred = isinstance(initial.mean, Expr) and check.calculus.closed(initial.mean) == (0.0, 0.0)
    return "an initial vector of too many members" if centred else "an initial vector that is not centred"


@rule("operand inputs bounded", ASSUMPTION, "the input of every score operand is bounded")
def bounded(check: Context) -> Iterator[Finding]:
    """The inputs of score operands are bounded; else the grade is `remark`."""
    unbounded: dict[tuple[str, int | None], list[Maker]] = {}  # by the family of the input, and its definition
    first: dict[int, Maker] = {}
    for maker in check.makers(check.operands):
        first.setdefault(maker.position, maker)
    for maker in first.values():
        vector = maker.statement.vector
        if not check.calculus.bounded(vector, maker.position):
            definers = check.structure.definers(maker.position, vector)
            culprit = next((d for d in definers if not check.calculus.statement(d).bounded), None)
            unbounded.setdefault((vector.name, culprit), []).append(maker)
    for (_, culprit), makers in unbounded.items():
        yield _unbounded(check, culprit, makers)


def _unbounded(check: Context, culprit: int | None, makers: Sequence[Maker]) -> Finding:
    """The remark on a vector that is not bounded, with all the operands that it makes."""
    made: dict[str, dict[str, None]] = {}  # operands by their score
    for maker in makers:
        made.setdefault(check.text(maker.dot), {})[str(maker.statement.target)] = None
    read = ", ".join(f"{' and '.join(targets)} of {score}" for score, targets in made.items())
    operands = f"the operand{'s' if len(makers) > 1 else ''} {read}"
    definers = tuple(dict.fromkeys(maker.position for maker in makers))
    dropped = "the remark after Theorem 1 says that this condition can be dropped"
    if culprit is None:
        vector = makers[0].statement.vector
        message = f"{vector}, the input of {operands}, is an initial vector, Gaussian, so not bounded; {dropped}"
        made_of = [(maker.position, maker.dot) for maker in makers]
        fix, weights = _clipped(check, definers, None), (check.weight(vector.name),)
        return check.finding("remark", definers, message, fix, ways=made_of, weights=weights)
    fact = check.calculus.fact("bounded", culprit)
    fault = check.calculus.blame("bounded", culprit)
    if culprit in check.structure.score_dependent and isinstance(fault.expr, Variable):
        fix = _clipped_term(check, fault.expr, fault.position)
    else:
        fix = _clipped(check, definers, culprit)
    is_not = "is not bounded" if fact.verdict is FAILS else "cannot be shown to be bounded"
    at = f" (in {check.text(fault.position)})" if fault.position != culprit else ""
    ways = list(dict.fromkeys((*check.structure.chain(fault.position, m.position), m.dot) for m in makers))
    told = f"the way{'s' * (len(ways) > 1)} to the score: {'; '.join(map(check.chain_text, ways))}"
    cut = "" if fact.verdict is FAILS else check.calculus.cut_short(fault.position)
    message = f"{check.text(culprit)}, the input of {operands}, {is_not}: {fault.reason}{at}{cut}; {dropped}; {told}"
    return check.finding("remark", (culprit, *definers), message, fix, ways=ways)


def _clip(expr: Expr) -> Expr:
    return Call("clip", (expr, Number(-BOUND), Number(BOUND)))


def _clipped(check: Context, definers: Sequence[int], culprit: int | None) -> Fix:
    """How the input of the operands that some MatMuls make is bounded, as written."""
    statement = None if culprit is None else check.source(culprit)
    if isinstance(statement, Nonlin):
        return Fix(statements=(replace(statement, expr=_clip(statement.expr)),))
    old = statement.target.name if statement else check.product(definers[0]).vector.name
    new = check.fresh(f"{old}_clipped")
    whole = [s.target for s in check.written.body if s.target.name == old]
    whole = whole or [Variable(old, slots_of(check.declared[old]))]
    clips = tuple(Nonlin(replace(vector, name=new), _clip(vector)) for vector in whole)
    readers = dict.fromkeys(reader for definer in definers for reader in _readers(check, definer, old))
    return Fix(statements=clips, replacements=tuple(r for reader in readers for r in renamed(reader, old, new)))


def _readers(check: Context, definer: int, name: str) -> Iterator[Statement]:
    """The statements as written through which a MatMul reads a vector: itself, or what makes what it multiplies."""
    written = check.source(definer)
    between = {v.name for v in written.inputs}
    yield from (written,) if name in between else (s for s in check.written.body if s.target.name in between)


def renamed(reader: Statement, old: str, new: str) -> Iterator[Replacement]:
    """What a statement reads of a family, replaced by members of another."""
    for read in reader.inputs:
        if read.name == old:
            yield Replacement(read, replace(read, name=new), str(reader.target))


def _clipped_term(check: Context, term: Variable, position: int) -> Fix:
    """How a term of a combination is bounded, which stays a combination."""
    if check.structure.score_dependent.isdisjoint(check.structure.definers(position, term)):
        return Fix(replacements=(Replacement(term, _clip(term), check.text(position)),))
    return Fix(impossible=f"{term} depends on scores, and a clip of it would put weights behind scores")


# -- variances ---------------------------------------------------------------------------------------------------------


@rule("positive variance", "Sakai et al. 2025, Theorem 1 (remark)")
def variance(check: Context) -> Iterator[Finding]:
    """Scores have positive variance, and averages are not of independent vectors."""
    if not _regular(check):
        yield from _degenerate(check)
    yield from _vanishing_averages(check)


def _regular(check: Context) -> bool:
    """Whether scores are seen at once to be regular: as written, of independent vectors by weights of their own."""
    makers = list(check.makers(check.operands))
    weights = {maker.statement.weight.name for maker in makers}
    variances = [check.calculus.closed(check.netsor.weight[name].variance) for name in weights]
    return (
        len(weights) == len(makers) == len(check.operands) == 2 * len(check.scores)
        and all(check.netsor.body[dot] == check.source(dot) for dot in check.scores)
        and all(variance is not None and variance[0] > 0 for variance in variances)
        and all(_apart(check, maker.dot, maker.operand.reference) for maker in makers)
    )


def _apart(check: Context, position: int, vector: Variable) -> bool:
    """Whether the members of a vector are made by weights of their own, or are functions, the same for all, of such."""
    definers = check.structure.definers(position, vector)
    made = check.netsor.body[definers[0]] if len(definers) == 1 and not check.zeros & {*definers} else None
    if isinstance(made, MatMul):
        target, own, read, reference = (_indices(v) for v in (made.target, made.weight, made.vector, vector))
        if target is None or own is None or read is None or reference is None:
            return False
        return target <= own or (target == own | read and _apart(check, definers[0], made.vector))
    if not isinstance(made, Nonlin) or [v.slots for v in made.inputs] != [made.target.slots]:
        return False
    indexed = (n for n in walk(made.expr) if isinstance(n, IndexValue) or (isinstance(n, Constant) and n.slots))
    return next(indexed, None) is None and _apart(check, definers[0], made.inputs[0])


def _indices(reference: Variable) -> set[str] | None:
    """The indices in the slots of a reference; None if a slot is more than an index, or two are the same."""
    names = {slot.bare for slot in reference.slots if slot.bare is not None}
    return names if len(names) == len(reference.slots) else None


def _degenerate(check: Context) -> Iterator[Finding]:
    """Scores that the limiting covariances tell to be degenerate, each told once."""
    position = {check.text(dot): dot for dot in check.scores}
    written = [dot for dot in map(check.source, position.values()) if isinstance(dot, Dot)]
    told: set[str] = set()
    for found in check.numbers.degenerate(check.written, written):
        scores = dict.fromkeys(str(dot.target) for dot, _ in found.members)
        if told.isdisjoint(scores):
            told |= scores.keys()
            members = " and ".join(f"{dot.target}{shown_place(place)}" for dot, place in found.members)
            message = f"{members}: {found.how} (Theorem 1 speaks of scores of positive variance)"
            yield check.finding("warning", tuple(position[s] for s in scores), message)


def _vanishing_averages(check: Context) -> Iterator[Finding]:
    """Averages of q k for q and k by different weights: attention on the scale 1/n without tied weights."""
    for position in sorted(check.converging):
        dot = check.netsor.body[position]
        assert isinstance(dot, Dot)
        made = [check.structure.definers(position, side) for side in (dot.left, dot.right)]
        sides = [[d for d in definers if isinstance(check.netsor.body[d], MatMul)] for definers in made]
        if all(sides) and sides == [list(d) for d in made] and all(
            check.structure.same_member(one, two)[0] is HOLDS for one in sides[0] for two in sides[1]
        ):
            yield check.finding(
                "warning",
                (position,),
                f"{dot.left} and {dot.right} are made by different weights, so the average {dot.target} is 0 in the "
                "limit",
                (Fix("the scale n**-0.5", (replace(dot, scale="n**-0.5"),)), "one weight for both"),
            )
