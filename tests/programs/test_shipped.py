"""Every shipped program: its grade and why, its data, its place on disk, and one law at finite width by all methods."""

from __future__ import annotations

import runpy
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tensorprog as tp
from tensorprog import shipped
from tensorprog.finite.run import run
from tensorprog.jobs.cli import main
from tensorprog.shipped import shipped_programs
from tests.finite.test_agreement import QUICK, Drawn, compare, moments, scales
from tests.reading import load

PROGRAMS = shipped_programs()
FOLDER = Path(__file__).resolve().parents[2] / "programs"


@dataclass(frozen=True)
class Expected:
    """What the check must say."""

    grade: str
    claims: frozenset[str] = frozenset()
    rule: str = ""  # the clause that is broken, or that the remark is about
    consequence: str = ""


THEOREM = Expected("theorem")
REMARK = Expected("remark", rule="operand inputs bounded")
AVERAGES = Expected("extension", frozenset({"averages"}))

IMPORTED = frozenset({"averages", "iterated layers", "several widths"})  # norms, weights behind scores, heads of n/H


TURNED = Expected("extension", frozenset({"transposes"}))
SEVERAL = Expected("extension", frozenset({"averages", "transposes", "several widths"}))


def outside(rule: str, consequence: str = "not covered") -> Expected:
    return Expected("outside", rule=rule, consequence=consequence)


EXPECTED = {
    "mlp": THEOREM,
    "mlp_bias": THEOREM,
    "resnet": THEOREM,
    "cnn": THEOREM,
    "cnn_pool": THEOREM,
    "rnn": THEOREM,
    "rnn_avgpool": THEOREM,
    "lstm": THEOREM,
    "gru": THEOREM,
    "layernorm_mlp": AVERAGES,
    "batchnorm_mlp": THEOREM,
    "attention": THEOREM,
    "attention_correlated": THEOREM,
    "attention_relu": REMARK,
    "attention_gelu": REMARK,
    "attention_softplus": REMARK,
    "attention_natural": THEOREM,
    "attention_masked": THEOREM,
    "attention_relpos": THEOREM,
    "attention_rotary": Expected("extension", frozenset({"coordinatewise operands", "coordinate vectors"})),
    "cross_attention": THEOREM,
    "attention_mqa": THEOREM,
    "attention_gqa": THEOREM,
    "attention_lowrank": Expected("extension", frozenset({"several widths"})),
    "attention_fixed_head": Expected("extension", frozenset({"fixed width"})),
    "attention_1n": AVERAGES,
    "attention_regimes": THEOREM,
    "attention_infinite_heads": THEOREM,
    "transformer_yang": AVERAGES,
    "deep_attention": Expected("extension", frozenset({"iterated layers"})),
    "llama_block": Expected("extension", IMPORTED | {"coordinatewise operands", "coordinate vectors"}),
    "gpt2": Expected("extension", IMPORTED),
    "vit": Expected("extension", IMPORTED),
    "mlp_mixer": Expected("extension", IMPORTED),
    "mixture_of_experts": Expected("extension", frozenset({"averages", "coordinatewise operands"})),
    "mamba_like": Expected("extension", frozenset({"coordinatewise operands"})),
    "whisper_like": Expected("extension", frozenset({"averages", "iterated layers"})),
    "amp_lasso": SEVERAL,
    "power_iteration": SEVERAL,
    "autoencoder_tied": TURNED,
    "hopfield": TURNED,
    "tied_embedding": Expected("extension", frozenset({"iterated layers"})),
    "mup_mlp": AVERAGES,
    "sp_mlp": Expected("extension", frozenset({"coordinatewise operands"})),
    "attention_tied": outside("weights of one score differ", "diverges"),
    "attention_same_bias": outside("scales", "diverges"),
    "attention_reused_weight": outside("dedicated weights"),
    "attention_shared_layers": outside("one layer of scores"),
    "attention_sign": outside("nonlinearities"),
}


def test_every_program_has_an_expected_grade() -> None:
    assert set(EXPECTED) == set(PROGRAMS)


@pytest.mark.parametrize("name", EXPECTED)
def test_grade_claims_and_reason(name: str) -> None:
    expected = EXPECTED[name]
    report = tp.load(name).check()
    assert report.grade == expected.grade, str(report)
    assert {claim.name for claim in report.claims} == expected.claims
    assert report.consequence == expected.consequence
    verdicts = {"remark"} if expected.grade == "remark" else {"fails", "unknown"}
    blamed = {finding.rule for finding in report.findings if finding.verdict in verdicts}
    assert blamed == ({expected.rule} if expected.rule else set()), str(report)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_says_what_it_is_and_how_to_run_it(name: str) -> None:
    netsor = load(PROGRAMS[name])
    assert netsor.name == name
    assert 10 < len(netsor.title) <= 43  # `tp list` fits into 80 columns
    assert any(str(year) in netsor.reference for year in range(1990, 2026)), netsor.reference
    assert {"width", "samples"} <= set(dict(netsor.run))
    assert (EXPECTED[name].grade == "outside") == netsor.title.startswith("Failure - ")


def test_the_grade_of_extensions_is_explained() -> None:
    standing = {claim.name: claim.standing for name in EXPECTED for claim in tp.load(name).check().claims}
    assert standing == {
        "averages": "proved",
        "transposes": "proved",
        "several widths": "proved",
        "fixed width": "exact",
        "iterated layers": "conjecture",
        "coordinatewise operands": "proved",
        "coordinate vectors": "proved",
    }


def test_the_list_has_one_line_for_each_program() -> None:
    lines = CliRunner().invoke(main, ["list"]).output.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [[name, EXPECTED[name].grade] for name in PROGRAMS]
    assert max(map(len, lines)) <= 80


def test_every_program_has_its_paragraph() -> None:
    page = (FOLDER.parent / "docs" / "programs.md").read_text(encoding="utf-8")
    for name, expected in EXPECTED.items():
        assert f"- **{name}** ({expected.grade}" in page


# -- data


def test_data_files_are_those_of_their_script() -> None:
    script = runpy.run_path(str(FOLDER / "data" / "make.py"))
    assert {path.stem for path in (FOLDER / "data").glob("*.npy")} == set(script["SENTENCES"])
    for name in script["SENTENCES"]:
        np.testing.assert_array_equal(np.load(FOLDER / "data" / f"{name}.npy"), script["vectors"](name))


def test_a_copy_reads_the_data_beside_it(tmp_path: Path) -> None:
    """Own vectors go where the copy of a program looks for them, in any number of dimensions."""
    shutil.copy(PROGRAMS["rnn"], tmp_path)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "tokens.npy", np.ones((16, 300)))
    drawn = tp.load(tmp_path / "rnn.yaml").run(8, 10, seed=0)["f"]
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 7], atol=1e-9)  # equal first tokens, equal states


def test_programs_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert tp.load("lstm").run(4, 2)["y"].shape == (2, 16)


# -- finite width

# widths at which every part of a program is there; heads of fixed width are as wide as they can be tested
SMALL = {"llama_block": {"G": 1}, "attention_fixed_head": {"D": 3}, "attention_infinite_heads": {"H": 4}}
WIDTH = 4
BOTH_WAYS = ("amp_lasso", "autoencoder_tied", "hopfield", "power_iteration")  # a weight that needs all coordinates


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_methods_agree_in_law(name: str) -> None:
    netsor = load(PROGRAMS[name], SMALL.get(name, {}))
    reference = Drawn.of(run(netsor, WIDTH, QUICK, method="dense", seed=1))
    scale = scales(reference)
    found = moments(reference, scale)
    for method in ("lazy",) if name in BOTH_WAYS else ("lazy", "collapsed"):
        drawn = Drawn.of(run(netsor, WIDTH, QUICK, method=method, seed=2))
        comparison = compare(reference, found, scale, drawn)
        assert comparison.agrees, (method, comparison)


@pytest.mark.parametrize("name", EXPECTED)
def test_every_program_runs(name: str) -> None:
    program = tp.load(name, **SMALL.get(name, {}))
    drawn = program.run(8, 20, seed=0)
    assert all(np.all(np.isfinite(drawn[output])) for output in drawn.outputs)


def test_the_stored_grades_are_those_of_the_check() -> None:
    assert shipped.GRADES.read_text(encoding="utf-8") == shipped.text()
    assert {name: grade for name, grade, _ in shipped.judged()} == {name: EXPECTED[name].grade for name in PROGRAMS}
