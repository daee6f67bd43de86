"""Text to expressions and statements, by a whitelist over Python's `ast`; nothing is ever executed."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import Problem, ProgramError, Span, did_you_mean, fail, shorten
from tensorprog.language.expr import (
    MAX_INTEGER,
    Affine,
    Call,
    Constant,
    Expr,
    IndexValue,
    Number,
    Transposed,
    Variable,
    call,
    fold,
    function,
    is_call,
)
from tensorprog.language.meant import not_here

__all__ = [
    "MAX_DEPTH",
    "Names",
    "affine",
    "constant_value",
    "parse_expression",
    "parse_statement",
    "parse_target",
]

MAX_LENGTH = 20_000  # characters in one statement
MAX_DEPTH = 60  # of functions in functions, and arguments of one

_BINARY: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or",
}
_COMPARE: dict[type[ast.AST], str] = {
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
INSTRUCTIONS = ("MatMul", "Nonlin", "Dot")
_EXACT: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "negative": lambda a: -a,
}


@dataclass(frozen=True)
class Names:
    """What the names in a text mean: constants with their numbers (or None for arrays), and indices."""

    constants: Mapping[str, float | int | None] = field(default_factory=dict)
    indices: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ParsedStatement:
    """`target = Instruction(arguments, keywords)` with columns relative to the text."""

    target: Variable
    instruction: str
    args: tuple[Expr, ...]
    keywords: tuple[tuple[str, str], ...]  # name, source text


class _Error(Exception):
    def __init__(self, message: str, node: ast.AST | int = 0, fix: str = "") -> None:
        self.column = node if isinstance(node, int) else getattr(node, "col_offset", 0)
        self.message, self.fix = message, fix


def _tree(text: str, mode: str) -> ast.AST:
    if len(text) > MAX_LENGTH:
        raise _Error(
            f"the text has {len(text)} characters, more than the {MAX_LENGTH} allowed",
            0,
            "split it into several statements",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.lstrip().replace("\n", " "), mode=mode)
    except SyntaxError as error:
        hint = ""
        if "assign" in (error.msg or "") or "==" in (error.msg or ""):
            hint = "write one statement `name[indices] = Instruction(...)`"
        raise _Error(
            f"this cannot be read: {(error.msg or 'invalid syntax').split('. ')[0]}",
            max((error.offset or 1) - 1, 0),
            hint,
        ) from None
    except (MemoryError, RecursionError):
        raise _Error("this is nested too deeply to be read", 0, "name the inner parts") from None
    except ValueError:
        raise _Error("this cannot be read: it contains characters that are not text", 0) from None
    characters = None if text.isascii() else text.lstrip().encode()
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]
    while stack:  # operators nest without brackets (1+1+..., ----x): bound that depth as well
        node, level = stack.pop()
        if level > 2 * MAX_DEPTH:
            raise _Error("the expression is nested too deeply", node, "name the inner parts")
        if characters is not None and hasattr(node, "col_offset"):  # ast counts bytes
            node.col_offset = len(characters[: node.col_offset].decode(errors="ignore"))
        stack.extend((child, level + 1) for child in ast.iter_child_nodes(node))
    return tree


@contextmanager
def _placed(text: str, span: Span) -> Iterator[None]:
    """Give what is wrong with a text its place in the file."""
    try:
        yield
    except _Error as error:
        offset = error.column + len(text) - len(text.lstrip())
        place = span.at(offset) if span.text else Span("", 0, 0, text)
        raise ProgramError(Problem(error.message, place, error.fix)) from None


@contextmanager
def _at(node: ast.expr) -> Iterator[None]:
    """Give what is wrong with an expression the place of a node."""
    try:
        yield
    except ProgramError as error:
        raise _Error(error.problems[0].message, node, error.problems[0].fix) from None


class _Reader:
    def __init__(self, names: Names) -> None:
        self.names = names

    def expression(self, node: ast.AST) -> Expr:
        if isinstance(node, ast.Constant):
            return self.number(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.Subscript):
            return self.subscript(node)
        if isinstance(node, ast.UnaryOp):
            return self.unary(node)
        if isinstance(node, ast.BinOp):
            operator = _BINARY.get(type(node.op))
            if operator is None:
                fix = "MatMul(W, x) for a weight times a vector, in a statement of its own; else + - * / **"
                raise _Error(f"the operator in {_text(node)} is not part of the language", node, fix)
            return self.apply(operator, node, self.expression(node.left), self.expression(node.right))
        if isinstance(node, ast.BoolOp):
            name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
            result = self.expression(node.values[0])
            for value in node.values[1:]:
                result = self.apply(name, node, result, self.expression(value))
            return result
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1 or type(node.ops[0]) not in _COMPARE:
                raise _Error("comparisons do not chain", node, "write (a < b) & (b < c)")
            return self.apply(
                _COMPARE[type(node.ops[0])], node, self.expression(node.left), self.expression(node.comparators[0])
            )
        if isinstance(node, ast.Call):
            return self.function(node)
        if _is_transpose(node):
            said = f"{_text(node)} cannot stand here: only the weight of a MatMul may be transposed"
            raise _Error(said, node, f"g = MatMul({_text(node)}, x) in a statement of its own")
        fix = "use numbers, names, + - * / **, comparisons and functions"
        raise _Error(f"{_text(node)} is not part of the language", node, fix)

    def weight(self, node: ast.expr) -> Expr:
        """The first argument of a MatMul, which may be transposed."""
        if not _is_transpose(node):
            return self.expression(node)
        if _is_transpose(node.value):
            raise _Error(f"{_text(node)} is the matrix itself", node, f"write {_text(node.value.value)}")
        weight = self.expression(node.value)
        if not isinstance(weight, Variable):
            raise _Error(f"only a weight can be transposed, by its name, not {weight}", node, "MatMul(W[i].T, x)")
        return Transposed(weight)

    def number(self, node: ast.Constant) -> Number:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Error(f"{value!r} is not a number", node)
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise _Error("this integer is too large", node)
        return Number(value)

    def name(self, node: ast.Name) -> Expr:
        name = node.id
        if name == "pi":
            return Number(math.pi)
        if name == "inf":
            return Number(math.inf)
        if name in self.names.indices or (name.endswith("_") and name[:-1] in self.names.indices):
            return IndexValue(name)
        if name in self.names.constants:
            return Constant(name, (), node.col_offset)
        return Variable(name, (), node.col_offset)

    def subscript(self, node: ast.Subscript) -> Expr:
        if not isinstance(node.value, ast.Name):
            raise _Error(
                "only a name can carry indices",
                node,
                f"{_text(node.value.value)}[...].T" if _is_transpose(node.value) else "",
            )
        name = node.value.id
        if name in REDUCTIONS or name in ATOMS:
            raise _Error(f"{name}[...] needs an argument in round brackets", node, f"{name}[i](x[i])")
        slots = tuple(self.slot(part) for part in _parts(node))
        if name in self.names.constants:
            return Constant(name, slots, node.col_offset)
        return Variable(name, slots, node.col_offset)

    def slot(self, node: ast.expr) -> Affine:
        expr = self.expression(node)
        with _at(node):
            return affine(expr, self.names)

    def unary(self, node: ast.UnaryOp) -> Expr:
        if isinstance(node.op, ast.USub):
            return self.apply("negative", node, self.expression(node.operand))
        if isinstance(node.op, ast.UAdd):
            return self.expression(node.operand)
        raise _Error(f"the operator in {_text(node)} is not part of the language", node)

    def function(self, node: ast.Call) -> Expr:
        if isinstance(node.func, ast.Subscript):
            return self.reduction(node, node.func)
        if not isinstance(node.func, ast.Name):
            raise _Error("only functions of the language can be called", node, "see `tp list --atoms`")
        name = node.func.id
        if name in INSTRUCTIONS:
            raise _Error(
                f"{name} is an instruction and must stand alone",
                node,
                f"give it a statement of its own: name = {name}(...)",
            )
        with _at(node):
            found = function(name)
        if len(node.args) > MAX_DEPTH:
            raise _Error(f"{name} takes at most {MAX_DEPTH} arguments", node, "nest several of them")
        if any(keyword.arg is None for keyword in node.keywords):
            raise _Error("** is not part of the language here", node)
        keywords = {str(keyword.arg): self.expression(keyword.value) for keyword in node.keywords}
        args = [self.expression(arg) for arg in node.args]
        with _at(node):
            return found.applied(args, keywords, node.col_offset)

    def apply(self, name: str, node: ast.expr, *args: Expr) -> Expr:
        with _at(node):
            return call(name, *args, column=node.col_offset)

    def reduction(self, node: ast.Call, head: ast.Subscript) -> Expr:
        if not isinstance(head.value, ast.Name):
            raise _Error("only functions of the language can be called", node, "see `tp list --atoms`")
        name = head.value.id
        indices = []
        for part in _parts(head):
            if not isinstance(part, ast.Name) or part.id not in self.names.indices:
                known = sorted(self.names.indices)
                raise _Error(
                    f"{name}[...] takes declared indices, not {_text(part)}", part, did_you_mean(_text(part), known)
                )
            indices.append(part.id)
        with _at(head):
            over = function(name).over(indices, node.col_offset)
        if len(node.args) != 1 or node.keywords:
            raise _Error(f"{name}[...] takes one argument", node, f"{name}[{', '.join(indices)}](x)")
        return over(self.expression(node.args[0]))

    def target(self, node: ast.AST) -> Variable:
        if isinstance(node, ast.Name):
            return Variable(node.id, (), node.col_offset)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            return Variable(node.value.id, tuple(self.slot(part) for part in _parts(node)), node.col_offset)
        raise _Error("the left side must be a name, with indices if it is a family", node, "name[i, j] = ...")


def _parts(node: ast.Subscript) -> list[ast.expr]:
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if not parts:
        raise _Error("the brackets are empty", node)
    return list(parts)


def _is_transpose(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == "T"


def _text(node: ast.AST) -> str:
    try:
        return shorten(ast.unparse(node))
    except Exception:  # unparse has no rule for some nodes; the message can do without
        return type(node).__name__


def affine(expr: Expr, names: Names) -> Affine:
    """Read an expression as an affine form in indices, constants replaced by their integers.

    Raises    ProgramError
    """

    def product(_: Call, left: Affine, right: Affine) -> Affine:
        if left.terms and right.terms:
            raise fail(f"the index expression {expr} is not affine", fix="use sums of indices times integers")
        return right.offset * left if left.terms else left.offset * right

    rules: dict[str, Callable[..., Affine]] = {
        "add": lambda _, left, right: left + right,
        "subtract": lambda _, left, right: left - right,
        "negative": lambda _, arg: -1 * arg,
        "multiply": product,
    }

    def leaf(part: Expr) -> Affine | None:
        if isinstance(part, IndexValue):
            return Affine.index(part.name)
        if is_call(part, *rules):
            return None
        if isinstance(part, Variable):
            known = [*names.indices, *names.constants]
            raise fail(
                f"{part.name} is not an index or a constant",
                fix=did_you_mean(part.name, known, "declare it under indices or constants"),
            )
        value = constant_value(part, names.constants)
        if not math.isfinite(value) or value != int(value) or abs(value) > MAX_INTEGER:
            raise fail(f"the index expression {expr} is not made of whole numbers")
        return Affine((), int(value))

    found = fold(expr, rules, leaf, product)
    plain = isinstance(expr, IndexValue | Number)
    return replace(found, text="" if plain else str(expr))


def constant_value(expr: Expr, constants: Mapping[str, float | int | None]) -> int | float:
    """Evaluate an expression made of numbers and scalar constants.

    Raises    ProgramError if something else occurs in it, or the value is not a finite number
    """

    def leaf(part: Expr) -> int | float | None:
        if isinstance(part, Number) and math.isfinite(part.value):
            return part.value
        if isinstance(part, Number):
            raise ProgramError(f"{part} is not a finite number")
        if isinstance(part, Constant) and not part.slots and constants.get(part.name) is not None:
            return constants[part.name]
        if isinstance(part, Call):
            return None
        hint = did_you_mean(part.name, list(constants)) if isinstance(part, Variable) else ""
        raise ProgramError(Problem(f"{part} is not a constant number", fix=hint))

    def value(part: Call, *args: int | float) -> int | float:
        integers = all(isinstance(arg, int) for arg in args)
        if integers and part.atom in _EXACT:
            result: int | float = _EXACT[part.atom](*args)
        else:
            with_floats = ATOMS[part.atom].numpy(*(float(arg) for arg in args))
            result = float(with_floats)
            whole = integers and part.atom in ("divide", "power") and abs(result) <= MAX_INTEGER
            result = int(result) if whole and result == int(result) else result
        if (isinstance(result, float) and math.isnan(result)) or abs(result) > 1e300:
            raise ProgramError(f"{part} is not a finite number")
        return result

    import numpy as np

    with np.errstate(all="ignore"):
        return fold(expr, {}, leaf, value)


def parse_expression(text: str, names: Names, span: Span = Span(), weight: bool = False) -> Expr:
    """Read one expression; as the `weight` of a MatMul it may be transposed.

    Raises    ProgramError with line and column
    """
    with _placed(text, span):
        tree = _tree(text, "eval")
        assert isinstance(tree, ast.Expression)
        reader = _Reader(names)
        return reader.weight(tree.body) if weight else reader.expression(tree.body)


def parse_target(text: str, names: Names, span: Span = Span()) -> Variable:
    """Read the name of a family with its indices, such as `WQ[a]`."""
    if not isinstance(text, str):
        raise fail(f"a name is text, with the indices in square brackets, and not {text!r}", span, '"W[i]"')
    with _placed(text, span):
        tree = _tree(text, "eval")
        assert isinstance(tree, ast.Expression)
        return _Reader(names).target(tree.body)


def parse_statement(text: str, names: Names, span: Span = Span()) -> ParsedStatement:
    """Read `target = Instruction(arguments)`.

    Raises    ProgramError with line and column
    """
    with _placed(text, span):
        tree = _tree(text, "exec")
        assert isinstance(tree, ast.Module)
        body = tree.body
        if len(body) != 1 or not isinstance(body[0], ast.Assign) or len(body[0].targets) != 1:
            raise _Error(
                "a statement reads `name[indices] = Instruction(...)`", body[0] if body else 0, "u[i] = MatMul(W[i], h)"
            )
        reader = _Reader(names)
        target, value = reader.target(body[0].targets[0]), body[0].value
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in INSTRUCTIONS):
            called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
            fix = "" if called in ATOMS else not_here(called) or did_you_mean(called, INSTRUCTIONS, "")
            fix = fix or "u[i] = Nonlin(tanh(x[i])), say, or u[i] = MatMul(W, x[i])"
            raise _Error("the right side must be MatMul(...), Nonlin(...) or Dot(...)", value, fix)
        first = reader.weight if value.func.id == "MatMul" else reader.expression
        args = (*map(first, value.args[:1]), *map(reader.expression, value.args[1:]))
        keywords = tuple((keyword.arg or "**", ast.unparse(keyword.value)) for keyword in value.keywords)
        return ParsedStatement(target, value.func.id, args, keywords)
