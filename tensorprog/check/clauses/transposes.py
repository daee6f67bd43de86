"""A matrix together with its transpose, which the theorems on programs without transposes do not cover."""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.check.clauses.context import Context
from tensorprog.check.clauses.report import Finding
from tensorprog.check.clauses.scales import values
from tensorprog.language.facts import FAILS, HOLDS, Verdict

__all__ = ["transposes"]

Meeting = tuple[int, Verdict, dict[str, int]]  # a plain use, whether it can be of the same matrix, and where


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
        f"{two} and {one} {'use' if verdict is FAILS else 'may use'} the same matrix{values(witness)}"
        + (f", and one depends on the other through {check.chain_text(chain)}" if chain else "")
        + ". A matrix and its transpose together need NetsorT, where the limit of "
        f"{two.target} has a further term: for each {one.weight} x that {two.vector} depends on, a multiple of Z^x"
    )
    return check.used_again(verdict, plain, position, message, (chain,) if chain else ())
