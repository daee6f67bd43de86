"""The adjoint program as a whole: its statements put in order, in recurrences backwards, beside those of the program.

The gradient of a recurrence runs from its last member to its first.  Loops of the language ascend, so that these
families are written along the index r = R - t, where R is the sum of first and last value of t: `back_s[r]` is the
gradient of s[R - r].
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from tensorprog.gradients.adjoint import Backward
from tensorprog.language.arrows import components, grouped, reached
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import (
    Affine,
    Constant,
    Expr,
    Number,
    Variable,
    indices_of,
    rebuild,
    replace_variables,
    substitute,
    walk,
)
from tensorprog.language.ir import ConstantDef, MatMul, Netsor, Nonlin, Statement, mapped
from tensorprog.language.parse import parse_expression
from tensorprog.language.schedule import around, dependencies, positions, schedule
from tensorprog.language.validity import statement_parts

__all__ = ["adjoint"]


def adjoint(netsor: Netsor) -> Netsor:
    """The program with the statements of its gradients, the families grad_<name>.

    Raises    ProgramError where a gradient cannot be written
    """
    source = _with_sizes(netsor)
    made = Backward(source)
    body = _without_copies(made)
    body = [_padded(made, statement) for statement in body]
    body = _turned(made, source, body)
    gradients = [made.gradients[name, ""] for name in made.active if made.families[name].kind == "vector"]
    kept = _used(body, gradients)
    occurring = {name for statement in kept for name in _indices(made, statement)}
    occurring |= {*source.index, *(name for vector in made.initial for name in vector.indices)}
    indices = tuple(index for name, index in made.indices.items() if name in occurring)
    names = replace(source, indices=indices).names
    statements = [  # expressions as their texts read
        replace(s, expr=parse_expression(str(s.expr), names)) if isinstance(s, Nonlin) else s
        for s in (*source.body, *kept)
    ]
    parts: dict[str, Any] = {
        **source.parts,
        "name": f"{source.name}_gradients",
        "indices": indices,
        "title": f"Gradients of {source.name}",
        "initial": (*source.initial, *made.initial),
        "body": tuple(statements),
        "outputs": tuple(dict.fromkeys((*source.outputs, *gradients))),
        "run": (),
        "train": (),
    }
    return Netsor(**{**parts, "body": _ordered(parts, len(source.body), made)})


def _ordered(parts: Mapping[str, Any], own: int, made: Backward) -> tuple[Statement, ...]:
    """The statements in an order in which each uses what stands above it, those of the program first."""
    body = parts["body"]
    ranges = {index.name: (index.start, index.stop) for index in parts["indices"]}
    order, problems = schedule(body, ranges, _boundaries(body, made))
    if not order:  # a circular definition
        raise ProgramError(problems)
    later = [position for position in positions(order) if position >= own]
    return (*body[:own], *(body[position] for position in later))


def _boundaries(body: Sequence[Statement], made: Backward) -> dict[str, list[str]]:
    """Boundary rules of all families, from the indices on the left sides."""
    found: dict[str, list[str]] = {
        v.name: [made.indices[i].boundary for i in v.indices] for v in (*made.netsor.initial, *made.initial)
    }
    for statement in body:
        slots = statement.target.slots
        rules = found.setdefault(statement.target.name, [""] * len(slots))
        for place, slot in enumerate(slots):
            rules[place] = rules[place] or (made.indices[slot.bare].boundary if slot.bare else "")
    return found


# ---- the program that gradients are taken of: sizes as numbers ------------------------------------------------------


def _with_sizes(netsor: Netsor) -> Netsor:
    """The program with numbers for the constants that sizes are made of: positions are inverted for these sizes."""
    texts = [index.text for index in netsor.indices] + [text for _, _, text in netsor.widths]
    texts += [text for name, text in netsor.written if name in dict(netsor.fixed_widths)]
    for statement in netsor.body:
        nodes = (node for part in statement_parts(statement) for node in walk(part))
        texts += [slot.text for node in nodes if isinstance(node, Constant | Variable) for slot in node.slots]
    sizes = set(re.findall(r"[^\W\d]\w*", " ".join(texts))) & {
        name for name, value in netsor.scalars.items() if value is not None
    }
    written = {
        name: text
        for name, text in netsor.written
        if name not in dict(netsor.fixed_widths) and not sizes.intersection(re.findall(r"\w+", text))
    }

    def put(expr: Any) -> Any:
        return rebuild(expr, number) if isinstance(expr, Expr) else expr

    def number(node: Expr) -> Expr | None:
        if isinstance(node, Constant) and node.name in sizes:
            value = netsor.scalars[node.name]
            assert value is not None
            return Number(value)
        if isinstance(node, Constant | Variable):
            return type(node)(node.name, tuple(Affine(slot.terms, slot.offset) for slot in node.slots))
        return None

    parts: dict[str, Any] = {
        "constants": tuple(
            ConstantDef(c.name, put(c.value), c.indices) for c in netsor.constants if c.name not in sizes
        ),
        "indices": tuple(replace(index, text="") for index in netsor.indices),
        "initial": tuple(replace(v, mean=put(v.mean), cov=put(v.cov)) for v in netsor.initial),
        "weights": tuple(replace(w, variance=put(w.variance)) for w in netsor.weights),
        "widths": tuple((name, ratio, _multiple(ratio)) for name, ratio, _ in netsor.widths),
        "written": tuple(written.items()),
        "body": tuple(mapped(statement, put) for statement in netsor.body),
    }
    return Netsor(**{**netsor.parts, **parts})


def _multiple(ratio: Fraction) -> str:
    above = "n" if ratio.numerator == 1 else f"{ratio.numerator}*n"
    return above if ratio.denominator == 1 else f"{above}/{ratio.denominator}"


# ---- statements -----------------------------------------------------------------------------------------------------


def _changed(statement: Statement, values: Mapping[str, Affine]) -> Statement:
    """The statement with indices replaced, those on the left by indices."""
    return mapped(statement, lambda expr: substitute(expr, values, along=True))


def _read_as(statement: Statement, change: Mapping[str, Callable[[Variable], Variable]]) -> Statement:
    """The statement with references changed, by the names of their families."""

    def put(reference: Variable) -> Variable:
        return change[reference.name](reference) if reference.name in change else reference

    return mapped(statement, lambda expr: replace_variables(expr, put))


def _used(body: Sequence[Statement], names: Collection[str]) -> list[Statement]:
    """The statements that some families depend on."""
    defined = grouped((statement.target.name, statement) for statement in body)
    found = reached(lambda name: (r.name for s in defined.get(name, ()) for r in s.inputs), names)
    return [statement for statement in body if statement.target.name in found]


def _without_copies(made: Backward) -> list[Statement]:
    """The statements, where a gradient that is just a MatMul is written as one."""
    products = {s.target.name: s for s in made.body if isinstance(s, MatMul) and s.target.name not in made.padded}
    readers = Counter(reference.name for statement in made.body for reference in statement.inputs)
    copies = dict[str, Statement]()
    for statement in made.body:
        read = statement.expr if isinstance(statement, Nonlin) else None
        if isinstance(read, Variable) and read.name in products and readers[read.name] == 1:
            product, own = products[read.name], [slot.bare for slot in read.slots]
            alike = made.families[read.name].ranges == made.families[statement.target.name].ranges
            if alike and None not in own and read.slots == statement.target.slots:
                values = {str(old.bare): new for old, new in zip(product.target.slots, read.slots, strict=True)}
                copies[read.name] = replace(_changed(product, values), target=statement.target)
    alone = {product.target.name: product for product in copies.values()}
    return [alone.get(s.target.name, s) for s in made.body if s.target.name not in copies]


def _padded(made: Backward, statement: Statement) -> Statement:
    """The statement over indices with the boundary that readings of its family ask for."""
    slots = statement.target.slots
    for place, rule in made.padded.get(statement.target.name, {}).items():
        name = slots[place].bare
        if name is not None and made.indices[name].boundary != rule:
            taken = _indices(made, statement)
            span = made.indices[name].start, made.indices[name].stop
            statement = _changed(statement, {name: Affine.index(made.index(span, name, taken, rule))})
    return statement


def _indices(made: Backward, statement: Statement) -> set[str]:
    return {name for part in statement_parts(statement) for name in indices_of(part, made.indices)}


# ---- recurrences ----------------------------------------------------------------------------------------------------


def _turned(made: Backward, source: Netsor, body: list[Statement]) -> list[Statement]:
    """The statements, with gradients of recurrences along reversed indices."""
    order, _ = schedule(source.body, source.ranges, source.boundaries)
    loops = {index for _, indices in around(order) for index in indices}
    ranges = made.ranges()
    users = grouped((definer, user) for user, definer, _ in dependencies(body, ranges, _boundaries(body, made)))
    after = {position: users.get(position, []) for position in range(len(body))}
    for group in components(after):
        if len(group) > 1 or group[0] in after[group[0]]:
            body = _reversed_group(made, body, group, loops)
    return body


def _reversed_group(
    made: Backward, body: list[Statement], group: Sequence[int], loops: Collection[str]
) -> list[Statement]:
    """The statements, where the families of a group of mutually dependent ones run backwards."""
    families = list(dict.fromkeys(body[position].target.name for position in sorted(group)))
    places = {
        name: {k: origin for k, origin in enumerate(made.origin.get(name, ())) if origin in loops} for name in families
    }
    padded = any("zero" in made.padded.get(name, {}).values() for name in families)
    new: dict[str, str] = {}
    natural = set(made.gradients.values())
    for name in families:
        new[name] = made.unique(f"back_{name.removeprefix('grad_')}")
    total = {origin: sum(made.netsor.ranges[origin]) - 1 for name in families for origin in places[name].values()}

    ranges = made.ranges()
    boxes = {
        name: [[slot.bounds(ranges) for slot in body[p].target.slots] for p in group if body[p].target.name == name]
        for name in families
    }

    def turned(reference: Variable) -> Variable:
        """The reference, unless it reads members that are defined outside of the recurrence only."""
        name = reference.name
        read = [slot.bounds(ranges) for slot in reference.slots]
        if name in natural and all(
            any(high < first or last < low for (low, high), (first, last) in zip(read, box, strict=True))
            for box in boxes[name]
        ):
            return reference
        return back(reference)

    def back(reference: Variable) -> Variable:
        name = reference.name
        slots = [
            -1 * slot + total[places[name][k]] if k in places[name] else slot for k, slot in enumerate(reference.slots)
        ]
        return Variable(new[name], tuple(slots))

    along: dict[tuple[str, int, int], str] = {}

    def index(origin: str, like: str) -> str:
        known = made.indices[like]
        start, stop = total[origin] - known.stop + 1, total[origin] - known.start + 1
        if (origin, start, stop) not in along:
            made_name = made.unique(f"{origin}_back")
            made.indices[made_name] = replace(
                known, name=made_name, start=start, stop=stop, boundary="zero" if padded else known.boundary
            )
            along[origin, start, stop] = made_name
        return along[origin, start, stop]

    result, forward = list[Statement](), list[Statement]()  # the latter last, so that positions stay
    for position, statement in enumerate(body):
        name = statement.target.name
        change = {f: turned for f in families if position in group or f not in natural}
        if position not in group:
            result.append(_read_as(statement, change))
            continue
        values = {}
        for k, origin in places[name].items():
            bare = statement.target.slots[k].bare
            if bare is not None:
                values[bare] = -1 * Affine.index(index(origin, bare)) + total[origin]
        moved = _changed(_read_as(statement, change), values)
        target = {bare: form.indices[0] for bare, form in values.items()}
        slots = tuple(
            Affine.index(target[slot.bare]) if slot.bare in target else slot for slot in statement.target.slots
        )
        result.append(replace(moved, target=Variable(new[name], slots)))
        if name in natural:
            forward.append(Nonlin(statement.target, back(statement.target)))
    return [*result, *forward]
