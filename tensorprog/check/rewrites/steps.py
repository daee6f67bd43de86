"""The exact rewrites, one function each: it edits the program wherever it can, and yields what it did.

    constants expressions with the numbers of the constants put in, where that takes something away
    move      W (sum_j a_j v_j) = sum_j a_j W v_j             a_j scalars; products of such sums are multiplied out
    expand    (c u + d v).k = c (u.k) + d (v.k)               c, d scalars
    split     W z is W f where z is defined as f, W h where as h
    turn      W^T of a weight that is used only so, declared as a weight of its own
    inline    a Nonlin of Nonlins written as one Nonlin
    unused    statements that no output depends on, dropped

Source    theory.md sections 2 and 4; Sakai et al. 2025 (arXiv 2506.00846), App. A.1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tensorprog.check.rewrites.constants import Folding
from tensorprog.check.rewrites.editor import Editor
from tensorprog.check.rewrites.linear import Stuck, mapped
from tensorprog.check.rewrites.split import parts
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import Call, Expr, Number, Variable, variables, walk
from tensorprog.language.ir import Dot, MatMul, Netsor, Nonlin, Statement, Weight
from tensorprog.language.substitute import MAX_NODES, bound_indices, replace_variables

__all__ = ["Rewrite", "combined", "constants", "expand", "inline", "move", "restricted", "turn", "used"]

MAX_TOTAL = 80_000  # nodes of all expressions together, as far as writing out makes them: a program is to fit a file


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

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def constants(editor: Editor, symbols: Collection[str] = ()) -> Iterator[Rewrite]:
    """Put in the numbers of constants, but for those in `symbols`, where they take something away.

    Raises    Stuck if a recurrence of vectors would no longer be one
    """
    folding = Folding(editor.netsor, symbols)
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, Nonlin):
            folding.used = {}
            expr, family = folding.folded(statement.expr), editor.netsor.families[statement.target.name]
            vector = editor.vector(expr) or not variables(expr)
            if expr is not statement.expr and vector == (family.kind == "vector"):
                width = statement.width if editor.vector(expr) else family.width
                reasons = " and ".join(f"{name} = {value:g}" for name, value in folding.used.items())
                reasons = reasons or "0 times a finite number is 0"
                yield _changed(editor, "constants", position, expr, width, f", as {reasons}")
    for name, ratio, text in editor.netsor.widths:
        over = [p for p, s in enumerate(editor.netsor.body) if editor.netsor.families[s.target.name].width == name]
        if ratio == 1 and over:
            editor.equal.add(name)
            line = editor.netsor.body[over[0]].span.line
            yield Rewrite("constants", editor.origin[over[0]], line, f"the width {name} = {text} is n")
    if editor.changed and not _alike(editor):
        raise Stuck


def _alike(editor: Editor) -> bool:
    """Whether every name stays what it is: a vector of its width, or a scalar."""
    try:
        after = editor.result()[0].families
    except ProgramError:
        return False
    before = editor.netsor.families
    return all((f.kind, editor.width(f.width)) == (after[name].kind, after[name].width) for name, f in before.items())


def turn(editor: Editor) -> Iterator[Rewrite]:
    """Declare the transposes of weights that are used in no other way as the weights."""
    by_weight: dict[str, dict[int, MatMul]] = {weight.name: {} for weight in editor.netsor.weights}
    for position, statement in enumerate(editor.netsor.body):
        if isinstance(statement, MatMul):
            by_weight[statement.weight.name][position] = statement
    for weight in editor.netsor.weights:
        uses = by_weight[weight.name]
        finite = {width in dict(editor.netsor.fixed_widths) for width in weight.shape}
        if uses and len(finite) == 1 and all(s.transposed for s in uses.values()):
            name = editor.name(f"{weight.name}_T")
            editor.weights.append(_transposed(editor.netsor, weight, name))
            editor.replaced.add(weight.name)
            for position, s in uses.items():
                editor.changed[position] = replace(s, weight=replace(s.weight, name=name), transposed=False)
            first = min(uses)
            text = f"the transpose of {weight.name} is declared as the weight {name}"
            yield Rewrite("turn", editor.origin[first], uses[first].span.line, text)


def _transposed(netsor: Netsor, weight: Weight, name: str) -> Weight:
    """The weight with the law of a transpose: entries N(0, v / columns) = N(0, v' / rows)."""
    rows, columns = (netsor.width_of(width, 1) for width in weight.shape)
    ratio = rows / columns
    factor = Call("divide", (Number(ratio.numerator), Number(ratio.denominator)))
    variance = weight.variance if ratio == 1 else Call("multiply", (weight.variance, factor))
    return replace(weight, name=name, variance=variance, shape=weight.shape[::-1])


def move(editor: Editor) -> Iterator[Rewrite]:
    """Take MatMuls behind scores inside the combinations of vectors that they read.

    Raises    Stuck if there is one for which that will never be possible
    """
    for position, definers in editor.structure.behind_scores.items():
        if _waits(editor, definers):
            continue
        moved = _through(editor, position, "vector", editor.scored)
        if moved is not None:
            yield _changed(editor, "move", position, moved)
        elif split := _split(editor, position, "vector", editor.scored):
            yield split
        elif not _may_become_a_combination(editor, definers):
            yield from _unfold(editor, definers)


def _waits(editor: Editor, definers: Sequence[int]) -> bool:
    """Whether combinations read what is to be moved first: taken one by one, k weights in a row make k new MatMuls."""
    nonlins = [(d, s) for d in definers if isinstance(s := editor.netsor.body[d], Nonlin)]
    read = {p for d, s in nonlins for v in s.inputs for p in editor.structure.definers(d, v)}
    return not read.isdisjoint(editor.structure.behind_scores)


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
        expr = _written_out(editor, position, nonlin, known)
        if expr == nonlin.expr:
            raise Stuck
        yield _changed(editor, "inline", position, expr)


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

    mapped(expr, leaf, editor.vector, inside)
    return found


def expand(editor: Editor) -> Iterator[Rewrite]:
    """Write scores of sums as sums of scores, one operand at a time."""
    for position in editor.structure.scores:
        expanded = (_through(editor, position, side, editor.vector) for side in ("left", "right"))
        expr = next((expr for expr in expanded if expr is not None), None)
        if expr is not None:
            yield _changed(editor, "expand", position, expr)
        elif split := _split(editor, position, "left", editor.vector) or _split(
            editor, position, "right", editor.vector
        ):
            yield split


def _through(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Expr | None:
    """A MatMul or Dot taken inside the Nonlin that makes its operand `side`; None if that is not linear."""
    statement = editor.netsor.body[position]
    assert isinstance(statement, MatMul | Dot)
    target, operand = statement.target, getattr(statement, side)
    nonlin = editor.definition(position, operand)
    if nonlin is None or not editor.vector(nonlin.expr):
        return None
    if side == "vector":
        (definer,) = editor.structure.definers(position, operand)
        nonlin = replace(nonlin, expr=_combined(editor, definer, nonlin, inside))
    width = editor.netsor.families[operand.name].width

    def image(vector: Expr) -> Variable:
        change: dict[str, Any] = {side: editor.reference(vector, position, width, operand.name)}
        return _image(editor, position, replace(statement, **change))

    try:  # before anything is added
        if combined(editor, nonlin.expr, inside) is None:
            return None
        expr = editor.instance(nonlin, operand, {name for slot in target.slots for name in slot.indices})
    except Stuck:
        return None
    return mapped(expr, image, editor.vector, inside, editor.apart)


def _combined(editor: Editor, position: int, nonlin: Nonlin, inside: Callable[[Expr], bool]) -> Expr:
    """A combination with the combinations that it reads written out: else k weights in a row pass k times through k."""
    def linear(reference: Expr) -> bool:
        read = editor.definition(position, reference) if isinstance(reference, Variable) and inside(reference) else None
        return read is not None and combined(editor, read.expr, inside) is not None

    try:
        wanted = [v for v in _leaves(editor, nonlin.expr, inside) if isinstance(v, Variable) and linear(v)]
    except Stuck:
        return nonlin.expr
    return _written_out(editor, position, nonlin, wanted)


def combined(editor: Editor, expr: Expr, inside: Callable[[Expr], bool]) -> list[Variable] | None:
    """The vectors inside which a linear map of an expression goes on; None if it is no combination of vectors read."""
    try:
        found = [leaf for leaf in _leaves(editor, expr, inside) if inside(leaf)]
    except Stuck:
        return None
    read = [leaf for leaf in found if isinstance(leaf, Variable)]
    return read if len(read) == len(found) else None


def _image(editor: Editor, position: int, new: MatMul | Dot) -> Variable:
    """The left side of a family that is a part of a statement, made once; its name is made of names as written."""
    reads = (new.weight, new.vector) if isinstance(new, MatMul) else new.inputs
    name = "_".join((editor.origin[position].partition("[")[0], *(v.name for v in new.inputs)))

    def make() -> Statement:
        return replace(new, target=editor.family(name, *reads))

    return editor.once(("image", replace(new, target=Variable(""))), position, make)


def _split(editor: Editor, position: int, side: str, inside: Callable[[Expr], bool]) -> Rewrite | None:
    """A MatMul or Dot split by the definitions of its operand `side`; None if these are not linear, or only one."""
    body = editor.netsor.body
    old, split = body[position], parts(editor, position, side)
    if not split:
        return None
    definers = editor.structure.definers(position, getattr(old, side))
    try:
        for nonlin in (s for s in map(body.__getitem__, definers) if isinstance(s, Nonlin)):
            _leaves(editor, nonlin.expr, inside)
    except Stuck:
        return None
    made = [Nonlin(part.target, _image(editor, position, part), "", old.span) for part in split]
    *others, editor.changed[position] = made
    for statement in others:
        editor.add(position, statement)
    text = f"{old} becomes {' and '.join(map(str, made))}"
    return Rewrite("split", editor.origin[position], old.span.line, text)


def _changed(
    editor: Editor, kind: str, position: int, expr: Expr, width: str = "", reason: str = ""
) -> Rewrite:
    """Put a Nonlin in the place of a statement."""
    old = editor.netsor.body[position]
    new = Nonlin(old.target, expr, width, old.span)
    editor.changed[position] = new
    return Rewrite(kind, editor.origin[position], old.span.line, f"{old} becomes {new}{reason}")


def inline(editor: Editor) -> Iterator[Rewrite]:
    """Write out the Nonlins that Nonlins read, but for those of recurrences; once each, what is read first."""
    loops = editor.structure.loops
    for position in (position for group in editor.structure.groups for position in group):
        statement = editor.netsor.body[position]
        if isinstance(statement, Nonlin):
            definers = {v: editor.structure.definers(position, v) for v in variables(statement.expr)}
            read = [v for v, found in definers.items() if not any(loops(d, d) for d in found)]
            expr = _written_out(editor, position, statement, read)
            if expr != statement.expr:
                yield _changed(editor, "inline", position, expr)


def _written_out(editor: Editor, position: int, statement: Nonlin, wanted: Collection[Variable]) -> Expr:
    """The expression of a Nonlin with the Nonlins that it reads written out, unless it would grow too long."""
    nodes = list(walk(statement.expr))
    taken = bound_indices(statement.expr) | {name for slot in statement.target.slots for name in slot.indices}
    read = {v: nonlin for v in wanted if (nonlin := _inlinable(editor, position, v))}
    added = sum(len(list(walk(read[node].expr))) for node in nodes if isinstance(node, Variable) and node in read)
    if len(nodes) + added > min(MAX_NODES, MAX_TOTAL // len(editor.netsor.body)):
        return statement.expr

    def instance(reference: Variable) -> Expr | None:
        try:
            return editor.instance(read[reference], reference, taken) if reference in read else None
        except Stuck:
            return None

    return replace_variables(statement.expr, instance)


def _inlinable(editor: Editor, position: int, reference: Variable) -> Nonlin | None:
    """The Nonlin behind a reference, if its expression alone shows whether it is a vector."""
    nonlin = editor.definition(position, reference)
    is_vector = editor.netsor.families[reference.name].kind == "vector"
    if nonlin is None or editor.vector(nonlin.expr) != is_vector:
        return None
    (definer,) = editor.structure.definers(position, reference)
    latest = editor.changed.get(definer, nonlin)
    assert isinstance(latest, Nonlin)
    return latest


def used(netsor: Netsor, more: Collection[str] = ()) -> list[int]:
    """Statements of the families that the outputs, and `more`, depend on, each family with all its definitions."""
    names: set[str] = set()
    waiting = [*netsor.outputs, *more]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += [read.name for p in netsor.families[name].statements for read in netsor.body[p].inputs]
    return [position for position, statement in enumerate(netsor.body) if statement.target.name in names]


def restricted(netsor: Netsor, positions: Sequence[int]) -> Netsor:
    """Some of the statements, with the initial vectors, weights and fixed widths that they read."""
    body = tuple(netsor.body[position] for position in positions)
    read = {reference.name for s in body for reference in (s.target, *s.inputs)}
    read |= {s.weight.name for s in body if isinstance(s, MatMul)} | set(netsor.outputs)
    initial = tuple(v for v in netsor.initial if v.name in read)
    weights = tuple(w for w in netsor.weights if w.name in read)
    widths = {netsor.families[name].width for name in read}.union(*(w.shape for w in weights))
    fixed = tuple(entry for entry in netsor.fixed_widths if entry[0] in widths)
    # what these name may be gone
    run = tuple(option for option in netsor.run if option[0] not in ("averages", "keep"))
    return replace(netsor, body=body, initial=initial, weights=weights, fixed_widths=fixed, run=run)
