"""The JSON Schema for editors accepts every valid program, rejects typical mistakes."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest
import yaml
from front_end_programs import program

from tensorprog import ProgramError
from tensorprog.language import schema
from tests.reading import dump, load, loads

PROGRAMS = sorted((Path(__file__).parents[2] / "programs").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(schema.FORM)


def test_the_schema_is_one():
    VALIDATOR.check_schema(schema.FORM)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_shipped_programs_are_valid_and_name_the_schema(path):
    text = path.read_text(encoding="utf-8")
    VALIDATOR.validate(yaml.safe_load(text))
    VALIDATOR.validate(yaml.safe_load(dump(load(path))))
    place = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / place).resolve() == schema.PLACE
    netsor = load(path)
    assert netsor.name == path.stem
    assert netsor.title
    assert netsor.reference
    assert netsor.warnings == ()
    assert dict(netsor.run).keys() == {"width", "samples"}


def test_everything_a_file_may_hold_is_accepted():
    VALIDATOR.validate(
        yaml.safe_load(
            program(
                "r = Nonlin(0, width=d)",
                constants="\n  s: 3\n  c: 2*s\n  b[i,j]: [[1, 2]]\n  f[i]: {file: x.npy}\n  g[i]: y.npy\n  k[i]: i + 1",
                indices="{i: 3, j: s, t: 1..s, p: {size: s, boundary: wrap}}",
                widths="{d: n/H}",
                fixed_widths="{k: 16, l: s}",
                initial="\n  h: {}\n  q[i]: {data: x.npy, variance: 2}\n  r[i]: {gram: g.npy, mean: [1, 2]}"
                "\n  v: {cov: 1, width: d}",
                weights="\n  W[i]: c\n  Q: {variance: 1, shape: [d, n]}",
            )
            + "run: {width: 64, keep: [a], method: lazy}\n"
        )
    )


@pytest.mark.parametrize(
    "text",
    [
        program(body=None),
        program(outputs="y"),
        program(outputs="[]"),
        program(outputs="['y[0]']"),
        program("q = tanh(g)"),
        program("q[i]: Nonlin(1)"),
        program(indices="{i: 0}"),
        program(indices="{i: {size: 2, boundary: mirror}}"),
        program(indices="{i: [1, 2]}"),
        program(initial="\n  h: {men: 0}"),
        program(initial="\n  h: 1"),
        program(weights="\n  W[i]: [1]"),
        program(weights="\n  W[i]: {shape: [n]}"),
        program(widths="{d: 2}"),
        program(constants="\n  b[i]: /etc/x.npz"),
        program(initial="\n  h: {gram: ../x.npy}"),
        program() + "run: {samples: 0}\n",
        program() + "run: {widht: 3}\n",
        program().replace("weights", "wieghts"),
        program(constants="{1x: 2}"),
        "- a\n",
    ],
)
def test_typical_mistakes_are_rejected_by_schema_and_loader_alike(text):
    assert list(VALIDATOR.iter_errors(yaml.safe_load(text)))
    with pytest.raises(ProgramError):
        loads(text)
