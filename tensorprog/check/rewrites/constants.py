"""`constants`: the numbers of constants put into expressions, where that takes something away.

Exact, because an expression is replaced only by one that is equal at every value of its variables (see `folding`), and
a width that is declared to be n is called n.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tensorprog.check.rewrites.tools.editor import Editor, Rewrite
from tensorprog.check.rewrites.tools.folding import Folding
from tensorprog.check.rewrites.tools.linear import Stuck
from tensorprog.language.errors import ProgramError
from tensorprog.language.expr import variables
from tensorprog.language.ir import Nonlin

__all__ = ["constants"]


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
                yield editor.becomes("constants", position, expr, width, f", as {reasons}")
    for name, ratio, text in editor.netsor.widths:
        over = [p for p, s in enumerate(editor.netsor.body) if editor.netsor.families[s.target.name].width == name]
        if ratio == 1 and over:
            editor.equal.add(name)
            line = editor.netsor.body[over[0]].span.line
            yield Rewrite("constants", editor.origin[over[0]], line, f"the width {name} = {text} is n")
    if editor.changed and not _alike(editor):
        raise Stuck
    editor.prune = bool(editor.changed or editor.equal)


def _alike(editor: Editor) -> bool:
    """Whether every name stays what it is: a vector of its width, or a scalar."""
    try:
        after = editor.result()[0].families
    except ProgramError:
        return False
    before = editor.netsor.families
    return all((f.kind, editor.width(f.width)) == (after[name].kind, after[name].width) for name, f in before.items())
