"""What functions of averages need at the limits of the averages: to be finite there, and without a jump.

Source    Yang 2019 (arXiv 1910.12478), Netsor+: nonlinearities with parameters, and rank stability
"""

from __future__ import annotations

from collections.abc import Iterator

from tensorprog.assumptions.context import NOT_COVERED, Context
from tensorprog.assumptions.report import Finding
from tensorprog.expr import Call, Expr

__all__ = ["limiting_values"]


def limiting_values(check: Context) -> Iterator[Finding]:
    """Functions of averages are finite and continuous where the averages end; jumps meet no vanishing vector."""
    for position in check.sinks():
        for text, expr in check.calculus.statement(position).assumes:
            wrong = None if expr is None else check.numbers.singular(check.written, expr)
            if wrong:
                yield check.finding(
                    "fails",
                    (position,),
                    f"it is needed that {text}, but {wrong}: no theorem gives a limit there",
                    "keep it away from there, e.g. by a constant eps > 0 in the denominator or under the root",
                    NOT_COVERED,
                )
            elif wrong is None:
                yield check.finding("warning", (position,), f"it is needed that {text}; that is not known")
        yield from _jump(check, position)


def _jump(check: Context, position: int) -> Iterator[Finding]:
    """A function that jumps, of a vector that vanishes in the limit, in a program with averages."""
    rough = check.calculus.statement(position).rough
    if rough is None or not isinstance(rough.expr, Call):
        return
    ancestors = check.structure.ancestors(position)
    if any(check.netsor.body[p].target.name in check.structure.averages for p in ancestors):
        spread = check.numbers.spread(check.written, _argument(rough.expr))
        if spread is not None and spread <= 1e-12:
            yield check.finding(
                "fails",
                (position,),
                f"{rough.expr} jumps where its argument is 0, and {_argument(rough.expr)} vanishes in the limit: what "
                "is left of it at finite n decides, and no theorem gives a limit",
                "a continuous function, e.g. tanh, or a vector that does not vanish",
                NOT_COVERED,
            )


def _argument(call: Call) -> Expr:
    """What has to stay away from the place where a function jumps."""
    if len(call.arguments) == 2:
        return Call("subtract", call.arguments)
    return call.arguments[0]
