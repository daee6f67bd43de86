"""The form of a program, once: its sections, and what their entries take, with kinds, defaults and help.

Reading and writing files (`yaml_io`), the Python builder and the JSON Schema that editors complete and check by follow
from the tables here: a new option of an entry is a line in one of them, and a field of the record that `make_records`
makes.  `python -m tensorprog.language.schema` writes `program.schema.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tensorprog.language.atoms import ATOMS, REDUCTIONS

__all__ = ["ENTRIES", "PLACE", "RUN_KEYS", "SECTIONS", "Entries", "Option", "program_schema", "text"]

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
SHAPE: Schema = {"description": "Rows and columns, by the names of widths", "type": "array", "minItems": 2,
                 "maxItems": 2, "items": {"$ref": "#/$defs/width"}}
BOUNDARY: Schema = {"description": "What is read outside the range: zeros, or the other end", "enum": ["zero", "wrap"]}
KINDS: dict[str, Schema] = {"number": NUMBER, "expression": EXPRESSION, "file": FILE, "list": LIST, "size": SIZE,
                            "width": WIDTH, "shape": SHAPE, "boundary": BOUNDARY}


@dataclass(frozen=True)
class Option:
    """What an entry of a section takes: kinds of values (the names of `KINDS`), the default, and help."""

    kinds: tuple[str, ...]
    help: str
    default: Any = None  # None for none
    examples: tuple[Any, ...] = ()
    dimensions: int = 0  # of lists and files of numbers; 0 for any

    @property
    def numeric(self) -> bool:
        """Whether it is made of numbers; else it is text."""
        return not {"number", "expression", "file", "list"}.isdisjoint(self.kinds)

    @property
    def schema(self) -> Schema:
        """The JSON Schema of its values."""
        kinds = [{"$ref": f"#/$defs/{kind}"} for kind in self.kinds]
        rules: Schema = {"description": self.help, **(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})}
        rules |= {"default": self.default} if self.default not in (None, "") else {}
        return rules | ({"examples": list(self.examples)} if self.examples else {})


@dataclass(frozen=True)
class Entries:
    """What the entries of a section are called, and their options; one without braces gives the option `short`."""

    article: str
    called: str
    indexed: bool  # whether the names of entries carry indices
    options: Mapping[str, Option]
    short: str = ""
    required: str = ""

    @property
    def schema(self) -> Schema:
        """The JSON Schema of one entry."""
        braces: Schema = {"type": "object", "additionalProperties": False,
                          "properties": {key: option.schema for key, option in self.options.items()}}
        braces |= {"required": [self.required]} if self.required else {}
        return {"anyOf": [self.options[self.short].schema, braces]} if self.short else braces


NUMBERS = ("expression", "list", "file")
INITIAL = Entries("an", "initial vector", True, {
    "mean": Option(NUMBERS, "Mean of the coordinates; 0 if left out", 0),
    "cov": Option(NUMBERS, "Covariance between members; `i_` is the second copy of index i.  Members along an index "
                           "whose second copy does not occur are independent", 1, (1, "rho**abs(i - i_)")),
    "gram": Option(("list", "file"), "Covariance matrix (members, members)"),
    "data": Option(("list", "file"), "Input vectors (members, d), read through a first layer: covariance variance * x "
                                     "x' / d", dimensions=2),
    "variance": Option(("number",), "Variance of the first layer that goes with data", 1),
    "width": Option(("width",), "The width of the vectors", "n", ("n",)),
})
WEIGHT = Entries("a", "weight", True, {
    "variance": Option(("expression",), "sigma^2: entries are i.i.d. N(0, sigma^2 / columns)", 1),
    "shape": Option(("shape",), "Rows and columns, by the names of widths", ("n", "n"), (("d", "n"),)),
}, short="variance")
INDEX = Entries("an", "index", False, {
    "size": Option(("size",), "N means 0..N-1, \"1..T\" a range with both ends included"),
    "boundary": Option(("boundary",), "What is read outside the range: zeros, or the other end", ""),
}, short="size", required="size")
CONSTANT = Entries("a", "constant", True, {})
WIDTHS = Entries("a", "width", False, {})
ENTRIES: dict[str, Entries] = {"indices": INDEX, "initial": INITIAL, "weights": WEIGHT}


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
        "additionalProperties": INDEX.schema,
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
        "additionalProperties": INITIAL.schema,
    },
    "weights": {
        "description": "Weight matrices with their variances sigma^2",
        "type": "object",
        "propertyNames": {"pattern": f"^{FAMILY}$"},
        "additionalProperties": WEIGHT.schema,
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
        "$defs": KINDS,
    }


def text() -> str:
    """The schema as it stands in `program.schema.json`."""
    return json.dumps(program_schema(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
