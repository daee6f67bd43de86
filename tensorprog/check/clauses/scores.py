"""Scores and their operands: MatMul outputs, bounded inputs, clauses (a) and (b)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tensorprog.check.clauses.context import DIVERGES, NOT_COVERED, Context, Maker
from tensorprog.check.clauses.report import Finding, Says
from tensorprog.check.clauses.scales import mean_of, not_centred, values
from tensorprog.check.graph import Operand
from tensorprog.language.expr import Expr, Variable, slots_of
from tensorprog.language.facts import FAILS, HOLDS, Verdict
from tensorprog.language.ir import Dot, MatMul, Nonlin
from tensorprog.language.substitute import replace_variables

__all__ = ["bounded", "dedicated", "different", "operands"]


def operands(check: Context) -> Iterator[Finding]:
    """Both operands of every score are MatMul outputs, or zero."""
    made = {p for p, s in enumerate(check.netsor.body) if isinstance(s, MatMul)} | check.zeros
    diverging = {check.text(dot) for dot in not_centred(check)}  # said there
    for dot in check.scores:
        sides = check.sides[dot]
        wrong = [o for o in sides if o.definer not in made]
        if not wrong or check.text(dot) in diverging:
            continue
        names = {str(o.reference): _kind(check, o) for o in wrong}
        unsure = not check.rewritten.complete or "an initial vector of too many members" in names.values()
        score = check.text(dot)
        what = " and ".join(f"{name}, {kind}," for name, kind in names.items())
        message = f"{what} in the score {score}: a score takes two MatMul outputs"
        grows, why = mean_of(check, dot)
        fix = _own_fix(check, dot, wrong)
        if grows:
            message += f". Its mean is {why}, so the score grows like sqrt(n)"
            written = check.source(dot)
            assert isinstance(written, Dot)
            fix = f"{score} = Dot({written.left}, {written.right}, scale=1/n), an average; or {fix}"
        definers = [o.definer for o in wrong if o.definer is not None]
        message += "" if check.rewritten.complete else "; the program is too long for the rewrites that might mend it"
        verdict: Says = "unknown" if unsure and not grows else "fails"
        consequence = DIVERGES if grows else NOT_COVERED
        yield check.finding(verdict, (dot, *definers), message, fix, consequence, [(d, dot) for d in definers])


def _second_operand(check: Context, dot: Dot, name: str, key: str) -> str:
    """How a score of a vector with itself reads another one, made alike of `key` in place of a vector `name`."""
    made = [s for s in check.written.body if s.target.name == dot.right.name]
    if len(made) > 1 or not isinstance(made[0], Nonlin) or name not in {v.name for v in made[0].inputs}:
        return f", and as one operand a vector made like {dot.right} with {key} in place of {name}"
    copy = check.fresh(f"{dot.right.name}_key")
    expr = replace_variables(made[0].expr, lambda v: replace(v, name=key) if v.name == name else None)
    new = replace(made[0], target=replace(made[0].target, name=copy), expr=expr)
    return f", {new}, and {dot.target} = Dot({dot.left}, {replace(dot.right, name=copy)})"


def _own_fix(check: Context, dot: int, wrong: Sequence[Operand]) -> str:
    """How operands of a score become MatMul outputs: by weights of their own, one for each side."""
    written = check.source(dot)
    assert isinstance(written, Dot)
    sides = {"left": written.left, "right": written.right}
    products: list[MatMul] = []
    for side in dict.fromkeys(operand.side for operand in wrong):
        old = sides[side]
        names = tuple(dict.fromkeys(name for slot in old.slots for name in slot.indices))
        family = check.fresh(f"{old.name}_own")
        family = f"{family}_{side}" if any(made.target.name == family for made in products) else family
        sides[side] = Variable(family, slots_of(names))
        products.append(MatMul(sides[side], Variable(check.fresh(f"W_{family}"), ()), old))
    several = len(products) > 1
    weights = " and ".join(made.weight.name for made in products)
    return (
        f"{' and '.join(map(str, products))}, with {'weights' if several else 'a weight'} {weights} of "
        f"{'their' if several else 'its'} own, and {written.target} = Dot({sides['left']}, {sides['right']})"
    )


def _kind(check: Context, operand: Operand) -> str:
    """What an operand is that is no MatMul output."""
    if operand.definer is not None:
        return "a Nonlin output"
    initial = check.structure.initial[operand.reference.name]
    centred = isinstance(initial.mean, Expr) and check.calculus.closed(initial.mean) == (0.0, 0.0)
    return "an initial vector of too many members" if centred else "an initial vector that is not centred"


def bounded(check: Context) -> Iterator[Finding]:
    """The inputs of score operands are bounded; else the grade is `remark`."""
    unbounded: dict[tuple[str, int | None], list[Maker]] = {}  # by the family of the input, and its definition
    for maker in check.products():
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
        fix, weights = _bounded_fix(check, definers[0], None), (check.weight(vector.name),)
        return check.finding("remark", definers, message, fix, ways=made_of, weights=weights)
    fact = check.calculus.fact("bounded", culprit)
    fault = check.calculus.blame("bounded", culprit)
    if culprit in check.structure.score_dependent and isinstance(fault.expr, Variable):
        fix = _term_fix(check, fault.expr, fault.position)
    else:
        fix = _bounded_fix(check, definers[0], culprit)
    if not fix:
        dropped += f". {fault.expr} depends on scores, and a clip of it would put weights behind scores, so nothing "
        dropped += "is proposed"
    is_not = "is not bounded" if fact.verdict is FAILS else "cannot be shown to be bounded"
    at = f" (in {check.text(fault.position)})" if fault.position != culprit else ""
    ways = list(dict.fromkeys((*check.structure.chain(fault.position, m.position), m.dot) for m in makers))
    told = f"the way{'s' * (len(ways) > 1)} to the score: {'; '.join(map(check.chain_text, ways))}"
    cut = "" if fact.verdict is FAILS else check.calculus.cut_short(fault.position)
    message = f"{check.text(culprit)}, the input of {operands}, {is_not}: {fault.reason}{at}{cut}; {dropped}; {told}"
    return check.finding("remark", (culprit, *definers), message, fix, ways=ways)


def _bounded_fix(check: Context, definer: int, position: int | None) -> str:
    """How the input of the operand that a MatMul makes is bounded, as written; 10 stands for any number."""
    vector, written = check.product(definer).vector, check.source(definer)
    statement = None if position is None else check.source(position)
    if isinstance(statement, Nonlin):
        return f"{statement.target} = Nonlin(clip({statement.expr}, -10, 10))"
    if isinstance(written, MatMul) and written.vector == vector:
        names, place = [name for slot in vector.slots for name in slot.indices], "the operand"
    else:  # a part of what is written
        read = written.inputs[0]
        vector = statement.target if statement else Variable(vector.name, slots_of(check.declared[vector.name]))
        names, place = [name for slot in vector.slots for name in slot.indices], f"what makes {read.name}"
    clipped = Variable(check.fresh(f"{vector.name}_clipped"), slots_of(tuple(dict.fromkeys(names))))
    return f"{clipped} = Nonlin(clip({vector}, -10, 10)), and {clipped.name} in place of {vector.name} in {place}"


def _term_fix(check: Context, term: Variable, position: int) -> str:
    """How a term of a combination is bounded, which stays a combination; nothing where the term depends on scores."""
    if not check.structure.score_dependent.isdisjoint(check.structure.definers(position, term)):
        return ""
    return f"clip({term}, -10, 10) in place of {term} in {check.text(position)}"


def dedicated(check: Context) -> Iterator[Finding]:
    """Clause (a): a weight that makes a score operand makes nothing else."""
    makers = list(check.makers(check.operands))
    done = {maker.position for maker in makers}  # these, and what was told
    for maker in makers:
        for other in check.structure.weight_uses(maker.statement.weight.name):
            if other in done:
                continue
            verdict, witness = check.structure.same_member(maker.position, other, read_by=maker.operand)
            if verdict is HOLDS:
                continue
            done.add(other)
            one, two = check.written_product(maker.position), check.written_product(other)
            may = "makes" if verdict is FAILS else "may make"
            message = (
                f"clause (a): {two.matrix} {may} {two.target}, which is no operand of a score, and {one.matrix} makes "
                f"{one.target}, an operand of the score {check.text(maker.dot)}: the same matrix{values(witness)}. "
                "A weight that makes a score operand may make nothing else"
            )
            yield check.used_again(verdict, maker.position, other, message, [(maker.position, maker.dot)])


def different(check: Context) -> Iterator[Finding]:
    """Clause (b): the two weights of one score differ, for all values of its indices."""
    for dot in check.scores:
        for left, right in check.pairs(dot):
            one, two = left.statement, right.statement
            # initial vectors are a matter of scales, a matrix with its transpose one of transposes
            elsewhere = one.weight.name in check.rewritten.initials or one.transposed != two.transposed
            if not elsewhere and not {left.position, right.position} & check.zeros:
                verdict, witness = check.structure.same_weight_in_score(left.operand, right.operand)
                if verdict is not HOLDS:
                    yield _tied(check, left, right, verdict, witness)


def _tied(check: Context, left: Maker, right: Maker, verdict: Verdict, witness: dict[str, int]) -> Finding:
    one, two, dot = check.written_product(left.position), check.written_product(right.position), check.source(left.dot)
    assert isinstance(dot, Dot)
    single = one.target == two.target
    pair = f"both operands, {dot.left} and {dot.right}," if single else f"{one.target} and {two.target}"
    grows, why = mean_of(check, left.dot)
    message = (
        f"clause (b): {pair} {'are' if verdict is FAILS else 'may be'} made by the same matrix, {one.matrix}"
        + (f" and {two.matrix}" if two.matrix != one.matrix else "")
        + f"{values(witness)}, but the two weights of one score must differ. The mean of {dot.target} is {why}, "
        + ("so the score grows like sqrt(n) and diverges" if grows else "and no theorem covers the score")
    )
    key = Variable(check.fresh(f"{two.target.name}_key"), two.target.slots) if single else two.target
    own = Variable(check.fresh(f"W_{key.name}"), two.weight.slots)
    fix = f"separate weights, e.g. {key} = MatMul({own}, {two.vector}) with a weight {own} of its own"
    if single and dot.right.name == two.target.name:
        fix += f", and Dot({dot.left}, {Variable(key.name, dot.right.slots)})"
    elif single and dot.left == dot.right:
        fix += _second_operand(check, dot, two.target.name, key.name)
    elif single:
        fix += f", and {key.name} in place of {two.target.name} in what makes {dot.right.name}"
    makers = (maker for maker in check.makers(check.operands) if maker.statement.weight.name == one.weight.name)
    if {check.text(maker.dot) for maker in makers} == {check.text(left.dot)}:  # in no score but this
        fix = f"{dot.target} = Dot({dot.left}, {dot.right}, scale=1/n), an average; or {fix}"
    return check.finding(
        FAILS if grows else verdict,
        (left.position, right.position),
        message,
        fix,
        DIVERGES if grows else NOT_COVERED,
        ((left.position, left.dot), (right.position, right.dot)),
        (check.weight(one.weight.name),),
    )
