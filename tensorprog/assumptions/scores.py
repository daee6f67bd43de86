"""Scores and their operands: MatMul outputs, bounded inputs, clauses (a) and (b)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tensorprog.assumptions.context import DIVERGES, NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.assumptions.scales import mean_of, not_centred, sides_of, values
from tensorprog.calculus import Profile
from tensorprog.expr import Variable
from tensorprog.facts import FAILS, HOLDS
from tensorprog.graph import Operand
from tensorprog.ir import Dot, MatMul, Nonlin

__all__ = ["bounded", "dedicated", "different", "operands"]


def _profile_of(check: Context, operand: Operand) -> Profile:
    return check.calculus.vector(operand.reference, operand.dot)


def operands(check: Context) -> Iterator[Finding]:
    """Both operands of every score are MatMul outputs."""
    diverging = {check.text(dot) for dot in not_centred(check)}  # said there
    for dot in check.scores:
        sides = [o for o in check.operands if o.dot == dot]
        wrong = [o for o in sides if o.definer is None or not isinstance(check.netsor.body[o.definer], MatMul)]
        if not wrong or check.text(dot) in diverging:
            continue
        names = {
            str(o.reference): "an initial vector that is not centred" if o.definer is None else "a Nonlin output"
            for o in wrong
        }
        score = check.text(dot)
        what = " and ".join(f"{name}, {kind}," for name, kind in names.items())
        message = f"{what} in the score {score}: a score takes two MatMul outputs"
        left, right = (next(o for o in sides if o.side == side) for side in ("left", "right"))
        same, place = check.structure.same_operands(dot)
        argument = _not_zero(same is FAILS, place, (_profile_of(check, left), _profile_of(check, right)))
        grows, why = mean_of(check, dot, place or check.first(dot), argument)
        fix = f"multiply {wrong[0].reference} by a weight of its own first, or use scale=1/n"
        if grows:
            message += f". Its mean is sqrt(n) E[Z^{left.reference} Z^{right.reference}], which {why}, so the score "
            message += "grows like sqrt(n)"
            fix = f"{score} = Dot({left.reference}, {right.reference}, scale=1/n), an average"
        positions = (dot, *(o.definer for o in wrong if o.definer is not None))
        yield check.finding("fails", positions, message, fix, DIVERGES if grows else NOT_COVERED)


def _not_zero(same: bool, place: Mapping[str, int], profiles: tuple[Profile, Profile]) -> str:
    """Why E[Z^x Z^x'] is not zero, as far as ranges tell; '' if they do not."""
    if any(p.constant and p.low == 0 for p in profiles):
        return ""
    if same:
        return f"the mean of a square{values(place)}"
    return "both are not negative" if all(p.low >= 0 and p.high > 0 for p in profiles) else ""


def bounded(check: Context) -> Iterator[Finding]:
    """The inputs of score operands are bounded; else the grade is `remark`."""
    for dot, definer, statement in check.products():
        if check.calculus.vector(statement.vector, definer).bounded:
            continue
        definers = check.structure.definers(definer, statement.vector)
        culprit = next((d for d in definers if not check.calculus.statement(d).bounded), None)
        score = check.text(dot)
        if culprit is None:
            yield check.finding(
                "remark",
                (definer,),
                f"the input {statement.vector} of the operand "
                f"{statement.target} of {score} is an initial vector, Gaussian, so not bounded; the remark "
                f"after Theorem 1 says that this condition can be dropped",
                f"x = Nonlin(clip({statement.vector}, -C, C)), then MatMul({statement.matrix}, x)",
            )
            continue
        fact = check.calculus.fact("bounded", culprit)
        fault = check.calculus.blame("bounded", culprit)
        is_not = "is not bounded" if fact.verdict is FAILS else "cannot be shown to be bounded"
        at = f" (in {check.text(fault.position)})" if fault.position != culprit else ""
        chain = (*check.structure.chain(fault.position, definer), dot)
        yield check.finding(
            "remark",
            (culprit, definer),
            f"{check.text(culprit)}, the input of the operand {statement.target} of {score}, {is_not}: "
            f"{fault.reason}{at}; "
            f"the remark after Theorem 1 says that this condition can be dropped; the way to the score is "
            f"{check.chain_text(chain)}",
            _bounded_fix(check, culprit),
            chain=chain,
        )


def _bounded_fix(check: Context, position: int) -> str:
    statement = check.netsor.body[position]
    if isinstance(statement, Nonlin):
        return f"{statement.target} = Nonlin(clip({statement.expr}, -C, C))"
    return f"x = Nonlin(clip({statement.target}, -C, C)) in place of {statement.target}"


def dedicated(check: Context) -> Iterator[Finding]:
    """Clause (a): a weight that makes a score operand makes nothing else."""
    makers = {o.definer: o.dot for o in check.operands if o.definer is not None}
    done = set()
    for maker, dot in makers.items():
        statement = check.netsor.body[maker]
        if not isinstance(statement, MatMul):
            continue
        for other in check.structure.weight_uses(statement.weight.name):
            if other in makers or (statement.weight.name, other) in done:
                continue
            verdict, witness = check.structure.same_member(maker, other)
            if verdict is HOLDS:
                continue
            done.add((statement.weight.name, other))
            second = check.netsor.body[other]
            assert isinstance(second, MatMul)
            may = "makes" if verdict is FAILS else "may make"
            yield check.finding(
                "fails" if verdict is FAILS else "unknown",
                (other, maker),
                f"clause (a): {second.matrix} {may} {second.target}, which is no operand of a score, and "
                f"{statement.matrix} "
                f"makes {statement.target}, an operand of the score {check.text(dot)}: the same matrix"
                f"{values(witness)}. A weight that makes a score operand may make nothing else",
                f"give {second.target} a weight of its own: declare another weight with the indices of {second.weight}",
                NOT_COVERED,
                (maker, dot),
                (check.weight(statement.weight.name),),
            )


def different(check: Context) -> Iterator[Finding]:
    """Clause (b): the two weights of one score differ, for all values of its indices."""
    for dot in check.scores:
        for left, right in sides_of(check, dot):
            assert left.definer is not None
            assert right.definer is not None
            one, two = check.netsor.body[left.definer], check.netsor.body[right.definer]
            assert isinstance(one, MatMul)
            assert isinstance(two, MatMul)
            # initial vectors are a matter of scales, a matrix with its transpose one of transposes
            if one.weight.name not in check.rewritten.initials and one.transposed == two.transposed:
                verdict, witness = check.structure.same_weight_in_score(left, right)
                if verdict is not HOLDS:
                    yield _tied(check, left, right, verdict is FAILS, witness)


def _tied(check: Context, left: Operand, right: Operand, certain: bool, witness: dict[str, int]) -> Finding:
    assert left.definer is not None
    assert right.definer is not None
    one, two = check.netsor.body[left.definer], check.netsor.body[right.definer]
    dot = check.netsor.body[left.dot]
    assert isinstance(one, MatMul)
    assert isinstance(two, MatMul)
    assert isinstance(dot, Dot)
    same, place = check.structure.same_weight_in_score(left, right, vectors=True)
    profiles = check.calculus.vector(one.vector, left.definer), check.calculus.vector(two.vector, right.definer)
    e = f"E[Z^{left.reference} Z^{right.reference}] = sigma^2 E[Z^{one.vector} Z^{two.vector}]"
    pair = (
        f"{one.target} and {two.target}"
        if left.definer != right.definer
        else f"both operands, {left.reference} and {right.reference},"
    )
    message = (
        f"clause (b): {pair} {'are' if certain else 'may be'} made by the same matrix, {one.matrix}"
        + (f" and {two.matrix}" if two.matrix != one.matrix else "")
        + f"{values(witness)}, but the two weights of one score must differ. "
    )
    name = next(n for n in ("WK", *(f"{one.weight.name}{k}" for k in range(2, 1000))) if n not in check.netsor.families)
    own = Variable(name, two.weight.slots)
    fix = f"separate weights, e.g. {two.target} = MatMul({own}, {two.vector}) with a weight {own} of its own"
    argument = _not_zero(same is FAILS, place, profiles)
    grows, why = mean_of(check, left.dot, place or witness or check.first(left.dot), argument)
    diverges = certain and grows
    message += f"The mean of {dot.target} is sqrt(n) times {e}, which {why}, " + (
        "so the score grows like sqrt(n) and diverges" if diverges else "and no theorem covers the score"
    )
    fix = f"{dot.target} = Dot({dot.left}, {dot.right}, scale=1/n), an average; or {fix}"
    return check.finding(
        "fails" if certain else "unknown",
        (left.definer, right.definer),
        message,
        fix,
        DIVERGES if diverges else NOT_COVERED,
        (left.definer, right.definer, left.dot),
        (check.weight(one.weight.name),),
    )
