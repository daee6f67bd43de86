"""Gradient independence: where a matrix and its transpose may count as independent in the limit.

In the limit, W^T y is a Gaussian variable plus a multiple of E[dZ^y / dZ^(W x)] Z^x for each W x that y depends on.
Let some initial vectors of mean zero, or weights that are used in one way only, change their signs together, which
leaves all laws as they are.  If every W multiplies vectors that stay as they are, and every W^T vectors that change
their signs, dZ^y / dZ^(W x) changes its sign, so that its mean is 0; the same holds of W x behind W^T y.  Then W^T may
be replaced by a weight of its own with the same law.  Gradients are linear in the vectors xi that they start from, and
what is not a gradient does not depend on these.

Source    Yang 2020 (arXiv 2006.14548), BP-like programs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce

from tensorprog.check.rewrites.turn import transposed_weight
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.expr import Call, Constant, Expr, IndexValue, Number, Reduction, Variable, fold
from tensorprog.language.ir import Dot, MatMul, Netsor, Statement, Table
from tensorprog.language.schedule import upstream

__all__ = ["Independence", "independence", "with_copies"]


class _Sign(Enum):
    """What happens to a vector when the chosen ones change their signs; families that are defined in a circle begin
    as not known."""

    UNKNOWN = 0
    ZERO = 1  # stays 0
    EVEN = 2  # stays
    ODD = 3  # changes its sign
    MIXED = 4  # neither


@dataclass(frozen=True)
class Independence:
    """Weights that are used both ways, and why their transposes are independent of them in the limit, or not.

    `seeds` are the initial vectors and weights whose signs decide; `reason` says what fails, and is empty if nothing.
    """

    weights: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether there are such weights, and all their transposes may be replaced by copies."""
        return bool(self.weights) and not self.reason


def independence(netsor: Netsor) -> Independence:
    """Whether weights that outputs depend on both ways are, in the limit, independent of their transposes."""
    known: Independence | None = netsor.remembered.get(independence)
    if known is None:
        known = netsor.remembered[independence] = _found(netsor)
    return known


def with_copies(netsor: Netsor) -> Netsor:
    """The program with weights of their own in the place of transposes that are independent in the limit."""
    found = independence(netsor)
    if not found.holds:
        return netsor
    names: dict[str, str] = {}
    for name in found.weights:
        made = f"{name}_T"
        while made in netsor.families or made in netsor.index or made in netsor.constant or made in names.values():
            made += "2"
        names[name] = made
    copies = tuple(transposed_weight(netsor, netsor.weight[name], made) for name, made in names.items())
    body = tuple(
        replace(s, weight=replace(s.weight, name=names[s.weight.name]), transposed=False)
        if isinstance(s, MatMul) and s.transposed and s.weight.name in names
        else s
        for s in netsor.body
    )
    return replace(netsor, body=body, weights=(*netsor.weights, *copies))


def _found(netsor: Netsor) -> Independence:
    if not any(isinstance(s, MatMul) and s.transposed for s in netsor.body):
        return Independence()
    used = upstream(netsor, netsor.outputs)
    body = [statement for statement in netsor.body if statement.target.name in used]
    products = [statement for statement in body if isinstance(statement, MatMul)]
    ways = {w.name: {s.transposed for s in products if s.weight.name == w.name} for w in netsor.weights}
    weights = tuple(name for name, found in ways.items() if len(found) == 2)
    if not weights:
        return Independence()
    if any(isinstance(s, Dot) and s.scale != "1/n" for s in body):
        return Independence(weights, (), "a score stands beside them, for which this is not proved")
    if any(netsor.families[name].width in dict(netsor.fixed_widths) for name in used):
        return Independence(weights, (), "a width beside them stays finite, for which this is not proved")
    plain = [s.vector.name for s in products if s.weight.name in weights and not s.transposed]
    before = upstream(netsor, plain)
    multiplied = {s.weight.name for s in body if isinstance(s, MatMul) and s.target.name in before}
    vectors = [v.name for v in netsor.initial if v.name in used - before and not v.grid and _centred(v.mean)]
    once = [name for name, found in ways.items() if len(found) == 1 and name not in multiplied]
    first = _decided(body, weights, vectors)
    second = first if first.holds else _decided(body, weights, once)
    return second if second.holds else first


def _decided(body: list[Statement], weights: tuple[str, ...], seeds: list[str]) -> Independence:
    """Whether the signs of some seeds decide, without those that are added to what stays as it is."""
    products = [s for s in body if isinstance(s, MatMul) and s.weight.name in weights]
    while True:
        blamed: dict[str, None] = {}
        signs = _signs(body, seeds, blamed)
        wrong = next(
            (
                s
                for s in products
                if signs[s.vector.name] not in (_Sign.ZERO, _Sign.ODD if s.transposed else _Sign.EVEN)
            ),
            None,
        )
        if wrong is None:
            return Independence(weights, tuple(seeds))
        behind = _behind(body, blamed)
        rest = [name for name in seeds if name not in behind]
        if len(rest) == len(seeds):
            return Independence(weights, tuple(seeds), _reason(wrong))
        seeds = rest


def _reason(product: MatMul) -> str:
    change = "change its sign" if product.transposed else "stay as it is"
    return (
        f"{product.vector} in {product} does not {change} when fresh Gaussian vectors of mean zero, on which the "
        "other products do not depend, change theirs"
    )


def _centred(mean: Expr | Table) -> bool:
    return not mean.array.any() if isinstance(mean, Table) else mean == Number(0)


def _behind(body: Iterable[Statement], names: Iterable[str]) -> set[str]:
    """Initial vectors and weights that some families depend on."""
    found, grown = set(names), True
    while grown:
        size = len(found)
        for s in body:
            if s.target.name in found:
                found |= {reference.name for reference in s.references}
        grown = len(found) > size
    return found


def _signs(body: list[Statement], seeds: Iterable[str], blamed: dict[str, None]) -> dict[str, _Sign]:
    """What happens to every family when the seeds change their signs; `blamed` has what made the first one mixed."""
    chosen = set(seeds)
    defined = {statement.target.name for statement in body}
    signs: dict[str, _Sign] = {}

    def of(name: str) -> _Sign:
        found = signs.get(name, _Sign.UNKNOWN if name in defined else _Sign.EVEN)
        return _Sign.ODD if name in chosen else found

    for name in chosen - defined:
        signs[name] = _Sign.ODD
    while True:
        before = dict(signs)
        for s in body:
            if isinstance(s, MatMul):
                found = _product(of(s.weight.name), of(s.vector.name))
            elif isinstance(s, Dot):
                found = _product(of(s.left.name), of(s.right.name))
            else:
                found = _expression(s.expr, of, blamed)
            signs[s.target.name] = _joined(of(s.target.name), found)
            if signs[s.target.name] is _Sign.MIXED and found is not _Sign.MIXED and not blamed:
                blamed.update({v.name: None for v in s.inputs})
        if signs == before:
            for s in body:
                for reference in s.inputs:
                    signs.setdefault(reference.name, of(reference.name))
            return signs


def _joined(first: _Sign, second: _Sign) -> _Sign:
    """The sign of a sum, or of what may be one or the other."""
    least, most = sorted((first, second), key=lambda sign: sign.value)
    return _Sign.MIXED if (least, most) == (_Sign.EVEN, _Sign.ODD) else most


def _product(*signs: _Sign) -> _Sign:
    for absorbing in (_Sign.ZERO, _Sign.UNKNOWN, _Sign.MIXED):
        if absorbing in signs:
            return absorbing
    return _Sign.ODD if signs.count(_Sign.ODD) % 2 else _Sign.EVEN


def _expression(expr: Expr, of: Callable[[str], _Sign], blamed: dict[str, None]) -> _Sign:
    def leaf(node: Expr) -> tuple[_Sign, tuple[str, ...]] | None:
        if isinstance(node, Variable):
            sign = of(node.name)
            return sign, (node.name,) if sign is _Sign.ODD else ()
        if isinstance(node, Number | Constant | IndexValue):
            return (_Sign.ZERO if node == Number(0) else _Sign.EVEN), ()
        return None

    def joined(node: Expr, *parts: tuple[_Sign, tuple[str, ...]]) -> tuple[_Sign, tuple[str, ...]]:
        signs = [sign for sign, _ in parts]
        odd = tuple(dict.fromkeys(name for _, names in parts for name in names))
        found = _applied(node, signs)
        if found is _Sign.MIXED and _Sign.MIXED not in signs and not blamed:
            blamed.update(dict.fromkeys(odd))
        return found, odd

    return fold(expr, {}, leaf, joined)[0]


def _applied(node: Expr, signs: list[_Sign]) -> _Sign:
    """The sign of a function of arguments with these signs."""
    if isinstance(node, Reduction):
        return signs[0] if REDUCTIONS[node.reducer].linear else _even(signs)
    assert isinstance(node, Call)
    if node.atom in ("add", "subtract"):
        return reduce(_joined, signs)
    if node.atom in ("multiply", "divide"):
        return _product(*signs)
    if node.atom == "where":
        condition = _even(signs[:1])
        return condition if condition in (_Sign.MIXED, _Sign.UNKNOWN) else _joined(*signs[1:])
    parity = ATOMS[node.atom].parity if len(signs) == 1 else 0
    if node.atom == "power" and isinstance(node.args[1], Number) and isinstance(node.args[1].value, int):
        parity = -1 if node.args[1].value % 2 else 1
    if signs[0] is _Sign.ODD and parity and all(sign is not _Sign.MIXED for sign in signs):
        return _Sign.ODD if parity < 0 else _Sign.EVEN
    if signs[0] is _Sign.ZERO and parity < 0 and len(signs) == 1:
        return _Sign.ZERO
    return _even(signs)


def _even(signs: Iterable[_Sign]) -> _Sign:
    """The sign of any function: what stays as it is if its arguments do."""
    found = set(signs)
    if found & {_Sign.ODD, _Sign.MIXED}:
        return _Sign.MIXED
    return _Sign.UNKNOWN if _Sign.UNKNOWN in found else _Sign.EVEN
