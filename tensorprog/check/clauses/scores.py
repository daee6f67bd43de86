"""Scores: their operands are bounded inputs times weights of their own, their means vanish, their variances do not.

A score on the scale n**-0.5 has a limit only if its mean is 0: else it grows like sqrt(n), and its scale is to be 1/n.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tensorprog.check.clauses.context import (
    ASSUMPTION,
    DIVERGES,
    GRADIENTS,
    NOT_COVERED,
    Context,
    ScoreMean,
    makers,
    rule,
    shown_place,
)
from tensorprog.check.clauses.report import Claim, Finding, Says
from tensorprog.check.facts import PROPERTIES
from tensorprog.check.graph import Operand
from tensorprog.check.overlaps import FAILS, HOLDS, Verdict
from tensorprog.check.signs import beside_transposes, both_ways, independence
from tensorprog.language.ir import Dot, MatMul, Nonlin

COORDINATEWISE = "coordinatewise operands"
EXACT = 1e-9  # an error that is rounding
BEYOND = "zeros that are read beyond a boundary"
BOUND = 10  # stands for any bound of a clip


# -- means -------------------------------------------------------------------------------------------------------------


def _mean_of(check: Context, position: int) -> tuple[bool, str]:
    """Whether the mean of a score as written is known to be other than zero, and what is known of it.

    All parts of one score have one mean.
    """
    dot = check.source(position)
    product = f"E[Z^{dot.left} Z^{dot.right}]"
    mean = check.numbers.mean(check.written, dot)
    known = "which is not known" if mean is None else _told(mean, product)
    grows = mean is not None and not mean.zero
    return grows, f"sqrt({check.written.families[dot.left.name].width}) {product}, {known}"


def _told(mean: ScoreMean, product: str) -> str:
    """What is known of a mean, `product` being E[Z^left Z^right]: 'which is 0', 'and E[Z^q Z^k] is 0.25'."""
    given = " in every draw of the scores upstream" if mean.random else ""
    if mean.zero:
        within = f" within {mean.error:.1g}" if mean.error > EXACT else ""
        some = "" if mean.whole else ", for the members looked at, the first few of each index"
        return f"which is 0{within}{given}{some}"
    given = " in a draw of the scores upstream" if mean.random else ""
    return f"and {product} is {mean.value:.4g}{shown_place(mean.place)}{given}"


def _average_fix(dot: Dot) -> str:
    """The score as an average."""
    return f"an average: {replace(dot, scale='1/n')}"


def _not_centred(check: Context) -> dict[int, str]:
    """Scores with parts that are products of initial or constant vectors, and whose mean is not zero; what it is."""
    found = {}
    for dot, sides in check.sides.items():
        if all(o.statement is None or (isinstance(o.statement, Nonlin) and not o.statement.inputs) for o in sides):
            grows, why = _mean_of(check, dot)
            if grows:
                found[dot] = why
    return found


@rule("scales", "Sakai et al. 2025, Definition 1 (iv): scores have mean zero")
def scales(check: Context) -> Iterator[Finding]:
    """No initial vectors with a mean or a covariance stand in both operands of a score: it would grow like sqrt(n)."""
    independent = "independent initial vectors of mean 0 in the two operands"
    for dot, why in _not_centred(check).items():
        yield check.finding(
            "fails",
            (dot,),
            f"the mean of the score {check.text(dot)} is {why}, so it grows like sqrt(n) and diverges",
            (_average_fix(check.source(dot)), independent),
            DIVERGES,
        )
    for dot in check.sides:
        for left, right in check.pairs(dot):
            weight = check.structure.product(left.definer).weight.name
            name = check.rewritten.initials.get(weight)
            verdict, _ = check.structure.same_weight_in_score(left, right)
            if name is None or verdict is HOLDS or {left.definer, right.definer} & check.zeros:
                continue
            grows, why = _mean_of(check, dot)
            then = "so it grows like sqrt(n) and diverges" if grows else "and no theorem covers such a score"
            yield check.finding(
                verdict,
                (dot,),
                f"initial vectors {name} that may depend on each other stand in both operands of the score "
                f"{check.text(dot)}: its mean is {why}, {then}",
                (_average_fix(check.source(dot)), independent),
                DIVERGES if grows else NOT_COVERED,
                ((left.definer, dot), (right.definer, dot)),
                (check.weight(weight),),
            )


# -- operands ----------------------------------------------------------------------------------------------------------


@rule("score operands are MatMul outputs", ASSUMPTION, "both operands of every score are MatMul outputs")
def operands(check: Context) -> Iterator[Finding | Claim]:
    """Both operands of every score are MatMul outputs, zero, or functions of such whose product is centred."""
    if check.coordinatewise:
        functions = ", ".join(dict.fromkeys(map(check.text, check.coordinatewise)))
        yield Claim(
            COORDINATEWISE,
            "proved",
            f"{functions}: the operands are functions of MatMul outputs, coordinate by coordinate, and their product "
            "changes its sign with weights of one side, so its mean is 0 in every coordinate; given the inputs the "
            "coordinates are independent, and Lindeberg's theorem gives the limit (theory page)",
        )
        said = f"{functions}: functions of MatMul outputs, coordinate by coordinate, whose product has mean 0 in each"
        yield check.finding("holds", tuple(check.coordinatewise), said, source="Lindeberg's theorem (theory page)")
    made = {p for p, s in enumerate(check.netsor.body) if isinstance(s, MatMul)} | check.zeros
    diverging = {check.text(dot) for dot in _not_centred(check)}  # said there
    for dot, sides in check.sides.items():
        wrong = [o for o in sides if o.definer not in made]
        if not wrong or check.text(dot) in diverging:
            continue
        initial = "an initial vector that is not centred, or correlated"
        kinds = [initial if o.reference.name in check.structure.initial else BEYOND for o in wrong]
        kinds = [kind if o.statement is None else "a Nonlin output" for o, kind in zip(wrong, kinds, strict=True)]
        names = " and ".join(dict.fromkeys(f"{o.reference}, {k}," for o, k in zip(wrong, kinds, strict=True)))
        message = (
            f"{names} in the score {check.text(dot)}: a score takes two MatMul outputs, or functions of such whose "
        )
        message += "product changes its sign with the weights of one side, coordinate by coordinate"
        grows, why = _mean_of(check, dot)
        fixes = ["operands that MatMuls make by weights of their own"]
        if grows:
            message += f". Its mean is {why}, so the score grows like sqrt(n)"
            fixes.insert(0, _average_fix(check.source(dot)))
        definers = [o.definer for o in wrong if o.statement is not None]
        verdict: Says = "fails" if check.rewritten.complete or grows else "unknown"
        consequence = DIVERGES if grows else NOT_COVERED
        yield check.finding(verdict, (dot, *definers), message, fixes, consequence, [(d, dot) for d in definers])


@rule("operand inputs bounded", ASSUMPTION, "the input of every score operand is bounded")
def bounded(check: Context) -> Iterator[Finding]:
    """The inputs of score operands are bounded; else the grade is `remark`."""
    unbounded: dict[str, dict[int, Operand]] = {}
    for maker in makers(check.operands):
        vector = check.structure.product(maker.definer).vector
        if not check.calculus.vector(vector, maker.definer).bounded:
            unbounded.setdefault(vector.name, {}).setdefault(maker.definer, maker)
    for made_of in unbounded.values():
        position = next(iter(made_of))
        vector = check.structure.product(position).vector
        definers = check.structure.definers(position, vector)
        made: dict[str, dict[str, None]] = {}  # operands by their score
        for maker in made_of.values():
            made.setdefault(check.text(maker.dot), {})[str(check.netsor.body[maker.definer].target)] = None
        read = ", ".join(f"{' and '.join(targets)} of {score}" for score, targets in made.items())
        name = check.text(definers[0]) if definers else str(vector)
        yield check.finding(
            "remark",
            (*definers, *made_of),
            f"{name}, the input of {read}, is not known to be bounded; the remark after Theorem 1 says that this "
            "condition can be dropped",
            f"clip({name}, -{BOUND}, {BOUND}) in place of {name}",
            ways=[(*definers, maker.definer, maker.dot) for maker in made_of.values()],
            weights=() if definers else (check.weight(vector.name),),
        )


# -- weights -----------------------------------------------------------------------------------------------------------


@rule(
    "dedicated weights",
    f"{ASSUMPTION} (a)",
    "clause (a): the weights that make score operands make nothing else",
)
def dedicated(check: Context) -> Iterator[Finding]:
    """Clause (a): a weight that makes a score operand makes nothing else, but with its transpose behind the scores."""
    made = makers(check.operands)
    before, behind = check.structure.ancestors(*check.structure.scores), dict[int, None]()
    done = {maker.definer for maker in made}  # these, and what was told
    for maker in made:
        for other in check.structure.uses[check.structure.product(maker.definer).weight.name]:
            if other in done:
                continue
            verdict, witness = check.structure.same_member(maker.definer, other, read_by=maker)
            turned = check.structure.product(maker.definer).transposed != check.structure.product(other).transposed
            if verdict is HOLDS or (turned and other not in before):
                behind |= {other: None} if verdict is not HOLDS else {}
                continue
            done.add(other)
            one, two = check.source(maker.definer), check.source(other)
            may = "makes" if verdict is FAILS else "may make"
            message = (
                f"clause (a): {two.matrix} {may} {two.target}, which is no operand of a score, and {one.matrix} makes "
                f"{one.target}, an operand of the score {check.text(maker.dot)}: the same matrix{shown_place(witness)}."
                " A weight that makes a score operand may make nothing else"
            )
            yield check.used_again(verdict, maker.definer, other, message, [(maker.definer, maker.dot)])
    if behind and len(done) == len({maker.definer for maker in made}):
        said = "clause (a): the weights that make score operands make nothing else, but for transposed products behind"
        yield check.finding("holds", tuple(behind), f"{said} the scores")


@rule(
    "weights of one score differ",
    f"{ASSUMPTION} (b)",
    "clause (b): the two weights of each score differ; sharing across scores is allowed",
)
def different(check: Context) -> Iterator[Finding]:
    """Clause (b): the two weights of one score differ; of initial vectors, transposes and zeros other rules speak."""
    for left, right in (pair for dot in check.sides for pair in check.pairs(dot)):
        one, two = (check.structure.product(o.definer) for o in (left, right))
        verdict, witness = check.structure.same_weight_in_score(left, right)
        elsewhere = one.weight.name in check.rewritten.initials or one.transposed != two.transposed
        if verdict is not HOLDS and not elsewhere and check.zeros.isdisjoint((left.definer, right.definer)):
            yield _tied(check, left, right, verdict, witness)


def _tied(check: Context, left: Operand, right: Operand, verdict: Verdict, witness: dict[str, int]) -> Finding:
    one, two, dot = check.source(left.definer), check.source(right.definer), check.source(left.dot)
    alone = one.target == two.target
    pair = f"both operands, {dot.left} and {dot.right}," if alone else f"{one.target} and {two.target}"
    grows, why = _mean_of(check, left.dot)
    message = (
        f"clause (b): {pair} {'are' if verdict is FAILS else 'may be'} made by the same matrix, {one.matrix}"
        + (f" and {two.matrix}" if two.matrix != one.matrix else "")
        + f"{shown_place(witness)}, but the two weights of one score must differ. The mean of {dot.target} is {why}, "
        + ("so the score grows like sqrt(n) and diverges" if grows else "and no theorem covers the score")
    )
    fixes = [f"separate weights: one for {dot.left}, and another for {dot.right}"]
    uses = check.structure.uses[check.structure.product(left.definer).weight.name]
    met = {check.text(o.dot) for o in check.operands if o.definer in uses}
    if met == {check.text(left.dot)}:  # in no score but this
        fixes.insert(0, _average_fix(dot))
    return check.finding(
        FAILS if grows else verdict,
        (left.definer, right.definer),
        message,
        fixes,
        DIVERGES if grows else NOT_COVERED,
        ((left.definer, left.dot), (right.definer, right.dot)),
        (check.weight(one.weight.name),),
    )


@rule("transposes", "Yang 2020 (arXiv 2009.10685), NetsorT")
def transposes(check: Context) -> Iterator[Finding | Claim]:
    """A matrix beside its transpose: their products have Onsager terms, unless gradient independence takes them away.

    Source    Yang 2020 (arXiv 2009.10685), NetsorT, for pseudo-Lipschitz functions: the limit of W^T y is a Gaussian
              variable plus, for each W x that y depends on, a multiple of E[dZ^y / dZ^(W x)] Z^x
    """
    independent = independence(check.netsor)
    if independent.holds:
        read = [p for name in independent.weights for p in check.structure.uses[name]]
        turned = tuple(p for p in read if check.structure.product(p).transposed)
        yield check.finding(
            "holds",
            turned,
            f"{', '.join(independent.weights)}: in the limit independent of their transposes (gradient independence): "
            f"what these multiply changes its sign with {', '.join(independent.seeds)}, and what the weights multiply "
            "does not depend on that",
            source=GRADIENTS,
        )
        if check.structure.scores:
            yield Claim("transposes", "proved", f"{', '.join(independent.weights)}: independent of their transposes")
        return
    found = both_ways(check.netsor)
    beside = beside_transposes(check.netsor)
    for verdict, plain, position, place in found if beside else ():
        one, two = check.structure.product(plain), check.structure.product(position)
        message = (
            f"{two} and {one} {'use' if verdict is FAILS else 'may use'} the same matrix{shown_place(place)}, beside "
            f"{beside}: there the limit of products with a matrix and its transpose is not known"
        )
        chain = check.structure.chain(plain, position) or check.structure.chain(position, plain)
        yield check.used_again(verdict, plain, position, message, (chain,) if chain else ())
    if found and not beside:
        positions = tuple(position for _, _, position, _ in found)
        names = ", ".join(dict.fromkeys(str(check.structure.product(p).matrix) for p in positions))
        facts = check.calculus.statements
        rough = [p for p, _ in check.nonlins() if not PROPERTIES["pseudo-Lipschitz"](facts[p])]
        said = f"{names}: products with a matrix and its transpose are Gaussian vectors and Onsager terms (NetsorT)"
        if rough:
            texts = ", ".join(dict.fromkeys(map(check.text, rough)))
            said += f"; {texts}: not pseudo-Lipschitz, as the theorem asks, so the terms are in Stein's form"
        yield Claim("transposes", "conjecture" if rough else "proved", said)
        yield check.finding("holds", positions, said)


# -- variances ---------------------------------------------------------------------------------------------------------


@rule("positive variance", "Sakai et al. 2025, Theorem 1 (remark)")
def variance(check: Context) -> Iterator[Finding]:
    """Averages are not of independent vectors."""
    for position in sorted(check.structure.converging):
        dot = check.netsor.body[position]
        assert isinstance(dot, Dot)
        made = [check.structure.definers(position, side) for side in (dot.left, dot.right)]
        sides = [[d for d in definers if isinstance(check.netsor.body[d], MatMul)] for definers in made]
        if (
            all(sides)
            and sides == [list(d) for d in made]
            and all(check.structure.same_member(one, two)[0] is HOLDS for one in sides[0] for two in sides[1])
        ):
            yield check.finding(
                "warning",
                (position,),
                f"{dot.left} and {dot.right} are made by different weights, so the average {dot.target} is 0 in the "
                "limit",
                (f"the scale n**-0.5: {replace(dot, scale='n**-0.5')}", "one weight for both"),
            )
