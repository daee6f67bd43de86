"""Programs brought under the theorem by rewrites that are exact at every finite n.

    constants   expressions with the numbers of the constants put in, where that takes something away
    scores      biases: initial vectors in scores as MatMuls of the constant vector 1; ratios: scores of which only
                ratios are read, in which their scale cancels, as averages
    linear      expand: (c u + d v).k = c (u.k) + d (v.k); move: W (sum_j a_j v_j) = sum_j a_j W v_j behind scores;
                across: u.(W^T k) = (W u).k where scores depend on W as well; inline: a Nonlin of Nonlins as one
    editor      the program as it is edited

Each rewrite is a function of an `Editor`: it edits the program wherever it can, and yields what it did.  Statements
that no output needs any more go.  `normalize(netsor)` rewrites only what the theorem asks for, all but `inline`;
`written_out(netsor)` goes on to the theorem's form, h = phi(g^1, ..., g^m; p_1, ..., p_r), as far as
there are no recurrences.

Source    the theory page, "Exact rewrites"; Sakai et al. 2025 (arXiv 2506.00846), Theorem 1 and App. A.1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from tensorprog.check.graph import Structure
from tensorprog.check.rewrites.constants import constants
from tensorprog.check.rewrites.editor import Editor, Rewrite, Stuck
from tensorprog.check.rewrites.linear import across, expand, inline, move
from tensorprog.check.rewrites.scores import biases, ratios
from tensorprog.check.signs import beside_transposes
from tensorprog.language.ir import MatMul, Netsor, Nonlin
from tensorprog.language.schedule import upstream
from tensorprog.language.validity import MAX_STATEMENTS

__all__ = ["Rewrite", "Rewritten", "normalize", "written_out"]

ExactRewrite = Callable[[Editor], Iterator[Rewrite]]
AT_SCORES: tuple[ExactRewrite, ...] = (biases, expand)  # so that operands of scores are MatMul outputs
BEHIND_SCORES: tuple[ExactRewrite, ...] = (*AT_SCORES, move)  # if that leaves one layer of scores

MAX_GROWTH = 40  # a program with so many statements for each of its own is not rewritten further
MAX_ROUNDS = 100  # of rewrites of what rewrites made: recurrences in scores are followed so far


@dataclass(frozen=True)
class Rewritten:
    """A program equal to another at every n, with the steps between.

    `origin`: what in the program as written each statement comes from, by its left side.  `initials`: weights that
    stand for initial families, by name.  `complete`: whether scores were expanded as far as they can be; if not, the
    program grew too long.
    """

    netsor: Netsor
    steps: tuple[Rewrite, ...] = ()
    origin: tuple[str, ...] = ()
    initials: Mapping[str, str] = field(default_factory=dict)
    complete: bool = True


def normalize(netsor: Netsor, expanded: bool = True, symbols: Collection[str] = ()) -> Rewritten:
    """Rewrite a program towards one layer of scores between MatMul outputs; every name that is left keeps its meaning.

    MatMuls are moved only if that removes every weight behind a score: else the layers are taken one after another.
    Without `expanded` the operands of scores stay as they are.  Constants in `symbols` may have any value.
    """
    found = _chosen(Rewritten(netsor, origin=tuple(str(s.target) for s in netsor.body)), symbols)
    while True:
        done = _turned(_brought(found, expanded)) if expanded else _brought(found, expanded)
        found = _chosen(done, symbols)
        if found is done:
            return found


def _brought(found: Rewritten, expanded: bool) -> Rewritten:
    """The program with the rewrites of MatMuls and scores."""
    if not found.netsor.scores:
        return found
    if expanded:
        found = _run(found, (biases,)) or found
        found = _run(found, AT_SCORES) or found
        found = _run(found, (ratios,)) or found
    if not Structure.of(found.netsor).behind_scores:
        return found
    moved = _run(found, BEHIND_SCORES)
    if moved is None or not moved.complete:
        return found
    after = Structure.of(moved.netsor)
    functions = {o.definer for o in after.operands if isinstance(o.statement, Nonlin)}
    if after.behind_scores or functions & after.score_dependent:  # there is more than one layer of scores all the same
        return found
    return moved if expanded else _run(found, (move,)) or found


def _turned(found: Rewritten) -> Rewritten:
    """The program with weights moved across scores, if transposes beside them are covered then and not before."""
    moved = _run(found, (*AT_SCORES, across)) if beside_transposes(found.netsor) else None
    return found if moved is None or beside_transposes(moved.netsor) else moved


def _chosen(first: Rewritten, symbols: Collection[str]) -> Rewritten:
    """The program with constants put in, without what that puts out of use; the same object if nothing changes."""
    found = _run(first, (partial(constants, symbols=symbols),)) or first
    idle = {s.target.name for s in first.netsor.body} - upstream(first.netsor, first.netsor.outputs)
    return first if found is first else _without_unused(found, idle)


def _without_unused(found: Rewritten, more: Collection[str] = ()) -> Rewritten:
    """The program without statements on which neither the outputs nor `more` depend, and without what these read."""
    netsor, used = found.netsor, upstream(found.netsor, [*found.netsor.outputs, *more])
    kept = [(s, origin) for s, origin in zip(netsor.body, found.origin, strict=True) if s.target.name in used]
    if len(kept) == len(netsor.body):
        return found
    body, origin = zip(*kept, strict=True)
    read = used | {s.weight.name for s in body if isinstance(s, MatMul)}
    weights = tuple(w for w in netsor.weights if w.name in read)
    widths = {netsor.families[name].width for name in used}.union(*(w.shape for w in weights))
    made = replace(
        netsor,
        body=body,
        initial=tuple(v for v in netsor.initial if v.name in read),
        weights=weights,
        fixed_widths=tuple(entry for entry in netsor.fixed_widths if entry[0] in widths),
        train=(),
        run=tuple(option for option in netsor.run if option[0] not in ("averages", "keep")),  # of names
    )
    return replace(found, netsor=made, origin=origin)


def written_out(netsor: Netsor) -> Rewritten:
    """The program in the theorem's form: rewritten, Nonlins written out, unused statements dropped."""
    found = normalize(netsor)
    return _without_unused(_run(found, (inline,)) or found)


def _run(first: Rewritten, rewrites: tuple[ExactRewrite, ...]) -> Rewritten | None:
    """Apply rewrites until nothing changes, or the program grows too long; None if one is stuck."""
    found, most = first, min(MAX_STATEMENTS, 200 + MAX_GROWTH * len(first.netsor.body))
    for _ in range(MAX_ROUNDS):
        editor = Editor(found.netsor, found.origin)
        try:
            done = [done for rewrite in rewrites for done in rewrite(editor)]
        except Stuck:
            return None
        if not done:
            return found
        if editor.size > most:
            return replace(found, complete=False)
        netsor, origin = editor.result()
        found = Rewritten(netsor, (*found.steps, *done), origin, {**found.initials, **editor.initials}, found.complete)
    return replace(found, complete=False)
