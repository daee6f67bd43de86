"""What is declared above the body: names bound once, indices, constants, initial vectors and weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Span, did_you_mean
from tensorprog.language.expr import Expr
from tensorprog.language.ir import ConstantDef, Family, Initial, Kind, Weight
from tensorprog.language.validity.checker import MAX_MEMBERS, Checker
from tensorprog.language.validity.expressions import is_closed
from tensorprog.language.validity.values import check_constant, check_initial, check_sign

MAX_INDEX = 10_000_000  # values of one index
RESERVED = {"n", "inf", "pi", "MatMul", "Nonlin", "Dot", "min", "max", *REDUCTIONS, *ATOMS}


def check_names(checker: Checker) -> None:
    """Names bound once and not reserved; indices that are not empty and are declared where they are used."""
    netsor = checker.netsor
    seen: dict[str, str] = {}
    groups: list[tuple[str, Iterable[tuple[str, Span]]]] = [
        ("a constant", ((c.name, c.span) for c in netsor.constants)),
        ("an index", ((i.name, i.span) for i in netsor.indices)),
        ("a width", ((name, Span()) for name, _, _ in netsor.widths)),
        ("a width", ((name, Span()) for name, _ in netsor.fixed_widths)),
        ("an initial vector", ((v.name, v.span) for v in netsor.initial)),
        ("a weight", ((w.name, w.span) for w in netsor.weights)),
    ]
    for kind, names in groups:
        for name, span in names:
            if name in seen:
                checker.error(f"{name} is bound twice: as {seen[name]} and as {kind}", span,
                              "give one of them another name")
                checker.unknown.add(name)
            check_name(checker, name, span)
            seen[name] = kind
    for statement in netsor.body:
        name = statement.target.name
        if name in seen:
            checker.error(f"{name} is bound twice: as {seen[name]} and by this statement", statement.span,
                          "give the statement a new name on the left")
            checker.unknown.add(name)
        check_name(checker, name, statement.span)
    for index in netsor.indices:
        if not 0 < index.stop - index.start <= MAX_INDEX:
            checker.unknown.add(index.name)
        if index.stop <= index.start:
            checker.error(f"index {index.name} is empty: it runs from {index.start} to {index.stop - 1}", index.span,
                          "give it a size of at least 1")
        elif index.stop - index.start > MAX_INDEX:
            size = index.stop - index.start
            checker.error(f"index {index.name} has {size} values, more than the {MAX_INDEX} allowed", index.span,
                          "choose a smaller size")
    known = [index.name for index in netsor.indices]
    declarations: tuple[ConstantDef | Initial | Weight, ...] = (*netsor.constants, *netsor.initial, *netsor.weights)
    for declaration in declarations:
        for name in declaration.indices:
            if name not in known:
                checker.error(f"{name} in {declaration.name}[{','.join(declaration.indices)}] is not a declared index",
                              declaration.span, did_you_mean(name, known))
                checker.unknown.add(declaration.name)
            checker.used.add(name)
        if len(set(declaration.indices)) != len(declaration.indices):
            checker.error(f"{declaration.name} carries an index twice", declaration.span,
                          f"two indices with the same range: {declaration.name}[i,j]")
            checker.unknown.add(declaration.name)
        if not checker.unknown.isdisjoint(declaration.indices):
            checker.unknown.add(declaration.name)


def check_name(checker: Checker, name: str, span: Span) -> None:
    """A name that a program may give."""
    if not name.isidentifier():
        checker.error(f"{name!r} is not a name", span, "use letters, digits and _, beginning with a letter")
    elif name in RESERVED or name in ATOMS:  # those declared since are no less
        checker.error(f"{name} is reserved by the language", span, f"call it {name}1, say")
    elif name.endswith("_"):
        checker.error(f"{name}: a trailing underscore is reserved for second copies of indices", span,
                      name.rstrip("_"))


def check_constants(checker: Checker) -> None:
    """Values of the constants; one whose value is wrong becomes unknown."""
    for constant in checker.netsor.constants:
        before = len(checker.problems)
        if constant.name not in checker.unknown and not (
                isinstance(constant.value, Expr) and checker.doubtful(constant.value)):
            check_constant(checker, constant)
        else:
            checker.unknown.add(constant.name)
        if len(checker.problems) > before:
            checker.unknown.add(constant.name)


def declared_families(checker: Checker, values: bool = True) -> dict[str, Family]:
    """Families of the initial vectors and weights; their numbers are checked if `values`."""
    families: dict[str, Family] = {}
    entries: tuple[Initial | Weight, ...] = (*checker.netsor.initial, *checker.netsor.weights)
    for entry in entries:
        for width in (entry.width,) if isinstance(entry, Initial) else entry.shape:
            checker.width(width, entry.span)
        if entry.name in checker.unknown:
            continue
        kind: Kind = "vector" if isinstance(entry, Initial) else "weight"
        width = entry.width if isinstance(entry, Initial) else ""
        family = Family(entry.name, kind, checker.index_ranges(entry.indices), width, (), checker.rules(entry.indices))
        families[entry.name] = family
        if math.prod(family.shape) > MAX_MEMBERS:
            checker.error(f"{family.name} has more than {MAX_MEMBERS:.0e} members", entry.span,
                          "choose smaller sizes for its indices")
        elif not values:
            continue
        elif isinstance(entry, Initial):
            check_initial(checker, entry, family)
        elif not checker.doubtful(entry.variance):
            what = f"the variance of {entry.name}"
            if is_closed(checker, entry.variance, entry.indices, what, entry.span):
                check_sign(checker, entry.variance, entry.indices, what, entry.span)
    return families
