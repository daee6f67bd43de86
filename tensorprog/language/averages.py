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

from tensorprog.language.errors import Problem, ProgramError, Span, WrongTypeError, fail
from tensorprog.language.expr import Affine, Expr, Number, Variable, as_expr, free_indices, slots_of, variables
from tensorprog.language.ir import Dot, Netsor, Nonlin
from tensorprog.language.parse import parse_expression, parse_target
from tensorprog.language.samples import Samples


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
        raise fail("averages are written by name", fix='averages={"m": "tanh(y[0])**2"}', kind=WrongTypeError)
    taken, problems = netsor.taken, list[Problem]()
    body = list(netsor.body)
    families: dict[str, str] = {}
    psi: dict[str, str] = {}
    ones: dict[str, Variable] = {}  # by width
    for key, given in averages.items():
        span = Span(text=f"average {key} = {given}")
        name = str(key).partition("[")[0]
        try:
            expr, slots, width = _read(netsor, str(key), given, span)
            if name in families or name in netsor.families:
                raise fail("there is something of that name already", span, f"call it mean_{name}, say")
        except ProgramError as error:
            problems += [replace(p, message=f"average {name}: {p.message}", span=span) for p in error.problems]
            continue
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
        raise ProgramError(
            [replace(p, message=f"{p.span.text.split(' = ')[0]}: {p.message}") for p in error.problems]
        ) from None
    return Averages(netsor, larger, families, psi)


def average_members(netsor: Netsor, psi: Mapping[str, str], name: str) -> list[tuple[int, ...]]:
    """Index values of the members of an average in C order; [()] for one without indices."""
    target = next(key for key in psi if key.partition("[")[0] == name)
    indices = target.partition("[")[2].rstrip("]")
    return list(product(*(range(*netsor.ranges[index]) for index in indices.split(",")))) if indices else [()]


def _read(netsor: Netsor, key: str, given: str | Expr, span: Span) -> tuple[Expr, tuple[Affine, ...], str]:
    """psi, left side and width of one average."""
    target = parse_target(key, netsor.names, span)
    expr = parse_expression(given if isinstance(given, str) else str(as_expr(given)), netsor.names, span)
    found = [netsor.families.get(variable.name) for variable in variables(expr)]
    vectors = [family for family in found if family is not None and family.kind == "vector"]
    if not vectors and all(family is not None and family.kind != "weight" for family in found):
        said = "there is no vector in it, so all coordinates are equal"
        raise fail(said, span, "an expression such as tanh(y[0])**2; functions of scores follow from samples")
    free = free_indices(expr)
    slots = target.slots or slots_of(free)
    if {slot.bare for slot in slots} != {*free} or len(slots) != len(free):
        said = f"its indices are {', '.join(free) or 'none'}, not {', '.join(map(str, slots))}"
        raise fail(said, span, f"{target.name}[{', '.join(free)}]" if free else target.name)
    return expr, slots, vectors[0].width if vectors else "n"


def unused(name: str, taken: set[str]) -> str:
    """The name, with a number behind it if the program has it already."""
    base, number = name.rstrip("_"), 2
    name = base
    while name in taken:
        name, number = f"{base}{number}", number + 1
    taken.add(name)
    return name
