"""Parts of families that are defined or read one by one get a statement and a name each: halves, queries and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorprog.importing.refusals import SourcePlace
from tensorprog.importing.sketch import Sentence, Sketch
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Reduction,
    Variable,
    call,
    is_call,
    rebuild,
    replace_variables,
    substitute,
    sum_of,
    variables,
    walk,
)

__all__ = ["pruned", "separated", "unrolled"]

PARTS = {"lstm": ("i", "f", "g", "o"), "gru": ("r", "z", "n")}  # gates, in torch's order


def _label(place: SourcePlace, size: int, value: int) -> str:
    """What one of several parts is called."""
    names = PARTS.get(place.operation, ("q", "k", "v") if size == 3 else ())
    return names[value] if len(names) == size and value < size else str(value + 1)


# ---- parts that are defined one by one ----------------------------------------------------------------------------

FEW = 4  # parts that get a statement each


def unrolled(sketch: Sketch, result: Expr) -> None:
    """What reads a few joined parts by an index, statement by statement: the halves of rotary positions."""
    parts: dict[str, list[Sentence]] = {}
    for line in sketch.lines:
        if line.role == "joined":
            parts.setdefault(line.name, []).append(line)
    joined = {}
    for name, lines in parts.items():
        constant = [k for k in range(len(lines[0].slots)) if all(not line.slots[k].terms for line in lines)]
        if len(constant) == 1 and 1 < len(lines) <= FEW:
            joined[name] = constant[0]
    if any(variable.name in joined for variable in variables(result)):
        return
    found: list[Sentence] = []
    for line in sketch.lines:
        kept = _kept(line)
        indices = [i for i in dict.fromkeys(i for arg in line.args for i in _read_by(arg, joined)) if i not in kept]
        if not indices or line.name in joined:
            found.append(line)
            continue
        versions = [line]
        for index in indices:
            size, start = sketch.atoms[index].size, sketch.atoms[index].start
            own = [k for k, slot in enumerate(line.slots) if slot == Affine.index(index)]
            if own:
                joined[line.name] = own[0]
                versions = [
                    replace(
                        each,
                        slots=tuple(slot.at({index: Affine((), value)}) for slot in each.slots),
                        args=tuple(_at_value(sketch, arg, index, value) for arg in each.args),
                    )
                    for each in versions
                    for value in range(start, start + size)
                ]
            else:
                versions = [
                    replace(
                        each,
                        args=tuple(_summed_out(sketch, arg, index, range(start, start + size)) for arg in each.args),
                    )
                    for each in versions
                ]
        found += versions
    sketch.lines = [
        replace(line, args=tuple(_read_through(sketch, arg, line.kind == "Nonlin") for arg in line.args))
        for line in found
    ]


def _kept(line: Sentence) -> set[str]:
    """Indices that a statement reduces over or normalises along: a softmax needs all its entries."""
    nodes = (node for arg in line.args for node in walk(arg))
    return {index for node in nodes if isinstance(node, Reduction) and not node.removes for index in node.indices}


def _read_through(sketch: Sketch, expr: Expr, signs: bool) -> Expr:
    """References to joined parts that only repeat other families, or their negatives, as references to these."""

    def change(ref: Variable) -> Expr | None:
        parts = [line for line in sketch.lines if line.name == ref.name and line.role == "joined"]
        if any(all(slot.terms for slot in line.slots) for line in parts):
            return None  # a part that is several members
        for line in parts:
            if all(own.terms or own == slot for own, slot in zip(line.slots, ref.slots, strict=True)):
                arg = line.args[0]
                inner = arg.args[0] if signs and is_call(arg, "negative") else arg
                bare = all(slot.bare or not slot.terms for slot in line.slots)
                if not isinstance(inner, Variable) or not bare:
                    return None
                return substitute(
                    arg,
                    {own.bare: slot for own, slot in zip(line.slots, ref.slots, strict=True) if own.bare is not None},
                )
        return None

    return rebuild(replace_variables(expr, change), _difference)


def _difference(node: Expr) -> Expr | None:
    """a + (-b) * c as a - b * c."""
    if is_call(node, "add") and is_call(node.args[1], "multiply") and is_call(node.args[1].args[0], "negative"):
        second = node.args[1]
        return call("subtract", node.args[0], call("multiply", second.args[0].children[0], second.args[1]))
    return None


def _read_by(expr: Expr, joined: dict[str, int]) -> list[str]:
    """Indices by which families with such parts are read."""
    found: list[str] = []
    for node in walk(expr):
        if isinstance(node, Variable) and node.name in joined:
            found += node.slots[joined[node.name]].indices
    return found


def _at_value(sketch: Sketch, expr: Expr, index: str, value: int) -> Expr:
    return _without_border(sketch, substitute(expr, {index: Affine((), value)}))


def _summed_out(sketch: Sketch, expr: Expr, index: str, values: range) -> Expr:
    """Sums over an index written out."""

    def change(node: Expr) -> Expr | None:
        if not isinstance(node, Reduction) or index not in node.indices or node.reducer != "sum":
            return None
        rest = tuple(name for name in node.indices if name != index)
        inside = Reduction("sum", rest, node.arg) if rest else node.arg
        return sum_of(_at_value(sketch, inside, index, value) for value in values)

    return rebuild(expr, change)


# ---- parts that are read one by one ---------------------------------------------------------------------------------


def separated(sketch: Sketch, result: Expr) -> Expr:
    """Give families whose members are read one by one a name for each: queries, keys and values of one matrix."""
    while True:
        found = _to_separate(sketch, result)
        if found is None:
            return result
        result = _separate(sketch, result, *found)


def _references(sketch: Sketch, result: Expr) -> dict[str, list[Variable]]:
    found: dict[str, list[Variable]] = {}
    for expr in (*(arg for line in sketch.lines for arg in line.args), result):
        for node in walk(expr):
            if isinstance(node, Variable):
                found.setdefault(node.name, []).append(node)
    return found


def _to_separate(sketch: Sketch, result: Expr) -> tuple[str, int, list[int]] | None:
    count: dict[str, int] = {}
    for line in sketch.lines:
        count[line.name] = count.get(line.name, 0) + 1
    kept = {line.name: _kept(line) for line in sketch.lines}
    parts: dict[str, list[str | None]] = {}
    for line in sketch.lines:
        if count[line.name] > 1:  # where all its definitions have numbers
            before = parts.get(line.name, [""] * len(line.slots))
            parts[line.name] = [None if slot.terms else own for slot, own in zip(line.slots, before, strict=True)]
    single = {
        line.name: [None if slot.bare in kept[line.name] else slot.bare for slot in line.slots]
        for line in sketch.lines
        if count[line.name] == 1
    }
    declared: dict[str, list[str | None]] = {
        **single,
        **parts,
        **{d.name: list(d.indices) for d in sketch.declared.values() if "data" not in dict(d.options)},
    }
    for name, read in _references(sketch, result).items():
        for position, own in enumerate(declared.get(name, [])):
            values = {ref.slots[position].offset if not ref.slots[position].terms else None for ref in read}
            if own is not None and None not in values and len(values) <= 4:
                return name, position, sorted(value for value in values if value is not None)
    return None


def _separate(sketch: Sketch, result: Expr, name: str, position: int, values: Sequence[int]) -> Expr:
    names = {value: f"{name}_{value}" for value in values}

    def change(ref: Variable) -> Expr | None:
        if ref.name != name:
            return None
        return Variable(names[ref.slots[position].offset], (*ref.slots[:position], *ref.slots[position + 1 :]))

    def at(expr: Expr, index: str, value: int) -> Expr:
        return _without_border(sketch, substitute(expr, {index: Affine((), value), f"{index}_": Affine((), value)}))

    lines: list[Sentence] = []
    for line in sketch.lines:
        if line.name != name:
            lines.append(replace(line, args=tuple(replace_variables(arg, change) for arg in line.args)))
            continue
        slots = (*line.slots[:position], *line.slots[position + 1 :])
        index = line.slots[position].bare
        if index is None:
            value = line.slots[position].offset
            if value in names:
                label = _label(line.place, 0, value)
                lines.append(
                    replace(
                        line,
                        name=names[value],
                        slots=slots,
                        role=f"{line.role}:{label}",
                        args=tuple(replace_variables(arg, change) for arg in line.args),
                    )
                )
                sketch.vectors[names[value]] = sketch.vectors[name]
            continue
        size = sketch.atoms[index].size
        size = size if line.kind == "MatMul" else 0  # queries, keys and values are products
        lines += [
            replace(
                line,
                name=names[value],
                slots=slots,
                role=f"{line.role}:{_label(line.place, size, value)}",
                args=tuple(at(arg, index, value) for arg in line.args),
            )
            for value in values
        ]
        for value in values:
            sketch.vectors[names[value]] = sketch.vectors[name]
    sketch.lines = lines
    entry = sketch.declared.pop(name, None)
    for value in values if entry else ():
        assert entry is not None
        index = entry.indices[position]
        sketch.declared[names[value]] = replace(
            entry,
            name=names[value],
            indices=(*entry.indices[:position], *entry.indices[position + 1 :]),
            options=tuple((key, _looked_up(sketch, at(option, index, value))) for key, option in entry.options),
            role=_label(entry.place, sketch.atoms[index].size, value),
        )
    return replace_variables(result, change)


def _without_border(sketch: Sketch, expr: Expr) -> Expr:
    """Members of families outside of their borders are zero, and so are products with them."""
    if not any(isinstance(node, Variable) and any(not slot.terms for slot in node.slots) for node in walk(expr)):
        return expr
    inside: dict[tuple[str, int], set[int]] = {}
    for line in sketch.lines:
        for k, slot in enumerate(line.slots):
            atom = sketch.atoms[slot.bare] if slot.bare else None
            values = range(atom.start, atom.start + atom.size) if atom else (slot.offset,)
            inside.setdefault((line.name, k), set()).update(values)

    def outside(node: Expr) -> bool:
        return isinstance(node, Variable) and any(
            not slot.terms and (node.name, k) in inside and slot.offset not in inside[node.name, k]
            for k, slot in enumerate(node.slots)
        )

    def change(node: Expr) -> Expr | None:
        if outside(node):
            return Number(0)
        if not is_call(node, "multiply", "add"):
            return None
        left, right = (rebuild(arg, change) for arg in node.args)
        if node.atom == "add" and Number(0) in (left, right):
            return right if left == Number(0) else left
        return Number(0) if Number(0) in (left, right) else call(node.atom, left, right)

    return rebuild(expr, change) if any(map(outside, walk(expr))) else expr


def _looked_up(sketch: Sketch, expr: Expr) -> Expr:
    """The number of a table that is read at numbers, and the branch of a choice between numbers."""
    if isinstance(expr, Constant) and all(not slot.terms for slot in expr.slots):
        return Number(float(sketch.tables[expr.name].array[tuple(slot.offset for slot in expr.slots)]))
    if isinstance(expr, Call) and expr.atom == "where" and isinstance(expr.args[0], Call):
        left, right = expr.args[0].args
        if isinstance(left, Number | IndexValue) and left == right:
            return _looked_up(sketch, expr.args[1])
    return expr


def pruned(sketch: Sketch, result: Expr) -> None:
    """Leave out what nothing reads."""
    wanted = {variable.name for variable in variables(result)}
    names = [*wanted]
    by_name: dict[str, list[Sentence]] = {}
    for line in sketch.lines:
        by_name.setdefault(line.name, []).append(line)
    while names:
        for line in by_name.get(names.pop(), []):
            new = {variable.name for arg in line.args for variable in variables(arg)} - wanted
            wanted |= new
            names += new
    kept = [line for line in sketch.lines if line.name in wanted]
    sketch.lines = kept
    order = dict.fromkeys(variable.name for line in kept for arg in line.args for variable in variables(arg))
    order |= dict.fromkeys(variable.name for variable in variables(result))
    sketch.declared = {name: sketch.declared[name] for name in order if name in sketch.declared}
    exprs: list[Expr] = [arg for line in kept for arg in line.args]
    exprs += [value for entry in sketch.declared.values() for _, value in entry.options if isinstance(value, Expr)]
    tables = {node.name for expr in exprs for node in walk(expr) if isinstance(node, Constant)}
    sketch.tables = {name: entry for name, entry in sketch.tables.items() if name in tables}
