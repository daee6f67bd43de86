"""The form of a program file: the keys each section takes, and the JSON Schema editors complete and check by.

`python -m tensorprog.language.schema` writes `program.schema.json`.  The schema knows the form of a file; what only a
reader of the whole program can know (names, ranges, kinds) is checked by `tensorprog.language.yaml_io`, which takes its
keys from here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorprog.language.atoms import ATOMS, REDUCTIONS

__all__ = ["INITIAL_KEYS", "PLACE", "RUN_KEYS", "SECTIONS", "WEIGHT_KEYS", "program_schema", "text"]

PLACE = Path(__file__).resolve().parent.parent / "program.schema.json"
Schema = dict[str, Any]

NAME = r"[A-Za-z_\u0080-\uffff][A-Za-z0-9_\u0080-\uffff]*"
FAMILY = rf"{NAME}(\[ *{NAME} *(, *{NAME} *)*\])?"
PATH = r"^(?!/)(?![A-Za-z]:)(?!(.*[/\\])?\.\.([/\\]|$)).*\.(npy|csv)$"
INSTRUCTION = r"(MatMul|Nonlin|Dot)\s*\("


def _text(description: str, **rules: Any) -> Schema:
    return {"type": "string", "minLength": 1, "description": description, **rules}


NUMBER: Schema = {
    "description": "A number, or an expression in constants declared above",
    "anyOf": [{"type": "number"}, {"type": "string", "minLength": 1}],
}
EXPRESSION: Schema = {
    "description": "A number, or an expression in constants and the indices of the name",
    "anyOf": [{"type": "number"}, {"type": "string", "minLength": 1, "not": {"pattern": r"\.(npz|pkl|pickle|pt)$"}}],
}
FILE: Schema = {
    "description": "Numbers from a file beside the program",
    "anyOf": [
        _text("Path of a .npy or .csv file below the program's folder", pattern=PATH, examples=["numbers.npy"]),
        {"type": "object", "additionalProperties": False, "required": ["file"],
         "properties": {"file": _text("Path of a .npy or .csv file below the program's folder", pattern=PATH)}},
    ],
}
LIST: Schema = {
    "description": "Numbers, nested once per index",
    "type": "array", "minItems": 1,
    "items": {"anyOf": [{"$ref": "#/$defs/number"}, {"$ref": "#/$defs/list"}]},
}
SIZE: Schema = {
    "description": "N means 0..N-1; \"1..T\" is a range with both ends included; sizes may be expressions in constants",
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000_000}, {"type": "string", "minLength": 1}],
    "examples": [4, "s", "1..T"],
}
WIDTH: Schema = _text("A width: n, or a name from widths or fixed_widths", pattern=f"^{NAME}$", examples=["n"])

INITIAL_KEYS: dict[str, Schema] = {
    "mean": {"description": "Mean of the coordinates; 0 if left out", "default": 0,
             "anyOf": [{"$ref": "#/$defs/expression"}, {"$ref": "#/$defs/list"}, {"$ref": "#/$defs/file"}]},
    "cov": {"description": "Covariance between members; `i_` is the second copy of index i.  Members along an index "
                           "whose second copy does not occur are independent",
            "default": 1, "examples": [1, "rho**abs(i - i_)"],
            "anyOf": [{"$ref": "#/$defs/expression"}, {"$ref": "#/$defs/list"}, {"$ref": "#/$defs/file"}]},
    "gram": {"description": "Covariance matrix (members, members)",
             "anyOf": [{"$ref": "#/$defs/list"}, {"$ref": "#/$defs/file"}]},
    "data": {"description": "Input vectors (members, d), read through a first layer: covariance variance * x x' / d",
             "anyOf": [{"$ref": "#/$defs/list"}, {"$ref": "#/$defs/file"}]},
    "variance": {"$ref": "#/$defs/number", "default": 1,
                 "description": "Variance of the first layer that goes with data"},
    "width": WIDTH,
}
WEIGHT_KEYS: dict[str, Schema] = {
    "variance": {"$ref": "#/$defs/expression", "default": 1,
                 "description": "sigma^2: entries are i.i.d. N(0, sigma^2 / columns)"},
    "shape": {"description": "Rows and columns, by the names of widths", "type": "array", "minItems": 2, "maxItems": 2,
              "items": {"$ref": "#/$defs/width"}, "default": ["n", "n"], "examples": [["d", "n"]]},
}


def _whole(description: str, minimum: int, maximum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


RUN_KEYS: dict[str, Schema] = {
    "width": {"description": "Widths n to run at", "items": _whole("A width n", 1, 10_000_000),
              "examples": [[16, 64, 256]]},
    "samples": _whole("Networks drawn at each width", 1, 10**10),
    "seed": _whole("Seed of the random streams", 0, 2**63 - 1),
    "method": _text("How finite networks are drawn", enum=["auto", "dense", "lazy", "collapsed"]),
    "coordinates": _whole("Coordinates of each vector that are kept", 1, 1_000_000),
    "threads": _whole("Threads", 1, 4096),
    "max_memory": _text("Memory that may be used", pattern=r"^\d+(\.\d+)?\s*([KMGT]i?)?B$", examples=["1GiB"]),
    "dtype": _text("Precision of the arrays", enum=["float64", "float32"]),
    "keep": {"description": "Names whose values are kept besides the outputs",
             "items": _text("A name", pattern=f"^{NAME}$"), "examples": [["q"]]},
    "averages": {"description": "Averages (1/n) sum_a psi(...) by name", "type": "object",
                 "additionalProperties": _text("psi, a function of vectors and scalars", examples=["tanh(y[0])**2"])},
}

SECTIONS: dict[str, Schema] = {
    "program": _text("Short name of the program", maxLength=100, pattern=r"^[^/\\]+$"),
    "title": {"type": "string", "description": "One line for people"},
    "reference": {"type": "string", "description": "Where the program comes from"},
    "constants": {
        "description": "Numbers by name (`--set H=16` overrides them), or arrays over indices such as b[i]",
        "type": "object",
        "patternProperties": {
            f"^{NAME}$": {"$ref": "#/$defs/number"},
            rf"^{NAME}\[": {"anyOf": [{"$ref": f"#/$defs/{kind}"} for kind in ("list", "file", "expression")]},
        },
        "propertyNames": {"pattern": f"^{FAMILY}$"},
    },
    "indices": {
        "description": "Indices with their sizes",
        "type": "object",
        "propertyNames": {"pattern": f"^{NAME}$"},
        "additionalProperties": {"anyOf": [
            {"$ref": "#/$defs/size"},
            {"type": "object", "additionalProperties": False, "required": ["size"], "properties": {
                "size": {"$ref": "#/$defs/size"},
                "boundary": {"description": "What is read outside the range: zeros, or the other end",
                             "enum": ["zero", "wrap"]},
            }},
        ]},
    },
    "widths": {"description": "Widths that grow with n, such as d: n/H", "type": "object",
               "propertyNames": {"pattern": f"^{NAME}$"},
               "additionalProperties": _text("A multiple of n", pattern=r"\bn\b", examples=["n/H"])},
    "fixed_widths": {"description": "Widths that stay finite", "type": "object",
                     "propertyNames": {"pattern": f"^{NAME}$"},
                     "additionalProperties": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000_000},
                                                        {"type": "string", "minLength": 1}]}},
    "initial": {
        "description": "Vectors whose coordinates are i.i.d. Gaussian; different entries are independent",
        "type": "object",
        "propertyNames": {"pattern": f"^{FAMILY}$"},
        "additionalProperties": {"type": "object", "additionalProperties": False, "properties": INITIAL_KEYS},
    },
    "weights": {
        "description": "Weight matrices with their variances sigma^2",
        "type": "object",
        "propertyNames": {"pattern": f"^{FAMILY}$"},
        "additionalProperties": {"anyOf": [
            {"$ref": "#/$defs/expression"},
            {"type": "object", "additionalProperties": False, "properties": WEIGHT_KEYS},
        ]},
    },
    "body": {
        "description": "The statements, one line each",
        "type": "array", "minItems": 1, "maxItems": 2000,
        "items": _text("name[indices] = MatMul(W, x), Nonlin(expression) or Dot(x, y)",
                       pattern=rf"^\s*{NAME}\s*(\[[^\]=]+\])?\s*=\s*{INSTRUCTION}",
                       examples=["u[i] = MatMul(W[i], h)", "x[i] = Nonlin(tanh(u[i]))", "p[i,j] = Dot(q[i], k[j])"]),
    },
    "outputs": {"description": "Names of the families that are the program's results", "type": "array", "minItems": 1,
                "uniqueItems": True, "items": _text("A name without indices", pattern=f"^{NAME}$")},
    "run": {"description": "Defaults of tp-run", "type": "object", "additionalProperties": False,
            "properties": {key: ({"anyOf": [rule["items"], {"type": "array", "minItems": 1, "items": rule["items"]}],
                                  "description": rule["description"], "examples": rule["examples"]}
                                 if "items" in rule else rule) for key, rule in RUN_KEYS.items()}},
}


def program_schema() -> Mapping[str, Any]:
    """The JSON Schema of a program file (draft 2020-12)."""
    functions = sorted(name for name, atom in ATOMS.items() if not atom.operator and not atom.declared)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tensorprog program",
        "description": "A Netsor program with Dots. Functions: " + ", ".join(functions)
                       + ". Over indices, as in sum[i](...): " + ", ".join(REDUCTIONS) + ".",
        "type": "object",
        "additionalProperties": False,
        "required": ["program", "body", "outputs"],
        "properties": SECTIONS,
        "$defs": {"number": NUMBER, "expression": EXPRESSION, "file": FILE, "list": LIST, "size": SIZE, "width": WIDTH},
    }


def text() -> str:
    """The schema as it stands in `program.schema.json`."""
    return json.dumps(program_schema(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
