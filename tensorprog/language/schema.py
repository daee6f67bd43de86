"""The form of a program, once: its sections, and what their entries take, with kinds, defaults and help.

Reading and writing files, the Python builder and the JSON Schema that editors complete and check by follow
from the tables here: a new option of an entry is a line in one of them, and a field of the record that is
made of it.  `python -m tensorprog.language.schema` writes `program.schema.json`.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError, Span, did_you_mean, fail
from tensorprog.language.expr import (
    Expr,
    Number,
    Transposed,
    Variable,
    as_expr,
)
from tensorprog.language.parse import Names, constant_value, parse_expression, parse_target
from tensorprog.language.records import Dot, Index, Initial, MatMul, Nonlin, Statement, Table, Weight

__all__ = ["PLACE", "RUN_KEYS", "SECTIONS", "Entries", "Option", "program_schema", "text"]

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
PATHS = _text("Path of a .npy or .csv file below the program's folder", pattern=PATH, examples=["numbers.npy"])
FILE: Schema = {
    "description": "Numbers from a file beside the program",
    "anyOf": [
        PATHS,
        {"type": "object", "additionalProperties": False, "required": ["file"], "properties": {"file": PATHS}},
    ],
}
LIST: Schema = {
    "description": "Numbers, nested once per index",
    "type": "array",
    "minItems": 1,
    "items": {"anyOf": [{"$ref": "#/$defs/number"}, {"$ref": "#/$defs/list"}]},
}
SIZE: Schema = {
    "description": 'N means 0..N-1; "1..T" is a range with both ends included; sizes may be expressions in constants',
    "anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000_000}, {"type": "string", "minLength": 1}],
    "examples": [4, "s", "1..T"],
}
WIDTH: Schema = _text("A width: n, or a name from widths or fixed_widths", pattern=f"^{NAME}$", examples=["n"])
SHAPE: Schema = {
    "description": "Rows and columns, by the names of widths",
    "type": "array",
    "minItems": 2,
    "maxItems": 2,
    "items": {"$ref": "#/$defs/width"},
}
FLAG: Schema = {"type": "boolean"}
BOUNDARY: Schema = {"description": "What is read outside the range: zeros, or the other end", "enum": ["zero", "wrap"]}
KINDS: dict[str, Schema] = {
    "number": NUMBER,
    "expression": EXPRESSION,
    "file": FILE,
    "list": LIST,
    "size": SIZE,
    "width": WIDTH,
    "shape": SHAPE,
    "boundary": BOUNDARY,
    "flag": FLAG,
}


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
        braces: Schema = {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: option.schema for key, option in self.options.items()},
        }
        braces |= {"required": [self.required]} if self.required else {}
        return {"anyOf": [self.options[self.short].schema, braces]} if self.short else braces


NUMBERS = ("expression", "list", "file")
INITIAL = Entries(
    "an",
    "initial vector",
    True,
    {
        "mean": Option(NUMBERS, "Mean of the coordinates; 0 if left out", 0),
        "cov": Option(
            NUMBERS,
            "Covariance between members; `i_` is the second copy of index i.  Members along an index "
            "whose second copy does not occur are independent",
            1,
            (1, "rho**abs(i - i_)"),
        ),
        "gram": Option(("list", "file"), "Covariance matrix (members, members)"),
        "data": Option(
            ("list", "file"),
            "Input vectors (members, d), read through a first layer: covariance variance * x x' / d",
            dimensions=2,
        ),
        "variance": Option(("number",), "Variance of the first layer that goes with data", 1),
        "width": Option(("width",), "The width of the vectors", "n", ("n",)),
        "grid": Option(("flag",), "The coordinate vector of a width: (a + 1/2)/n in coordinate a, not random", False),
    },
)
WEIGHT = Entries(
    "a",
    "weight",
    True,
    {
        "variance": Option(("expression",), "sigma^2: entries are i.i.d. N(0, sigma^2 / columns)", 1),
        "shape": Option(("shape",), "Rows and columns, by the names of widths", ("n", "n"), (("d", "n"),)),
    },
    short="variance",
)
INDEX = Entries(
    "an",
    "index",
    False,
    {
        "size": Option(("size",), 'N means 0..N-1, "1..T" a range with both ends included'),
        "boundary": Option(("boundary",), "What is read outside the range: zeros, or the other end", ""),
    },
    short="size",
    required="size",
)
CONSTANT = Entries("a", "constant", True, {})
WIDTHS = Entries("a", "width", False, {})


def _whole(description: str, minimum: int, maximum: int) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, "description": description}


RUN_KEYS: dict[str, Schema] = {
    "width": {
        "description": "Widths n to run at",
        "items": _whole("A width n", 1, 10_000_000),
        "examples": [[16, 64, 256]],
    },
    "samples": _whole("Networks drawn at each width", 1, 10**10),
    "seed": _whole("Seed of the random streams", 0, 2**63 - 1),
    "method": _text("How finite networks are drawn", enum=["auto", "dense", "lazy", "collapsed"]),
    "coordinates": _whole("Coordinates of each vector that are kept", 1, 1_000_000),
    "threads": _whole("Threads", 1, 4096),
    "max_memory": _text("Memory that may be used", pattern=r"^\d+(\.\d+)?\s*([KMGT]i?)?B$", examples=["1GiB"]),
    "dtype": _text("Precision of the arrays", enum=["float64", "float32"]),
    "keep": {
        "description": "Names whose values are kept besides the outputs",
        "items": _text("A name", pattern=f"^{NAME}$"),
        "examples": [["q"]],
    },
    "averages": {
        "description": "Averages (1/n) sum_a psi(...) by name",
        "type": "object",
        "additionalProperties": _text("psi, a function of vectors and scalars", examples=["tanh(y[0])**2"]),
    },
}


def _entries(description: str, name: str, entry: Schema) -> Schema:
    return {
        "description": description,
        "type": "object",
        "propertyNames": {"pattern": f"^{name}$"},
        "additionalProperties": entry,
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
    "indices": _entries("Indices with their sizes", NAME, INDEX.schema),
    "widths": _entries(
        "Widths that grow with n, such as d: n/H", NAME, _text("A multiple of n", pattern=r"\bn\b", examples=["n/H"])
    ),
    "fixed_widths": _entries(
        "Widths that stay finite",
        NAME,
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 10_000_000}, {"type": "string", "minLength": 1}]},
    ),
    "initial": _entries(
        "Vectors whose coordinates are i.i.d. Gaussian; different entries are independent", FAMILY, INITIAL.schema
    ),
    "weights": _entries("Weight matrices with their variances sigma^2", FAMILY, WEIGHT.schema),
    "body": {
        "description": "The statements, one line each",
        "type": "array",
        "minItems": 1,
        "maxItems": 2000,
        "items": _text(
            "name[indices] = MatMul(W, x), Nonlin(expression) or Dot(x, y)",
            pattern=rf"^\s*{NAME}\s*(\[[^\]=]+\])?\s*=\s*{INSTRUCTION}",
            examples=["u[i] = MatMul(W[i], h)", "x[i] = Nonlin(tanh(u[i]))", "p[i,j] = Dot(q[i], k[j])"],
        ),
    },
    "outputs": {
        "description": "Names of the families that are the program's results",
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": _text("A name without indices", pattern=f"^{NAME}$"),
    },
    "run": {
        "description": "Defaults of tp-run",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            key: (
                {
                    "anyOf": [rule["items"], {"type": "array", "minItems": 1, "items": rule["items"]}],
                    "description": rule["description"],
                    "examples": rule["examples"],
                }
                if "items" in rule
                else rule
            )
            for key, rule in RUN_KEYS.items()
        },
    },
}


def program_schema() -> Mapping[str, Any]:
    """The JSON Schema of a program file (draft 2020-12)."""
    functions = sorted(name for name, atom in ATOMS.items() if not atom.operator and not atom.declared)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tensorprog program",
        "description": "A Netsor program with Dots. Functions: "
        + ", ".join(functions)
        + ". Over indices, as in sum[i](...): "
        + ", ".join(REDUCTIONS)
        + ".",
        "type": "object",
        "additionalProperties": False,
        "required": ["program", "body", "outputs"],
        "properties": SECTIONS,
        "$defs": KINDS,
    }


def text() -> str:
    """The schema as it stands in `program.schema.json`."""
    return json.dumps(program_schema(), indent=1, ensure_ascii=True) + "\n"


MAX_WHOLE = 2**53

_SCALES: dict[str, Literal["n**-0.5", "1/n"]] = {
    "n**-0.5": "n**-0.5",
    "n**(-0.5)": "n**-0.5",
    "1/sqrt(n)": "n**-0.5",
    "1/n**0.5": "n**-0.5",
    "1/n": "1/n",
    "n**-1": "1/n",
    "n**(-1)": "1/n",
}
_INSTRUCTIONS = {  # number of arguments, what they are, the one option, an example
    "MatMul": (2, "a weight and a vector", "", "MatMul(W[i], x[i])"),
    "Nonlin": (1, "one expression", "width=d", "Nonlin(tanh(u[i]))"),
    "Dot": (2, "two vectors", "scale=1/n", "Dot(q[i], k[j])"),
}
_DECIMAL = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)


def program_name(text: str) -> str:
    """The name of a program: short, one line, and no path.

    Raises    ProgramError
    """
    name = str(text).strip()
    if not 0 < len(name) <= 100 or not name.isprintable() or any(c in name for c in "/\\"):
        raise fail("a program takes a short name without slashes", fix="attention")
    return name


def one_line(text: str, what: str, span: Span = Span()) -> str:
    """A title or a reference, on one line.

    Raises    ProgramError for characters that terminals would obey, or not show
    """
    line = re.sub(r"\s*[\n\t]\s*", " ", str(text).strip())
    if not line.isprintable():
        raise fail(f"{what} has characters that are not printable", span)
    return line


def plain_number(text: str) -> int | float | None:
    """Number written by YAML's 1.2 core rules, or None: `1e-3` is a number, `010` is ten, `on` and `1_000` are not."""
    text = text.strip()
    if len(text) > 400:
        return None
    if _WHOLE.fullmatch(text):
        return int(text)
    return float(text) if _DECIMAL.fullmatch(text) else None


def scalar(value: Any, names: Names, what: str, span: Span = Span()) -> int | float:
    """A finite number from a number or the text of an expression in constants.

    Raises    ProgramError naming `what`
    """
    number: Any = plain_number(value) if isinstance(value, str) else None
    if number is None and isinstance(value, str | Expr):
        expr = parse_expression(value, names, span) if isinstance(value, str) else value
        try:
            number = constant_value(expr, names.constants)
        except ProgramError as error:
            raise fail(f"{what}: {error.problems[0].message}", span, error.problems[0].fix) from None
    elif number is None:
        expr = as_expr(value)
        number = expr.value if isinstance(expr, Number) else value
    if isinstance(number, float) and not math.isfinite(number):
        raise fail(f"{what} must be a finite number, not {value}", span)
    if isinstance(number, int) and abs(number) > MAX_WHOLE:
        raise fail(f"{what} is too large for a whole number", span, "write it as a decimal, e.g. 1e20")
    return cast("int | float", number)


def whole(value: Any, names: Names, what: str, span: Span = Span()) -> int:
    """As `scalar`, but a whole number."""
    number = scalar(value, names, what, span)
    if number != int(number):
        raise fail(f"{what} must be a whole number, not {number:g}", span)
    return int(number)


def expression(value: Any, names: Names, span: Span = Span()) -> Expr:
    """An expression from a number, the text of one, or an expression."""
    if not isinstance(value, str):
        return as_expr(value)
    number = plain_number(value)
    return parse_expression(value, names, span) if number is None else Number(number)


def take(option: Option, value: Any, names: Names, what: str, span: Span = Span()) -> Any:
    """The value of an option from text, numbers, expressions or arrays.

    Raises    ProgramError naming `what`
    """
    if option.numeric:
        array = not isinstance(value, str | Expr | Table) and (
            "expression" not in option.kinds or isinstance(value, list | tuple) or np.ndim(value) > 0
        )
        if isinstance(value, Table) or (array and "list" in option.kinds):
            return make_table(value, what)
        return expression(value, names, span)
    if "size" in option.kinds:
        return _range(value, names, what, span)
    if "shape" in option.kinds:
        return _shape(value, what, span)
    text = str(value).strip()
    if "flag" in option.kinds:
        if text.lower() not in ("true", "false"):
            raise fail(f"{what} is true or false, not {text}", span, "t: {grid: true}, the coordinate vector")
        return text.lower() == "true"
    if "boundary" in option.kinds and text not in ("", "zero", "wrap"):
        raise fail(f"{what}: there is no boundary {text}", span, "boundary: zero, or boundary: wrap")
    return text


def _range(size: Any, names: Names, what: str, span: Span) -> tuple[int, int, str]:
    """First value, the one after the last, and the text of a size (0..size-1) or of a range with both ends."""
    text, name = str(size).strip(), what.removeprefix("the size of ")
    if ".." not in text:
        stop = whole(size, names, what, span)
        if stop < 1:
            raise fail(f"{what} must be at least 1, not {stop}", span)
        return 0, stop, text
    ends = text.split("..")
    if len(ends) != 2 or not all(end.strip() for end in ends):
        raise fail(f"{name}: {text} is not a range", span, '"1..T" runs from 1 to T, both included')
    start, last = (whole(end, names, f"the end {end.strip()} of {name}", span) for end in ends)
    if last < start:
        raise fail(f"{name} is empty: it runs from {start} to {last}", span, "give it a size of at least 1")
    return start, last + 1, text


def _shape(value: Any, what: str, span: Span) -> tuple[str, str]:
    widths = list(value) if isinstance(value, list | tuple) else []
    if len(widths) != 2 or not all(isinstance(width, str) for width in widths):
        raise fail(f"{what} is [rows, columns], two widths by name", span, 'shape: [d, n], or shape=("d", "n")')
    rows, columns = (width.strip() for width in widths)
    if not rows.isidentifier() or not columns.isidentifier():
        raise fail(f"{what} names widths, not numbers", span, "fixed_widths: {d: 64} and shape: [d, n]")
    return rows, columns


def make_index(name: str, indices: tuple[str, ...], given: Mapping[str, Any], span: Span = Span()) -> Index:
    """An index from its options."""
    if "size" not in given:
        raise fail(f"index {name} has no size", span, f"{name}: {{size: 4, boundary: zero}}")
    start, stop, text = given["size"]
    return Index(name, start, stop, given.get("boundary", INDEX.options["boundary"].default), text, span)


def make_ratio(name: str, value: Any, names: Names, span: Span = Span()) -> tuple[str, Fraction, str]:
    """A further width `n/H` as a rational multiple of n, with its text."""
    text, what = str(value).strip(), f"width {name}"
    one, two = (scalar(text, Names({**names.constants, "n": n}, names.indices), what, span) for n in (1, 2))
    ratio = Fraction(one).limit_denominator(10**6)
    if ratio <= 0 or two != 2 * one or not math.isclose(ratio, one, rel_tol=1e-12):
        fix = f"{name}: n/2, or `fixed_widths: {{{name}: 64}}` for one that stays finite"
        raise fail(f"{what}: {text} is not a positive multiple of n", span, fix)
    return name, ratio, text


def make_fixed(name: str, value: Any, names: Names, span: Span = Span()) -> tuple[str, int]:
    """A width that stays finite."""
    size = whole(value, names, f"the fixed width {name}", span)
    if not 1 <= size <= 10**7:
        raise fail(f"the fixed width {name} must lie between 1 and 10000000, not {size}", span)
    return name, size


def make_name(text: str, names: Names, what: str, span: Span = Span()) -> tuple[str, tuple[str, ...]]:
    """Name and plain indices of a declaration such as `WQ[a]`."""
    target = parse_target(text, names, span)
    indices = []
    for slot in target.slots:
        if slot.bare is None:
            raise fail(f"{text}: {what} carries plain indices, not {slot}", span, f"{target.name}[i]")
        indices.append(slot.bare)
    return target.name, tuple(indices)


def plain_name(text: str, what: str, span: Span = Span()) -> str:
    """The name of an index, a width or a scalar constant."""
    if not isinstance(text, str):
        raise fail(f"the name of {what} is text, and not {text!r}", span, '"i"')
    name = unicodedata.normalize("NFKC", text.strip())  # as the parser reads names
    if not name.isidentifier():
        raise fail(f"{text!r} is not a name for {what}", span, "use letters, digits and _, beginning with a letter")
    return name


def make_table(value: Any, what: str) -> Table:
    """An array of real numbers."""
    if isinstance(value, Table):
        return value
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return Table.of(array)
    except (TypeError, ValueError):
        raise fail(
            f"{what}: an array of real numbers is needed, not {type(value).__name__}",
            fix="numpy.asarray(...), every row of the same length",
        ) from None


def make_initial(name: str, indices: tuple[str, ...], given: Mapping[str, Any], span: Span = Span()) -> Initial:
    """Initial vectors from their options: one source of the covariance, and a variance only beside data.

    Raises    ProgramError
    """
    what, width = f"initial vector {name}", given.get("width", INITIAL.options["width"].default)
    sources = [key for key in ("cov", "gram", "data") if key in given]
    if given.get("grid"):
        if indices or not given.keys() <= {"grid", "width"}:
            raise fail(f"{what}: a coordinate vector has no indices and no other options", span, "{grid: true}")
        return Initial(name, (), Number(0.5), Number(1 / 12), None, width, span, grid=True)
    if len(sources) > 1:
        raise fail(f"{what}: {' and '.join(sources)} both give its covariance", span, "keep one of them")
    if "variance" in given and "data" not in given:
        raise fail(f"{what}: variance belongs to data", span, f"the covariance of others: cov {given['variance']}")
    source = {"data": "variance", "gram": "gram"}.get(sources[0] if sources else "", "cov")
    mean, cov = (given.get(key, Number(INITIAL.options[key].default)) for key in ("mean", source))
    return Initial(name, indices, mean, cov, given.get("data"), width, span)


def make_weight(name: str, indices: tuple[str, ...], given: Mapping[str, Any], span: Span = Span()) -> Weight:
    """Weights from their options."""
    rows, columns = given.get("shape", WEIGHT.options["shape"].default)
    return Weight(
        name, indices, given.get("variance", Number(WEIGHT.options["variance"].default)), (rows, columns), span
    )


def options_of(record: Index | Initial | Weight) -> dict[str, Any]:
    """The options that make a record."""
    if isinstance(record, Index):
        plain = str(record.stop) if record.start == 0 else f"{record.start}..{record.stop - 1}"
        return {"size": record.text or plain, "boundary": record.boundary}
    if isinstance(record, Weight):
        return {"variance": record.variance, "shape": record.shape}
    if record.grid:
        return {"grid": True, "width": record.width}
    if record.data is not None:
        covariance = {"data": record.data, "variance": record.cov}
    else:
        covariance = {"gram" if isinstance(record.cov, Table) and record.cov.file else "cov": record.cov}
    return {"mean": record.mean, **covariance, "width": record.width}


def make_statement(
    target: Variable,
    instruction: str,
    args: Sequence[Expr],
    keywords: Iterable[tuple[str, str]] = (),
    span: Span = Span(),
) -> Statement:
    """The record of `target = instruction(args, keywords)`.

    Raises    ProgramError if arguments or keywords do not fit the instruction
    """
    count, takes, option, example = _INSTRUCTIONS[instruction]
    given = {key: text.replace(" ", "") for key, text in keywords}
    for key in given:
        if key != option.partition("=")[0]:
            raise fail(f"{instruction}: {key} is no option of it", span, f"{instruction}(..., {option})")
    if len(args) != count:
        said = f"{instruction} takes {takes}, not {len(args)} argument{'s' * (len(args) != 1)}"
        raise fail(said, span, f"{target} = {example}")
    if instruction == "Nonlin":
        width = given.get("width", "")
        if width and not width.isidentifier():
            raise fail(f"width={width} is not the name of a width", span, "declare it, `widths: {d: n/2}`")
        return Nonlin(target, args[0], width, span)
    transposed = isinstance(args[0], Transposed)
    args = [arg.weight if isinstance(arg, Transposed) else arg for arg in args]
    for position, arg in enumerate(args):
        if not isinstance(arg, Variable):
            kind = "a weight" if instruction == "MatMul" and position == 0 else "a vector"
            said = f"{instruction} takes {kind} by its name here, not {arg}"
            fix = f"a statement of its own first, x = Nonlin({arg}), then {example}"
            raise fail(said, span.at(getattr(arg, "column", 0)), fix)
    first, second = cast("tuple[Variable, Variable]", tuple(args))
    if instruction == "MatMul":
        return MatMul(target, first, second, span, transposed=transposed)
    text = given.get("scale", "n**-0.5")
    if text not in _SCALES:
        raise fail(f"Dot has no scale {text}", span, "scale=n**-0.5 (the default, a score) or scale=1/n (the average)")
    return Dot(target, first, second, _SCALES[text], span)


def make_option(key: str, value: Any, span: Span = Span(), names: Names | None = None) -> Any:
    """One default of `tp run`, checked: width and keep become tuples, averages a tuple of (name, text).

    `names` are the constants and indices that averages may use; what else stands in them is checked when they run.
    """
    if key not in RUN_KEYS:
        raise fail(f"there is no run option {key}", span, did_you_mean(key, list(RUN_KEYS)))
    rule = RUN_KEYS[key]
    if key == "averages":
        names = names or Names()
        if not isinstance(value, Mapping):
            raise fail("averages are written by name", span, 'averages: {m: "tanh(y[0])**2"}')
        for name, text in value.items():
            parse_target(str(name), names, span)
            parse_expression(str(text), names, span)
        return tuple((str(name), str(text)) for name, text in value.items())
    items = [*value] if isinstance(value, list | tuple) else [value]
    if isinstance(value, Mapping) or not items or (len(items) > 1 and "items" not in rule):
        raise fail(f"{key} takes {'one value, or more' if 'items' in rule else 'one value'}", span)
    found = tuple(_one_option(key, item, rule.get("items", rule), span) for item in items)
    return found if "items" in rule else found[0]


def _one_option(key: str, value: Any, rule: Mapping[str, Any], span: Span) -> Any:
    if "minimum" in rule:
        number = whole(value, Names(), key, span)
        if not rule["minimum"] <= number <= rule["maximum"]:
            raise fail(f"{key} must lie between {rule['minimum']} and {rule['maximum']}, not {number}", span)
        return number
    text = str(value).strip()
    if "enum" in rule and text not in rule["enum"]:
        raise fail(f"there is no {key} {text}", span, did_you_mean(text, rule["enum"]))
    if "pattern" in rule and not re.search(rule["pattern"], text):
        raise fail(f"{key}: {text} is not of the right form", span, f"{key}: {rule.get('examples', ['q'])[0]}")
    return text


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
