"""What becomes of vectors and scalars where some initial vectors or weights change their signs, for two rules.

Gaussian vectors and weights and their negatives are equal in law, so what changes its sign with them has mean zero.

`coordinatewise`: scores whose operands are functions of MatMul outputs, coordinate by coordinate, and whose mean is
zero all the same.  In every coordinate the product of the two operands changes its sign with weights of one side, so
that its mean, given all that the other weights make, is zero; Lindeberg's theorem gives the limit.

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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import reduce
from itertools import count

from tensorprog.check.graph import SIDES, Operand, Structure
from tensorprog.check.overlaps import FAILS, HOLDS, Verdict, crossed
from tensorprog.language.arrows import reached
from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.averages import unused
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    fold,
    reindexed,
)
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Range, Statement, Table, Weight
from tensorprog.language.schedule import upstream

MOST = 2000  # ways from an operand to what it is a function of


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
            match s:
                case MatMul():
                    new = of(s.weight.name) if given else product(of(s.weight.name), of(s.vector.name))
                case Dot():
                    new = product(of(s.left.name), of(s.right.name))
                    new = Sign.MIXED if given and new is Sign.ODD else new
                case Nonlin():
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
        own = Sign.ZERO if node == Number(0) else Sign.EVEN
        return None if node.children else own

    return fold(expr, {}, leaf, _applied)


def _applied(node: Expr, *own: Sign) -> Sign:
    """The sign of a function of arguments with these signs."""
    parity = 0
    match node:
        case Reduction(reducer):
            return own[0] if REDUCTIONS[reducer].linear else _even(own)
        case Call("add" | "subtract"):
            return reduce(_joined, own)
        case Call("multiply" | "divide"):
            return product(*own)
        case Call("where"):
            condition = _even(own[:1])
            return condition if condition in (Sign.MIXED, Sign.UNKNOWN) else _joined(*own[1:])
        case Call("clip", (_, Number(low), Number(high))) if low == -high:
            parity, own = -1, own[:1]
        case Call("power", (_, Number(int(exponent)))):
            parity = -1 if exponent % 2 else 1
        case Call(atom) if len(own) == 1:
            parity = ATOMS[atom].parity
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


# -- operands that are functions of MatMul outputs ---------------------------------------------------------------------


def coordinatewise(structure: Structure, zeros: Collection[int] = ()) -> dict[int, tuple[Operand, ...]]:
    """Such scores, by position, with the MatMuls behind both sides in the place of their operands.

    `zeros` are statements that make nothing but zeros.  There are none if a score of MatMul outputs stands beside them
    whose operands are both read elsewhere: these might depend on the coordinates of the others.
    """
    growing = [o for o in structure.operands if not structure.fixed(o.dot)]
    made = {o.dot for o in growing if isinstance(o.statement, Nonlin) and o.definer not in zeros}
    others = [(o.dot, o.side, o.statement.weight.name) for o in growing if isinstance(o.statement, MatMul)]
    elsewhere = {
        (dot, side) for dot, side, weight in others if made and dot not in made and not _read_by_dots(structure, weight)
    }
    if any(elsewhere.issuperset((dot, side) for side in SIDES) for dot, _ in elsewhere):
        return {}
    found = {dot: _behind(structure, dot) for dot in sorted(made)}
    return {dot: operands for dot, operands in found.items() if operands and _centred(structure, dot, operands)}


def _behind(structure: Structure, dot: int) -> tuple[Operand, ...]:
    """The MatMuls whose outputs the operands of a score are functions of; none where that is not known."""
    netsor, found, numbers = structure.netsor, list[Operand](), count()
    for side, reference in zip(SIDES, netsor.body[dot].inputs, strict=True):
        ranges: dict[str, Range] = {}
        for number, leaf in enumerate(_leaves(structure, dot, reference, ranges, numbers)):
            if leaf is None or number >= MOST:
                return ()
            family = netsor.families[leaf.name]
            positions = [p for p in family.statements if isinstance(netsor.body[p], MatMul)]
            if family.kind == "scalar" and not structure.converging.issuperset(family.statements):
                return ()  # scores are no parameters of other scores
            inside = {name for slot in leaf.slots for name in slot.indices}
            bound = tuple((name, span) for name, span in ranges.items() if name in inside)
            found += [Operand(dot, side, leaf, p, netsor.body[p], bound=bound) for p in positions]
    return tuple(dict.fromkeys(found))


def _leaves(
    structure: Structure, position: int, written: Variable, ranges: dict[str, Range], numbers: Iterator[int]
) -> Iterator[Variable | None]:
    """What a vector, `written` in a statement, is a function of; None: not known."""
    netsor, waiting = structure.netsor, [(position, written, written)]
    while waiting:
        position, written, read = waiting.pop()  # as written in a statement, and at the indices of the first one
        definers = structure.definers(position, written)
        nonlins = [d for d in definers if isinstance(netsor.body[d], Nonlin)]
        if len(nonlins) < len(definers) or not definers:
            yield read
        wraps = "wrap" in crossed(netsor, written, netsor.ranges)  # what is read then does not go around with it
        if not structure.cyclic.isdisjoint(nonlins) or (nonlins and wraps):
            yield None
            continue
        inner = list[tuple[int, Variable, Variable]]()
        for definer in nonlins:
            pairs = zip(netsor.body[definer].target.slots, read.slots, strict=True)
            values = {own.bare: slot for own, slot in pairs if own.bare is not None}
            for v in dict.fromkeys(netsor.body[definer].inputs):
                bound = {}
                for name in dict.fromkeys(name for slot in v.slots for name in slot.indices if name not in values):
                    fresh = f"{name}#{next(numbers)}"
                    ranges[fresh], bound[name] = netsor.ranges[name.rstrip("*")], Affine.index(fresh)
                inner.append((definer, v, reindexed(v, {**values, **bound})))
        waiting += reversed(inner)


def _centred(structure: Structure, dot: int, operands: Collection[Operand]) -> bool:
    """Whether the product of both sides changes its sign with weights whose products nothing but Dots reads.

    Those of one side, or one weight.
    """
    statement = structure.netsor.body[dot]
    assert isinstance(statement, Dot)
    body = [structure.netsor.body[p] for p in sorted(structure.ancestors(dot))]
    made = [(o.side, structure.product(o.definer).weight.name) for o in operands]
    sides = [dict.fromkeys(name for where, name in made if where == side) for side in SIDES]
    for seeds in (*sides, *([name] for side in sides for name in side)):
        if seeds and all(_read_by_dots(structure, name) for name in seeds):
            found = signs(body, list(seeds), given=True)
            both = (found.get(v.name, Sign.EVEN) for v in (statement.left, statement.right))
            if product(*both) is Sign.ODD:
                return True
    return False


def _read_by_dots(structure: Structure, weight: str) -> bool:
    """Whether what a weight makes, and functions of it, are read by Dots alone."""
    body, waiting, seen = structure.netsor.body, list(structure.uses[weight]), set[int]()
    while waiting:
        position = waiting.pop()
        readers = structure.readers[position].keys() - seen
        if body[position].target.name in structure.netsor.outputs:
            return False
        if any(isinstance(body[reader], MatMul) for reader in readers):
            return False
        seen |= readers
        waiting += (reader for reader in readers if isinstance(body[reader], Nonlin))
    return True


# -- transposes that are independent of their weights ------------------------------------------------------------------


@dataclass(frozen=True)
class Independence:
    """Weights that are used both ways, and whether their transposes are independent of them in the limit.

    `seeds` are the initial vectors and weights whose signs decide that; `holds` is false where nothing does.
    """

    weights: tuple[str, ...] = ()
    seeds: tuple[str, ...] = ()
    holds: bool = False


def both_ways(netsor: Netsor, at_scores: bool = False) -> list[tuple[Verdict, int, int, Mapping[str, int]]]:
    """Transposed products that outputs, or scores, depend on, each with a plain one that may use the same matrix."""
    structure, found = Structure.of(netsor), list[tuple[Verdict, int, int, Mapping[str, int]]]()
    among = structure.ancestors(*structure.scores) if at_scores else structure.relevant
    for uses in structure.uses.values():
        ways = {
            way: [p for p in uses if p in among and structure.product(p).transposed == way] for way in (False, True)
        }
        for position in ways[True]:
            met = [(other, *structure.same_member(other, position)) for other in ways[False]]
            possible = [(verdict, other, position, at) for other, verdict, at in met if verdict is not HOLDS]
            found += sorted(possible, key=lambda entry: entry[0] is not FAILS)[:1]
    return found


def beside_transposes(netsor: Netsor) -> str:
    """What outputs depend on beside a matrix and its transpose so that the limit is not known; empty if nothing.

    Scores are known where no weight is behind them, and what they depend on uses each matrix in one way (theory page).
    """
    if not both_ways(netsor):
        return ""
    structure = Structure.of(netsor)
    relevant = [netsor.body[p] for p in structure.relevant]
    widths = {netsor.families[v.name].width for s in relevant for v in (s.target, *s.inputs)}
    if not widths.isdisjoint(dict(netsor.fixed_widths)):
        return "a width that stays finite"
    if structure.scores and structure.behind_scores:
        return "a score that a weight is behind"
    return "a score that depends on both" if both_ways(netsor, at_scores=True) else ""


def independence(netsor: Netsor) -> Independence:
    """Whether weights that outputs depend on both ways are, in the limit, independent of their transposes."""
    known: Independence | None = netsor.remembered.get(independence)
    if known is None:
        known = netsor.remembered[independence] = _found(netsor)
    return known


def with_copies(netsor: Netsor) -> Netsor:
    """The program with weights of their own in the place of transposes that are independent in the limit.

    A weight that is used transposed only is equal in law to a weight with its widths exchanged.
    """
    if not any(isinstance(s, MatMul) and s.transposed for s in netsor.body):
        return netsor
    found, fixed, taken = independence(netsor), dict(netsor.fixed_widths), netsor.taken
    plain = {s.weight.name for s in netsor.body if isinstance(s, MatMul) and not s.transposed}
    names: dict[str, str] = {}
    for weight in netsor.weights:
        alone = weight.name not in plain and len({width in fixed for width in weight.shape}) == 1
        if alone or (found.holds and weight.name in found.weights):
            names[weight.name] = unused(f"{weight.name}_T", taken)
    copies = tuple(transposed_weight(netsor, netsor.weight[name], made) for name, made in names.items())
    body = tuple(
        replace(s, weight=replace(s.weight, name=names[s.weight.name]), transposed=False)
        if isinstance(s, MatMul) and s.transposed and s.weight.name in names
        else s
        for s in netsor.body
    )
    return replace(netsor, body=body, weights=(*netsor.weights, *copies))


def _found(netsor: Netsor) -> Independence:
    used = upstream(netsor, netsor.outputs)
    body = [statement for statement in netsor.body if statement.target.name in used]
    products = [statement for statement in body if isinstance(statement, MatMul)]
    ways = {w.name: {s.transposed for s in products if s.weight.name == w.name} for w in netsor.weights}
    weights = tuple(name for name, found in ways.items() if len(found) == 2)
    if not weights:
        return Independence()
    if beside_transposes(netsor):
        return Independence(weights)
    plain = [s.vector.name for s in products if s.weight.name in weights and not s.transposed]
    before = upstream(netsor, plain)
    multiplied = {s.weight.name for s in body if isinstance(s, MatMul) and s.target.name in before}
    means = {v: v.mean.array.any() if isinstance(v.mean, Table) else v.mean != Number(0) for v in netsor.initial}
    vectors = [v.name for v, mean in means.items() if v.name in used - before and not v.grid and not mean]
    once = [name for name, found in ways.items() if len(found) == 1 and name not in multiplied]
    decided = [_decided(body, weights, seeds) for seeds in (vectors, once)]
    return next((found for found in decided if found.holds), decided[0])


def _decided(body: Sequence[Statement], weights: tuple[str, ...], seeds: Sequence[str]) -> Independence:
    """Whether the signs of some seeds decide, without those that are added to what stays as it is."""
    while True:
        found = signs(body, seeds)
        products = (s for s in body if isinstance(s, MatMul) and s.weight.name in weights)
        right = {transposed: (Sign.ZERO, Sign.ODD if transposed else Sign.EVEN) for transposed in (True, False)}
        wrong = next((s for s in products if found[s.vector.name] not in right[s.transposed]), None)
        if wrong is None:
            return Independence(weights, tuple(seeds), True)
        mixed = (s for s in body if found[s.target.name] is Sign.MIXED)
        blamed = next((s.inputs for s in mixed if all(found[v.name] is not Sign.MIXED for v in s.inputs)), ())
        odd = {v.name for v in blamed if found[v.name] is Sign.ODD}
        behind = reached(lambda name: [v.name for s in body if s.target.name == name for v in s.references], odd)
        rest = [name for name in seeds if name not in behind]
        if len(rest) == len(seeds):
            return Independence(weights)
        seeds = rest


def transposed_weight(netsor: Netsor, weight: Weight, name: str) -> Weight:
    """The weight with the law of a transpose: entries N(0, v / columns) = N(0, v' / rows)."""
    rows, columns = (netsor.width_of(width, 1) for width in weight.shape)
    ratio = rows / columns
    factor = Call("divide", (Number(ratio.numerator), Number(ratio.denominator)))
    variance = weight.variance if ratio == 1 else Call("multiply", (weight.variance, factor))
    return replace(weight, name=name, variance=variance, shape=weight.shape[::-1])
