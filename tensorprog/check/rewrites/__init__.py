"""Programs brought under the theorem by rewrites that are exact at every finite n.

`normalize(netsor)` rewrites only what the theorem asks for: terms that the numbers of constants take away, weights used
only transposed, MatMuls of score-dependent combinations, scores of sums, initial vectors in scores.
`written_out(netsor)` goes on to the theorem's form,
h = phi(g^1, ..., g^m; p_1, ..., p_r), as far as there are no recurrences.

Source    theory.md section 4; Sakai et al. 2025 (arXiv 2506.00846), Theorem 1 and App. A.1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tensorprog.check.graph import Structure
from tensorprog.check.rewrites.biases import biases
from tensorprog.check.rewrites.combinations import linear_given_scores
from tensorprog.check.rewrites.editor import Editor
from tensorprog.check.rewrites.linear import Stuck
from tensorprog.check.rewrites.steps import (
    Rewrite,
    constants,
    expand,
    inline,
    move,
    restricted,
    turn,
    used,
)
from tensorprog.language.ir import Netsor
from tensorprog.language.validity import MAX_STATEMENTS

__all__ = ["Rewrite", "Rewritten", "linear_given_scores", "normalize", "written_out"]

MAX_GROWTH = 40  # a program with so many statements for each of its own is not rewritten further
MAX_ROUNDS = 100  # of rewrites of what rewrites made: recurrences in scores are followed so far
Step = Callable[[Editor], Iterator[Rewrite]]


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
        done = _brought(found, expanded)
        found = _chosen(done, symbols)
        if found is done:
            return found


def _brought(found: Rewritten, expanded: bool) -> Rewritten:
    """The program with the rewrites of MatMuls and scores."""
    found = _run(found, (turn,)) or found
    if not found.netsor.scores:
        return found
    kinds = (biases, expand) if expanded else ()
    found = _run(found, kinds) or found
    if not Structure(found.netsor).behind_scores:
        return found
    moved = _run(found, (*kinds, move))
    return found if moved is None or not moved.complete or Structure(moved.netsor).behind_scores else moved


def written_out(netsor: Netsor) -> Rewritten:
    """The program in the theorem's form: rewritten, Nonlins written out, unused statements dropped."""
    found = normalize(netsor)
    found = _run(found, (inline,)) or found
    found = _kept(found, used(found.netsor))
    return _run(found, (turn,)) or found  # what was dropped may have been all other use of a matrix


def _chosen(first: Rewritten, symbols: Collection[str]) -> Rewritten:
    """The program with constants put in, without what that puts out of use; the same object if nothing changes."""
    found = _run(first, (partial(constants, symbols=symbols),)) or first
    if found is first:
        return first
    relevant = Structure(first.netsor).relevant
    idle = {s.target.name for position, s in enumerate(first.netsor.body) if position not in relevant}
    return _kept(found, used(found.netsor, idle))


def _kept(found: Rewritten, kept: Sequence[int]) -> Rewritten:
    """Some statements of a rewritten program; the others are dropped."""
    dropped = [
        Rewrite("unused", found.origin[position], s.span.line, f"{s.target} is dropped")
        for position, s in enumerate(found.netsor.body)
        if position not in set(kept)
    ]
    origin = tuple(found.origin[position] for position in kept)
    return replace(found, netsor=restricted(found.netsor, kept), steps=(*found.steps, *dropped), origin=origin)


def _run(first: Rewritten, kinds: tuple[Step, ...]) -> Rewritten | None:
    """Apply rewrites until nothing changes, or the program grows too long; None if one is stuck."""
    found, most = first, min(MAX_STATEMENTS, 200 + MAX_GROWTH * len(first.netsor.body))
    for _ in range(MAX_ROUNDS):
        editor = Editor(found.netsor, found.origin)
        try:
            done = [rewrite for kind in kinds for rewrite in kind(editor)]
        except Stuck:
            return None
        if not done:
            return found
        if editor.size > most:
            return replace(found, complete=False)
        netsor, origin = editor.result()
        found = Rewritten(netsor, (*found.steps, *done), origin, {**found.initials, **editor.initials}, found.complete)
    return replace(found, complete=False)
