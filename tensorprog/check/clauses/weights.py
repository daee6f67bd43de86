"""Weights of scores are dedicated, differ within a score, and no matrix is used together with its transpose."""

from __future__ import annotations

from collections.abc import Iterator
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
from tensorprog.check.clauses.report import Finding, Fix, Replacement
from tensorprog.check.clauses.scores import average_fix, mean_of, renamed
from tensorprog.language.expr import Variable, replace_variables
from tensorprog.language.facts import FAILS, HOLDS, Verdict
from tensorprog.language.ir import Dot, MatMul, Nonlin, Statement

__all__ = ["dedicated", "different", "transposes"]

Meeting = tuple[int, Verdict, dict[str, int]]  # a plain use, whether it can be of the same matrix, and where


@rule(
    "dedicated weights", f"{ASSUMPTION} (a)",
    "clause (a): the weights that make score operands make nothing else",
)
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
                f"{one.target}, an operand of the score {check.text(maker.dot)}: the same matrix{shown_place(witness)}."
                " A weight that makes a score operand may make nothing else"
            )
            yield check.used_again(verdict, maker.position, other, message, [(maker.position, maker.dot)])


@rule(
    "weights of one score differ", f"{ASSUMPTION} (b)",
    "clause (b): the two weights of each score differ; sharing across scores is allowed",
)
def different(check: Context) -> Iterator[Finding]:
    """Clause (b): the two weights of one score differ, for all values of its indices."""
    for dot in check.scores:
        for left, right in check.pairs(dot):
            if check.comparable(left, right):
                verdict, witness = check.structure.same_weight_in_score(left.operand, right.operand)
                if verdict is not HOLDS:
                    yield _tied(check, left, right, verdict, witness)


def _tied(check: Context, left: Maker, right: Maker, verdict: Verdict, witness: dict[str, int]) -> Finding:
    one, two, dot = check.written_product(left.position), check.written_product(right.position), check.source(left.dot)
    assert isinstance(dot, Dot)
    alone = one.target == two.target
    pair = f"both operands, {dot.left} and {dot.right}," if alone else f"{one.target} and {two.target}"
    grows, why = mean_of(check, left.dot)
    message = (
        f"clause (b): {pair} {'are' if verdict is FAILS else 'may be'} made by the same matrix, {one.matrix}"
        + (f" and {two.matrix}" if two.matrix != one.matrix else "")
        + f"{shown_place(witness)}, but the two weights of one score must differ. The mean of {dot.target} is {why}, "
        + ("so the score grows like sqrt(n) and diverges" if grows else "and no theorem covers the score")
    )
    fixes = [_separate(check, dot, two, alone)]
    makers = (maker for maker in check.makers(check.operands) if maker.statement.weight.name == one.weight.name)
    if {check.text(maker.dot) for maker in makers} == {check.text(left.dot)}:  # in no score but this
        fixes.insert(0, average_fix(dot))
    return check.finding(
        FAILS if grows else verdict,
        (left.position, right.position),
        message,
        fixes,
        DIVERGES if grows else NOT_COVERED,
        ((left.position, left.dot), (right.position, right.dot)),
        (check.weight(one.weight.name),),
    )


def _separate(check: Context, dot: Dot, product: MatMul, alone: bool) -> Fix:
    """A weight of its own for the right operand of a score; a family of its own too, where one makes both operands."""
    name = product.target.name
    key = Variable(check.fresh(f"{name}_key"), product.target.slots) if alone else product.target
    own = check.own_weight(key.name, product.weight.name)
    made: list[Statement] = [replace(product, target=key, weight=replace(product.weight, name=own.name))]
    changed: list[Replacement] = []
    if alone and dot.right.name == name:
        made.append(replace(dot, right=replace(dot.right, name=key.name)))
    elif alone:
        reads = [s for s in check.written.body if s.target.name == dot.right.name and isinstance(s, Nonlin)]
        if dot.left.name != dot.right.name:
            changed += (each for reader in reads for each in renamed(reader, name, key.name))
        else:  # a vector with itself: the right one becomes a copy that reads the new family
            copy = check.fresh(f"{dot.right.name}_key")
            for reader in reads:
                expr = replace_variables(reader.expr, lambda v: replace(v, name=key.name) if v.name == name else None)
                made.append(replace(reader, target=replace(reader.target, name=copy), expr=expr))
            made.append(replace(dot, right=replace(dot.right, name=copy)))
    return Fix("separate weights", tuple(made), (own,), tuple(changed))


@rule("transposes", "Yang 2020 (arXiv 2006.14548), NetsorT")
def transposes(check: Context) -> Iterator[Finding]:
    """No matrix is used both as it is and transposed.

    Source    Yang 2020 (arXiv 2006.14548), NetsorT: the limit of W^T y is a Gaussian variable plus, for each W x that y
              depends on, a multiple of E[dZ^y / dZ^(W x)] Z^x
    """
    for weight in check.netsor.weights:
        uses: dict[bool, list[int]] = {False: [], True: []}
        for position in check.structure.weight_uses(weight.name):
            uses[check.product(position).transposed].append(position)
        for position in uses[True]:
            met = [(plain, *check.structure.same_member(plain, position)) for plain in uses[False]]
            possible = [entry for entry in met if entry[1] is not HOLDS]
            if possible:
                yield _both(check, position, next((entry for entry in possible if entry[1] is FAILS), possible[0]))


def _both(check: Context, position: int, met: Meeting) -> Finding:
    plain, verdict, witness = met
    one, two = check.product(plain), check.product(position)
    chain = check.structure.chain(plain, position) or check.structure.chain(position, plain)
    message = (
        f"{two} and {one} {'use' if verdict is FAILS else 'may use'} the same matrix{shown_place(witness)}"
        + (f", and one depends on the other through {check.chain_text(chain)}" if chain else "")
        + ". A matrix and its transpose together need NetsorT, where the limit of "
        f"{two.target} has a further term: for each {one.weight} x that {two.vector} depends on, a multiple of Z^x"
    )
    return check.used_again(verdict, plain, position, message, (chain,) if chain else ())
