"""The outputs of a program, and warnings about what leads to none of them."""

from __future__ import annotations

from collections.abc import Mapping

from tensorprog.language.errors import Problem, Span, did_you_mean
from tensorprog.language.expr import Constant, Variable, walk
from tensorprog.language.ir import Family, MatMul
from tensorprog.language.validity.checker import Checker, statement_parts


def check_outputs(checker: Checker, families: Mapping[str, Family]) -> None:
    """Outputs exist, and each is named once."""
    if "outputs" in checker.unknown:  # they could not be read
        return
    known = list(dict.fromkeys(s.target.name for s in checker.netsor.body))
    if not checker.netsor.outputs:
        checker.error("the program has no outputs", Span(), "outputs: [name, ...]")
    for name in checker.netsor.outputs:
        checker.used.add(name)
        if name in checker.unknown:
            continue
        if name not in families or families[name].kind == "weight":
            checker.error(f"the output {name} is not defined", Span(), did_you_mean(name, known))
    if len(set(checker.netsor.outputs)) != len(checker.netsor.outputs):
        checker.error("an output is named twice", Span())


def note_unused(checker: Checker) -> None:
    """Warn about declarations and statements that nothing uses."""
    for statement in checker.netsor.body:
        checker.used |= {reference.name for reference in statement.inputs}
        if isinstance(statement, MatMul):
            checker.used.add(statement.weight.name)
        for part in statement_parts(statement):
            for node in walk(part):
                if isinstance(node, Constant | Variable):
                    checker.used.update(*(_words(slot.text) for slot in node.slots))
    for text in (*(index.text for index in checker.netsor.indices), *(text for _, _, text in checker.netsor.widths),
                 *(text for _, text in checker.netsor.written)):
        checker.used |= _words(text)
    for kind, entries in (("constant", checker.netsor.constants), ("index", checker.netsor.indices),
                          ("initial vector", checker.netsor.initial), ("weight", checker.netsor.weights)):
        for entry in entries:
            if entry.name not in checker.used:
                checker.warnings.append(Problem(f"the {kind} {entry.name} is not used", entry.span))
    for statement in checker.netsor.body:
        if statement.target.name not in checker.used:
            checker.warnings.append(Problem(f"{statement.target.name} is neither used nor an output", statement.span))


def _words(text: str) -> set[str]:
    return set("".join(c if c.isalnum() or c == "_" else " " for c in text).split())
