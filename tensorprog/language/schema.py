"""What a program file may hold: `program.schema.json`, by which editors complete and check, and which readers follow.

Each section, and each option of an entry, is described there once: what it takes, its default and its help.  Files and
the Python builder make their records here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from tensorprog.language.errors import ProgramError, Span, WrongTypeError, did_you_mean, fail
from tensorprog.language.expr import MAX_INTEGER, Expr, Number, Transposed, Variable, as_expr
from tensorprog.language.parse import Names, constant_value, parse_expression, parse_target
from tensorprog.language.records import Dot, Index, Initial, MatMul, Nonlin, Statement, Table, Weight

PLACE = Path(__file__).resolve().parent.parent / "program.schema.json"
FORM: dict[str, Any] = json.loads(PLACE.read_text(encoding="utf-8"))
SECTIONS: dict[str, Any] = FORM["properties"]
RUN_KEYS: dict[str, Any] = SECTIONS["run"]["properties"]
TRAIN_KEYS: dict[str, Any] = SECTIONS["train"]["properties"]
SHORT = {"indices": "size", "weights": "variance"}  # the option that an entry without braces gives
OPTIONS: dict[str, dict[str, Any]] = {
    section: entry.get("anyOf", [entry])[-1]["properties"]
    for section in ("indices", "initial", "weights")
    for entry in [SECTIONS[section]["additionalProperties"]]
}
_SCALES: dict[str, Literal["n**-0.5", "1/n"]] = {
    **dict.fromkeys(("n**-0.5", "n**(-0.5)", "1/sqrt(n)", "1/n**0.5"), "n**-0.5"),
    **dict.fromkeys(("1/n", "n**-1", "n**(-1)"), "1/n"),
}
_INSTRUCTIONS = {  # number of arguments, what they are, the one option, an example
    "MatMul": (2, "a weight and a vector", "", "MatMul(W[i], x[i])"),
    "Nonlin": (1, "one expression", "width=d", "Nonlin(tanh(u[i]))"),
    "Dot": (2, "two vectors", "scale=1/n", "Dot(q[i], k[j])"),
}
_DECIMAL = re.compile(r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?", re.ASCII)
_WHOLE = re.compile(r"[-+]?\d+", re.ASCII)


def kinds(rule: Mapping[str, Any]) -> list[str]:
    """What an option takes, by the names of definitions: 'expression', 'list', 'width' ..."""
    return [choice["$ref"].rsplit("/", 1)[1] for choice in rule.get("anyOf", [rule]) if "$ref" in choice]


def take(section: str, key: str, value: Any, names: Names, owner: str, span: Span = Span()) -> Any:
    """The value of an option of an entry, from text, numbers, expressions or arrays.

    Raises    ProgramError
    """
    what, taken = f"the {key} of {owner}", kinds(OPTIONS[section][key])
    if not {"number", "expression", "file"}.isdisjoint(taken):
        array = isinstance(value, list | tuple) or (not isinstance(value, str | Expr) and np.ndim(value) > 0)
        if isinstance(value, Table) or (array and "list" in taken):
            return make_table(value, what)
        return expression(value, names, span)
    if taken == ["size"]:
        return _range(value, names, what, span)
    if taken == ["shape"]:
        widths = [str(width).strip() for width in value] if isinstance(value, list | tuple) else []
        if len(widths) != 2 or not all(map(str.isidentifier, widths)):
            said = f"{what} is [rows, columns], two widths by name and not by number"
            raise fail(said, span, "fixed_widths: {d: 64} and shape: [d, n]")
        return tuple(widths)
    return _plain(key, value, FORM["$defs"][taken[0]], span) if value != "" else ""


def _plain(key: str, value: Any, rule: Mapping[str, Any], span: Span) -> Any:
    """A value that is a whole number, a truth value or a word, as its rule asks."""
    if "minimum" in rule:
        number = whole(value, Names(), key, span)
        if not rule["minimum"] <= number <= rule["maximum"]:
            raise fail(f"{key} must lie between {rule['minimum']} and {rule['maximum']}, not {number}", span)
        return number
    text, words = str(value).strip(), ["true", "false"] if rule.get("type") == "boolean" else rule.get("enum")
    if words and text.lower() not in words:
        raise fail(f"there is no {key} {text}", span, did_you_mean(text, words))
    if "pattern" in rule and not re.search(rule["pattern"], text):
        raise fail(f"{key}: {text} is not of the right form", span, f"{key}: {rule.get('examples', ['q'])[0]}")
    return text.lower() == "true" if rule.get("type") == "boolean" else text


def make_option(key: str, value: Any, span: Span = Span(), names: Names | None = None) -> Any:
    """One default of `tp run`, checked: width and keep become tuples, averages a tuple of (name, text).

    `names` are the constants and indices that averages may use; what else stands in them is checked when they run.
    """
    if key not in RUN_KEYS:
        raise fail(f"there is no run option {key}", span, did_you_mean(key, list(RUN_KEYS)))
    rule, several = RUN_KEYS[key].get("anyOf", [RUN_KEYS[key]])[0], "anyOf" in RUN_KEYS[key]
    if isinstance(value, Mapping) != (rule.get("type") == "object"):
        raise fail(f"{key} has the wrong form", span, f"{key}: {rule.get('examples', ['one value'])[0]}")
    if isinstance(value, Mapping):
        for name, text in value.items():
            parse_target(str(name), names or Names(), span)
            parse_expression(str(text), names or Names(), span)
        return tuple((str(name), str(text)) for name, text in value.items())
    items = [*value] if isinstance(value, list | tuple) else [value]
    if not items or (len(items) > 1 and not several):
        raise fail(f"{key} takes {'one value, or more' if several else 'one value'}", span)
    found = tuple(_plain(key, item, rule, span) for item in items)
    return found if several else found[0]


def make_training(key: str, value: Any, names: Names, span: Span = Span()) -> Any:
    """One entry of `train:`, checked: a name, whole number or number; rates, which n may stand in, as texts."""
    if isinstance(value, Mapping) != (key == "rates"):
        raise fail(f"{key} has the wrong form", span, "train: {loss: L, steps: 4, rate: 1, rates: {W: 0.1}}")
    if isinstance(value, Mapping):
        return tuple((str(name), make_training("rate", rate, names, span)) for name, rate in value.items())
    if key in ("loss", "steps"):
        return _plain(key, value, TRAIN_KEYS[key], span)
    if key != "rate":
        return scalar(value, names, key, span)
    scalar(value, Names({**names.constants, "n": 1}, names.indices), "a rate", span)
    return str(value).strip()


# ---- names and numbers ---------------------------------------------------------------------------------------------


def one_line(text: str, what: str, span: Span = Span()) -> str:
    """A title or a reference on one line, or the name of a program: short, and no path.

    Raises    ProgramError for characters that terminals would obey, or not show
    """
    line = re.sub(r"\s*[\n\t]\s*", " ", str(text).strip())
    if what == "program" and (not 0 < len(line) <= 100 or "\n" in str(text).strip() or {*line} & {*"/\\"}):
        raise fail("a program takes a short name without slashes", span, "attention")
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
    expr = expression(value, names, span)
    try:
        number = constant_value(expr, names.constants)
    except ProgramError as error:
        raise fail(f"{what}: {error.problems[0].message}", span, error.problems[0].fix) from None
    if isinstance(number, int) and abs(number) > MAX_INTEGER:
        raise fail(f"{what} is too large for a whole number", span, "write it as a decimal, e.g. 1e20")
    return number


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
            kind=WrongTypeError,
        ) from None


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


# ---- records -------------------------------------------------------------------------------------------------------


def make_name(
    text: Any, names: Names, what: str, span: Span = Span(), indexed: bool = True
) -> tuple[str, tuple[str, ...]]:
    """Name and plain indices of a declaration such as `WQ[a]`; indices, widths and numbers have none."""
    if not indexed and not str(text).strip().isidentifier():
        raise fail(f"{text!r} is not a name for {what}", span, "use letters, digits and _, beginning with a letter")
    target = parse_target(text, names, span)
    for slot in target.slots:
        if slot.bare is None:
            raise fail(f"{text}: {what} carries plain indices, not {slot}", span, f"{target.name}[i]")
    return target.name, tuple(slot.indices[0] for slot in target.slots)


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


def make_index(name: str, indices: tuple[str, ...], given: Mapping[str, Any], span: Span = Span()) -> Index:
    """An index from its options."""
    if "size" not in given:
        raise fail(f"index {name} has no size", span, f"{name}: {{size: 4, boundary: zero}}")
    start, stop, text = given["size"]
    return Index(name, start, stop, given.get("boundary", ""), text, span)


def make_initial(name: str, indices: tuple[str, ...], given: Mapping[str, Any], span: Span = Span()) -> Initial:
    """Initial vectors from their options: one source of the covariance, and a variance only beside data.

    Raises    ProgramError
    """
    what, width = f"initial vector {name}", given.get("width", "n")
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
    mean, cov = (given.get(key, Number(OPTIONS["initial"][key].get("default"))) for key in ("mean", source))
    return Initial(name, indices, mean, cov, given.get("data"), width, span)


MAKERS: dict[str, Callable[..., Any]] = {
    "indices": make_index,
    "initial": make_initial,
    "weights": lambda name, indices, given, span=Span(): Weight(
        name, indices, given.get("variance", Number(1)), given.get("shape", ("n", "n")), span
    ),
}


def options_of(record: Index | Initial | Weight) -> dict[str, Any]:
    """The options that make a record, without words that are the default."""
    plain: dict[str, Any] = {"boundary": "", "shape": ("n", "n"), "width": "n"}
    match record:
        case Index(_, start, stop, boundary, text):
            size = text or (str(stop) if start == 0 else f"{start}..{stop - 1}")
            found: dict[str, Any] = {"size": size, "boundary": boundary}
        case Weight():
            found = {"variance": record.variance, "shape": record.shape}
        case Initial(grid=True):
            found = {"grid": True, "width": record.width}
        case Initial(_, _, mean, cov, data, width):
            key = "cov" if data is None else "variance"
            key = "gram" if data is None and isinstance(cov, Table) and cov.file else key
            found = {"mean": mean, **({} if data is None else {"data": data}), key: cov, "width": width}
    return {key: value for key, value in found.items() if key not in plain or value != plain[key]}


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
        return Nonlin(target, args[0], given.get("width", ""), span)
    transposed = isinstance(args[0], Transposed)
    args = [arg.weight if isinstance(arg, Transposed) else arg for arg in args]
    for arg in args:
        if not isinstance(arg, Variable):
            kind = "a weight" if instruction == "MatMul" and arg is args[0] else "a vector"
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
