"""The exact rewrites, one function each: it edits the program wherever it can, and yields what it did.

    move      W (sum_j a_j v_j) = sum_j a_j (W v_j)           a_j scalars
    expand    (c u + d v).k = c (u.k) + d (v.k)               c, d scalars
    turn      W^T of a weight that is used only so, declared as a weight of its own
    biases    b_i = sum_k L_ik (W_k 1), L L^T = Cov(b)        in law, the W_k dedicated weights
    inline    a Nonlin of Nonlins written as one Nonlin
    unused    statements that no output depends on, dropped

Source    theory.md sections 2 and 4; Sakai et al. 2025 (arXiv 2506.00846), App. A.1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from tensorprog.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    Variable,
    rebuild,
    variables,
    walk,
)
from tensorprog.initials import initial_law
from tensorprog.ir import ConstantDef, Dot, Initial, MatMul, Netsor, Nonlin, Table, Weight
from tensorprog.normalize.editor import Editor
from tensorprog.normalize.linear import Stuck, mapped

__all__ = ["Rewrite", "biases", "expand", "inline", "move", "turn", "without_unused"]

MAX_FACTOR = 1_000_000  # entries of the factor of a covariance
MAX_NODES = 400  # of an expression with Nonlins written out


@dataclass(frozen=True)
class Rewrite:
    """One exact rewrite; `where` and `line` speak of the program as it was written."""

    kind: str
    where: str
    line: int
    text: str
    standing: str = "exact at every n"

    def __str__(self) -> str:
        return f"{self.kind}: {self.text} ({self.standing})"


def turn(editor: Editor) -> Iterator[Rewrite]:
    """Declare the transposes of weights that are used in no other way as the weights."""
    for weight in editor.netsor.weights:
        uses = {
            position: s
            for position, s in enumerate(editor.netsor.body)
            if isinstance(s, MatMul) and s.weight.name == weight.name
        }
        rows, columns = (editor.netsor.width_of(width, 1) for width in weight.shape)
        finite = {width in dict(editor.netsor.fixed_widths) for width in weight.shape}
        if uses and len(finite) == 1 and all(s.transposed for s in uses.values()):
            # entries N(0, v / columns) = N(0, v' / rows)
            ratio = Call("divide", (Number(rows.numerator * columns.denominator),
                                    Number(rows.denominator * columns.numerator)))
            variance = weight.variance if rows == columns else Call("multiply", (weight.variance, ratio))
            name = editor.name(f"{weight.name}_T")
            editor.weights.append(replace(weight, name=name, variance=variance, shape=weight.shape[::-1]))
            first = min(uses)
            for position, s in uses.items():
                editor.changed[position] = replace(s, weight=replace(s.weight, name=name), transposed=False)
            yield Rewrite("turn", editor.origin[first], uses[first].span.line,
                          f"the transpose of {weight.name} is declared as the weight {name}")


def move(editor: Editor) -> Iterator[Rewrite]:
    """Take MatMuls inside combinations of vectors whose coefficients depend on scores."""
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, MatMul) and editor.scored(statement.vector):
            _, columns = editor.netsor.weight[statement.weight.name].shape

            def product(source: Variable, of: MatMul = statement) -> MatMul:
                return replace(of, vector=source)

            moved = _through(editor, position, statement.vector, columns, product, editor.scored)
            if moved is not None:
                yield _changed(editor, "move", position, Nonlin(statement.target, moved, "", statement.span))


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    for position in editor.structure.scores:
        dot = editor.netsor.body[position]
        assert isinstance(dot, Dot)
        for side in ("left", "right"):
            operand: Variable = getattr(dot, side)

            def score(source: Variable, of: Dot = dot, side: str = side) -> Dot:
                return replace(of, left=source) if side == "left" else replace(of, right=source)

            width = editor.netsor.families[operand.name].width
            expanded = _through(editor, position, operand, width, score, editor.vector)
            if expanded is not None:
                yield _changed(editor, "expand", position, Nonlin(dot.target, expanded, "", dot.span))
                break


def _through(
    editor: Editor, position: int, operand: Variable, width: str, image: Callable[[Variable], MatMul | Dot],
    inside: Callable[[Expr], bool],
) -> Expr | None:
    """A linear map of one operand, taken inside the Nonlin that makes the operand; None if that is not linear."""
    nonlin = editor.definition(position, operand)
    if nonlin is None or not editor.vector(nonlin.expr):
        return None
    target = editor.netsor.body[position].target

    def leaf(vector: Expr) -> Expr:
        source = editor.reference(vector, position, width)
        new = image(source)
        key = ("image", replace(new, target=Variable("")))
        reads = (new.weight, new.vector) if isinstance(new, MatMul) else (new.left, new.right)
        name = f"{target.name}_{source.name}"
        made = editor.once(key)
        if made is None:
            made = editor.add(position, key, replace(new, target=editor.family(name, *reads)))
        return made

    try:
        expr = editor.written_out(nonlin, operand, [name for slot in target.slots for name in slot.indices])
        mapped(expr, lambda vector: vector, editor.vector, inside)  # is it linear?  Before anything is added
        return mapped(expr, leaf, editor.vector, inside)
    except Stuck:
        return None


def _changed(editor: Editor, kind: str, position: int, new: Nonlin) -> Rewrite:
    old = editor.netsor.body[position]
    editor.changed[position] = new
    return Rewrite(kind, editor.origin[position], old.span.line, f"{old} becomes {new}")


def biases(editor: Editor) -> Iterator[Rewrite]:
    """Write initial vectors of mean zero that are score operands as MatMuls of the constant vector 1."""
    operands = {o.reference.name for o in editor.structure.operands if o.definer is None}
    for initial in editor.netsor.initial:
        if initial.name in operands:
            made = _as_products(editor, initial)
            if made is not None:
                editor.replaced.add(initial.name)
                where = str(made.target)
                yield Rewrite("biases", where, initial.span.line, f"the initial vectors {where} become "
                              f"{made}", "equal in law at every n")


def _as_products(editor: Editor, initial: Initial) -> MatMul | Nonlin | None:
    law = initial_law(editor.netsor, initial)
    if np.any(law.mean) or law.blocks.size > MAX_FACTOR:
        return None
    slots = tuple(Affine(((name, 1),)) for name in initial.indices)
    target = Variable(initial.name, slots)
    weight = editor.name(f"W_{initial.name}")
    shape = (initial.width, initial.width)
    ones = editor.ones(-1, initial.width, str(target))
    editor.initials[weight] = initial.name
    if not law.joint and isinstance(initial.cov, Expr):
        editor.weights.append(Weight(weight, initial.indices, initial.cov, shape, initial.span))
        made: MatMul | Nonlin = MatMul(target, Variable(weight, slots), ones, initial.span)
    else:
        spans = {name: editor.netsor.index[name] for name in law.joint}
        copies = {name: editor.copy_index(name) for name in law.joint}
        sizes = [spans[name].stop - spans[name].start for name in law.joint]
        factor = Table.of(law.factor.reshape(*law.blocks.shape[: len(law.independent)], *sizes, *sizes))
        own = (*law.independent, *law.joint)
        constant = editor.name(f"L_{initial.name}")
        editor.constants.append(ConstantDef(constant, factor, (*own, *copies.values()), initial.span))
        inner = tuple(Affine(((copies.get(name, name), 1),)) for name in own)
        editor.weights.append(Weight(weight, tuple(copies.get(n, n) for n in own), Number(1), shape, initial.span))
        source = Variable(editor.name(f"{initial.name}_x"), inner)
        editor.add(-1, ("bias", source), MatMul(source, Variable(weight, inner), ones, initial.span), str(target))
        coefficient = Constant(constant, (*(Affine(((name, 1),)) for name in own), *inner[len(law.independent):]))
        product = Call("multiply", (coefficient, source))
        made = Nonlin(target, Reduction("sum", tuple(copies.values()), product), "", initial.span)
    editor.add(-1, ("bias", target), made, str(target))
    return made


def inline(editor: Editor) -> Iterator[Rewrite]:
    """Write out the Nonlins that Nonlins read."""
    for position, statement in enumerate(editor.netsor.body):
        if not isinstance(statement, Nonlin):
            continue
        inside = [name for node in walk(statement.expr) if isinstance(node, Reduction) for name in node.indices]
        taken = [*inside, *(name for slot in statement.target.slots for name in slot.indices)]

        def definition(node: Expr, position: int = position, taken: list[str] = taken) -> Expr | None:
            nonlin = editor.definition(position, node) if isinstance(node, Variable) else None
            if nonlin is None or not variables(nonlin.expr):
                return None
            try:
                return editor.written_out(nonlin, node, taken)  # type: ignore[arg-type]  # a Variable
            except Stuck:
                return None

        expr = rebuild(statement.expr, definition)
        if expr != statement.expr and sum(1 for _ in walk(expr)) <= MAX_NODES:
            yield _changed(editor, "inline", position, replace(statement, expr=expr))


def without_unused(netsor: Netsor, relevant: frozenset[int]) -> Netsor:
    """The statements named, with the declarations that they read."""
    body = tuple(statement for position, statement in enumerate(netsor.body) if position in relevant)
    parts: list[Expr] = []
    for statement in body:
        parts += [statement.target, *statement.inputs]
        parts += [statement.expr] if isinstance(statement, Nonlin) else []
        parts += [statement.weight] if isinstance(statement, MatMul) else []
    families = {node.name for part in parts for node in walk(part) if isinstance(node, Variable)}
    initial = tuple(v for v in netsor.initial if v.name in families)
    weights = tuple(w for w in netsor.weights if w.name in families)
    return replace(netsor, body=body, initial=initial, weights=weights)
