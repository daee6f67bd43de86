"""Each rewrite is exact at finite n: one network of the program as written, and the same one rewritten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from networks import check_same
from rewrite_programs import REWRITTEN

from tensorprog.evaluate import slots_of
from tensorprog.expr import Variable
from tensorprog.ir import Netsor
from tensorprog.normalize import Rewrite, Rewritten, normalize, written_out
from tensorprog.normalize.editor import Editor
from tensorprog.normalize.steps import biases, expand, inline, move, turn

STEPS = {step.__name__: step for step in (turn, biases, expand, move, inline)}
CASES = {case.name: case for case in REWRITTEN}


def one(step: Callable[[Editor], Iterator[Rewrite]], netsor: Netsor) -> Rewritten:
    """One step alone, once."""
    editor = Editor(netsor, [str(s.target) for s in netsor.body])
    done = tuple(step(editor))
    changed, origin = editor.result()
    return Rewritten(changed, done, origin, editor.initials)


@pytest.mark.parametrize("name", CASES)
def test_the_whole_pipeline(name: str) -> None:
    netsor = CASES[name].load()
    definitions = normalize(netsor).netsor
    for rewritten in (normalize(netsor), normalize(netsor, expanded=False), written_out(netsor)):
        check_same(rewritten, netsor, definitions)
        written = {str(s.target) for s in netsor.body}
        written |= {str(Variable(v.name, slots_of(v.indices))) for v in netsor.initial}
        assert set(rewritten.origin) <= written
    assert {step.kind for step in normalize(netsor).steps} == set(CASES[name].kinds.split())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("step", STEPS)
def test_one_step_alone(step: str, name: str) -> None:
    netsor = CASES[name].load()
    rewritten = one(STEPS[step], netsor)
    check_same(rewritten, netsor)
    assert bool(rewritten.steps) or rewritten.netsor == netsor
