"""Mutants of the shipped programs through load, check, limit and run: whatever a file says, a message answers.

    python benchmarks/fuzz.py --count 2000 --seed 1 --limits 0.02

A mutant is a shipped program with one to three changes that know the form of a program: numbers at the edges of what is
allowed, names of other things, parts of statements in other places, lines of one section in another, options, quotes,
brackets, control characters, headers of data files. Every mutant is read and checked; a share of those that pass is
compiled and drawn. Counted are tracebacks (anything but a TensorprogError), steps of more than --seconds of processor
time, Python warnings, control characters in messages, and nan or inf where a number is shown. Each finding is printed
once, by the line of the package that it comes from, with the smallest mutant that shows it; --out writes these.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import resource
import signal
import struct
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tensorprog
from tensorprog import Program, TensorprogError, compare
from tensorprog.blocks import to_text
from tensorprog.language.reading import loads

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
STAGES = ("load", "check", "limit", "run")
NUMBERS = (
    "0", "-1", "1", "2", "0.5", "1e308", "1e-320", "1e999", "nan", "inf", "-inf", "9007199254740993", "010", "1_000",
    "1e20", "-0.0", "100000", "3.7", "''", "~", "true", "0x10", "1e-9", "pi", "s", "n", "1/0", "2**1024", "0**0",
    "-1**0.5",
    "9" * 30, "(", "[]", "{}", "1,2", "'1'", "\u0663", "\uff11",
)  # fmt: skip
FUNCTIONS = sorted(set(tensorprog.__dir__()) - {*tensorprog.__all__, "plots", "__version__"})
EXPRESSIONS = (
    "0", "1", "-inf", "inf", "nan", "pi", "i", "i_", "n", "1/0", "log(0)", "sqrt(-1)", "1e308*1e308", "0*inf", "x.T",
    "None", "True", "'a'", "x[0]", "...", "i==i", "i<j", "exp(1000)", "h", "y", "(1,2)", "lambda: 0",
    "x@y", "~i", "not i",
    "a if b else c", "f(*x)", "f(**x)", "x[:]", "x[1:2]", "[1,2]", "{1}", "x.y.z", "1j", "1e400", "-(-1)", "2**-1074",
)  # fmt: skip
VALUES = (
    "(", ")", "[", "]", "{", "}", "{t: (}", "{a: 1}", "[1, 2]", "[[1, 0], [0, 1]]", "[]", "{}", "''", '"', "|", ">",
    "- 1", "? 1",
    "&x 1", "*x", "!!int 1", "{mean: 0, cov: 1}", "{mean: (, cov: 1}", "{cov: [[1, 2], [2, 1]]}",
    "{variance: 1, shape: [n, n]}",
    "{variance: -1}", "{shape: [d, n]}", "{shape: [64, 64]}", "{size: 4, boundary: zero}", "{size: 3, boundary: wrap}",
    "{size: 0}", "1..0", "0..3", "-2..2", "1..", "..", "1...3", "{data: data/short.npy, variance: 1}", "data/short.npy",
    "{gram: data/short.npy}", "{data: data/mutant.npy, variance: 1}", "data/mutant.npy", "{file: data/mutant.npy}",
    "../x.npy", "/etc/passwd", "data/none.npy", "{grid: true}", "{mean: i, cov: 0.5**abs(i - i_)}", "{cov: i == i_}",
    "n/2",
    "n", "n*n", "64", "{width: d}", "a\tb", "\ta", "a: b: c", "#", "a #b", "\x07", "\x1b[31m", "\u202e",
    "\u0000", "\u2028", "\x85",
    "\ud7ff", "\U0001f600", "\ufeff", '"\\e[31m"', '"\\a"', '"\\0"', '"\\ud800"',
)  # fmt: skip
KEYS = ("mean", "cov", "gram", "data", "variance", "width", "grid", "shape", "size", "boundary", "file", "samples",
        "seed", "i_")  # fmt: skip
SECTIONS = (
    "program",
    "title",
    "constants",
    "indices",
    "widths",
    "fixed_widths",
    "initial",
    "weights",
    "body",
    "outputs",
    "run",
)
HEADERS = (
    "(True, 3)", "(-1, 3)", "(3, -1)", "(0, 3)", "(2.0, 3)", "()", "(3)", "'a'", "(9999999999, 9999999999)", "(2**70,)",
    "(None,)", "(1,)*40", "[3, 4]", "(3, 4, )", "(" + "1," * 60 + ")", "(" * 40 + ")" * 40, "((3, 4),)", "(3, 4",
)  # fmt: skip
DTYPES = ("'<f8'", "'<f4'", "'<i8'", "'|O'", "'<U3'", "'<c16'", "'|V0'", "'<f16'", "'|b1'", "[('a', '<f8')]",
          "('<f8', (2,))", "1",
          "'<M8[s]'", "'|S0'", "None", "'('")  # fmt: skip

SMALL = ("0", "1", "2", "3", "0.5", "1.5", "0.1", "1e-3", "1e-8", "7", "20", "-1", "-0.5", "1e3", "1e8")
PLAIN = (
    "tanh",
    "relu",
    "exp",
    "sin",
    "sign",
    "sqrt",
    "log",
    "abs",
    "gelu",
    "erf",
    "step",
    "sigmoid",
    "softplus",
    "gaussian",
    "elu",
)

Change = Callable[[list[str], random.Random], None]


# ---- changes --------------------------------------------------------------------------------------------------------


def number(lines: list[str], rng: random.Random) -> None:
    """Another number, at an edge."""
    _replaced(lines, rng, r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?", rng.choice(NUMBERS))


def small_number(lines: list[str], rng: random.Random) -> None:
    """Another number of the kind that programs have."""
    _replaced(lines, rng, r"(?<![\w.])\d+(\.\d+)?(e-?\d+)?", rng.choice(SMALL))


def other_function(lines: list[str], rng: random.Random) -> None:
    """Another function of one variable, or one around a family."""
    if rng.random() < 0.5:
        _replaced(lines, rng, rf"\b({'|'.join(PLAIN)})\b", rng.choice(PLAIN))
        return
    found = [
        (k, match)
        for k, text in enumerate(lines)
        if "Nonlin(" in text
        for match in re.finditer(r"(?<=[ (])\w+\[[\w, -]+\](?![\](])", text.split("#")[0])
        if match.start() > text.index("Nonlin(")
    ]
    if found:
        k, match = rng.choice(found)
        function, c = rng.choice(PLAIN), rng.choice(SMALL)
        new = rng.choice(
            (
                f"{function}({match.group()})",
                f"({match.group()} * {c})",
                f"({match.group()} + {c})",
                f"{match.group()}**2",
                f"({match.group()} / {function}({match.group()}))",
                f"clip({match.group()}, -{c}, {c})",
            )
        )
        lines[k] = lines[k][: match.start()] + new + lines[k][match.end() :]


def index_of_one(lines: list[str], rng: random.Random) -> None:
    """An index shifted, turned or fixed where it is read, and a boundary that allows it."""
    places = [
        (k, match)
        for k, text in enumerate(lines)
        if "=" in text
        for match in re.finditer(r"(?<=[\[,])[a-z](?=[\],])", text)
        if match.start() > text.index("=")
    ]
    if places:
        k, match = rng.choice(places)
        new = rng.choice(("{0}-1", "{0}+1", "0", "1", "2*{0}", "-{0}", "{0}-2", "{0}")).format(match.group())
        lines[k] = lines[k][: match.start()] + new + lines[k][match.end() :]
        size = rf"(?<=[{{ ]){match.group()}: ([\w.]+)(?=[,}}])"
        rule = rng.choice(("zero", "wrap", "zero"))
        for j, text in enumerate(lines):
            if text.startswith("indices:"):
                lines[j] = re.sub(size, rf"{match.group()}: {{size: \1, boundary: {rule}}}", text)


def name(lines: list[str], rng: random.Random) -> None:
    """One name of the program, or of a function, in the place of another."""
    names = re.findall(r"[^\W\d]\w*", "\n".join(lines))
    _replaced(
        lines,
        rng,
        r"[^\W\d]\w*",
        rng.choice([*names, *names, *FUNCTIONS, "n", "inf", "pi", "i_", "W.T", "min", "import"]),
    )


def character(lines: list[str], rng: random.Random) -> None:
    """One character more, less, or another."""
    k = rng.randrange(len(lines))
    place = rng.randrange(len(lines[k]) + 1)
    new = rng.choice(
        [
            "",
            *"()[]{},:;=*+-/.'\"#&|!?%@<>~^$ \t\n\\0aZ_",
            "\x07",
            "\x1b",
            "\u202e",
            "\u00e9",
            "\u2028",
            "\U0001d4d0",
            "**",
            "==",
        ]
    )
    lines[k] = lines[k][:place] + new + lines[k][place + rng.randrange(2) :]


def line(lines: list[str], rng: random.Random) -> None:
    """A line twice, nowhere, or elsewhere."""
    k = rng.randrange(len(lines))
    held = lines[k]
    if rng.random() < 0.7:
        del lines[k]
    if rng.random() < 0.7:
        lines.insert(rng.randrange(len(lines) + 1), held)


def value(lines: list[str], rng: random.Random) -> None:
    """Another value of an entry."""
    new = rng.choice(VALUES)
    entry = r"(?<=: )(\{[^{}]*\}|\[[^\[\]]*\]|[^,{}\[\]#]+)" if rng.random() < 0.5 else r"(?<=: ).+"
    _replaced(lines, rng, entry, new)


def key(lines: list[str], rng: random.Random) -> None:
    """Another key of an entry or an option."""
    _replaced(
        lines,
        rng,
        r"\w+(\[[^\]]*\])?(?=:)",
        rng.choice([*KEYS, *SECTIONS, "h[i]", "W[i,j]", "h[i,i]", "h[0]", "h[i_]", "'", "[i]"]),
    )


def option(lines: list[str], rng: random.Random) -> None:
    """One option more."""
    _replaced(lines, rng, r"\{", "{" + f"{rng.choice(KEYS)}: {rng.choice((*VALUES, *NUMBERS))}, ")


def section(lines: list[str], rng: random.Random) -> None:
    """A whole section more."""
    what = rng.choice(SECTIONS)
    names = re.findall(r"[^\W\d]\w*", "\n".join(lines))
    lines.append(f"{what}: {rng.choice(['', '{', '['])}{rng.choice(names)}: {rng.choice((*VALUES, *NUMBERS))}")


def inner(lines: list[str], rng: random.Random) -> None:
    """A part of an expression replaced by another part, by an odd one, or in a function, an operator or a reduction."""
    places = [k for k, text in enumerate(lines) if "(" in text and "=" in text]
    if not places:
        return
    k = rng.choice(places)
    head, _, right = lines[k].partition("=")
    try:
        tree = ast.parse(right.split("#")[0].strip(), mode="eval")
    except (SyntaxError, ValueError):
        return
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    if not nodes:
        return
    old, other = ast.unparse(rng.choice(nodes)), ast.unparse(rng.choice(nodes))
    index = rng.choice(re.findall(r"\[([a-z])\b", "\n".join(lines)) or ["i"])
    new = rng.choice((
        other, rng.choice(EXPRESSIONS), f"{rng.choice(FUNCTIONS)}({other})",
        f"{rng.choice(FUNCTIONS)}[{index}]({other})",
        f"({old} {rng.choice(('+', '-', '*', '/', '**', '<', '==', '&', '|', '@', '%'))} {other})",
        f"-{old}", f"{old}.T",
        f"where({index} < 2, {old}, {other})", f"{old}[{index}-1]", f"clip({old}, -1, 1)",
        f"{rng.choice(FUNCTIONS)}({old}, {other})",
        f"MatMul({old}, {other})", f"Dot({old}, {other}, scale=1/n)", f"min({old}, {other})",
    ))  # fmt: skip
    lines[k] = f"{head}= {ast.unparse(tree).replace(old, new, 1)}"


def statement(lines: list[str], rng: random.Random) -> None:
    """A statement more, made of names that are there."""
    targets = [match.group(1) for text in lines if (match := re.match(r"\s*- (.+?)\s*=", text))]
    weights = re.findall(r"^  (W\w*(?:\[[^\]]*\])?):", "\n".join(lines), re.MULTILINE) or ["W"]
    if not targets:
        return
    x, y = rng.choice(targets), rng.choice(targets)
    left = rng.choice(
        (f"new{x[x.find('[') :] if '[' in x else ''}", "new", x, "new[i]", "new[0]", "new[i,j]", "new[i-1]")
    )
    right = rng.choice((f"MatMul({rng.choice(weights)}, {x})", f"Dot({x}, {y})", f"Dot({x}, {y}, scale=1/n)",
                        f"Nonlin({x} * {y})",
                        f"Nonlin(softmax[i]({x}))", f"Nonlin({rng.choice(EXPRESSIONS)})",
                        f"MatMul({rng.choice(weights)}.T, {x})",
                        f"Nonlin({x} + {y}, width=n)", f"{x} + {y}"))  # fmt: skip
    place = next(k for k, text in enumerate(lines) if re.match(r"\s*- ", text))
    lines.insert(rng.randrange(place, len(lines) + 1), f"  - {left} = {right}")
    if rng.random() < 0.5:
        _replaced(lines, rng, r"(?<=outputs: \[)", f"{left.split('[')[0]}, ")


def _replaced(lines: list[str], rng: random.Random, pattern: str, new: str) -> None:
    found = [(k, match) for k, text in enumerate(lines) for match in re.finditer(pattern, text)]
    if found:
        k, match = rng.choice(found)
        lines[k] = lines[k][: match.start()] + new + lines[k][match.end() :]


CHANGES: tuple[Change, ...] = (
    number, number, name, name, character, line, value, value, key, option, section, inner, inner, inner,
    inner, statement, statement,
)  # fmt: skip
GENTLE: tuple[Change, ...] = (
    small_number,
    small_number,
    other_function,
    other_function,
    index_of_one,
    line,
    inner,
    statement,
)


def mutant(texts: list[str], rng: random.Random) -> str:
    """A shipped program with one to three changes."""
    lines = rng.choice(texts).splitlines()[1:]
    changes = rng.choice((CHANGES, GENTLE))
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
        rng.choice(changes)(lines or [""], rng)
    return "\n".join(lines) + "\n"


def data_file(rng: random.Random) -> bytes:
    """A .npy file whose header says something odd."""
    shape = rng.choice((*HEADERS, "(3, 4)"))
    dtype = rng.choice((*DTYPES, "'<f8'", "'<f8'"))
    fortran = rng.choice(("False", "False", "True", "1", "None"))
    header = f"{{'descr': {dtype}, 'fortran_order': {fortran}, 'shape': {shape}, }}"
    header = rng.choice(
        (header, header, header, header[:-3], header + " 1", header.replace("'shape'", "'form'"), "", "\0", "(" * 300)
    )
    raw = header.encode() + b" " * rng.randrange(3) + b"\n"
    version = rng.choice((b"\1\0", b"\1\0", b"\1\0", b"\2\0", b"\3\0", b"\x09\0"))
    size = struct.pack(
        "<H" if version == b"\1\0" else "<I", rng.choice((len(raw), len(raw), len(raw), len(raw) + 1, 65535, 0))
    )
    return (
        rng.choice((b"\x93NUMPY", b"\x93NUMPY", b"\x93NUMPY", b"PK\3\4", b""))
        + version
        + size
        + raw
        + bytes(rng.choice((96, 96, 0, 95, 48)))
    )


# ---- what becomes of them -------------------------------------------------------------------------------------------


class SlowError(BaseException):
    """A step took longer than it may."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise SlowError after so much processor time."""

    def stop(*_: object) -> None:
        raise SlowError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@dataclass
class Found:
    """What was seen of all mutants."""

    seen: Counter[str] = field(default_factory=Counter)
    findings: dict[tuple[str, str, str], tuple[int, str, str]] = field(default_factory=dict)
    times: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def note(self, kind: str, stage: str, where: str, text: str, details: str) -> None:
        """One finding; of several at one place the smallest mutant is kept."""
        known = kind, stage, where
        self.times[known] += 1
        if known not in self.findings or len(text) < len(self.findings[known][1]):
            self.findings[known] = self.times[known], text, details


def place(error: BaseException) -> str:
    """The innermost line of the package that an error passed."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if "tensorprog" in Path(frame.filename).parts
    ]
    inner_most = frames[-1] if frames else traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(inner_most.filename).name}:{inner_most.lineno} {inner_most.name}"


def odd_numbers(text: str) -> bool:
    """Whether nan or inf is shown where a number should be."""
    return re.search(r"(?<![\w.\-])-?(nan|inf)(?!\w)", text) is not None


def examined(text: str, base: Path, stages: tuple[str, ...], seconds: float, found: Found) -> str:
    """Take a mutant through the stages; the last one that it reached."""
    held: dict[str, Any] = {}

    def reached(stage: str) -> str:
        if stage == "load":
            held["program"] = Program.from_netsor(loads(text, file="mutant.yaml", base=base))
            return ""
        program = held["program"]
        if stage == "check":
            return str(program.check())
        if stage == "limit":
            held["law"] = program.limit(max_memory="200MB")
            return to_text(held["law"].blocks())
        samples = program.run(8, 20, max_memory="200MB", threads=1)
        return to_text(compare(samples, held.get("law")).blocks())

    for stage in stages:
        found.seen[stage] += 1
        shown = stated = ""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                with within(seconds):
                    shown = reached(stage)
            except TensorprogError as error:
                found.seen[f"{stage} refused"] += 1
                done = stage == "load"
                shown = stated = str(error)
            except SlowError as error:
                found.note("slow", stage, place(error), text, "")
                done = True
            except MemoryError as error:
                found.note("memory", stage, place(error), text, traceback.format_exc(limit=-6))
                done = True
            except Exception as error:
                found.note("traceback", stage, place(error), text, traceback.format_exc(limit=-8))
                done = True
            else:
                done = False
        for warning in said:
            found.note(
                "warning",
                stage,
                f"{Path(warning.filename).name}:{warning.lineno} {str(warning.message)[:60]}",
                text,
                "",
            )
        if not shown.replace("\n", "").isprintable():
            found.note("control character", stage, "", text, repr(shown))
        if stage in ("limit", "run") and not stated and odd_numbers(shown):
            found.note("nan or inf", stage, "", text, shown)
        if done:
            return stage
    return stages[-1]


def main() -> None:
    """Make mutants and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limits", type=float, default=0.02, help="share of mutants that are compiled and drawn")
    parser.add_argument("--seconds", type=float, default=5.0, help="processor time that a stage may take")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--out", type=Path, help="a folder for the smallest mutant of each finding")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (4 * 2**30, 4 * 2**30))
    texts = [path.read_text(encoding="utf-8") for path in sorted(PROGRAMS.glob("*.yaml"))]
    found, began = Found(), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        (base / "data").mkdir()
        for path in (PROGRAMS / "data").iterdir():
            (base / "data" / path.name).write_bytes(path.read_bytes())
        done = 0
        for k in range(given.first, given.first + given.count):
            rng = random.Random(f"{given.seed}:{k}")
            text = mutant(texts, rng)
            (base / "data" / "mutant.npy").write_bytes(data_file(rng))
            stages = STAGES if rng.random() < given.limits else STAGES[:2]
            examined(text, base, stages, given.seconds, found)
            done += 1
            if time.monotonic() - began > 60 * given.minutes:
                break
    kinds = Counter(kind for (kind, _, _), times in found.times.items() for _ in range(times))
    print(f"{done} mutants from number {given.first}, seed {given.seed}, {time.process_time():.0f} s of processor time")
    print("; ".join(f"{stage} {found.seen[stage]} ({found.seen[stage + ' refused']} refused)" for stage in STAGES))
    print(
        ", ".join(
            f"{kinds[kind]} {kind}"
            for kind in ("traceback", "slow", "warning", "memory", "control character", "nan or inf")
        )
    )
    for number_of, (known, (_, text, details)) in enumerate(sorted(found.findings.items())):
        print(f"\n--- {' | '.join(known)}  ({found.times[known]} times)\n{details}")
        if given.out is not None:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"{os.getpid()}-{number_of}.yaml").write_text(
                f"# {' | '.join(known)}\n{text}", encoding="utf-8", errors="replace"
            )


if __name__ == "__main__":
    main()
