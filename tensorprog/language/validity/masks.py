"""Infinite values: -inf is a mask on indices, of which no row may be full; inf is no value at all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice

import numpy as np

from tensorprog.language.atoms import ATOMS
from tensorprog.language.evaluate import index_array
from tensorprog.language.expr import Affine, Call, Expr, Number, Reduction, Variable, fold, is_call, walk
from tensorprog.language.ir import Nonlin
from tensorprog.language.schedule import Loop
from tensorprog.language.substitute import substitute
from tensorprog.language.validity.checker import Checker, constants_and_indices
from tensorprog.language.validity.values import MAX_CHECKED

__all__ = ["check_masks"]

MAX_NODES = 1000  # of a condition; larger ones are checked where they are used

Hidden = Mapping[str, tuple[list[str], Expr]]  # by family: the indices of its definition, and a condition on them


def check_masks(checker: Checker, order: Sequence[int | Loop]) -> None:
    """A softmax row whose every entry is -inf has no value: found here, before anything runs."""
    known = _definitions(checker, order)
    for statement in checker.netsor.body:
        if not isinstance(statement, Nonlin):
            continue
        check_infinity(checker, statement.expr, statement)
        for node in walk(statement.expr):
            if not (isinstance(node, Reduction) and node.reducer in ("softmax", "logsumexp", "max")):
                continue
            hidden = _hidden(node.arg, known)
            if hidden is None:
                continue
            free = constants_and_indices(hidden) & checker.netsor.index.keys() - {*node.indices}
            axes = [*sorted(free), *node.indices]
            if checker.size(axes) > MAX_CHECKED:
                if not _seen(checker, hidden, sorted(free), node.indices):
                    what = f"{node.reducer}[{', '.join(node.indices)}]"
                    checker.error(f"{what}: its mask is too large to tell whether some row has every entry masked",
                                  statement.span.at(node.column), "leave the first or the last entry of each row "
                                  "unmasked, or the diagonal")
                continue
            masked = index_array(checker.netsor, hidden, axes).astype(bool)
            rows = masked.reshape(*masked.shape[: len(axes) - len(node.indices)], -1).all(axis=-1)
            if rows.any():
                where = np.argwhere(rows)[0]
                values = zip(axes, where, strict=False)
                row = ", ".join(f"{name}={checker.netsor.ranges[name][0] + value}" for name, value in values)
                what = f"{node.reducer}[{', '.join(node.indices)}]"
                checker.error(f"{what}: every entry is masked{' at ' + row if row else ''}",
                              statement.span.at(node.column), "leave at least one entry of each row unmasked")


def check_infinity(checker: Checker, expr: Expr, statement: Nonlin, bound: bool = False) -> None:
    """No value is inf; `bound`: whether it may stand here, as a bound that is none, e.g. of a clip or of min."""
    if isinstance(expr, Number) and expr.value == math.inf and not bound:
        checker.error("inf is no value: only -inf is one, as a mask under softmax, logsumexp or max", statement.span,
                      "where(condition, x, -inf) masks x where the condition does not hold")
    for k, child in enumerate(expr.children):
        if isinstance(expr, Call):
            last = expr.atom != "where" and k >= ATOMS[expr.atom].arity
            free = last or expr.atom == "minimum" or (expr.atom == "where" and k > 0 and bound)
        else:
            free = False
        check_infinity(checker, child, statement, free)


def _seen(checker: Checker, hidden: Expr, free: Sequence[str], reduced: Sequence[str]) -> bool:
    """Whether one entry of each row is seen: the first, the last, or that at the row's own place."""
    ranges = checker.netsor.ranges
    spans = [ranges[name] for name in reduced]
    columns = [[Affine((), start) for start, _ in spans], [Affine((), stop - 1) for _, stop in spans]]
    columns += [[Affine(((name, 1),))] for name in free if len(reduced) == 1 and ranges[name] == spans[0]]
    if checker.size(free) > MAX_CHECKED:
        return False
    rows = [index_array(checker.netsor, substitute(hidden, dict(zip(reduced, column, strict=True))), free)
            for column in columns]  # fmt: skip
    return bool((np.min(rows, axis=0) == 0).all())


def _flat(order: Sequence[int | Loop]) -> Iterator[int]:
    for entry in order:
        if isinstance(entry, Loop):
            yield from _flat(entry.body)
        else:
            yield entry


def _hidden(expr: Expr, known: Hidden) -> Expr | None:
    """Condition (1 where true) under which an expression is -inf because of masks on indices, if there is one."""
    return fold(expr, HIDDEN, lambda node: _hidden_leaf(node, known), lambda *_: None)


def _hidden_leaf(node: Expr, known: Hidden) -> Expr | None:
    """The same for references, and for functions of constants and indices."""
    if isinstance(node, Variable):
        return _hidden_at(node, known)
    if isinstance(node, Number):
        return Number(1) if node.value == -math.inf else None
    if not isinstance(node, Call) or node.atom == "where" or any(isinstance(n, Variable) for n in walk(node)):
        return None
    infinite = any(is_call(n, "log", "divide", "power") for n in walk(node))
    infinite = infinite or any(isinstance(n, Number) and math.isinf(n.value) for n in walk(node))
    return Call("equal", (node, Number(-math.inf))) if infinite else None


def _either(_: Expr, *parts: Expr | None) -> Expr | None:
    found = dict.fromkeys(part for part in parts if part is not None)
    return reduce(lambda a, b: Call("maximum", (a, b)), found) if found else None


def _both(_: Expr, first: Expr | None, second: Expr | None) -> Expr | None:
    return None if first is None or second is None else Call("minimum", (first, second))


def _chosen(node: Call, _: Expr | None, yes: Expr | None, no: Expr | None) -> Expr | None:
    if (yes is None and no is None) or any(isinstance(inner, Variable) for inner in walk(node.args[0])):
        return None
    return Call("where", (node.args[0], Number(0) if yes is None else yes, Number(0) if no is None else no))


HIDDEN: dict[str, Callable[..., Expr | None]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "divide", "minimum"), _either), "maximum": _both,
    "where": _chosen,
}


def _hidden_at(reference: Variable, known: Hidden) -> Expr | None:
    """The same for a reference to a Nonlin, in the reference's indices."""
    if reference.name not in known:
        return None
    own, found = known[reference.name]
    return substitute(found, dict(zip(own, reference.slots, strict=True)))


def _definitions(checker: Checker, order: Sequence[int | Loop]) -> Hidden:
    """The same for each family with one definition; of what recurs nothing is known."""
    count = Counter(statement.target.name for statement in checker.netsor.body)
    known: dict[str, tuple[list[str], Expr]] = {}
    for position in _flat(order):
        statement = checker.netsor.body[position]
        own = [slot.bare or "" for slot in statement.target.slots]
        if not isinstance(statement, Nonlin) or count[statement.target.name] > 1:
            continue
        if any(checker.netsor.index[name].boundary for name in own if name):
            continue
        found = _hidden(statement.expr, known)
        nodes = [] if found is None else list(islice(walk(found), MAX_NODES))
        if found is not None and len(nodes) < MAX_NODES and not any(isinstance(node, Reduction) for node in nodes):
            known[statement.target.name] = own, found
    return known
