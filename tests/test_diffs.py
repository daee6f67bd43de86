"""The diffs of the development page: each adds something in one file, with a line in a table, and it works."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "development.md"
MOST = 40  # lines that a diff may add

# what is run with each diff applied, by the heading below which it stands
USES = {
    "Adding a nonlinearity": """
import numpy as np, tensorprog as tp
from scipy.integrate import quad
P = tp.Program("p")
W, V = P.weights("W", "V")
h = P.initial("h", mean=0, cov=2)
P.outputs(P.matmul("y", V, P.nonlin("x", tp.softsign(P.matmul("u", W, h)))))
assert P.check().grade == "theorem", P.check()
exact = quad(lambda g: (g / (1 + abs(g))) ** 2 * np.exp(-g * g / 4) / np.sqrt(4 * np.pi), -30, 30, points=[0])[0]
value, error = P.limit().var("y", with_error=True)
assert abs(value - exact) <= error + 1e-10 and error < 1e-6, (value, exact, error)
drawn = P.run(width=512, samples=4000, seed=1)["y"]
assert abs(drawn.var() / exact - 1) < 0.15
""",
    "Adding an exact rewrite": """
import numpy as np, tensorprog as tp
P = tp.Program("p")
W, V = P.weights("W", "V")
h = P.initial("h", mean=0, cov=1)
u, v = P.matmul("u", W, h), P.matmul("v", W, h)
P.outputs(P.matmul("y", V, P.nonlin("x", tp.tanh(u) * v)))
Q = P.rewritten()
assert str(Q).count("MatMul") == 2 and str(P).count("MatMul") == 3, Q
assert [step.kind for step in P.check().rewrites] == ["same"]
first, second = (program.run(6, 40000, seed=k)["y"] for k, program in enumerate((P, Q)))
se = np.sqrt(((first**2).var() + (second**2).var()) / 40000)
assert abs((first**2).mean() - (second**2).mean()) < 5 * se
np.testing.assert_allclose(P.limit().var("y"), Q.limit().var("y"), rtol=1e-9)
""",
    "Adding a clause": """
import tensorprog as tp
for twice in (False, True):
    P = tp.Program("p")
    (W,) = P.weights("W")
    u = P.matmul("u", W, P.initial("h", mean=0, cov=1))
    P.outputs(P.nonlin("x", tp.tanh(u)), P.nonlin("y", tp.tanh(u) if twice else tp.erf(u)))
    report = P.check()
    assert report.grade == "theorem"
    said = [finding.message for finding in report.findings if finding.rule == "equal outputs"]
    assert said == (["y is x, defined a second time"] if twice else [])
""",
    "Adding a Gaussian method": """
import numpy as np
from scipy.integrate import quad
from tensorprog.gaussian import FunctionTerm, RealFunction, cross
from tensorprog.gaussian.ladder import LADDER
assert LADDER[-6].__name__ == "one_affine_factor", LADDER
elu = RealFunction(lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), np.zeros(1))
line = RealFunction(lambda x: 0.5 - 2 * x, np.zeros(0), terms=(FunctionTerm(0.5, 0), FunctionTerm(-2.0, 1)))
mu, var = np.array([0.3, -0.7]), np.array([1.5, 0.8])
for first, second in ((elu, line), (line, elu)):
    m, v = (mu, var) if first is elu else (mu[::-1], var[::-1])
    found = cross(first, second, *m, *v, 0.6)
    def integrand(x):
        y = mu[1] + 0.6 / var[0] * (x - mu[0])
        return float(elu.call(np.array([x]))[0]) * (0.5 - 2 * y) * np.exp(-((x - mu[0]) ** 2) / (2 * var[0]))
    exact = quad(integrand, -15, 15, points=[0], epsabs=1e-13)[0] / np.sqrt(2 * np.pi * var[0])
    assert abs(found.value - exact) <= found.error + 1e-11 and found.error < 1e-12, (found, exact)
""",
    "Adding an output format": """
import tensorprog as tp
from tensorprog.blocks import Grid
from tensorprog.blocks.markdown import RULES, to_markdown
from tensorprog.blocks.text import RULES as known
assert set(RULES) == set(known)
P = tp.Program("p")
W, V = P.weights("W", "V")
h = P.initial("h", mean=0, cov=2)
P.outputs(P.matmul("y", V, P.nonlin("x", tp.tanh(P.matmul("u", W, h)))))
for result in (P, P.limit(), P.limit(symbolic=True), P.plan(64), tp.compare(P.run(8, 200, seed=1), P.limit())):
    text = to_markdown(result.blocks())
    for table in (block for block in result.blocks() if isinstance(block, Grid)):
        assert "| " + " | ".join(table.header) + " |" in text
        assert all(" | ".join(row) in text for row in table.rows)
assert "| --- |" in text or "| ---: |" in text
""",
}


@dataclass(frozen=True)
class Diff:
    """A diff of the page: for each file that it changes the hunks, as lines before and after."""

    heading: str
    files: dict[str, list[tuple[str, str]]]
    added: int


def diffs() -> list[Diff]:
    """All of the page, with the heading above each."""
    found = []
    heading = ""
    page = PAGE.read_text(encoding="utf-8")
    for title, body in re.findall(r"^##+ ([^\n]+)$|^```diff\n(.*?)^```$", page, re.M | re.S):
        heading = title or heading
        if body:
            files = {}
            for file, changes in re.findall(r"^--- .+\n\+\+\+ b/(.+)\n((?:(?!--- ).*\n)+)", body, re.M):
                hunks = [hunk.split("\n")[1:] for hunk in re.split(r"^@@", changes, flags=re.M)[1:]]
                files[file] = [(_side(hunk, " -"), _side(hunk, " +")) for hunk in hunks]
            found.append(Diff(heading, files, len(re.findall(r"^\+(?!\+\+ )", body, re.M))))
    return found


def _side(hunk: list[str], kinds: str) -> str:
    return "\n".join(line[1:] for line in hunk if line[:1] in kinds and line)


def _is_table(hunks: list[tuple[str, str]]) -> bool:
    """Whether a file receives no more than an import and a name."""
    return all(after.count("\n") - before.count("\n") <= 1 and "def " not in after for before, after in hunks)


def _apply(diff: Diff, folder: Path) -> None:
    for name, hunks in diff.files.items():
        path = folder / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for before, after in hunks:
            assert text.count(before) == 1 if text else not before, f"not once in {name}:\n{before}"
            text = text.replace(before, after) if text else after
        path.write_text(text, encoding="utf-8")


DIFFS = diffs()


@pytest.mark.turns(3)
@pytest.mark.parametrize("diff", DIFFS, ids=[diff.heading for diff in DIFFS])
def test_a_diff_of_one_file_adds_what_it_says(diff: Diff, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tensorprog", tmp_path / "tensorprog", ignore=shutil.ignore_patterns("__pycache__"))
    _apply(diff, tmp_path)
    assert len(diff.files) == 1 or (len(diff.files) == 2 and any(map(_is_table, diff.files.values())))
    assert diff.added <= MOST
    command = [sys.executable, "-c", USES[diff.heading]]
    before = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert before.returncode, "it works without the diff"
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_there_is_a_use_for_each_diff() -> None:
    assert [diff.heading for diff in DIFFS] == [*USES]
