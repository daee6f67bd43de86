"""Scores of sums as sums of scores, weights moved across and inside sums, Nonlins of Nonlins as one: exact rewrites.

    expand    (c u + d v).k = c (u.k) + d (v.k)          c, d scalars, where an operand needs it
    across    u.(W^T k) = (W u).k                        where scores depend on W as well
    move      W (sum_j a_j v_j) = sum_j a_j W v_j        a_j scalars, of scores too: weights behind scores
    inline    phi(psi(g)) is one function of g

Exact, because an inner product and a matrix are linear, and a Nonlin acts on each coordinate; products of sums are
multiplied out.  Moving is of use only where it goes on until no weight is behind a score.  A score whose operands are
functions of MatMul outputs that have a limit as they are, with averages among their coefficients, stays: written as a
sum, its parts would only have to be added again.

Source    the theory page, "Exact rewrites"; Sakai et al. 2025 (arXiv 2506.00846), App. A.1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.check.signs import coordinatewise
from tensorprog.language.expr import (
    MAX_NODES,
    Call,
    Expr,
    Number,
    Variable,
    bound_indices,
    is_call,
    linear_arguments,
    product_of,
    reindexed,
    variables,
    with_children,
)
from tensorprog.language.ir import Dot, MatMul, Nonlin


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    families = editor.netsor.families
    read = [
        (o.dot, v) for o in editor.structure.operands if isinstance(o.statement, Nonlin) for v in o.statement.inputs
    ]
    made = {o.dot for o in editor.structure.operands if isinstance(o.statement, Nonlin)}
    averaged = {dot for dot, v in read if families[v.name].kind == "scalar"}
    kept = averaged & coordinatewise(editor.structure).keys() if averaged else set[int]()
    for position in sorted(made - kept):
        expanded = (_taken_inside(editor, position, side, editor.vector) for side in ("left", "right"))
        expr = next((expr for expr in expanded if expr is not None), None)
        if expr is not None:
            yield editor.becomes("expand", position, expr)


def across(editor: Editor) -> Iterator[Rewrite]:
    """Move weights from one operand of a score to the other, if scores depend on the weight both ways.

    Afterwards they do in the way in which the program multiplies by it first.
    """
    structure, netsor = editor.structure, editor.netsor
    before = structure.ancestors(*structure.scores)
    first: dict[str, bool] = {}
    for position in sorted(before):
        if isinstance(product := netsor.body[position], MatMul):
            first.setdefault(product.weight.name, product.transposed)
    turned = [p for p in before if isinstance(s := netsor.body[p], MatMul) and s.transposed != first[s.weight.name]]
    for o in structure.operands if turned else ():
        alone = structure.definers(o.dot, o.reference) == (o.definer,) and not editor.beyond(o.reference)
        if o.definer not in turned or not alone or o.dot in editor.changed:
            continue
        dot, product = netsor.body[o.dot], structure.product(o.definer)
        assert isinstance(dot, Dot)
        other = dot.right if o.side == "left" else dot.left
        made = structure.definers(o.dot, other)
        if not {*made, *structure.ancestors(*made)}.isdisjoint(structure.uses[product.weight.name]):
            continue  # W u would use W twice
        pairs = zip(product.target.slots, o.reference.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare}
        weight, vector = reindexed(product.weight, values), reindexed(product.vector, values)
        origin = editor.origin[o.dot].partition("[")[0]
        turn = replace(product, target=Variable(""), weight=weight, vector=other, transposed=first[weight.name])
        name = f"{origin}_{weight.name}_{other.name}"
        image = editor.image(turn, o.dot, name, weight, other, origin=editor.origin[o.definer])
        sides = (vector, image) if o.side == "left" else (image, vector)
        moved = replace(dot, target=Variable(""), left=sides[0], right=sides[1])
        score = editor.image(moved, o.dot, f"{origin}_{'_'.join(v.name for v in sides)}", *sides)
        ratio = netsor.width_of(netsor.families[vector.name].width, 1) / netsor.width_of(
            netsor.families[other.name].width, 1
        )
        scale = Call("sqrt", (Call("divide", (Number(ratio.numerator), Number(ratio.denominator))),))
        yield editor.becomes("across", o.dot, score if ratio == 1 else Call("multiply", (scale, score)))


def move(editor: Editor) -> Iterator[Rewrite]:
    """Take MatMuls behind scores inside the combinations of vectors that they read.

    Raises    Stuck if there is one for which that will never be possible
    """
    for position, definers in editor.structure.behind_scores.items():
        moved = _taken_inside(editor, position, "vector", editor.scored)
        if moved is not None:
            yield editor.becomes("move", position, moved)
        elif not _may_become_a_combination(editor, definers):
            yield from _unfold(editor, definers)


def inline(editor: Editor) -> Iterator[Rewrite]:
    """Write out the Nonlins that Nonlins read, but for those of recurrences; once each, what is read first."""
    loops = editor.structure.loops
    for position in (position for group in editor.structure.groups for position in group):
        statement = editor.netsor.body[position]
        if isinstance(statement, Nonlin):
            definers = {v: editor.structure.definers(position, v) for v in variables(statement.expr)}
            read = [v for v, found in definers.items() if not any(loops(d, d) for d in found)]
            expr = editor.written_out(position, statement, read)
            if expr != statement.expr:
                yield editor.becomes("inline", position, expr)


def _may_become_a_combination(editor: Editor, definers: Sequence[int]) -> bool:
    """Whether a vector is made by a single MatMul: a later round may move that one."""
    return len(definers) == 1 and isinstance(editor.netsor.body[definers[0]], MatMul)


def _unfold(editor: Editor, definers: Sequence[int]) -> Iterator[Rewrite]:
    """Write out the score-dependent vectors beside vector factors in a Nonlin, so that the factors reach what is below.

    Raises    Stuck if that is not possible
    """
    position, nonlin = definers[0], editor.netsor.body[definers[0]]
    if len(definers) > 1 or not isinstance(nonlin, Nonlin):
        raise Stuck
    scored = _leaves(editor, nonlin.expr, editor.scored)
    beside = {v for leaf in scored if not isinstance(leaf, Variable) for v in variables(leaf) if editor.scored(v)}
    known = {v for v in beside if not _may_become_a_combination(editor, editor.structure.definers(position, v))}
    if not beside:
        raise Stuck
    if known and position not in editor.changed:
        expr = editor.written_out(position, nonlin, known)
        if expr == nonlin.expr:
            raise Stuck
        yield editor.becomes("inline", position, expr)


# -- a MatMul or a Dot taken inside the combination of vectors that it reads -------------------------------------------


def _mapped(
    expr: Expr,
    leaf: Callable[[Expr], Expr],
    vector: Callable[[Expr], bool],
    inner: Callable[[Expr], bool],
    apart: Callable[[Expr, Collection[str]], Expr] = lambda factor, taken: factor,
) -> Expr:
    """Apply a linear map to an expression that is linear in its vectors, with scalars as coefficients.

    `leaf` gives the image of a vector, `vector` says whether a vector occurs in an expression, and `inner` whether the
    map is to be taken inside it; where it is not, a vector may be any function of vectors and is one leaf.  Products of
    vectors are multiplied out, L((sum_j c_j v_j) (sum_k d_k w_k)) = sum_j c_j sum_k d_k L(v_j w_k), where `apart`
    writes what comes to stand inside other sums with bound indices that differ from theirs.

    Raises    Stuck if the expression is not linear in the vectors that the map is taken to
    """

    def go(node: Expr, leaf: Callable[[Expr], Expr]) -> Expr:
        if not vector(node):  # c times the constant vector 1
            return node if node == Number(0) else Call("multiply", (node, leaf(Number(1))))
        if isinstance(node, Variable) or not inner(node):
            return leaf(node)
        arguments = linear_arguments(node, [not vector(child) for child in node.children])
        if arguments:
            return with_children(node, *(go(c, leaf) if k in arguments else c for k, c in enumerate(node.children)))
        if not is_call(node, "multiply"):
            raise Stuck
        first, second = node.args[0], apart(node.args[1], bound_indices(node.args[0]))
        return go(first, lambda v: go(second, lambda w: leaf(product_of((v, w)))))

    return go(expr, leaf)


def _leaves(editor: Editor, expr: Expr, inside: Callable[[Expr], bool]) -> list[Expr]:
    """The vectors to which a linear map of an expression would be applied.

    Raises    Stuck if it is not linear, or if they are too many: products of k sums have 2^k terms
    """
    found: list[Expr] = []

    def leaf(vector: Expr) -> Expr:
        found.append(vector)
        if len(found) > MAX_NODES:
            raise Stuck
        return vector

    _mapped(expr, leaf, editor.vector, inside)
    return found


def _taken_inside(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Expr | None:
    """A MatMul or Dot taken inside the Nonlin that makes its operand `side`; None if that is not linear.

    What it makes of each vector is a family of its own, made once, with a name made of names as written.
    """
    statement = editor.netsor.body[position]
    assert isinstance(statement, MatMul | Dot)
    operand: Variable = getattr(statement, side)
    nonlin = editor.structure.definition(position, operand)
    if nonlin is None or not editor.vector(nonlin.expr):
        return None
    width, origin = editor.netsor.families[operand.name].width, editor.origin[position].partition("[")[0]

    def image(vector: Expr) -> Expr:
        change: dict[str, Any] = {side: editor.reference(vector, position, width, operand.name)}
        new = replace(statement, target=Variable(""), **change)
        reads = (new.weight, new.vector) if isinstance(new, MatMul) else new.inputs
        return editor.image(new, position, "_".join((origin, *(v.name for v in new.inputs))), *reads)

    try:  # before anything is added
        if any(inside(leaf) and not isinstance(leaf, Variable) for leaf in _leaves(editor, nonlin.expr, inside)):
            return None
        expr = editor.instance(nonlin, operand, {name for slot in statement.target.slots for name in slot.indices})
    except Stuck:
        return None
    return _mapped(expr, image, editor.vector, inside, editor.apart)
