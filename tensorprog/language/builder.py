"""Programs written in Python: `Builder` and its handles.

P = Builder("rnn", constants={"T": 3})
t = P.index("t", "1..T")
x, W = P.initial("x[t]"), P.weight("W")
s = P.family("s[t]")                        # announced, because u refers to it before it is defined
P.nonlin("s[0]", 0)
u = P.matmul("u[t]", W, s[t - 1])
P.nonlin("s[t]", function("tanh")(u[t] + x[t]))
P.outputs(s)
P.netsor
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from tensorprog.language.errors import ProgramError, Span, UnknownNameError, did_you_mean, fail, shorten
from tensorprog.language.expr import Constant, Expr, IndexValue, Transposed, Variable, as_expr
from tensorprog.language.ir import ConstantDef, Draft, Initial, Netsor, Weight
from tensorprog.language.parse import Names, affine, parse_expression, parse_target
from tensorprog.language.schema import (
    MAKERS,
    expression,
    make_fixed,
    make_name,
    make_option,
    make_ratio,
    make_statement,
    make_table,
    one_line,
    plain_number,
    scalar,
    take,
)
from tensorprog.language.validity import check_declarations, check_last


class FamilyHandle:
    """A family with indices, or a constant with indices: `u[i]` is an expression, `u` alone is not."""

    def __init__(self, builder: Builder, name: str, count: int, constant: bool = False) -> None:
        self.builder, self.name, self.count, self.constant = builder, name, count, constant

    @property
    def usage_hint(self) -> str:
        """How to use the handle in an expression."""
        member = f"{self.name}[{', '.join('ijklabcdefgh'[: self.count])}]"
        return f"{self.name} has {self.count} {'index' if self.count == 1 else 'indices'}: write {member}"

    def __getitem__(self, key: Any) -> Variable | Constant:
        """The member at these index expressions: indices, whole numbers, `t - 1`, or text such as "t-1"."""
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != self.count:
            raise fail(f"{len(parts)} given, but {self.usage_hint}")
        names = self.builder.names
        slots = []
        for part in parts:
            if isinstance(part, slice):
                raise fail(f"{self.name}: slices are not index expressions", fix=self.usage_hint)
            expr = parse_expression(part, names) if isinstance(part, str) else as_expr(part)
            slots.append(affine(expr, names))
        return (Constant if self.constant else Variable)(self.name, tuple(slots))

    __array_ufunc__ = None
    __iter__ = None  # else Python would count members without end

    def __repr__(self) -> str:
        return self.name


class Builder:
    """A program under construction; every call declares one thing and checks it at once.

    Names of constants are attributes (`P.C`); `P["u"]` finds any declared name.  Sizes, variances and expressions
    may be numbers, text as in a program file, or expressions.
    Raises    ProgramError at the call that is wrong; what only the whole program shows is reported by `netsor`
    """

    def __init__(
        self,
        name: str,
        constants: Mapping[str, Any] | None = None,
        *,
        title: str = "",
        reference: str = "",
        widths: Mapping[str, Any] | None = None,
        fixed_widths: Mapping[str, Any] | None = None,
    ) -> None:
        self._draft = Draft(
            one_line(name, "program"),
            title=one_line(title, "title"),
            reference=one_line(reference, "reference"),
        )
        self._announced: dict[str, int] = {}
        self._cache: Netsor | None = None
        for key, value in (constants or {}).items():
            self.constant(key, value)
        for part, make, given in (("widths", make_ratio, widths), ("fixed_widths", make_fixed, fixed_widths)):
            for key, value in (given or {}).items():
                short, _ = make_name(key, self.names, "a width", indexed=False)
                self._add(part, make(short, value, self.names))
                if part == "fixed_widths":
                    self._written(key, value)

    @classmethod
    def from_netsor(cls, netsor: Netsor) -> Self:
        """A builder that continues a program."""
        builder = cls(netsor.name)
        builder._draft = Draft(**netsor.parts)
        builder._cache = netsor
        return builder

    @property
    def netsor(self) -> Netsor:
        """The program as declared so far, validated."""
        if self._cache is None:
            self._cache = Netsor(**self._draft.parts)
        return self._cache

    @property
    def names(self) -> Names:
        """Constants and indices declared so far."""
        return self._draft.names

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # before there is a draft
            raise AttributeError(name)
        if name in self._draft.constant:
            return self[name]
        more = f': write P["{name}"]' if name in self._counts() else ""
        raise AttributeError(f"the program has no constant and no method {name}{more}", name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and name in self._draft.constant:  # it would change no statement
            raise fail(f"the constant {name} has its value already", fix=f"load the program with {name}={value!r}")
        super().__setattr__(name, value)

    def __getitem__(self, name: str) -> Any:
        """Constant, index or family by name."""
        count = self._counts().get(name)
        if count is None:
            fix = did_you_mean(str(name), list(self._counts()))
            raise fail(f"{name} is not defined", fix=fix, kind=UnknownNameError)
        if name in self._draft.index:
            return IndexValue(name)
        if name in self._draft.constant:
            return FamilyHandle(self, name, count, constant=True) if count else Constant(name)
        return FamilyHandle(self, name, count) if count else Variable(name)

    # -- declarations -------------------------------------------------------------------------------------------

    def constant(self, name: str, value: Any) -> Any:
        """A number, or over indices (`"b[i]"`) an array or an expression; returns its handle."""
        short, indices = make_name(name, self.names, "a constant")
        if not indices:
            if np.ndim(value):
                said = f"{short} is declared without indices, so that it is one number"
                raise fail(said, fix=f'P.constant("{short}[i]", numbers) declares an array over an index')
            self._add("constants", ConstantDef(short, scalar(value, self.names, f"constant {name}")))
            self._written(short, value)
            return self[short]
        text = isinstance(value, str | Expr)
        table = expression(value, self.names) if text else make_table(value, f"constant {name}")
        self._add("constants", ConstantDef(short, table, indices))
        return self[short]

    def index(self, name: str, size: Any, boundary: str = "") -> IndexValue:
        """An index of a size (`4`, `"s"`, `2*P.s`) or a range (`"1..T"`); boundary "zero" or "wrap" pads families."""
        index: IndexValue = self._declare("indices", name, {"size": size, "boundary": boundary})
        return index

    def second(self, index: IndexValue) -> IndexValue:
        """The second copy of an index, for covariances: `cov=P.rho ** abs(i - P.second(i))`."""
        return IndexValue(f"{getattr(index, 'name', index)}_")

    def initial(
        self,
        name: str,
        mean: Any = None,
        cov: Any = None,
        *,
        data: Any = None,
        gram: Any = None,
        variance: Any = None,
        width: str = "n",
        grid: bool = False,
    ) -> Any:
        """Initial vectors with coordinates i.i.d. N(mean, cov): numbers, expressions, or matrices over the members.

        They are 0 and 1 if left out.
        An index whose second copy does not occur in `cov` makes independent members.  `gram` is a covariance matrix;
        `data` (members, d) with `variance` gives variance * data data^T / d instead.  `grid=True` makes the coordinate
        vector of a width: not random, (a + 1/2)/n in coordinate a, in the limit uniform on (0, 1).
        """
        options = {"mean": mean, "cov": cov, "gram": gram, "data": data, "variance": variance, "width": width}
        given = {key: value for key, value in options.items() if value is not None}
        return self._declare("initial", name, given | ({"grid": True} if grid else {}))

    def weight(self, name: str, variance: Any = 1, shape: Sequence[str] = ("n", "n")) -> Any:
        """Weights with i.i.d. N(0, variance / columns) entries, and their shape (rows, columns) by names of widths."""
        return self._declare("weights", name, {"variance": variance, "shape": shape})

    def weights(self, *names: str) -> tuple[Any, ...]:
        """Several weights of variance 1 and shape (n, n)."""
        return tuple(self.weight(name) for name in names)

    def family(self, name: str) -> Any:
        """Announce a family that is defined further below, for recurrences: `s = P.family("s[t]")`."""
        target = parse_target(name, self.names)
        if target.name in self._counts():
            return self[target.name]
        self._announced[target.name] = len(target.slots)
        return self[target.name]

    # -- statements ---------------------------------------------------------------------------------------------

    def matmul(self, target: str, weight: Any, vector: Any = None) -> Any:
        """`target = MatMul(weight, vector)`; the weight may be transposed, `W[i].T`."""
        return self._state(target, "MatMul", (weight, vector))

    def nonlin(self, target: str, expr: Any = None, width: str = "") -> Any:
        """`target = Nonlin(expr)`, coordinatewise; `width` for constant vectors that are not of width n."""
        return self._state(target, "Nonlin", (expr,), [("width", width)] if width else [])

    def dot(self, target: str, left: Any, right: Any = None, scale: str = "n**-0.5") -> Any:
        """`target = Dot(left, right)`: a score with "n**-0.5", an average with "1/n"."""
        return self._state(target, "Dot", (left, right), [("scale", str(scale))])

    def outputs(self, *handles: Any) -> None:
        """Name the results: handles or names of whole families."""
        names = []
        for handle in handles:
            if not isinstance(handle, str | Variable | FamilyHandle) or (isinstance(handle, Variable) and handle.slots):
                raise fail(f"an output is a whole family, not {handle}", fix="P.outputs(y)")
            name = handle if isinstance(handle, str) else handle.name
            if name not in self._counts():
                raise fail(f"the output {name} is not defined", fix=did_you_mean(name, list(self._counts())))
            names.append(name)
        self._change(outputs=tuple(names))

    def defaults(self, **options: Any) -> None:
        """Defaults of `tp run`, as in the section `run:` of a file: width, samples, seed, ..."""
        made = {key: make_option(key, value, names=self.names) for key, value in options.items()}
        self._change(run=tuple((dict(self._draft.run) | made).items()))

    # -- inner parts --------------------------------------------------------------------------------------------

    def _counts(self) -> dict[str, int]:
        """Number of indices of every name."""
        draft = self._draft
        declared: tuple[ConstantDef | Initial | Weight, ...] = (*draft.constants, *draft.initial, *draft.weights)
        counts = dict.fromkeys(draft.index, 0) | {entry.name: len(entry.indices) for entry in declared}
        return counts | self._announced | {s.target.name: len(s.target.slots) for s in draft.body}

    def _declare(self, section: str, text: str, given: Mapping[str, Any]) -> Any:
        """Add an index, initial vectors or weights, from the options of an entry."""
        called = {"indices": "an index", "initial": "an initial vector", "weights": "a weight"}[section]
        name, indices = make_name(text, self.names, called, indexed=section != "indices")
        owner = f"index {name}" if section == "indices" else name
        options = {key: take(section, key, value, self.names, owner) for key, value in given.items()}
        self._add(section, MAKERS[section](name, indices, options))
        return self[name]

    def _written(self, name: str, value: Any) -> None:
        if isinstance(value, str | Expr) and plain_number(str(value)) is None:
            self._change(written=(*self._draft.written, (name, str(value).strip())))

    def _change(self, **parts: Any) -> None:
        """Put other parts in the place of those so far."""
        self._draft = replace(self._draft, **parts)
        self._cache = None

    def _add(self, part: str, record: Any) -> None:
        """Add a declaration, if the program so far stays valid."""
        added: dict[str, Any] = {part: (*getattr(self._draft, part), record)}
        name = record[0] if isinstance(record, tuple) else record.name
        if name in {statement.target.name for statement in self._draft.body} | set(self._announced):
            raise fail(f"{name} is bound twice", fix="give one of them another name")
        check_declarations(replace(self._draft, **added, body=(), outputs=()))
        self._change(**added)

    def _state(
        self, target: str, instruction: str, args: Sequence[Any], keywords: Iterable[tuple[str, str]] = ()
    ) -> Any:
        names = self.names
        left = parse_target(target, names)
        if any(arg is None for arg in args):
            raise fail(f"an argument of {instruction} is missing", fix=f'P.{instruction.lower()}("y[i]", ...)')
        weights = [instruction == "MatMul", False]
        exprs = [_argument(arg, names, weight) for arg, weight in zip(args, weights, strict=False)]
        try:  # every program can be written to a file
            texts = [str(expr) for expr in exprs]
            read = [_argument(text, names, weight) for text, weight in zip(texts, weights, strict=False)]
        except (ProgramError, RecursionError):
            read = []
        if read != exprs:
            said = "is nested too deeply, or uses names in another meaning than this program does"
            raise fail(f"an argument of {instruction} {said}", fix=READABLE)
        span = Span(text=f"{left} = {instruction}({', '.join(map(shorten, texts))})")
        statement = make_statement(left, instruction, exprs, keywords, span)
        counts = self._counts()
        if counts.get(left.name, len(left.slots)) != len(left.slots):
            raise fail(f"{left.name} has {counts[left.name]} indices, {len(left.slots)} given", span)
        body = (*self._draft.body, statement)
        # families defined in parts (s[0] and s[t]) may still lack members: their ranges are checked by `netsor`
        partial = {s.target.name for s in body if any(not slot.terms for slot in s.target.slots)}
        check_last(replace(self._draft, body=body), {*self._announced, *partial})
        self._change(body=body)
        return self[left.name]


READABLE = "indices and constants of this program, families by u[i], and inner parts as statements of their own"


def _argument(value: Any, names: Names, weight: bool) -> Expr:
    """An argument of an instruction; the weight of a MatMul may be transposed."""
    if isinstance(value, str):
        return parse_expression(value, names, weight=weight)
    return value if weight and isinstance(value, Transposed) else as_expr(value)
