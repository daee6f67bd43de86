"""Text to expressions and statements, by a whitelist over Python's `ast`; nothing is ever executed."""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np

from tensorprog.language.atoms import ATOMS, REDUCTIONS
from tensorprog.language.errors import ProgramError, Span, did_you_mean, fail, shorten
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
    as_expr,
    call,
    fold,
    function,
)
from tensorprog.language.meant import not_here

MAX_LENGTH = 20_000  # characters in one statement
MAX_DEPTH = 60  # of functions in functions, and arguments of one

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.Pow: "power",
    ast.BitAnd: "logical_and",
    ast.BitOr: "logical_or",
    ast.And: "logical_and",
    ast.Or: "logical_or",
    ast.USub: "negative",
    ast.UAdd: "add",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
}
INSTRUCTIONS = ("MatMul", "Nonlin", "Dot")
EXACT = ("add", "subtract", "multiply", "negative", "divide", "power")  # of whole numbers


@dataclass(frozen=True)
class Names:
    """What the names in a text mean: constants with their numbers (or None for arrays), and indices."""

    constants: Mapping[str, float | int | None] = field(default_factory=dict)
    indices: frozenset[str] = frozenset()


class _Reader:
    """Reads one text; what is wrong with a part is told with its place."""

    def __init__(self, text: str, names: Names, span: Span) -> None:
        if not isinstance(text, str):
            raise fail(f"text is needed, with indices in square brackets, and not {text!r}", span, '"W[i]"')
        self.text, self.names = text.lstrip(), names
        self.span = span.at(len(text) - len(self.text)) if span.text else Span(text=text)

    def error(self, message: str, node: ast.AST | None = None, fix: str = "") -> ProgramError:
        """What is wrong with a part, with its place in the file."""
        return fail(message, self.span.at(getattr(node, "col_offset", 0)), fix)

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Give what is wrong with an expression the place of a node, if it has none yet."""
        try:
            yield
        except ProgramError as error:
            first = error.problems[0]
            raise (error if first.span.text else self.error(first.message, node, first.fix)) from None

    def body(self, mode: str = "eval") -> Any:
        """The text as Python reads it, an expression or a list of statements, within bounds on length and depth."""
        if len(self.text) > MAX_LENGTH:
            raise self.error(f"the text has more than the {MAX_LENGTH} characters allowed")
        deep, characters = "this is nested too deeply: name the inner parts", self.text.encode(errors="replace")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree: Any = ast.parse(self.text.replace("\n", " "), mode=mode)
        except SyntaxError as error:
            said = f"this cannot be read: {(error.msg or 'invalid syntax').split('. ')[0]}"
            raise fail(said, self.span.at(max((error.offset or 1) - 1, 0))) from None
        except (MemoryError, RecursionError, ValueError) as error:
            text = "this cannot be read: it contains characters that are not text"
            raise self.error(text if isinstance(error, ValueError) else deep) from None
        stack: list[tuple[ast.AST, int]] = [(tree, 0)]
        while stack:  # operators nest without brackets (1+1+..., ----x): bound that depth as well
            node, level = stack.pop()
            if hasattr(node, "col_offset"):  # ast counts bytes
                node.col_offset = len(characters[: node.col_offset].decode(errors="ignore"))
            if level > 2 * MAX_DEPTH:
                raise self.error(deep, node)
            stack.extend((child, level + 1) for child in ast.iter_child_nodes(node))
        return tree.body

    def expression(self, node: ast.AST) -> Expr:
        """The expression of a node."""
        match node:
            case ast.Constant():
                with self.at(node):
                    return as_expr(node.value)
            case ast.Name():
                return self.name(node)
            case ast.Subscript():
                reference = self.target(node)
                constant = reference.name in self.names.constants
                return Constant(reference.name, reference.slots, node.col_offset) if constant else reference
            case ast.UnaryOp():
                return self.apply(node.op, node, node.operand)
            case ast.BinOp():
                return self.apply(node.op, node, node.left, node.right)
            case ast.BoolOp():
                return self.apply(node.op, node, *node.values)
            case ast.Compare(ops=[operator], comparators=[right]):
                return self.apply(operator, node, node.left, right)
            case ast.Compare():
                raise self.error("comparisons do not chain", node, "write (a < b) & (b < c)")
            case ast.Call():
                return self.function(node)
            case ast.Attribute(attr="T"):
                said = f"{_text(node)} cannot stand here: only the weight of a MatMul may be transposed"
                raise self.error(said, node, f"g = MatMul({_text(node)}, x) in a statement of its own")
        fix = "use numbers, names, + - * / **, comparisons and functions"
        raise self.error(f"{_text(node)} is not part of the language", node, fix)

    def weight(self, node: ast.expr) -> Expr:
        """The first argument of a MatMul, which may be transposed."""
        if not isinstance(node, ast.Attribute) or node.attr != "T":
            return self.expression(node)
        weight = self.expression(node.value)
        if not isinstance(weight, Variable):
            raise self.error(f"only a weight can be transposed, by its name, not {weight}", node, "MatMul(W[i].T, x)")
        return Transposed(weight)

    def name(self, node: ast.Name) -> Expr:
        """A number, an index, a constant or a family without indices."""
        name, indices = node.id, self.names.indices
        if name in ("pi", "inf"):
            return Number(getattr(math, name))
        if name in indices or (name.endswith("_") and name[:-1] in indices):
            return IndexValue(name)
        return (Constant if name in self.names.constants else Variable)(name, (), node.col_offset)

    def target(self, node: ast.AST) -> Variable:
        """A name, with indices if it is a family."""
        slots: list[Affine] = []
        name = node.value if isinstance(node, ast.Subscript) else node
        if not isinstance(name, ast.Name):
            raise self.error("only a name can carry indices, and be a left side", node, "name[i, j] = ...")
        if isinstance(node, ast.Subscript) and (name.id in REDUCTIONS or name.id in ATOMS):
            raise self.error(f"{name.id}[...] needs an argument in round brackets", node, f"{name.id}[i](x[i])")
        for part in self.parts(node) if isinstance(node, ast.Subscript) else ():
            expr = self.expression(part)
            with self.at(part):
                slots.append(affine(expr, self.names))
        return Variable(name.id, tuple(slots), name.col_offset)

    def parts(self, node: ast.Subscript) -> list[ast.expr]:
        """What stands in square brackets."""
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not parts:
            raise self.error("the brackets are empty", node)
        return parts

    def apply(self, operator: ast.AST, node: ast.expr, *args: ast.expr) -> Expr:
        """An operator on its operands; several `and` or `or` are taken from the left."""
        name = _OPERATORS.get(type(operator))
        if name is None:
            fix = "MatMul(W, x) for a weight times a vector, in a statement of its own; else + - * / **"
            raise self.error(f"the operator in {_text(node)} is not part of the language", node, fix)
        first, *others = map(self.expression, args)
        if isinstance(operator, ast.UAdd):
            return first
        with self.at(node):
            if not others:
                return call(name, first, column=node.col_offset)
            return reduce(lambda one, other: call(name, one, other, column=node.col_offset), others, first)

    def function(self, node: ast.Call) -> Expr:
        """A function, over indices where they stand behind its name."""
        parts = self.parts(node.func) if isinstance(node.func, ast.Subscript) else []
        head = node.func.value if isinstance(node.func, ast.Subscript) else node.func
        if not isinstance(head, ast.Name):
            raise self.error("only functions of the language can be called", node, "see `tp list --atoms`")
        name, known = head.id, sorted(self.names.indices)
        if name in INSTRUCTIONS:
            fix = f"give it a statement of its own: name = {name}(...)"
            raise self.error(f"{name} is an instruction and must stand alone", node, fix)
        indices = [*map(_text, parts)]
        for part, index in zip(parts, indices, strict=True):
            if index not in known:
                raise self.error(f"{name}[...] takes declared indices, not {index}", part, did_you_mean(index, known))
        if len(node.args) > MAX_DEPTH or any(keyword.arg is None for keyword in node.keywords):
            raise self.error(f"{name} takes at most {MAX_DEPTH} arguments, and none behind **", node)
        with self.at(node):
            found = function(name)
            args = [self.expression(arg) for arg in node.args]
            keywords = {str(keyword.arg): self.expression(keyword.value) for keyword in node.keywords}
            if not parts:
                return found.applied(args, keywords, node.col_offset)
            if len(args) != 1 or keywords:
                raise fail(f"{name}[...] takes one argument", fix=f"{name}[{', '.join(indices)}](x)")
            return found.over(indices, node.col_offset)(args[0])


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
        match part:
            case IndexValue(name):
                return Affine.index(name)
            case Call(atom) if atom in rules:
                return None
            case Variable(name):
                fix = did_you_mean(name, [*names.indices, *names.constants], "declare it under indices or constants")
                raise fail(f"{name} is not an index or a constant", fix=fix)
        value = constant_value(part, names.constants)
        if value != int(value) or abs(value) > MAX_INTEGER:
            raise fail(f"the index expression {expr} is not made of whole numbers")
        return Affine((), int(value))

    text = "" if isinstance(expr, IndexValue | Number) else str(expr)
    return replace(fold(expr, rules, leaf, product), text=text)


def constant_value(expr: Expr, constants: Mapping[str, float | int | None]) -> int | float:
    """Evaluate an expression made of numbers and scalar constants.

    Raises    ProgramError if something else occurs in it, or the value is not a finite number
    """

    def leaf(part: Expr) -> int | float | None:
        if isinstance(part, Call):
            return None
        number = constants.get(part.name) if isinstance(part, Constant) and not part.slots else None
        number = part.value if isinstance(part, Number) else number
        if number is None or not math.isfinite(number):
            hint = did_you_mean(part.name, list(constants)) if isinstance(part, Variable) else ""
            raise fail(f"{part} is not a {'constant' if number is None else 'finite'} number", fix=hint)
        return number

    def value(part: Call, *args: int | float) -> int | float:
        result = float(ATOMS[part.atom].numpy(*map(float, args)))
        if not abs(result) <= 1e300:
            raise ProgramError(f"{part} is not a finite number")
        exact = part.atom in EXACT and all(isinstance(arg, int) for arg in args) and abs(result) <= MAX_INTEGER
        return int(result) if exact and result.is_integer() else result

    with np.errstate(all="ignore"):
        return fold(expr, {}, leaf, value)


def parse_expression(text: str, names: Names, span: Span = Span(), weight: bool = False) -> Expr:
    """Read one expression; as the `weight` of a MatMul it may be transposed.

    Raises    ProgramError with line and column
    """
    reader = _Reader(text, names, span)
    return reader.weight(reader.body()) if weight else reader.expression(reader.body())


def parse_target(text: str, names: Names, span: Span = Span()) -> Variable:
    """Read the name of a family with its indices, such as `WQ[a]`."""
    reader = _Reader(text, names, span)
    return reader.target(reader.body())


def parse_statement(
    text: str, names: Names, span: Span = Span()
) -> tuple[Variable, str, tuple[Expr, ...], tuple[tuple[str, str], ...]]:
    """Read `target = Instruction(arguments, keywords)`: target, instruction, arguments, and texts of keywords by name.

    Raises    ProgramError with line and column
    """
    reader = _Reader(text, names, span)
    body = reader.body("exec")
    if len(body) != 1 or not isinstance(body[0], ast.Assign) or len(body[0].targets) != 1:
        raise reader.error("a statement reads `name[indices] = Instruction(...)`", None, "u[i] = MatMul(W[i], h)")
    target, value = reader.target(body[0].targets[0]), body[0].value
    called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    if not isinstance(value, ast.Call) or called not in INSTRUCTIONS:
        fix = "" if called in ATOMS else not_here(called) or did_you_mean(called, INSTRUCTIONS, "")
        fix = fix or "u[i] = Nonlin(tanh(x[i])), say, or u[i] = MatMul(W, x[i])"
        raise reader.error("the right side must be MatMul(...), Nonlin(...) or Dot(...)", value, fix)
    first = reader.weight if called == "MatMul" else reader.expression
    args = (*map(first, value.args[:1]), *map(reader.expression, value.args[1:]))
    keywords = tuple((keyword.arg or "**", ast.unparse(keyword.value)) for keyword in value.keywords)
    return target, called, args, keywords
