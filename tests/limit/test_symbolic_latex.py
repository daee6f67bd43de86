"""The derivation: well-formed, of macros that MathJax knows, compiled where LaTeX is installed; and the command."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog.jobs.cli import main
from tensorprog.limit.formulas import SymbolicLaw
from tensorprog.limit.formulas.writing import document
from tests.reading import loads

from .symbolic_programs import ATTENTION, FUNCTIONS, OTHERS, SHARED_KEYS, mlp

SHIPPED = ("attention", "attention_relu", "mlp")
TEXTS = {name: tp.load(name).to_yaml() for name in SHIPPED}
TEXTS |= {f"mlp_{name}": mlp(name) for name in FUNCTIONS} | OTHERS | {"named": ATTENTION, "shared": SHARED_KEYS}
TEXTS |= {f"deep_{name}": TEXTS["mlp"].replace("tanh", name) for name in ("relu", "erf")}

MATHJAX = set(
    re.findall(
        r"\w+",
        """
    alpha beta gamma delta varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon varphi chi psi
    omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    left right middle frac sqrt sum cdot sim quad mathbb mathbf mathit mathring operatorname begin end text min max exp
    log sin cos tanh arcsin arccos infty le ge leq geq ne neq wedge vee in land ldots
    """,
    )
)
SYMBOLS = set(":[],\\{}| _")  # one-letter macros: display, thin space, line break
ENVIRONMENTS = {"cases", "matrix"}


def well_formed(body: str) -> None:
    plain = re.sub(r"\\[{}]", "", body)
    depth = 0
    for letter in plain:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert len(re.findall(r"\\left\b", body)) == len(re.findall(r"\\right\b", body))
    assert body.count(r"\[ ") == body.count(r" \]")
    open_environments = []
    for kind, name in re.findall(r"\\(begin|end)\{([^}]*)\}", body):
        assert name in ENVIRONMENTS
        if kind == "begin":
            open_environments.append(name)
        else:
            assert open_environments.pop() == name
    assert not open_environments
    for macro in re.findall(r"\\([a-zA-Z]+|.)", body.replace("\\\n", "\\ ")):
        assert macro in MATHJAX or macro in SYMBOLS, macro
    outside = re.sub(r"\\\[.*?\\\]|\$.*?\$", "", body, flags=re.DOTALL)
    assert not re.search(r"[\\{}$&#_%^~]", outside), outside


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_the_body_is_well_formed(name: str) -> None:
    body = SymbolicLaw(loads(TEXTS[name])).latex()
    well_formed(body)
    assert body.isascii()
    assert "Definition 1 (" in body


def test_statements_show_the_parameters_of_functions() -> None:
    assert r"\operatorname{clip}{\left({u}_{i},- C,C \right)}" in SymbolicLaw(loads(TEXTS["attention"])).latex()
    leaky = SymbolicLaw(loads(TEXTS["mlp"].replace("tanh(u1[i] + b1)", "leaky_relu(u1[i] + b1, 0.3)"))).latex()
    assert r"\frac{3}{10} \right)}" in leaky


CROSSED = """
program: crossed
constants: {s: 2}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0, cov: 1}
weights: {A: 1, B: 1, V: 1, W: 1}
body:
  - x[i] = Nonlin(clip(h[i], -1, 1))
  - q[i] = MatMul(A, x[i])
  - k[i] = MatMul(B, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - r[i,j] = Dot(k[i], q[j])
  - v[i] = MatMul(V, x[i])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j] + r[i,j]) * v[j]))
outputs: [y]
"""


def test_covariances_between_families_stand_in_the_derivation() -> None:
    body = SymbolicLaw(loads(CROSSED)).latex()
    assert r"\operatorname{Cov}\left(\mathring{r}_{i,j}, \mathring{p}_{i',j'}\right)" in body
    assert r"\middle|\, \mathring{p}, \mathring{r}\right)" in body
    reused = TEXTS["deep_relu"].replace("MatMul(W3, x2[i])", "MatMul(W2, x2[i])")
    body = SymbolicLaw(loads(reused)).latex()
    assert body.count(r"\operatorname{Cov}\left(Z^{{u_{3}}_{i}}, Z^{{u") == 2  # with itself and with u2


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("name", [*SHIPPED, "named", "mlp_mix", "mlp_lopsided_clip", "layer_norm", "shared"])
def test_documents_compile(name: str, tmp_path: Path) -> None:
    (tmp_path / "limit.tex").write_text(document(SymbolicLaw(loads(TEXTS[name])).formulas, "theorem"), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "limit.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    log = (tmp_path / "limit.log").read_text(errors="replace")
    assert done.returncode == 0, log[-2000:]
    assert not [w for w in re.findall(r"Overfull .hbox \(([\d.]+)pt", log) if float(w) > 10]


HOSTILE = r"""
program: hostile
title: '\input{/etc/passwd} $x$ 100% & more_#1 ^ ~ { } \write18{ls} "quoted" – Müller ∮'
reference: '\end{document} \catcode`\%=0'
constants: {sigma_w_2: 1.5, rho: 0.5, 'größe': 0.5, end: 2, s: 2}
indices: {i: s}
initial:
  h_input[i]: {mean: 0, cov: rho**abs(i - i_)}
weights: {W_begin: sigma_w_2}
body:
  - u_1[i] = MatMul(W_begin, h_input[i])
  - input_x[i] = Nonlin(leaky_relu(größe * u_1[i], 0.3) * end)
outputs: [input_x]
"""


def test_free_text_is_no_command(tmp_path: Path) -> None:
    law = SymbolicLaw(loads(HOSTILE))
    well_formed(law.latex())
    text = document(law.formulas, law.grade)
    head = text.split(r"\section*{")[1].split("\n\n")[0]
    for command in (r"\input", r"\write", r"\end{document}", r"\catcode", "$x$"):
        assert command not in head
    assert r"\textbackslash{}input\{/etc/passwd\} \$x\$ 100\%" in head
    if shutil.which("pdflatex"):
        (tmp_path / "limit.tex").write_text(text, encoding="utf-8")
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "limit.tex"]
        assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0


def test_what_is_assumed_is_said() -> None:
    law = SymbolicLaw(loads(TEXTS["mlp"]), assumed=("assumed: x_1 is pseudo-Lipschitz",))
    assert repr(law).endswith("; assumed: x_1 is pseudo-Lipschitz)")
    for text in (law.latex(), document(law.formulas, law.grade, law.assumed)):
        assert r"assumed: x\_1 is pseudo-Lipschitz." in text


def test_a_numeric_law_derives_the_same() -> None:
    made = tp.load("attention")
    assert made.limit().latex() == made.limit(symbolic=True).latex()


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(main, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_prints_formulas() -> None:
    text = invoke("limit", "attention", "--symbolic")
    assert "cov(x[i], x[i_]) =\n    2*C**2" in text
    assert "   where a = a_ and i = i_ and j = j_" in text
    assert invoke("limit", "attention", "--symbolic", "--quiet") == ""
    assert invoke("limit", "mlp", "--latex").startswith(r"\documentclass{article}")


def test_the_command_gives_formulas_as_strings() -> None:
    found = json.loads(invoke("limit", "attention", "--symbolic", "--format", "json"))
    assert found["limit"]["symbols"] == ["C"]
    assert found["limit"]["formulas"]["o"]["cov"][0]["where"] == ["a = a_", "j = j_"]
    assert found["limit"]["formulas"]["q"]["mean"] == [{"where": [], "formula": "0"}]
    well_formed(found["limit"]["latex"])
    outside = CliRunner().invoke(main, ["limit", "attention_tied", "--symbolic"])
    assert outside.exit_code == 1
