"""What becomes of vectors and scalars where some initial vectors or weights change their signs, for two rules.

Gaussian vectors and weights and their negatives are equal in law, so what changes its sign with them has mean zero.

`independence`: where a matrix and its transpose may count as independent in the limit.  In the limit, W^T y is a
Gaussian variable plus a multiple of E[dZ^y / dZ^(W x)] Z^x for each W x that y depends on.  Let some initial vectors of
mean zero, or weights that are used in one way only, change their signs together, which leaves all laws as they are.  If
every W multiplies vectors that stay as they are, and every W^T vectors that change their signs, dZ^y / dZ^(W x) changes
its sign, so that its mean is 0; the same holds of W x behind W^T y.  Then W^T may be replaced by a weight of its own
with the same law.  Gradients are linear in the vectors xi that they start from, and what is not a gradient does not
depend on these.

Source    Yang 2020 (arXiv 2006.14548), BP-like programs; the theory page for operands that are functions
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.expr import Call, Constant, Expr, IndexValue, Number, Reduction, Variable, fold
from tensorprog.language.ir import Dot, MatMul, Netsor, Statement, Table, Weight
from tensorprog.language.schedule import upstream

__all__ = ["Independence", "Sign", "independence", "product", "signs", "transposed_weight", "with_copies"]


class Sign(Enum):
    """What happens to a vector when the chosen ones change their signs; what is defined in a circle begins unknown."""

    UNKNOWN = 0
    ZERO = 1  # stays 0
    EVEN = 2  # stays
    ODD = 3  # changes its sign
    MIXED = 4  # neither


def signs(body: Sequence[Statement], seeds: Collection[str], given: bool = False) -> dict[str, Sign]:
    """What happens to every family when the seeds, initial vectors or weights, change their signs.

    With `given`, what other weights make is held fixed, and an average that changes its sign is no parameter any more.
    """
    chosen = set(seeds)
    defined = {statement.target.name for statement in body}
    found: dict[str, Sign] = dict.fromkeys(chosen - defined, Sign.ODD)

    def of(name: str) -> Sign:
        return Sign.ODD if name in chosen else found.get(name, Sign.UNKNOWN if name in defined else Sign.EVEN)

    while True:
        before = dict(found)
        for s in body:
            if isinstance(s, MatMul):
                new = of(s.weight.name) if given else product(of(s.weight.name), of(s.vector.name))
            elif isinstance(s, Dot):
                new = product(of(s.left.name), of(s.right.name))
                new = Sign.MIXED if given and new is Sign.ODD else new
            else:
                new = _expression(s.expr, of)
            found[s.target.name] = _joined(of(s.target.name), new)
        if found == before:
            return {v.name: of(v.name) for s in body for v in s.inputs} | found


def product(*factors: Sign) -> Sign:
    """The sign of a product."""
    for absorbing in (Sign.ZERO, Sign.UNKNOWN, Sign.MIXED):
        if absorbing in factors:
            return absorbing
    return Sign.ODD if factors.count(Sign.ODD) % 2 else Sign.EVEN


def _joined(first: Sign, second: Sign) -> Sign:
    """The sign of a sum, or of what may be one or the other."""
    least, most = sorted((first, second), key=lambda sign: sign.value)
    return Sign.MIXED if (least, most) == (Sign.EVEN, Sign.ODD) else most


def _expression(expr: Expr, of: Callable[[str], Sign]) -> Sign:
    def leaf(node: Expr) -> Sign | None:
        if isinstance(node, Variable):
            return of(node.name)
        if isinstance(node, Number | Constant | IndexValue):
            return Sign.ZERO if node == Number(0) else Sign.EVEN
        return None

    return fold(expr, {}, leaf, _applied)


def _applied(node: Expr, *own: Sign) -> Sign:
    """The sign of a function of arguments with these signs."""
    if isinstance(node, Reduction):
        return own[0] if REDUCTIONS[node.reducer].linear else _even(own)
    assert isinstance(node, Call)
    if node.atom in ("add", "subtract"):
        return reduce(_joined, own)
    if node.atom in ("multiply", "divide"):
        return product(*own)
    if node.atom == "where":
        condition = _even(own[:1])
        return condition if condition in (Sign.MIXED, Sign.UNKNOWN) else _joined(*own[1:])
    parity = ATOMS[node.atom].parity if len(own) == 1 else 0
    bounds = [p.value for p in node.params if isinstance(p, Number)]
    if node.atom == "clip" and len(bounds) == 2 and bounds[0] == -bounds[1]:
        parity, own = -1, own[:1]
    if node.atom == "power" and isinstance(node.args[1], Number) and isinstance(node.args[1].value, int):
        parity = -1 if node.args[1].value % 2 else 1
    if own[0] is Sign.ODD and parity and all(sign is not Sign.MIXED for sign in own):
        return Sign.ODD if parity < 0 else Sign.EVEN
    if own[0] is Sign.ZERO and parity < 0 and len(own) == 1:
        return Sign.ZERO
    return _even(own)


def _even(own: Iterable[Sign]) -> Sign:
    """The sign of any function: what stays as it is if its arguments do."""
    found = set(own)
    if found & {Sign.ODD, Sign.MIXED}:
        return Sign.MIXED
    return Sign.UNKNOWN if Sign.UNKNOWN in found else Sign.EVEN


# -- transposes that are independent of their weights ------------------------------------------------------------------


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
        found = signs(body, seeds)
        right = {transposed: (Sign.ZERO, Sign.ODD if transposed else Sign.EVEN) for transposed in (True, False)}
        wrong = next((s for s in products if found[s.vector.name] not in right[s.transposed]), None)
        if wrong is None:
            return Independence(weights, tuple(seeds))
        mixed = (s for s in body if found[s.target.name] is Sign.MIXED)
        blamed = next((s.inputs for s in mixed if all(found[v.name] is not Sign.MIXED for v in s.inputs)), ())
        behind = _behind(body, (v.name for v in blamed if found[v.name] is Sign.ODD))
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


def _behind(body: Sequence[Statement], names: Iterable[str]) -> set[str]:
    """Initial vectors and weights that some families depend on."""
    found, before = set(names), -1
    while len(found) > before:
        before = len(found)
        found |= {reference.name for s in body if s.target.name in found for reference in s.references}
    return found


def transposed_weight(netsor: Netsor, weight: Weight, name: str) -> Weight:
    """The weight with the law of a transpose: entries N(0, v / columns) = N(0, v' / rows)."""
    rows, columns = (netsor.width_of(width, 1) for width in weight.shape)
    ratio = rows / columns
    factor = Call("divide", (Number(ratio.numerator), Number(ratio.denominator)))
    variance = weight.variance if ratio == 1 else Call("multiply", (weight.variance, factor))
    return replace(weight, name=name, variance=variance, shape=weight.shape[::-1])
