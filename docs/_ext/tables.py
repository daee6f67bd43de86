"""Pages that the program writes about itself, as Markdown: the form of a file, the functions, the commands."""

import dataclasses
import inspect
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pydoc import locate
from typing import Any

import click
import sympy as sp

import tensorprog
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


# ---- the Python reference

REFERENCE = {  # names in `tensorprog`
    "Programs": ("load", "Program", "atom"),
    "Gradients and training": (
        "backward", "ntk", "gradient_descent", "train", "predict", "training.Prediction",
        "exponents", "training.Exponents", "training.ParameterExponents",
    ),
    "Real models": ("from_torch", "compare_torch", "results.imported.Imported", "results.imported.Fate"),
    "The check": ("Report", "check.clauses.Finding", "check.clauses.report.Claim"),
    "Finite width": ("Samples", "finite.plan.Plan"),
    "The limit": (
        "Law", "results.selfcheck.LawCheck", "results.selfcheck.LawRow",
        "limit.law.conditional_moments.ConditionalLaw", "limit.law.heads.InfiniteHeads",
        "limit.formulas.law.SymbolicLaw",
    ),
    "Comparing": ("compare", "Comparison", "results.comparison.Row", "kl", "kl_gaussian"),
    "Sweeps and depth": ("sweep", "rate", "depth", "solve"),
    "Pictures": ("plots.density", "plots.convergence", "plots.covariance", "plots.coordinate_check", "plots.save"),
    "Kernels for scikit-learn": ("sklearn.ProgramKernel",),
    "Errors": (
        "TensorprogError", "ProgramError", "OutsideError", "NotCompiledError", "AccuracyError", "MemoryLimitError",
        "WorkerError", "jobs.depths.solving.NoSolutionError",
    ),
}  # fmt: skip
SECTION = re.compile(r"(Shapes|Scale|Accuracy|Raises|Source) {2,}(.*)")


def reference() -> str:
    """Every public function, and every class with its methods, from the docstrings."""
    parts = []
    for title, names in REFERENCE.items():
        parts.append(f"## {title}")
        for name in names:
            thing = getattr(tensorprog, name, None) or locate(f"tensorprog.{name}")
            parts += [f"### {name.rpartition('.')[2]}", _called(f"tensorprog.{name}", thing), _documented(thing)]
            if isinstance(thing, type) and not issubclass(thing, Exception):
                parts += ["\n".join(_fields(thing)), *_members(thing)]
    return "\n\n".join(filter(None, parts))


def _called(name: str, thing: Any) -> str:
    """A function with its arguments and their defaults."""
    if isinstance(thing, type):
        return f"`{name}`"
    given = inspect.signature(thing)
    plain = [one.replace(annotation=one.empty) for one in given.parameters.values() if one.name != "self"]
    return f"`{name}{given.replace(parameters=plain, return_annotation=given.empty)}`"


def _documented(thing: Any) -> str:
    """A docstring, its sections as a list."""
    found = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        section = SECTION.match(line)
        text = f"- *{section[1]}*: {prose(section[2])}" if section else prose(line.strip())
        found.append(f"  {text}" if line.startswith("  ") else text if not line.startswith("- ") else line)
    return "\n".join(found)


def _fields(record: type) -> Iterator[str]:
    """The fields of a record; the comment behind one says what it is."""
    for field in dataclasses.fields(record) if dataclasses.is_dataclass(record) else ():
        own = next(base for base in record.__mro__ if field.name in inspect.get_annotations(base))
        said = re.search(rf"^    {field.name}: .*?  # (.*)$", inspect.getsource(own), re.MULTILINE)
        if not field.name.startswith("_"):
            yield f"- `{field.name}`" + (f": {prose(said[1])}" if said else "")


def _members(record: type) -> Iterator[str]:
    """Methods and properties that are documented here, by name."""
    for name in dir(record):
        member = inspect.getattr_static(record, name)
        function = getattr(member, "func", None) or getattr(member, "fget", None) or getattr(member, "__func__", member)
        inside = str(getattr(function, "__module__", "")).startswith("tensorprog")
        if name.startswith("_") or not inside or not callable(function) or not function.__doc__:
            continue
        value = member is not function and not isinstance(member, classmethod | staticmethod)
        yield f"**{f'`{name}`' if value else _called(name, getattr(record, name))}**"
        yield _documented(function)
