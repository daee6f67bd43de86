"""Pages that the program writes about itself, as Markdown: the form of a file, the functions, the commands."""

import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
import sympy as sp

from tensorprog.jobs.cli import main
from tensorprog.language.atoms import ATOMS, REDUCTIONS, Atom
from tensorprog.language.schema import FORM

EVERYWHERE = (-math.inf, math.inf)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table, without the columns that say nothing."""
    columns = [column for column in zip(header, *rows, strict=True) if any(column[1:])]
    head, *lines = zip(*columns, strict=True)
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |"
        for line in (head, ["---"] * len(head), *lines)
    )


def prose(text: str) -> str:
    """Text without Markdown but code in backticks: other characters mean themselves."""
    parts = text.split("`")
    return "`".join(part if k % 2 else re.sub(r"([\\<*_$\[\]])", r"\\\1", part) for k, part in enumerate(parts))


def code(value: object) -> str:
    """A value as it is written in a file."""
    text = str(value).replace("'", "") if isinstance(value, list) else str(value)
    return f"`{text}`"


# ---- the form of a program file


def accepts(rule: Mapping[str, Any]) -> str:
    """What a rule of the schema accepts, in words."""
    if "$ref" in rule:
        name = rule["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name})"
    if "anyOf" in rule:
        return " or ".join(dict.fromkeys(accepts(choice) for choice in rule["anyOf"]))
    if "enum" in rule:
        return ", ".join(map(code, rule["enum"]))
    return _KINDS[rule["type"]](rule)


def _whole(rule: Mapping[str, Any]) -> str:
    if "maximum" not in rule:
        return f"a whole number from {rule['minimum']:,}"
    return f"a whole number, {rule['minimum']:,} to {rule['maximum']:,}"


def _mapping(rule: Mapping[str, Any]) -> str:
    if "properties" in rule:
        return "a mapping with keys " + ", ".join(map(code, rule["properties"]))
    values = [*rule.get("patternProperties", {}).values()] or [rule["additionalProperties"]]
    return "a mapping from names to " + " or ".join(map(accepts, values))


_KINDS = {
    "string": lambda rule: "text",
    "number": lambda rule: "a number",
    "integer": _whole,
    "boolean": lambda rule: "true or false",
    "array": lambda rule: f"a list (entries: {accepts(rule['items'])})",
    "object": _mapping,
}


def _meaning(rule: Mapping[str, Any]) -> str:
    examples = ", ".join(map(code, rule.get("examples", ())))
    return prose(rule.get("description", "")) + (f"; for example {examples}" if examples else "")


def keys(rules: Mapping[str, Any], required: Iterable[str] = ()) -> str:
    """A table of keys: what each accepts and means."""
    rows = (
        (
            code(key) + (" (required)" if key in required else ""),
            accepts(rule),
            _meaning(rule),
            code(rule["default"]) if "default" in rule else "",
        )
        for key, rule in rules.items()
    )
    return table(("key", "accepts", "meaning", "default"), rows)


def _inner(rule: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Tables of keys inside a section."""
    if "properties" in rule:
        yield rule["properties"]
    values = rule.get("additionalProperties")
    for part in (*rule.get("anyOf", ()), *([values] if isinstance(values, dict) else [])):
        yield from _inner(part)


def schema() -> str:
    """Sections of a program file, the keys in them, and the values these take."""
    parts = ["### Sections", keys(FORM["properties"], FORM["required"])]
    for name, rule in FORM["properties"].items():
        for rules in _inner(rule):
            parts += [f"### Keys in {name}", keys(rules)]
    parts += ["### Values"]
    for name, rule in FORM["$defs"].items():
        parts += [f"#### {name}", ". ".join(filter(None, (_meaning(rule), f"Written as {accepts(rule)}.")))]
    return "\n\n".join(parts)


# ---- the functions of the language


def atoms() -> str:
    """Every function with what is certified of it."""
    single = [atom for atom in ATOMS.values() if atom.arity == 1 and not atom.operator and not atom.declared]
    several = [atom for atom in ATOMS.values() if atom.arity > 1 and not atom.operator]
    header = ("function", "formula", "range", "growth", "order", "Lipschitz", "shape")
    written = {"minimum": "min", "maximum": "max"}
    return "\n\n".join(
        [
            "### Of one argument",
            table(header, map(_facts, single)),
            "### Of several arguments",
            table(("function", "meaning"), ((code(written.get(a.name, a.name)), prose(a.doc)) for a in several)),
            "### Operators",
            table(("written", "name"), ((code(a.operator), a.name) for a in ATOMS.values() if a.operator)),
            "### Over indices",
            table(
                ("function", "meaning", "removes the index", "linear", "Lipschitz"),
                (
                    (code(f"{r.name}[i](...)"), prose(r.doc), _yes(r.removes), _yes(r.linear), _yes(r.lipschitz))
                    for r in REDUCTIONS.values()
                ),
            ),
        ]
    )


def _facts(atom: Atom) -> tuple[str, ...]:
    values = [1.0 if value is None else value for value in atom.params.values()]
    if None in atom.params.values():  # clip(x, lo, hi), at -1 and 1
        values[0] = -values[0]
    facts = atom.regularity_on(EVERYWHERE, *values)
    call = ", ".join(["x", *(key if value is None else f"{key}={value:g}" for key, value in atom.params.items())])
    shape = {1: "increasing", -1: "decreasing"}.get(atom.monotone, ""), {1: "even", -1: "odd"}.get(atom.parity, "")
    return (
        code(f"{atom.name}({call})"),
        f"${_formula(atom)}$",
        _interval(atom, values),
        _number(facts.growth),
        _number(facts.modulus + 1),
        _number(facts.lipschitz),
        ", ".join(filter(None, shape)),
    )


def _formula(atom: Atom) -> str:
    formula = sp.sympify(atom.sympy(sp, sp.Symbol("x"), *map(sp.Symbol, atom.params)))
    rounded = formula.xreplace({number: sp.Float(number, 5) for number in formula.atoms(sp.Float)})
    names = {sp.Symbol(name): rf"\mathrm{{{name}}}" for name in atom.params if name not in ("alpha", "exponent")}
    return str(sp.latex(rounded, symbol_names=names, mul_symbol="dot"))


def _interval(atom: Atom, values: list[float]) -> str:
    if None in atom.params.values():
        return ", ".join(["[" + next(iter(atom.params)), [*atom.params][-1] + "]"])
    low, high = atom.range_on(EVERYWHERE, *values)
    return f"${_bracket(low, '[(', high, '])')}$"


def _bracket(low: float, left: str, high: float, right: str) -> str:
    return f"{left[math.isinf(low)]}{_tex(low)}, {_tex(high)}{right[math.isinf(high)]}"


def _tex(value: float) -> str:
    return f"{value:.4g}".replace("inf", r"\infty")


def _number(value: float) -> str:
    return "none" if math.isinf(value) else f"{value:.4g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# ---- the command line


def commands() -> str:
    """Every command with its options, as `--help` prints them."""
    parts = ["### tp", prose(inspect.cleandoc(main.help or ""))]
    for name, command in main.commands.items():
        context = click.Context(command, info_name=f"tp {name}", help_option_names=["-h", "--help"])
        records = [
            record
            for parameter in command.get_params(context)
            if (record := parameter.get_help_record(context)) is not None and record[0].startswith("-")
        ]
        usage = " ".join([f"tp {name}", *command.collect_usage_pieces(context)])
        parts += [
            f"### tp {name}",
            code(usage),
            prose(inspect.cleandoc(command.help or "").replace("\b\n", "")),
            table(("option", "meaning"), ((code(option), prose(meaning)) for option, meaning in records)),
        ]
    return "\n\n".join(parts)
