"""Progress in notebooks: cells are executed in a kernel, and their outputs are read."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from tensorprog.show.notebook import in_notebook, watched

SETUP = """
import time
import IPython.core.interactiveshell
import tensorprog as tp
from tensorprog.show import notebook
from tensorprog.show.notebook import watched
notebook.PATIENCE, notebook.PAUSE = 0.0, 0.05
"""
LONG = """
said = []
state = notebook._Line._state
notebook._Line._state = lambda line: (said.append(state(line)), said[-1])[1]
with watched("things") as tell:
    with watched("parts") as inner:
        while len(said) < 2:
            time.sleep(0.05)
    tell(1, 4)
    seen = len(said)
    while len(said) < seen + 2:
        time.sleep(0.05)
assert inner is None
print(said[0]["text/plain"], said[-1]["text/plain"], said[-1]["text/html"], sep="\\n")
"""
LAW = """
P = tp.load("attention", s=2, H=1)
said.clear()
law = P.limit()
said.clear()
with law.budget.within():
    while not said:
        time.sleep(0.05)
print(said[-1]["text/plain"])
"""
RUN = """
notebook.PATIENCE = 600
P.run(width=64, samples=4)
notebook.PATIENCE = 0.0
asked = []
P.run(width=64, samples=4, progress=lambda done, total: asked.append((done, total)))
print(len(asked) > 0)
"""
BROKEN = """
notebook.PATIENCE = 0.0
said.clear()
try:
    with watched("what fails"):
        while not said:
            time.sleep(0.05)
        raise ValueError
except ValueError:
    pass
notebook.PATIENCE = 600
with watched("again") as tell:
    print(tell is not None)
"""


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    """The outputs of the cells after the first."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    sources = [SETUP, LONG, LAW, RUN, BROKEN]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
    return [cell["outputs"] for cell in book["cells"][1:]]


def printed(outputs: list[Any]) -> str:
    return "".join(output["text"] for output in outputs if output["output_type"] == "stream")


def test_a_line_says_what_is_done_and_how_long_it_takes(cells: list[Any]) -> None:
    first, last, html = printed(cells[0]).splitlines()
    assert re.fullmatch(r"things: [\d.]+ s so far", first)
    assert re.fullmatch(r"things: 25%, about [\d.]+ s left", last)
    assert html.startswith('<progress value="0.250" max="1"') and html.endswith(last)
    assert re.fullmatch(r"the infinite-width limit: [\d.]+ s so far", printed(cells[1]).strip())


@pytest.mark.parametrize("cell", [0, 1, 3])
def test_nothing_of_it_is_left_in_the_cell(cells: list[Any], cell: int) -> None:
    shown = [output for output in cells[cell] if output["output_type"] != "stream"]
    assert {output["output_type"] for output in shown} == {"display_data"}
    assert all(output["data"] == {} for output in shown)  # nothing that is drawn, not even an empty line


def test_what_is_quick_or_watched_by_the_user_shows_no_line(cells: list[Any]) -> None:
    assert printed(cells[2]).strip() == "True"
    assert {output["output_type"] for output in cells[2]} == {"stream"}


def test_after_an_error_the_next_line_is_shown(cells: list[Any]) -> None:
    assert printed(cells[3]).strip() == "True"


def test_outside_notebooks_nothing_is_shown_or_imported() -> None:
    assert not in_notebook()
    with watched("things") as tell:
        assert tell is None
    script = "import sys, tensorprog as tp; tp.load('mlp').run(width=4, samples=2); assert 'IPython' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
