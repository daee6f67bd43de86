"""Theorem 1's averages (1/n) sum_a psi(h_a; p): each is two more statements of the program.

    z = Nonlin(psi)
    m = Dot(z, 1, scale=1/n)           1: the constant vector of the width of psi's vectors

So both interpreters give them as they are: at finite width m is a number of each network, in the limit a function of
the scores, E[psi(Z) | p-ring].  An index of psi that nothing reduces makes a family, one average for each member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product

from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail
from tensorprog.language.expr import Affine, Expr, Number, Variable, as_expr, free_indices, slots_of, variables
from tensorprog.language.ir import Dot, Netsor, Nonlin
from tensorprog.language.parse import parse_expression, parse_target
from tensorprog.language.samples import Samples

__all__ = ["Averages", "average_members", "unused", "with_averages"]


@dataclass(frozen=True)
class Averages:
    """A program with the statements of its averages.

    `families` has the family that holds each average, by name; `psi` the definitions as text, {"m[i]": "tanh(y[i])"}.
    """

    original: Netsor
    netsor: Netsor
    families: Mapping[str, str]
    psi: Mapping[str, str]

    def separate(self, samples: Samples) -> Samples:
        """Samples of `netsor` as samples of the original, the averages apart from its own variables."""
        added = set(self.families.values())
        return replace(
            samples,
            netsor=self.original,
            psi=dict(self.psi),
            arrays={name: array for name, array in samples.arrays.items() if name not in added},
            averages={name: samples.arrays[family] for name, family in self.families.items()},
        )


def with_averages(netsor: Netsor, averages: Mapping[str, str | Expr]) -> Averages:
    """Add averages to a program: name -> psi, an expression over its vectors and scalars, as text or in Python.

    The axes of a family are the free indices of psi in order of appearance, or those of the name where it has them:
    {"m[j,i]": "tanh(y[i] - y[j])"}.

    Raises    ProgramError with every mistake found
    """
    if not isinstance(averages, Mapping):
        raise fail("averages are written by name", fix='averages={"m": "tanh(y[0])**2"}')
    taken = {
        *netsor.families,
        *netsor.index,
        *netsor.constant,
        *(name for name, *_ in netsor.widths),
        *dict(netsor.fixed_widths),
    }
    problems: list[Problem] = []
    body = list(netsor.body)
    families: dict[str, str] = {}
    psi: dict[str, str] = {}
    ones: dict[str, Variable] = {}  # by width
    for key, given in averages.items():
        try:
            name, expr, slots, width = _read(netsor, str(key), given)
            if name in families:
                raise fail(f"average {name} is given twice")
        except ProgramError as error:
            problems += error.problems
            continue
        span = Span(text=f"average {key} = {expr}")
        if width not in ones:
            ones[width] = Variable(unused(f"ones_{width}", taken))
            body.append(Nonlin(ones[width], Number(1), width))
        integrand = Variable(unused(f"psi_{name}", taken), slots)
        average = Variable(unused(f"average_{name}", taken), slots)
        body += [Nonlin(integrand, expr, "", span), Dot(average, integrand, ones[width], "1/n", span)]
        families[name], psi[str(Variable(name, slots))] = average.name, str(expr)
    if problems:
        raise ProgramError(problems)
    try:
        larger = replace(netsor, body=tuple(body)) if families else netsor
    except ProgramError as error:
        raise ProgramError([replace(p, message=_told(p)) for p in error.problems]) from None
    return Averages(netsor, larger, families, psi)


def average_members(netsor: Netsor, psi: Mapping[str, str], name: str) -> list[tuple[int, ...]]:
    """Index values of the members of an average in C order; [()] for one without indices."""
    target = next(key for key in psi if key.partition("[")[0] == name)
    indices = target.partition("[")[2].rstrip("]")
    return list(product(*(range(*netsor.ranges[index]) for index in indices.split(",")))) if indices else [()]


def _told(problem: Problem) -> str:
    """The message with the name of the average."""
    name = problem.span.text.removeprefix("average ").partition(" = ")[0].partition("[")[0]
    return f"average {name}: {problem.message}"


def _read(netsor: Netsor, key: str, given: str | Expr) -> tuple[str, Expr, tuple[Affine, ...], str]:
    """Name, psi, left side and width of one average."""
    target = parse_target(key, netsor.names, Span(text=f"average {key}"))
    name = target.name
    if name in netsor.families:
        raise fail(f"average {name}: the program has something of that name", fix=f"call it mean_{name}, say")
    text = f"average {key} = {given}"
    try:
        expr = parse_expression(given if isinstance(given, str) else str(as_expr(given)), netsor.names, Span(text=text))
    except ProgramError as error:
        problems = [replace(p, message=f"average {name}: {p.message}", span=Span(text=text)) for p in error.problems]
        raise ProgramError(problems) from None
    found = variables(expr)
    for other in found:
        if other.name not in netsor.families or netsor.families[other.name].kind == "weight":
            known = [known for known, family in netsor.families.items() if family.kind != "weight"]
            fix = did_you_mean(other.name, [*known, *netsor.constant, *netsor.index])
            what = "is a weight" if other.name in netsor.families else "is not defined"
            raise fail(f"average {name}: {other.name} {what}", Span(text=text), fix)
    vectors = [v for v in found if netsor.families[v.name].kind == "vector"]
    if not vectors:
        said = f"average {name}: there is no vector in it, so all coordinates are equal"
        raise fail(
            said, Span(text=text), "an expression such as tanh(y[0])**2; functions of scores follow from samples"
        )
    free = free_indices(expr)
    slots = target.slots or slots_of(free)
    missing = [index for index in free if index not in {slot.bare for slot in slots}]
    if missing or len(slots) != len(free):
        raise fail(
            f"average {key}: its indices are {', '.join(free) or 'none'}, not {', '.join(map(str, slots))}",
            Span(text=text),
            f"{name}[{', '.join(free)}]" if free else name,
        )
    return name, expr, slots, netsor.families[vectors[0].name].width


def unused(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if the program has it already."""
    base, number = name.rstrip("_"), 1
    name = base
    while name in taken:
        name, number = f"{base}{number}", number + 1
    taken.add(name)
    return name
