"""Families with several definitions, and what a reference reads: elsewhere if an index wraps, nothing beyond zero."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial, reduce
from itertools import product

from tensorprog.check.signs import beside_transposes, both_ways, transposed_weight, with_copies
from tensorprog.language.arrows import acyclic, components
from tensorprog.language.averages import unused
from tensorprog.language.errors import NotCompiledError, Problem
from tensorprog.language.expr import (
    Affine,
    Call,
    Expr,
    Number,
    Reduction,
    Variable,
    affine_expr,
    reindexed,
    slots_of,
    sum_of,
)
from tensorprog.language.ir import Dot, Family, Index, MatMul, Netsor, Nonlin, Range, Statement
from tensorprog.language.schedule import Loop, downstream, positions, schedule, upstream

__all__ = [
    "ONE", "ZERO", "Box", "Condition", "Corrected", "Reading",
    "at_positions", "carried", "circular", "depth", "indicator", "is_layered", "not_compiled", "operands_of",
    "place", "places", "random_families", "readings", "reads_beyond", "reductions", "refuse_steps",
    "single", "target_box", "with_summands", "without_transposes",
]  # fmt: skip

Box = tuple[Range, ...]  # members of a family, as a range for each slot
Condition = tuple[Affine, Range]  # the form lies in the range
ONE, ZERO = Number(1), Number(0)


@dataclass(frozen=True)
class Reading:
    """One case of a reference: where all conditions hold, it reads the member at the slots."""

    slots: tuple[Affine, ...]
    inside: tuple[Condition, ...] = ()


def readings(reference: Variable, family: Family, ranges: Mapping[str, Range]) -> list[Reading]:
    """The cases of a reference while its indices run over the ranges; where none holds, it reads the zero vector.

    Beyond its boundary an index wraps, by multiples of its size, or reads zero.
    """
    if not any(family.boundaries):
        return [Reading(reference.slots)]
    rules = family.boundaries
    options = [places(*slot, ranges) for slot in zip(reference.slots, family.ranges, rules, strict=True)]
    return [
        Reading(tuple(slot for slot, _ in chosen), tuple(c for _, held in chosen for c in held))
        for chosen in product(*options)
    ]


def places(
    slot: Affine, span: Range, rule: str, ranges: Mapping[str, Range]
) -> list[tuple[Affine, tuple[Condition, ...]]]:
    """Slots that lie in the span, each with the condition under which it is read."""
    (start, stop), (low, high) = span, slot.bounds(ranges)
    if not rule or (low >= start and high < stop):
        return [(slot, ())]
    size = stop - start
    turns = range((low - start) // size, (high - start) // size + 1) if rule == "wrap" else range(1)
    found = [Affine(slot.terms, slot.offset - turn * size) for turn in turns]
    return [(moved, () if len(turns) == 1 and rule == "wrap" else ((moved, span),)) for moved in found]


def indicator(inside: Sequence[Condition]) -> Expr:
    """1 where all conditions hold, else 0."""
    tests = [
        Call("less_equal", pair)
        for form, (start, stop) in dict.fromkeys(inside)
        for pair in ((Number(start), affine_expr(form)), (affine_expr(form), Number(stop - 1)))
    ]
    return Call("where", (reduce(lambda a, b: Call("logical_and", (a, b)), tests), ONE, ZERO)) if tests else ONE


def target_box(statement: Statement, ranges: Mapping[str, Range]) -> tuple[Range, ...]:
    """The members that a statement binds."""
    return tuple(slot.span(ranges) for slot in statement.target.slots)


def positions_of(target: Variable, copy: str = "") -> dict[str, Affine]:
    """Positions '0', '1', ... in place of the indices on a left side, or second copies of them, '0_', '1_', ..."""
    return {slot.bare: Affine.index(f"{k}{copy}") for k, slot in enumerate(target.slots) if slot.bare}


@lru_cache(maxsize=1 << 12)
def at_positions(reference: Variable, target: Variable, copy: str = "") -> Variable:
    """A reference over these positions."""
    return reindexed(reference, positions_of(target, copy))


def operands_of(statement: Dot) -> tuple[Variable, Variable]:
    """The two references of a Dot over the positions of its family."""
    return at_positions(statement.left, statement.target), at_positions(statement.right, statement.target)


def place(box: Iterable[Range], whole: Sequence[Range]) -> tuple[slice, ...]:
    """Where the members in a box stand in an array over whole ranges."""
    return tuple(slice(a - start, b - start) for (a, b), (start, _) in zip(box, whole, strict=True))


def reads_beyond(netsor: Netsor, reference: Variable) -> bool:
    """Whether a reference reads beyond a boundary while its indices run over their ranges."""
    return readings(reference, netsor.families[reference.name], netsor.ranges) != [Reading(reference.slots)]


def not_compiled(statement: Statement, what: str, fix: str) -> NotCompiledError:
    """What this version does not compile: the statement, its line, and what to write instead."""
    said, span = f"{what}: this version does not compute such a limit", statement.span
    return NotCompiledError(Problem(said, span if span.text else replace(span, text=str(statement)), fix))


def random_families(netsor: Netsor) -> frozenset[str]:
    """Families that are random in the limit: scores, vectors of finite width, and all that depends on them."""
    fixed = dict(netsor.fixed_widths)
    found = (name for name, f in netsor.families.items() if f.width in fixed or name in netsor.scores)
    return downstream(netsor.body, found)


def is_layered(netsor: Netsor, random: frozenset[str]) -> bool:
    """Whether moments of Gaussian vectors are random: layers of scores, or widths that stay finite."""
    products = (s for s in netsor.body if isinstance(s, MatMul))
    return bool(netsor.fixed_widths) or any(s.vector.name in random for s in products)


@dataclass(frozen=True)
class Onsager(Dot):
    """A coefficient of an Onsager term: E[dZ^left / dZ^right], right the Gaussian hat of a product the other way."""

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """What is made before: the hats of later products have the coefficient 0."""
        return (self.left,)


@dataclass(frozen=True)
class Corrected(Nonlin):
    """A product of a weight that is used both ways: a Gaussian vector, its hat, and Onsager terms, `coefficients * y`.

    `product` makes the hat; `other` is the weight that stands for the other way.
    """

    product: MatMul = field(kw_only=True)
    other: str = field(kw_only=True)
    coefficients: tuple[Onsager, ...] = field(kw_only=True)

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """What is made before: the terms of later products are 0."""
        return (self.product.target, *(coefficient.target for coefficient in self.coefficients))


def without_transposes(netsor: Netsor, fresh: Callable[[str], str]) -> Netsor:
    """The program with weights of their own in the place of transposes.

    Hats of W and of W^T are independent; where a product depends on one the other way, it is `Corrected`.  What no
    output depends on is left out, if the limit beside it is not known.

    Raises    NotCompiledError where outputs depend on that
    """
    netsor = with_copies(netsor)
    if not any(isinstance(s, MatMul) and s.transposed for s in netsor.body):
        return netsor
    if beside := beside_transposes(netsor):
        statement = netsor.body[both_ways(netsor)[0][2]]
        assert isinstance(statement, MatMul)
        said = f"{statement.matrix} is a transposed weight, beside {beside}"
        raise not_compiled(statement, said, "a weight of its own")
    made = tuple(dict.fromkeys(s.target.name for s in netsor.body))
    if beside_transposes(replace(netsor, outputs=made)):
        used = upstream(netsor, netsor.outputs)
        netsor = replace(netsor, body=tuple(s for s in netsor.body if s.target.name in used))
    return _corrected(netsor, fresh)


def _corrected(netsor: Netsor, fresh: Callable[[str], str]) -> Netsor:
    """The program with weights in the place of transposes, and Onsager terms where products depend on each other."""
    turned = dict.fromkeys(s.weight.name for s in netsor.body if isinstance(s, MatMul) and s.transposed)
    weights = {name: (name, fresh(f"{name}_T")) for name in turned}  # as it is, and transposed
    copies = [transposed_weight(netsor, netsor.weight[name], own) for name, (_, own) in weights.items()]
    products = [s for s in netsor.body if isinstance(s, MatMul) and s.weight.name in weights]
    met: dict[MatMul, list[MatMul]] = {}
    for s in products:
        before = upstream(netsor, [s.vector.name])
        opposite = (o for o in products if o.weight.name == s.weight.name and o.transposed != s.transposed)
        met[s] = [o for o in opposite if o.target.name in before]
    hats = {
        s: Variable(fresh(f"{s.target.name}_hat"), tuple(slot for slot in s.target.slots if slot.bare))
        if met[s]
        else s.target
        for s in products
    }
    second: dict[str, Index] = {}
    made: list[Statement] = []
    for statement in netsor.body:
        if not isinstance(statement, MatMul) or statement.weight.name not in weights:
            made.append(statement)
            continue
        s = statement
        own, other = weights[s.weight.name][:: -1 if s.transposed else 1]
        product = replace(s, target=hats[s], weight=replace(s.weight, name=own), transposed=False)
        made.append(product)
        terms: list[Expr] = [hats[s]]
        coefficients: list[Onsager] = []
        for o in met[s]:
            names = [str(slot.bare) for slot in hats[o].slots if slot.bare]
            for name in names:
                second.setdefault(name, replace(netsor.index[name], name=fresh(name), boundary="", text=""))
            moved = {name: Affine.index(second[name].name) for name in names}
            slots = (*(slot for slot in s.target.slots if slot.bare), *moved.values())
            found = Variable(fresh(f"c_{s.target.name}_{o.target.name}"), slots)
            coefficients.append(Onsager(found, s.vector, reindexed(hats[o], moved), "1/n", s.span))
            term = Call("multiply", (found, reindexed(o.vector, moved)))
            terms.append(Reduction("sum", tuple(second[name].name for name in names), term) if names else term)
        if met[s]:
            expr, given = sum_of(terms), tuple(coefficients)
            made += [*given, Corrected(s.target, expr, "", s.span, product=product, other=other, coefficients=given)]
    indices = (*netsor.indices, *second.values())
    return replace(netsor, body=tuple(made), weights=(*netsor.weights, *copies), indices=indices)


def depth(expr: Expr) -> int:
    """How deep an expression is nested, however deep; 1 for what has no parts."""
    level, deepest = [expr], 0
    while level:
        level, deepest = [child for node in level for child in node.children], deepest + 1
    return deepest


def reductions(expr: Expr) -> list[Reduction]:
    """All reductions in an expression."""
    found = [expr] if isinstance(expr, Reduction) else []
    return found + [node for child in expr.children for node in reductions(child)]


def circular(netsor: Netsor) -> set[str]:
    """Families that depend on themselves, by their names: those of recurrences, of a single step too."""
    body = netsor.body
    after = {name: {v.name for p in f.statements for v in body[p].inputs} for name, f in netsor.families.items()}
    return {name for group in components(after) for name in group if len(group) > 1 or name in after[name]}


def carried(netsor: Netsor) -> frozenset[str]:
    """Families in a recurrence that no MatMul or Dot interrupts, as the cells of an LSTM: functions of all steps.

    Of families that are carried along together, as few as every cycle passes through; the others are written into them.
    """
    nonlins = [s for s in netsor.body if isinstance(s, Nonlin)]
    order, _ = schedule(nonlins, netsor.ranges, netsor.boundaries)
    loops = (entry for entry in order if isinstance(entry, Loop))
    found = {nonlins[position].target.name for loop in loops for position in positions(loop.body)}
    reads = {name: {v.name for s in nonlins if s.target.name == name for v in s.inputs} & found for name in found}
    written: set[str] = set()
    for name in sorted(found):
        once = len(netsor.families[name].statements) == 1
        if once and acyclic({other: reads[other] for other in (*written, name)}):
            written.add(name)
    return frozenset(found - written)


def refuse_steps(netsor: Netsor) -> None:
    """Raise NotCompiledError for recurrences, families with several definitions, and reads beyond a boundary."""
    order, _ = schedule(netsor.body, netsor.ranges, netsor.boundaries)
    found = ["recurrences have"] if any(isinstance(entry, Loop) for entry in order) else []
    for s in netsor.body:
        if len(netsor.families[s.target.name].statements) > 1:
            found.append(f"{s.target.name} has several definitions, which have")
        found += [f"{r} reads beyond a boundary, which has" for r in s.references if reads_beyond(netsor, r)]
    if found:
        raise NotCompiledError(f"{found[0]} no formulas yet; limit() without symbolic=True gives the numbers")


def single(netsor: Netsor) -> Netsor:
    """The program with one statement behind each family of products and scores, and scores that read within ranges.

    A MatMul or score that is one of several definitions gets a family of its own, of which the family is a copy
    there; an operand of a score that is read beyond a boundary becomes a MatMul at the slots that are read.

    Raises    NotCompiledError for transposed weights beside scores
    """
    fresh = partial(unused, taken=netsor.taken)
    split: list[Statement] = []
    for statement in netsor.body:
        joint = isinstance(statement, MatMul) or (isinstance(statement, Dot) and statement.scale != "1/n")
        if joint and len(netsor.families[statement.target.name].statements) > 1:
            slots = tuple(slot for slot in statement.target.slots if slot.bare)
            own = Variable(fresh(statement.target.name), slots)
            split += [replace(statement, target=own), Nonlin(statement.target, own, "", statement.span)]
        else:
            split.append(statement)
    netsor = netsor if len(split) == len(netsor.body) else replace(netsor, body=tuple(split))
    netsor = uniform_coordinates(without_transposes(netsor, fresh), fresh)
    body: list[Statement] = []
    for statement in netsor.body:
        if isinstance(statement, Dot) and statement.scale != "1/n":
            made = [_read_beyond(netsor, operand, fresh) for operand in statement.inputs]
            left, right = (own[-1].target if own else v for own, v in zip(made, statement.inputs, strict=True))
            body += [*made[0], *made[1]]
            statement = replace(statement, left=left, right=right)
        body.append(statement)
    return netsor if len(body) == len(netsor.body) else replace(netsor, body=tuple(body))


def uniform_coordinates(netsor: Netsor, fresh: Callable[[str], str]) -> Netsor:
    """The program with its coordinate vectors as functions of Gaussian vectors: (1 + erf(g/sqrt(2)))/2 is uniform.

    In the limit only: at width n the numbers (a + 1/2)/n are not drawn.

    Raises    NotCompiledError for one of a width that stays finite, where its numbers matter one by one
    """
    made: list[Statement] = []
    initials = []
    for initial in netsor.initial:
        if initial.grid and initial.width in dict(netsor.fixed_widths):
            said = f"{initial.name} is the coordinate vector of a width that stays finite"
            raise NotCompiledError(
                Problem(
                    f"{said}, and limits are known only where that width goes to infinity",
                    initial.span,
                    "declare the width under widths:, as d: n/2",
                )
            )
        if initial.grid:
            gaussian = fresh(initial.name)
            value = Call("erf", (Call("divide", (Variable(gaussian), Number(math.sqrt(2)))),))
            uniform = Call("divide", (Call("add", (ONE, value)), Number(2)))
            made.append(Nonlin(Variable(initial.name), uniform, "", initial.span))
            initial = replace(initial, name=gaussian, mean=ZERO, cov=ONE, grid=False)
        initials.append(initial)
    return replace(netsor, initial=tuple(initials), body=(*made, *netsor.body)) if made else netsor


def with_summands(netsor: Netsor, scores: Mapping[str, Dot]) -> tuple[Netsor, dict[str, str]]:
    """The program with a vector u v for each score n**-0.5 u.v, by name, where operands are not all Gaussian.

    Given the inputs of the weights behind them, the coordinates of these vectors are independent with mean zero; so
    their second moments are the covariances of the scores (Lindeberg's theorem; clause (iv) of Gaussian u and v).
    """

    def gaussian(reference: Variable) -> bool:
        found = [netsor.body[position] for position in netsor.families[reference.name].statements]
        return all(isinstance(statement, MatMul) for statement in found)

    fixed = dict(netsor.fixed_widths)
    growing = {name: s for name, s in scores.items() if netsor.families[s.left.name].width not in fixed}
    if all(gaussian(operand) for name in netsor.scores if name in growing for operand in growing[name].inputs):
        return netsor, {}
    taken, made = netsor.taken, dict[str, Nonlin]()
    for name, statement in growing.items():
        target = replace(statement.target, name=unused(f"{name}_terms", taken))
        made[name] = Nonlin(target, Call("multiply", statement.inputs), "", statement.span)
    body: list[Statement] = []
    for each in netsor.body:
        body += [made[each.target.name], each] if isinstance(each, Dot) and each.target.name in made else [each]
    body += [made[name] for name in growing if name not in netsor.scores]
    return replace(netsor, body=tuple(body)), {name: product.target.name for name, product in made.items()}


def _read_beyond(netsor: Netsor, operand: Variable, fresh: Callable[[str], str]) -> list[Statement]:
    """An operand of a score that is read beyond a boundary, as a MatMul: g[k+2] = MatMul(U, u[k+2]).

    There the vector is a copy that ends at the boundary of g, whatever its own boundary is.

    Raises    NotCompiledError where the weight depends on an index that is read beyond, and does not end with it
    """
    positions = netsor.families[operand.name].statements
    statement = netsor.body[positions[0]] if len(positions) == 1 else None
    if not reads_beyond(netsor, operand) or not isinstance(statement, MatMul):
        return []
    names = {own.bare: slot for own, slot in zip(statement.target.slots, operand.slots, strict=True) if own.bare}
    chosen = list(zip(netsor.weight[statement.weight.name].indices, statement.weight.slots, strict=True))
    ends = {name: (netsor.ranges[name], index.boundary) for name, index in netsor.index.items()}
    for name, slot in names.items():
        (start, stop), (low, high) = netsor.ranges[name], slot.bounds(netsor.ranges)
        alike = all(own.bare == name and ends[i] == ends[name] for i, own in chosen if name in own.indices)
        if (low < start or high >= stop) and not alike:
            raise not_compiled(
                statement,
                f"{operand.name} is read beyond its boundary by a score, and {statement.weight} depends on {name}",
                "scores with all members, of which a softmax takes those within the window",
            )
    copy = Variable(fresh(statement.vector.name), statement.target.slots)
    used = dict.fromkeys(name for slot in operand.slots for name in slot.indices)
    target, weight = Variable(fresh(operand.name), slots_of(tuple(used))), reindexed(statement.weight, names)
    moved = replace(statement, target=target, weight=weight, vector=reindexed(copy, names))
    return [Nonlin(copy, statement.vector, "", statement.span), moved]
