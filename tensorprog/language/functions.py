"""The functions of the Python front end, one per entry of the registry: `clip(u[i], -1, 1)`, `sum[a, j](...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Problem, ProgramError, did_you_mean
from tensorprog.language.expr import PAIRWISE, Expr, IndexValue, Operand, Reduction, as_expr, call

__all__ = ["Function", "function", "function_names"]


def function_names() -> list[str]:
    """Names of all functions, sorted."""
    return sorted({*ATOMS, *REDUCTIONS, *PAIRWISE})


def function(name: str) -> Function:
    """The function of this name.

    Raises    ProgramError with the closest name
    """
    if name not in ATOMS and name not in REDUCTIONS and name not in PAIRWISE:
        raise ProgramError(Problem(f"there is no function {name}", fix=did_you_mean(name, function_names())))
    return Function(name)


class Function:
    """A function on expressions: `f(x)` acts coordinatewise, `f[i](x)` over an index; most have one of the two."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        atom = ATOMS.get(PAIRWISE.get(name, name))
        over = REDUCTIONS.get(name)
        docs = ([atom.doc] if atom else []) + ([f"over indices: {over.doc}"] if over else [])
        self.__doc__ = "; ".join(docs)

    def __call__(self, *args: Operand, **params: Operand) -> Expr:
        """Apply the function to expressions and numbers, the parameters last or by name."""
        return self.applied(args, params)

    def applied(self, args: Sequence[Operand], params: Mapping[str, Operand], column: int = 0) -> Expr:
        """The function of these arguments, read from this column of a text."""
        name = self.__name__
        if name in PAIRWISE:
            if len(args) < 2 or params:
                over = f", or {name}[i](x[i]) over an index" if name in REDUCTIONS else ""
                raise ProgramError(Problem(f"{name} takes two or more arguments", fix=f"{name}(x, y){over}"))
            return reduce(lambda x, y: call(PAIRWISE[name], x, y, column=column), args[1:], as_expr(args[0]))
        if name not in ATOMS:
            raise ProgramError(Problem(f"{name} acts over indices", fix=f"{name}[i](x[i])"))
        if "column" in params:
            raise ProgramError(f"{name}: column is not one of its parameters")
        return call(name, *args, column=column, **params)  # type: ignore[arg-type]  # column was refused

    def __getitem__(self, indices: Any) -> Callable[[Operand], Expr]:
        """The function over the indices given, to be applied to one expression."""
        name = self.__name__
        names = indices if isinstance(indices, tuple) else (indices,)
        for index in names if name in REDUCTIONS else ():
            if not isinstance(index, IndexValue):
                raise ProgramError(Problem(f"{name}[...] takes indices, not {index!s}", fix='i = P.index("i", 4), then '
                                                                                         f"{name}[i](x[i])"))
        return self.over([index.name for index in names if isinstance(index, IndexValue)])

    def over(self, indices: Sequence[str], column: int = 0) -> Callable[[Operand], Expr]:
        """The function over the indices named."""
        name = self.__name__
        if name not in REDUCTIONS:
            raise ProgramError(Problem(f"{name} does not act over indices", fix=f"{name}(x)"))
        if len(set(indices)) != len(indices) or not indices:
            raise ProgramError(f"{name}[...] {'names an index twice' if indices else 'needs an index'}")
        return lambda arg: Reduction(name, tuple(indices), as_expr(arg), column)

    def __repr__(self) -> str:
        return f"<function {self.__name__}: {self.__doc__}>"
