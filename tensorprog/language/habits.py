"""What Python asks of an object that it is not made for, answered with what to write instead.

Calls, lengths, loops, sums and attributes that a program, a law or a report does not have raise a `ProgramError`; a
name that another of these objects has is given with the way to it, `P.limit().cov("y")`.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from typing import Any, NoReturn, TypeVar

from tensorprog.language.errors import NoNameError, NoOperationError, Problem, did_you_mean, fail

__all__ = ["Answering", "answering", "elsewhere", "no_attribute"]

Kind = TypeVar("Kind", bound=type)
HOMES = {  # the objects of the interface: how each is called, how to come by one, and where its class stands
    "P": ("P", "tensorprog.program:Program"),
    "law": ("P.limit()", "tensorprog.law:Law"),
    "report": ("P.check()", "tensorprog.check.clauses:Report"),
    "samples": ("P.run(width=64, samples=1000)", "tensorprog.language.samples:Samples"),
}
EXAMPLES = {
    "width": "width=64",
    "size": "1000",
    "name": '"y"',
    "first": '"y"',
    "target": '"u"',
    "quantity": '"var"',
    "weight": "W",
    "path": '"file"',
}  # of arguments that a call must have
STATEMENTS = {
    "matmul": '("u", W, x)',
    "dot": '("p", x, y)',
    "nonlin": '("y", tp.tanh(x))',
    "weight": '("W")',
    "initial": '("h")',
    "index": '("i", 4)',
    "constant": '("s", 4)',
}
SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "matmul": "@",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
ORDER = {
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "neg": "-",
    "pos": "+",
    "invert": "~",
    "abs": "abs",
    "float": "float",
    "int": "int",
    "round": "round",
}
REFUSED = {
    "__call__": "is no function and cannot be called",
    "__len__": "has no length",
    "__iter__": "is not a list, and nothing can run over it",
    "__getitem__": "has nothing that is looked up in square brackets",
    "__setitem__": "takes nothing in square brackets",
    "__delitem__": "has nothing in square brackets that can be deleted",
    **{
        f"__{r}{name}__": f"is no number, so that {sign} cannot take it"
        for name, sign in SIGNS.items()
        for r in ("", "r")
    },
    **{f"__{name}__": f"is no number, so that {sign} cannot take it" for name, sign in ORDER.items()},
}
FALSE_NAMES = {  # of attributes, by their names elsewhere
    "simulate": "run",
    "forward": "run",
    "predict": "run",
    "summary": "check",
    "verdict": "grade",
    "status": "grade",
    "save": "to_yaml",
    "dump": "to_yaml",
    "corr": "cov",
    "correlation": "cov",
    "kernel": "cov",
    "covariance": "cov",
    "variance": "var",
    "stdev": "std",
    "stddev": "std",
    "rvs": "sample",
    "pdf": "density",
    "ppf": "quantile",
    "plot": "graph",
}
MADE = {
    "Samples": {"load": 'numpy.load("samples.npz")'},
    "Program": {  # by other ways to make them
        **dict.fromkeys(
            ("from_yaml", "from_file", "read_yaml", "read", "open", "parse", "load"), 'tp.load("file.yaml")'
        ),
        **dict.fromkeys(("from_torch", "from_module", "from_pytorch"), "tp.from_torch(module)"),
    },
}


class Answering(ABCMeta):
    """A class that is asked for what it does not have, as `Program.from_yaml`."""

    def __getattr__(cls, name: str) -> NoReturn:
        if name in vars(cls).get("__annotations__", ()) and "__dataclass_fields__" not in vars(cls):
            raise AttributeError(name)  # a dataclass in the making asks for defaults
        made = MADE.get(cls.__name__)
        no_attribute(f"the class {cls.__name__}", cls, name, "help(tp) lists what makes one", meant=made)


def answering(thing: str, fix: str, made: str = "") -> Callable[[Kind], Kind]:
    """A class whose objects answer what they cannot do: `thing` is one of them, `fix` what is done with it.

    An object that users get from a call, `made`, and do not make themselves says so.
    """

    def with_answers(kind: Kind) -> Kind:
        if made:
            kind.__init__ = _made_by(kind.__init__, f"{thing} is not made in this way", made)  # type: ignore[misc]
        sized, kind.usage_hint = hasattr(kind, "__len__"), fix  # type: ignore[attr-defined]  # in an expression
        had = {name for base in kind.__mro__[:-1] for name in vars(base)}
        for name, reason in REFUSED.items():
            if name not in had:
                setattr(kind, name, _refusal(thing, reason, fix))
        if "__format__" not in had:
            refuse = _refusal(thing, "is no number, and has no format", fix)
            kind.__format__ = _formatted(refuse)  # type: ignore[assignment]
        if not sized:
            kind.__bool__ = lambda self: True  # type: ignore[attr-defined]  # which asks the length otherwise
        if "__getattr__" not in had:
            kind.__getattr__ = lambda self, name: no_attribute(thing, kind, name, fix)  # type: ignore[attr-defined]
        return kind

    return with_answers


def _made_by(init: Callable[..., None], reason: str, made: str) -> Callable[..., None]:
    @wraps(init)
    def begun(self: Any, *args: Any, **options: Any) -> None:
        try:
            inspect.signature(init).bind(self, *args, **options)
        except TypeError:
            raise fail(reason, fix=made) from None
        init(self, *args, **options)

    return begun


def _formatted(refuse: Callable[..., NoReturn]) -> Callable[[Any, str], str]:
    return lambda self, spec: refuse(self) if spec else str(self)


def _refusal(thing: str, reason: str, fix: str) -> Callable[..., NoReturn]:
    def refuse(self: Any, *given: Any, **_: Any) -> NoReturn:
        named = given[0] if len(given) == 1 and isinstance(given[0], str) else ""
        held = named.isidentifier() and not named.startswith("_") and hasattr(self, named)
        raise NoOperationError(Problem(f"{thing} {reason}", fix=f"it is an attribute: .{named}" if held else fix))

    return refuse


def no_attribute(
    thing: str,
    kind: type,
    name: str,
    fix: str,
    *,
    what: str = "attribute",
    meant: Mapping[str, str] | None = None,
    more: Iterable[str] = (),
) -> NoReturn:
    """Raise the error for an attribute that an object of a class does not have; `more` are names it has besides."""
    if name.startswith("_"):
        raise AttributeError(name)
    known = [*more, *_names(kind)]
    fix = (meant or {}).get(name) or elsewhere(name, kind) or did_you_mean(name, known, fix)
    raise NoNameError(Problem(f"{thing} has no {what} {name}", fix=fix))


def elsewhere(name: str, kind: type | None = None) -> str:
    """How a name is reached that one of the objects of the interface has; '' if none has it."""
    other = FALSE_NAMES.get(name, name)
    found = {"own": "", "exact": "", "meant": ""}
    for called, (path, home) in HOMES.items():
        module, _, of = home.partition(":")
        cls = getattr(importlib.import_module(module), of)
        own, names = kind is not None and issubclass(kind, cls), set(_names(cls))
        for how, wanted in (("own", other if own else ""), ("exact", name), ("meant", other)):
            if wanted in names:
                found[how] = found[how] or f"{called if own else path}.{wanted}{_arguments(getattr(cls, wanted, None))}"
    return found["own"] or found["exact"] or found["meant"]


def _names(kind: type) -> Iterator[str]:
    """The public attributes of the objects of a class."""
    held = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    return (name for name in sorted(held) if not name.startswith("_"))


def _arguments(method: Any) -> str:
    """What a call of the method must have, in brackets; '' of what is not called."""
    if not inspect.isfunction(method):
        return ""
    needed = [
        name
        for name, parameter in inspect.signature(method).parameters.items()
        if name != "self" and parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
    ]
    return STATEMENTS.get(method.__name__) or f"({', '.join(EXAMPLES.get(name, name) for name in needed)})"
