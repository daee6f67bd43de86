"""Exit codes, messages and output of every command, without a traceback anywhere."""

import html
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tensorprog.jobs.cli import main
from tensorprog.jobs.cli import run as run_command
from tensorprog.language.errors import how_to_install

SMALL = """\
program: small
title: One layer <b>& a score
constants: {s: 2, rho: 0.5}
indices: {i: s, j: s}
initial:
  h[i]: {mean: 0, cov: rho**abs(i - i_)}
weights: {Q: 1, K: 1, V: 1}
body:
  - x[i] = Nonlin(tanh(h[i]))
  - q[i] = MatMul(Q, x[i])
  - k[i] = MatMul(K, x[i])
  - p[i,j] = Dot(q[i], k[j])
  - v[i] = MatMul(V, x[i])
  - y[i] = Nonlin(sum[j](softmax[j](p[i,j]) * v[j]))
outputs: [y]
run: {width: [8, 32], samples: 400}
"""
TIED = SMALL.replace("small", "tied").replace("MatMul(K, x[i])", "MatMul(Q, x[i])").replace(" K: 1,", "")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "tied.yaml").write_text(TIED)
    wrong = SMALL.replace("q[i], k[j]", "q[i], kk[j]").replace("Q: 1,", "Q: 1, Q: 2,")
    (tmp_path / "broken.yaml").write_text(wrong)
    (tmp_path / "binary.yaml").write_bytes(b"\x00\xff\xfe" * 40)
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "file").write_text("x")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def tp(folder, capsys):
    """Call the command line; gives (exit code, stdout, stderr)."""

    def call(*args, command=main, name="tp"):
        with pytest.raises(SystemExit) as caught:
            command.main(args=[str(arg) for arg in args], prog_name=name)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return caught.value.code, out, err

    return call


NINES = "9" * 5000
HOSTILE = [
    ["run", "nosuch"],
    ["run", "no/such.yaml"],
    ["check", "atention"],
    ["limit", "."],
    ["check", "\0"],
    ["check", ""],
    ["check", "broken.yaml"],
    ["check", "binary.yaml"],
    ["check", "empty.yaml"],
    ["check", "x" * 5000],
    *(
        ["check", "small.yaml", "--set", text]
        for text in (
            "s",
            "=3",
            "z=3",
            "s=two",
            "s=1e12",
            "s=nan",
            "s=__import__('os').getcwd()",
            "s=0",
            "s=9**9**9",
            "s=",
        )
    ),
    *(["run", "small.yaml", "--width", text] for text in ("0", "-4", "abc", "16,,64", NINES, "²", "")),
    *(["run", "small.yaml", "--samples", text] for text in ("1", "many", "1e400", "2.5", "-inf", NINES, "")),
    *(
        ["run", "small.yaml", *options]
        for options in (
            ["--threads", "0"],
            ["--seed", "-1"],
            ["--seed", "1e30"],
            ["--method", "fast"],
            ["--format", "xml"],
            ["--out", "file"],
            ["--out", "file/inside"],
            ["--nonsense"],
            ["extra"],
        )
    ),
    ["run"],
    ["frobnicate"],
    ["small.yaml"],
    ["list", "--set", "a=1"],
    ["check", "small.yaml", "--require", "proof"],
    ["limit", "small.yaml", "--accuracy", "-1"],
    ["limit", "small.yaml", "--accuracy", "nan"],
    ["sample", "small.yaml"],
    ["sample", "small.yaml", "--size", "0", "--out", "a.npz"],
    ["sample", "small.yaml", "--size", "10", "--out", "nowhere/a.npz"],
    ["sample", "small.yaml", "--out", "."],
    ["graph", "small.yaml", "-o", "a.pdf"],
    ["graph", "small.yaml", "-o", "nowhere/a.svg"],
]


@pytest.mark.parametrize("args", HOSTILE, ids=lambda args: " ".join(args)[:60])
def test_bad_input_is_one_message_on_stderr_and_exit_code_2(tp, folder, args):
    code, out, err = tp(*args)
    assert code == 2, err
    assert out == ""
    assert err.strip()
    assert len(err) < 6000
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["sample", "small.yaml", "--out"], "requires an argument"),
        (["check", "--nonsense"], "tp check --help"),
        (["run", "small.yaml", "--seed", str(2**64)], f"at most {2**63 - 1}"),
        (["run", "small.yaml", "--seed", "-1"], "at least 0"),
        (["sample", "small.yaml", "--out", "a.txt"], "--out a.npz"),
        (["sample", "small.yaml", "--out", ""], "the path is empty"),
        (["graph", "small.yaml", "-o", ""], "is empty"),
        (["check", "broken.yaml"], "line 7, column 17"),
        (["run", "atention"], "did you mean attention?"),
        (["chekc", "small.yaml"], "did you mean check?"),
        (["small.yaml"], "tp run small.yaml"),
        (["check", "small.yaml", "--set", "ro=1"], "rho"),
        (["run", "small.yaml", "--out", ""], "the path is empty"),
        (["paper", "fig2a", "--out", ""], "is empty"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_messages_say_what_to_do(tp, folder, args, said):
    before = sorted(folder.iterdir())
    code, _, err = tp(*args)
    assert code == 2
    assert said in err
    assert sorted(folder.iterdir()) == before


def test_run_prints_one_json_object_of_the_documented_shape(tp, folder):
    code, out, err = tp("run", "small.yaml", "--format", "json", "--seed", "7", "--set", "rho=0.25")
    assert code == 0, err
    report = json.loads(out)
    assert list(report) == ["program", "constants", "assumptions", "limit", "first_order", "finite", "densities"]
    assert report["constants"] == {"s": 2, "rho": 0.25}
    assert {"grade", "findings"} <= set(report["assumptions"])
    for finding in report["assumptions"]["findings"]:
        assert {"rule", "verdict", "where", "line", "message", "fix", "source", "nodes"} <= set(finding)
    assert {"outputs", "scores", "error", "widths"} == set(report["limit"])
    y, p = report["limit"]["outputs"]["y"], report["limit"]["scores"]["p"]
    assert np.shape(y["mean"]) == (2,)
    assert np.shape(y["cov"]) == (2, 2)
    assert np.shape(p["cov"]) == (4, 4)
    assert p["index"] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert p["kurtosis"] == [3, 3, 3, 3]
    assert [entry["width"] for entry in report["finite"]] == [8, 32]
    for entry in report["finite"]:
        assert list(entry) == ["width", "method", "samples", "seed", "seconds", "outputs"]
        assert (entry["samples"], entry["seed"]) == (400, 7)
        shown = entry["outputs"]["y"]
        assert {"mean", "cov", "kurtosis", "ks", "kl", "kl_method", "kl_floor", "index"} <= set(shown)
        assert np.shape(shown["cov"]) == (2, 2)
        for key in ("mean", "kurtosis", "ks", "kl", "kl_floor"):
            assert np.shape(shown[key]) == (2,), key
        assert shown["kl_method"] == "kde"
    files = folder / "runs" / "small"
    assert json.loads((files / "report.json").read_text()) == report
    assert sorted(path.name for path in files.iterdir()) == [
        "convergence.png",
        "density.png",
        "program.svg",
        "report.html",
        "report.json",
        "samples.npz",
    ]
    with np.load(files / "samples.npz", allow_pickle=False) as data:
        meta = json.loads(str(data["meta.json"]))
        assert data["y_n8"].shape == (400, 2)
        assert np.allclose(data["y_n32"].mean(axis=0), report["finite"][1]["outputs"]["y"]["mean"])
    assert meta["seed"] == 7
    assert meta["width"] == [8, 32]
    assert "rho: 0.25" in meta["program"]


FINDING = {"rule", "verdict", "where", "line", "message", "fix", "source", "nodes"}
STEP = {"kind", "where", "line", "text", "standing"}
FACTS = {"statement", "range", "growth", "order"}


@pytest.mark.parametrize("name", ["attention", "attention_tied", "deep_attention"])
def test_check_prints_one_json_object_of_the_documented_shape(tp, name):
    code, out, err = tp("check", name, "--format", "json", "--facts", "--rewritten")
    assert err == ""
    found = json.loads(out, parse_constant=pytest.fail)
    assert set(found) == {"program", "constants", "assumptions", "facts", "rewritten"}
    judged = found["assumptions"]
    assert set(judged) == {"grade", "source", "consequence", "rate", "claims", "rewrites", "findings"}
    assert code == (judged["grade"] == "outside")
    assert all(set(finding) == FINDING for finding in judged["findings"])
    assert all(set(claim) == {"name", "standing", "text"} for claim in judged["claims"])
    assert set(found["rewritten"]) == {"steps", "program"}
    assert all(set(step) == STEP for step in [*judged["rewrites"], *found["rewritten"]["steps"]])
    assert found["facts"]
    assert all(set(row) == FACTS and len(row["range"]) == 2 for row in found["facts"])
    plain = json.loads(tp("check", name, "--format", "json")[1])
    assert set(plain) == {"program", "constants", "assumptions"}
    assert plain["assumptions"] == judged


TWO = """
program: two
indices: {i: 1..2, j: 1..2, l: 1..160}
initial: {"x[i]": {mean: 0, cov: "where(i == i_, 1, 0.3)"}}
weights: {Q: 1, K: 1, "V[l]": 1, W: 2}
body:
  - z[0,i] = Nonlin(x[i])
  - q[i] = MatMul(Q, x[i])
  - k[i] = MatMul(K, x[i])
  - v[l,i] = MatMul(V[l], x[i])
  - p[i,j] = Dot(q[i], k[j])
  - z[l,i] = Nonlin(tanh(z[l - 1,i] + sum[j](softmax[j](p[i,j]) * v[l,j])))
  - y[i] = Nonlin(z[160,i])
  - o[i] = MatMul(W, x[i])
outputs: [y, o]
"""


@pytest.mark.usefixtures("undrawn")
def test_an_output_without_a_limit_leaves_the_others_theirs(tp, folder):
    (folder / "two.yaml").write_text(TWO)
    code, out, err = tp("run", "two.yaml", "--width", "8,16", "--samples", "100", "--format", "json")
    outputs = json.loads(out)["limit"]["outputs"]
    assert code == 0
    assert err.count("there is no limit of y to compare with") == 1
    assert "refused" in outputs["y"]
    assert np.allclose(outputs["o"]["cov"], [[2, 0.6], [0.6, 2]])
    assert json.loads(out)["finite"][0]["outputs"]["o"]["kl"][0] is not None
    assert all((folder / "runs" / "two" / name).exists() for name in ("report.html", "density.png", "convergence.png"))
    code, out, err = tp("limit", "two.yaml")
    assert (code, err.count("does not compute such a limit")) == (3, 1)
    assert "output y: there is no limit of it" in out
    assert "covariance of o" in out


@pytest.mark.usefixtures("undrawn")
def test_a_program_outside_runs_at_finite_width_and_says_why_there_is_no_limit(tp, folder):
    code, out, _ = tp("run", "tied.yaml", "--format", "json")
    report = json.loads(out)
    assert code == 1
    assert report["limit"] is None
    assert report["assumptions"]["grade"] == "outside"
    assert len(report["finite"]) == 2
    assert report["finite"][0]["outputs"]["y"]["kl"] is None
    assert report["finite"][0]["outputs"]["y"]["kurtosis"][0] > 1
    assert (folder / "runs" / "tied" / "density.png").exists()
    for command in (["check", "tied.yaml"], ["limit", "tied.yaml"], ["sample", "tied.yaml", "--out", "a.npz"]):
        code, out, err = tp(*command)
        assert code == 1
        assert "outside" in out + err
    assert not (folder / "a.npz").exists()
    assert json.loads(tp("limit", "tied.yaml", "--format", "json")[1])["limit"] is None


def test_require_raises_the_bar(tp, folder):
    assert tp("check", "small.yaml", "--require", "theorem")[0] == 0
    (code, _, err) = tp("check", "small.yaml", "--quiet", "--require", "remark")
    assert (code, err) == (0, "")
    (folder / "relu.yaml").write_text(SMALL.replace("tanh(h[i])", "relu(h[i])"))
    assert tp("check", "relu.yaml")[0] == 0
    assert tp("check", "relu.yaml", "--require", "remark")[0] == 0
    code, _, err = tp("check", "relu.yaml", "--require", "theorem")
    assert code == 1
    assert "--require" in err
    assert tp("limit", "relu.yaml", "--require", "theorem")[0] == 1


@pytest.mark.usefixtures("undrawn")
def test_quiet_prints_nothing(tp, folder):
    for command in (
        ["check", "small.yaml"],
        ["limit", "small.yaml"],
        ["graph", "small.yaml", "-o", "a.svg"],
        ["sample", "small.yaml", "--size", "50", "--out", "a.npz"],
        ["run", "small.yaml", "--width", "8"],
    ):
        assert tp(*command, "--quiet") == (0, "", ""), command
    assert (folder / "a.svg").read_text().lstrip().startswith("<")


def test_limit_and_sample(tp, folder):
    code, out, _ = tp("limit", "small.yaml")
    assert code == 0
    assert "y[0]" in out
    assert "covariance of p" in out
    limit = json.loads(tp("limit", "small.yaml", "--format", "json")[1])["limit"]
    code, out, _ = tp("sample", "small.yaml", "--size", "1e3", "--seed", "3", "--out", "draws")
    assert code == 0
    with np.load(folder / "draws.npz", allow_pickle=False) as data:
        assert data["y"].shape == (1000, 2)
        assert data["p"].shape == (1000, 2, 2)
        assert np.allclose(np.cov(data["y"].T), limit["outputs"]["y"]["cov"], atol=0.1)


def test_graph(tp, folder):
    assert tp("graph", "small.yaml", "-o", "g.svg")[:2] == (0, "written to g.svg\n")
    assert tp("graph", "small.yaml", "--check")[:2] == (0, "written to small.svg\n")
    assert "theorem" in (folder / "small.svg").read_text()
    assert "<svg" in (folder / "g.svg").read_text()


def test_what_is_rewritten_is_called_the_theorems_form_where_it_is(tp):
    assert "\nin the theorem's form:\n" in tp("check", "small.yaml", "--rewritten")[1]
    outside = tp("check", "tied.yaml", "--rewritten")[1]
    assert "\nrewritten:\n" in outside
    assert "theorem's form" not in outside.split("\nrewritten:\n")[1]


def test_list(tp):
    code, out, _ = tp("list")
    assert code == 0
    assert "attention" in out
    programs = json.loads(tp("list", "--format", "json")[1])["programs"]
    assert {"name", "grade", "title"} == set(programs[0])
    atoms = tp("list", "--atoms")[1]
    assert "softplus" in atoms
    assert "softmax" in atoms


@pytest.mark.usefixtures("undrawn")
def test_tp_run_is_tp_run(tp):
    code, out, _ = tp("small.yaml", "--width", "8", command=run_command, name="tp-run")
    assert code == 0
    assert "kurtosis" in out
    assert "Usage: tp-run" in tp("--help", command=run_command, name="tp-run")[1]


def test_the_package_runs_as_a_module(folder):
    command = [sys.executable, "-m", "tensorprog", "check", "small.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("small: theorem")
    assert "Usage: tp [" in subprocess.run([*command[:3], "--help"], capture_output=True, text=True, check=True).stdout


def test_out_and_missing_matplotlib(tp, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    code, _, err = tp("run", "small.yaml", "--width", "8", "--out", "there/deep")
    assert code == 0
    assert how_to_install("plot") in err
    found = sorted(path.name for path in (folder / "there" / "deep").iterdir())
    assert found == ["report.html", "report.json", "samples.npz"]
    page = (folder / "there" / "deep" / "report.html").read_text()
    assert how_to_install("plot") in html.unescape(page)


@pytest.mark.usefixtures("undrawn")
def test_an_interrupt_leaves_the_finished_widths(tp, folder, monkeypatch):
    from tensorprog.jobs import run

    real = run.draw

    def stop(job, *options):
        if job.plan.width == 32:
            raise KeyboardInterrupt
        return real(job, *options)

    monkeypatch.setattr(run, "draw", stop)
    code, _, err = tp("run", "small.yaml")
    assert code == 130
    assert "interrupted" in err
    files = folder / "runs" / "small"
    assert [entry["width"] for entry in json.loads((files / "report.json").read_text())["finite"]] == [8]
    with np.load(files / "samples.npz") as data:
        assert sorted(data) == ["meta.json", "y_n8"]
    assert not list(files.glob(".*"))


def test_our_own_bug_is_one_paragraph(tp, monkeypatch):
    monkeypatch.setattr("tensorprog.results.limit_answers.check_with_limit", lambda _: 1 / 0)
    code, _, err = tp("check", "small.yaml")
    assert code == 70
    assert "bug of tensorprog" in err
    assert "TENSORPROG_DEBUG=1" in err
    monkeypatch.setenv("TENSORPROG_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.main(args=["check", "small.yaml"])


@pytest.mark.usefixtures("undrawn")
def test_averages_are_reported_from_the_file_and_from_the_command_line(tp, folder, monkeypatch):
    monkeypatch.setattr("tensorprog.results.reference.MIN_DRAWS", 1000)
    text = SMALL.replace("samples: 400}", "samples: 400, keep: [q, v]") + (
        "  averages:\n    m: tanh(y[0])**2\n    f: tanh(y[i])**2\n"
    )
    text = text.replace(
        "run: {width: [8, 32], samples: 400, keep: [q, v]", "run:\n  width: [8, 32]\n  samples: 400\n  keep: [q, v]"
    )
    (folder / "with.yaml").write_text(text)
    code, out, err = tp("run", "with.yaml", "--out", "r")
    assert code == 0
    assert "averages over the coordinates, m = tanh(y[0])**2, f[i] = tanh(y[i])**2" in out
    table = out[out.index("averages over") :]
    lines = [line.split() for line in table.splitlines()]
    assert ["output", "n", "mean", "variance", "KS", "p"] in lines
    assert [line[0] for line in lines if len(line) == 6][1:] == ["m", "f[0]", "f[1]"]
    assert "small: q" in out
    assert "small: v" in out
    report = json.loads((folder / "r" / "report.json").read_text())
    assert set(report["finite"][0]["outputs"]) == set(report["limit"]["outputs"]) == {"y", "q", "v"}
    for entry in report["finite"]:
        m, f = entry["averages"]["m"], entry["averages"]["f"]
        assert {"mean", "mean_se", "variance", "ks", "ks_p", "limit_mean", "limit_variance"} <= set(m)
        assert m["psi"] == "tanh(y[0])**2"
        assert f["index"] == [[0], [1]]
        assert f["mean"][0] == pytest.approx(m["mean"][0], rel=1e-12)
        assert abs(m["mean"][0] - m["limit_mean"][0]) < 0.1
        assert 0 < m["limit_variance"][0] < m["variance"][0]
    with np.load(folder / "r" / "samples.npz") as data:
        assert data["averages/m_n8"].shape == (400,)
        assert data["averages/f_n32"].shape == data["q_n32"].shape == (400, 2)
    given = ("--average", "g=y[0]*y[1]", "--average", "b = tanh(y[0])")
    code, out, err = tp("run", "with.yaml", *given, "--format", "json")
    assert code == 0
    assert set(json.loads(out)["finite"][0]["averages"]) == {"g", "b"}  # instead of those of the file
    assert "averages: the theorem is about psi that is bounded and pseudo-Lipschitz, which is not checked" in err


def test_infinitely_many_heads(tp):
    code, out, _ = tp("limit", "attention_regimes", "--infinite", "a")
    assert code == 0
    assert "the range of a to infinity, after the widths (extension: a conjecture)" in out
    assert all(line.split()[-1] == "3" for line in out.splitlines() if line.startswith("y[") and len(line.split()) == 4)
    code, out, _ = tp("limit", "attention_regimes", "--infinite", "a", "--format", "json", "--set", "H=1")
    limit = json.loads(out)["limit"]
    assert limit["scores"] == {}
    assert limit["outputs"]["y"]["kurtosis"] == [3.0] * 4
    code, _, err = tp("limit", "attention_regimes", "--infinite", "b")
    assert code == 2
    assert "b is not an index" in err
    code, _, err = tp("limit", "attention_regimes", "--infinite", "a", "--latex")
    assert code == 2
    assert "--infinite print different things" in err


@pytest.mark.parametrize("text", ["m", "=y[0]", "m=", "m=tanh(z[0])", "m=p[0,0]", "y=y[0]", "m=tanh(", "m=y[i]=2"])
def test_averages_that_make_no_sense_are_bad_input(tp, folder, text):
    code, _, err = tp("run", "small.yaml", "--average", text, "--quiet", "--out", "never")
    assert code == 2
    assert "average" in err
    assert not (folder / "never").exists()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(("error", "code"), [("AccuracyError", 3), ("MemoryLimitError", 3), ("OutsideError", 1)])
def test_failures_of_the_limit_keep_their_exit_codes_and_the_finite_widths(tp, monkeypatch, error, code):
    from tensorprog.language import errors
    from tensorprog.program import Program

    def fail(self, **_):
        raise getattr(errors, error)("too hard")

    monkeypatch.setattr(Program, "limit", fail)
    found, out, err = tp("run", "small.yaml", "--width", "8", "--format", "json")
    assert found == code
    assert "too hard" in err
    assert json.loads(out)["limit"] is None
    assert len(json.loads(out)["finite"]) == 1
    assert tp("limit", "small.yaml")[0] == code


def test_numbers_of_the_limit_are_printed_although_later_ones_fail(tp, monkeypatch):
    """Each table when it is there: the next may take minutes, or more memory than there may be."""
    from tensorprog.language.errors import MemoryLimitError
    from tensorprog.law import Law

    def fail(self, *_, **__):
        raise MemoryLimitError("too large")

    monkeypatch.setattr(Law, "cov", fail)
    code, out, err = tp("limit", "small.yaml")
    assert (code, err.count("too large")) == (3, 1)
    assert "output y" in out
    assert "covariance" not in out


@pytest.mark.parametrize(
    ("error", "code", "where"),
    [
        ("NotCompiledError", 0, "mean"),
        pytest.param("AccuracyError", 3, "sample", marks=pytest.mark.slow),
        pytest.param("KeyError", 70, "mean", marks=pytest.mark.slow),
    ],
)
def test_numbers_of_the_limit_that_fail_leave_the_finite_widths_and_their_pictures(
    tp, folder, monkeypatch, error, code, where
):
    """Where the law is asked for moments, and where draws are compared with it."""
    from tensorprog.language import errors
    from tensorprog.law import Law

    def fail(self, *_, **__):
        raise getattr(errors, error, KeyError)("too hard")

    monkeypatch.setattr(Law, where, fail)
    monkeypatch.setattr(Law, "density", fail)
    found, out, err = tp("run", "small.yaml", "--width", "8,16", "--samples", "200", "--out", "out")
    assert (found, err.count("too hard")) == (code, 1)
    assert "small: y" in out
    assert "limit" not in out.split("small: y")[1].split("written to")[0].replace("limit: its error", "")
    report = json.loads((folder / "out" / "report.json").read_text())
    assert "too hard" in report["limit_refused"]
    assert len(report["finite"]) == 2
    if where == "mean":
        assert report["limit"] is None
    page = (folder / "out" / "report.html").read_text()
    assert "too hard" in page
    assert "Largest error of any number" not in page or where == "sample"
    for picture in ("density.png", "convergence.png"):
        assert (folder / "out" / picture).stat().st_size > 10_000


def test_a_folder_that_cannot_be_written(tp, folder):
    closed = folder / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("running as a user who may write everywhere")
    assert tp("run", "small.yaml", "--out", closed)[0] == 2
    assert tp("graph", "small.yaml", "-o", closed / "a.svg")[0] == 2


def _shell(command, **extra):
    env = {key: value for key, value in os.environ.items() if key != "TENSORPROG_DEBUG"} | extra
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, timeout=300, check=False)


TP = f"{sys.executable} -c 'from tensorprog.jobs.cli import main; main()'"


def test_a_pipe_that_closes_early_is_quiet(folder):
    result = _shell(f"{TP} list --atoms | head -n 1; {TP} graph small.yaml > /dev/full; echo $?")
    assert "Traceback" not in result.stderr
    assert result.stdout.splitlines()[0].startswith("name")
    assert result.stdout.splitlines()[-1] == "3"


def test_help_and_check_import_nothing_heavy(folder):
    script = (
        "import sys; from tensorprog.jobs.cli import main\n"
        "try: main(args={args})\nexcept SystemExit as e: assert not e.code\n"
        "heavy = [m for m in ('matplotlib', 'scipy.stats', 'sympy', 'rich', 'pydantic') if m in sys.modules]\n"
        "print(heavy, file=sys.stderr)"
    )
    for args in (["--help"], ["run", "--help"], ["check", "small.yaml"]):
        command = [sys.executable, "-c", script.format(args=args)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.stderr.strip() == "[]", (args, result.stderr)


def test_many_files_are_checked_in_a_line_for_each_fault(tp, folder) -> None:
    code, out, _ = tp("check", "small.yaml", "tied.yaml", "broken.yaml")
    assert code == 2
    lines = out.splitlines()
    assert lines[0] == "small.yaml: theorem"
    assert lines[1].startswith("tied.yaml:10:5: weights of one score differ: clause (b)")
    assert lines[2] == "tied.yaml: outside"
    assert lines[3].startswith("broken.yaml:7:") and lines[-1] == "broken.yaml: not valid"
    code, out, _ = tp("check", ".", "--format", "json")
    assert {row["file"] for row in json.loads(out)["programs"]} >= {"small.yaml", "empty.yaml"}
