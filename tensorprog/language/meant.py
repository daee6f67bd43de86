"""What was meant by a statement that is written in the words of numpy, torch or mathematics.

    >>> rewritten("y[i] = tanh(W @ x[i])^2", Surroundings({"i"}, (), {"W": ()}, {"x": ("i",)}))
    ['y1[i] = MatMul(W, x[i])', 'y[i] = Nonlin(tanh(y1[i])**2)']

Nothing is guessed that a table here does not say.  Who offers such a rewriting as a fix has looked whether it is valid.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from tensorprog.language.atoms import ATOMS, REDUCTIONS

__all__ = ["Surroundings", "function_meant", "in_python", "not_here", "rewritten"]

MAX_MEANT = 500  # characters of a statement, beyond which nobody asks what was meant

SYMBOLS = str.maketrans({
    "^": "**", "²": "**2", "³": "**3", "×": "*", "·": "*", "−": "-", "–": "-", "≤": "<=", "≥": ">=", "≠": "!=",
    "“": '"', "”": '"', "‘": "'", "’": "'", "√": "sqrt", "π": "pi", "∞": "inf",
})  # fmt: skip
MODULES = {"np", "numpy", "torch", "F", "nn", "jnp", "jax", "math", "tf", "tp", "scipy", "keras", "lax"}
# functions of one variable by their names elsewhere, in lower case without underscores
ONE = {
    "square": "x**2", "swish": "silu(x)", "heaviside": "step(x)", "ln": "log(x)", "log1p": "log(1 + x)",
    "expm1": "exp(x) - 1", "rsqrt": "1 / sqrt(x)", "reciprocal": "1 / x",
    "logistic": "sigmoid(x)", "expit": "sigmoid(x)",
    "fabs": "abs(x)", "absolute": "abs(x)", "softsign": "x / (1 + abs(x))", "hardtanh": "clip(x, -1, 1)",
    "relu6": "clip(x, 0, 6)", "logsigmoid": "-softplus(-x)", "mish": "x * tanh(softplus(x))", "erfc": "1 - erf(x)",
    "sinh": "(exp(x) - exp(-x)) / 2", "cosh": "(exp(x) + exp(-x)) / 2", "tanhshrink": "x - tanh(x)",
    "hardsigmoid": "clip(x / 6 + 1 / 2, 0, 1)", "quickgelu": "x * sigmoid(1.702 * x)", "neg": "-x", "sgn": "sign(x)",
    "tan": "sin(x) / cos(x)", "ndtr": "(1 + erf(x / sqrt(2))) / 2", "identity": "x", "float": "x", "exp2": "2**x",
    "gelunew": "gelu_tanh(x)",
}  # fmt: skip
TWO = {"pow": "x**y", "power": "x**y", "mul": "x * y", "multiply": "x * y", "sub": "x - y", "subtract": "x - y",
       "add": "x + y", "div": "x / y", "divide": "x / y", "truedivide": "x / y", "fmax": "max(x, y)",
       "fmin": "min(x, y)"}  # fmt: skip
OVER_COORDINATES = {  # of a vector x with mean m and mean square s over its coordinates
    "layernorm": "(x - m) / sqrt(s - m**2 + 1e-05)", "rmsnorm": "x / sqrt(s + 1e-06)", "mean": "m", "var": "s - m**2",
    "std": "sqrt(s - m**2)",
}  # fmt: skip
KEYWORDS = {"min": "lo", "max": "hi", "a_min": "lo", "a_max": "hi", "min_val": "lo", "max_val": "hi",
            "negative_slope": "slope"}  # fmt: skip
IDLE = {"inplace", "out", "dtype", "normalized_shape", "eps", "elementwise_affine", "bias", "keepdim", "keepdims"}
OVER = ("dim", "axis", "over")
PRODUCTS = {"matmul", "dot", "mm", "mv", "bmm", "inner", "vdot", "linear", "dense"}
OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip


@dataclass(frozen=True)
class Surroundings:
    """The names of a program: indices, constants, and weights and other families with the indices of each."""

    indices: Collection[str]
    constants: Collection[str]
    weights: Mapping[str, tuple[str, ...]]
    others: Mapping[str, tuple[str, ...]]
    scalars: Collection[str] = ()  # of the others, those that a Dot defines

    @property
    def families(self) -> dict[str, tuple[str, ...]]:
        """Weights and other families."""
        return {**self.weights, **self.others}


NOT_HERE = {  # what has no function, and what to do
    "dropout": "networks at initialisation have no dropout: leave it out",
    "norm": "the norm of a vector grows like sqrt(n); its square over n is an average, m = Dot(x, x, scale=1/n)",
    "batchnorm": "a mean over an index of vectors, mean[j](x[j]), as in the shipped program batchnorm_mlp",
    "conv1d": "a sum over shifts of an index, as in the shipped program cnn",
    "conv2d": "a sum over shifts of an index, as in the shipped program cnn",
    "attention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "scaleddotproductattention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "multiheadattention": "scores by Dot and a sum of softmax times values, as in the shipped program attention",
    "linear": "u[i] = MatMul(W, x[i]) in a statement of its own, with `W: 1` under `weights:`",
    "dense": "u[i] = MatMul(W, x[i]) in a statement of its own, with `W: 1` under `weights:`",
    "embedding": "initial vectors, `e[i]: {cov: 1}` under `initial:`",
    "einsum": "sum[j](...) over indices, Dot for inner products and MatMul for products with weights",
    "concat": "a family over one more index holds several vectors: x[a,i]",
    "cat": "a family over one more index holds several vectors: x[a,i]",
    "reshape": "families have indices instead of shapes: x[a,i]",
    "randn": "random vectors are declared under `initial:`, random matrices under `weights:`",
    "rand": "random vectors are declared under `initial:`, random matrices under `weights:`",
    "zeros": "the number 0",
    "ones": "the number 1",
}


def not_here(name: str) -> str:
    """What to do where a function of this name would stand in other libraries; '' if nothing is known."""
    return NOT_HERE.get(_plain(name), "")


def function_meant(name: str) -> str:
    """The function of the language that a name in another spelling means: `ReLU`, `leakyRelu`; '' if none."""
    spelt = {_plain(atom): atom for atom in (*ATOMS, *REDUCTIONS)}
    return spelt.get(_plain(name), "")


def in_python(name: str) -> str:
    """The same as an expression in Python: `tp.silu(x)` for swish; '' if nothing is known."""
    known = function_meant(name)
    return f"tp.{known}(x)" if known else re.sub(r"\b([a-z_]+)\(", r"tp.\1(", ONE.get(_plain(name), ""))


def rewritten(text: str, known: Surroundings) -> list[str]:
    """The statements meant by a text, in the form of program files; none if nothing is to be changed, or known."""
    if len(text) > MAX_MEANT:
        return []
    for legible in _legible(text, known):
        tree = _parsed(legible)
        if tree is None or len(tree.body) != 1:
            continue
        statement = tree.body[0]
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            try:
                found = _Statement(statement.targets[0], statement.value, known).lines
            except (_UnknownError, RecursionError, ValueError):
                return []
            same = _parsed(text)
            return [] if same is not None and found == [_text(same)] else found
    return []


class _UnknownError(Exception):
    """What was meant is not known."""


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip())
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _text(node: ast.AST) -> str:
    text = ast.unparse(ast.fix_missing_locations(node))
    text = re.sub(r"\[[^\[\]()]*\]", lambda found: found.group().replace(", ", ","), text)
    return text.replace(" ** ", "**")


def _legible(text: str, known: Surroundings) -> Iterator[str]:
    """The text in letters of Python, with more and more repairs."""
    text = text.strip().rstrip(";").translate(SYMBOLS)
    text = re.sub(r"^(\w+(?:\[[^\]]*\])*)\s*(?::=|<-|←|==|~|:)\s*", r"\1 = ", text)
    yield text
    text = re.sub(r"\b([^\W\d]\w*?)_\{(\w+)\}", lambda m: f"{m[1]}[{','.join(m[2])}]", text)
    text = re.sub(r"\\(?:mathrm|text|operatorname)?\{?(\w+)\}?", r"\1", text).replace("{", "(").replace("}", ")")
    text = re.sub(r"\|([^|]+)\|", r"abs(\1)", text)
    yield text
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)\s*(?![eE][-+\d])(?=[^\W\d])", r"\1 * ", text)
    functions = "|".join(sorted({*ATOMS, *REDUCTIONS}))
    text = re.sub(rf"\b({functions})\s+((?!in\b|if\b|else\b|and\b|or\b)[^\W\d]\w*(?:\[[^\]]*\])?)", r"\1(\2)", text)
    yield text
    missing = text.count("(") - text.count(")")
    if missing > 0:
        yield text + ")" * missing
    while missing < 0 and text.endswith(")"):
        text, missing = text[:-1], missing + 1
    yield text


class _Statement:
    """A statement rewritten: `lines` has it, after the statements that it needs."""

    def __init__(self, target: ast.expr, value: ast.expr, known: Surroundings) -> None:
        self.known = known
        self.before: list[str] = []
        self.made: set[str] = set()
        self.taken = {*known.families, *known.constants, *known.indices}
        left = _Words(self, ()).target(target)
        self.name = left.id if isinstance(left, ast.Name) else _name(left)
        self.ones = ""
        own = tuple(_used(left, known.indices))
        words = _Words(self, own)
        width = ""
        called = _called(value)
        if called in ("nonlin", "nonlinear", "activation") and isinstance(value, ast.Call) and len(value.args) == 1:
            width = "".join(f", {keyword.arg}={_text(keyword.value)}" for keyword in value.keywords)
            value = value.args[0]
        value = words.visit(value)
        product = self.product(value)
        right = product or f"Nonlin({_text(self.lifted(value))}{width})"
        free = _used(ast.parse(right, mode="eval"), known.indices, free=True)
        if isinstance(left, ast.Name) and free:
            left = _made(f"{left.id}[{','.join(free)}]")
        self.lines = [*self.before, f"{_text(left)} = {right}"]

    def fresh(self, wanted: str) -> str:
        """A name that is not taken."""
        k = 1
        name = wanted
        while name in self.taken:
            name, k = f"{wanted}{k}", k + 1
        self.taken.add(name)
        return name

    def named(self, right: str, wanted: str = "") -> ast.expr:
        """A statement of its own for a right side: the reference to what it defines."""
        name = self.fresh(wanted or f"{self.name}1")
        free = _used(ast.parse(right, mode="eval"), self.known.indices, free=True)
        reference = f"{name}[{','.join(free)}]" if free else name
        self.made.add(name)
        self.before.append(f"{reference} = {right}")
        return _made(reference)

    def is_weight(self, node: ast.AST) -> bool:
        """Whether a node refers to a weight, transposed or not."""
        return _name(_base(node)) in self.known.weights

    def vector(self, node: ast.expr) -> str:
        """A node as a reference to a vector."""
        node = _base(node)
        if isinstance(node, ast.Name | ast.Subscript):
            return _text(node)
        product = self.product(node)
        return _text(self.named(product or f"Nonlin({_text(self.lifted(node))})"))

    def product(self, node: ast.expr) -> str:
        """A node that is a product of a weight or of two vectors, as an instruction; '' if it is none."""
        scale = ""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
            divides = isinstance(node.op, ast.Div)
            other = re.sub(r"[\s()]", "", _text(node.right))
            root = other in (("sqrtn", "n**0.5") if divides else ("n**-0.5", "1/sqrtn"))
            if root or other == ("n" if divides else "1/n"):
                node, scale = node.left, "n**-0.5" if root else "1/n"
        weighs = isinstance(node, ast.BinOp) and self.is_weight(node.left) != self.is_weight(node.right)
        pair, keywords = _pair(node, bool(scale) or weighs)
        if not pair:
            if _called(node) in PRODUCTS:
                raise _UnknownError
            return ""
        first, second = pair
        references = [_base(part) for part in pair]
        if any(
            isinstance(part, ast.Name | ast.Subscript) and _name(part) not in {*self.known.families, *self.made}
            for part in references
        ):
            raise _UnknownError  # it may be a weight that is to be declared
        if scale and (self.is_weight(first) or self.is_weight(second)):
            raise _UnknownError
        if self.is_weight(first) == self.is_weight(second):
            if self.is_weight(first):
                raise _UnknownError
            given = "".join(f", {keyword.arg}={_text(keyword.value)}" for keyword in keywords if keyword.arg == "scale")
            if scale == "1/n" or given.replace(" ", "") == ",scale=1/n":
                given = ", scale=1/n"
            elif "sqrt" in given or "**" in given:
                given = ""
            return f"Dot({self.vector(first)}, {self.vector(second)}{given})"
        if self.is_weight(second):  # a row times a matrix, except where a function is given the weight last
            turned = isinstance(node, ast.BinOp)
            weight = _base(second)
            transposed = (second is weight) == turned
            return f"MatMul({_text(weight)}{'.T' * transposed}, {self.vector(first)})"
        return f"MatMul({_text(first)}, {self.vector(second)})"

    def lifted(self, node: ast.expr) -> ast.expr:
        """An expression whose products have statements of their own."""
        maker = self

        class Lift(ast.NodeTransformer):
            def generic_visit(self, node: ast.AST) -> ast.AST:
                product = maker.product(node) if isinstance(node, ast.expr) else ""
                return maker.named(product) if product else super().generic_visit(node)

        found = Lift().visit(node)
        assert isinstance(found, ast.expr)
        return found

    def over_coordinates(self, name: str, vector: ast.expr) -> ast.expr:
        """A function of all coordinates of a vector, from its averages."""
        x = self.vector(vector)
        text = OVER_COORDINATES[name]
        parts = {"x": x}
        if "m" in re.findall(r"\b\w+\b", text):
            self.ones = self.ones or _text(self.named("Nonlin(1)", "one"))
            parts["m"] = _text(self.named(f"Dot({x}, {self.ones}, scale=1/n)", f"{self.name}_mean"))
        if "s" in re.findall(r"\b\w+\b", text):
            parts["s"] = _text(self.named(f"Dot({x}, {x}, scale=1/n)", f"{self.name}_square"))
        return _made(re.sub(r"\b[xms]\b", lambda found: parts[found.group()], text))


class _Words(ast.NodeTransformer):
    """Names of functions, conditions and indices in the words of the language."""

    def __init__(self, statement: _Statement, left: tuple[str, ...]) -> None:
        self.statement, self.known = statement, statement.known
        self.left = left
        self.summed: list[str] = []

    def target(self, node: ast.expr) -> ast.expr:
        """A left side; a name such as x_i means x[i]."""
        if isinstance(node, ast.Name):
            return self._with_suffix(node) or node
        inner, slots = _unfolded(node)
        if not isinstance(inner, ast.Name) or not slots:
            raise _UnknownError
        return _made(f"{inner.id}[{','.join(map(_text, slots))}]")

    # -- names and indices ---------------------------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.known.families:
            return self._member(node.id, [])
        if node.id in self.known.constants or node.id in self.known.indices:
            return node
        return self._with_suffix(node) or (_made("exp(1)") if node.id == "e" else node)

    def _with_suffix(self, node: ast.Name) -> ast.expr | None:
        """x_i and x_ij, in which the letters behind the line are indices."""
        name, _, letters = node.id.rpartition("_")
        if (
            name
            and letters
            and all(letter in self.known.indices for letter in letters)
            and (node.id not in self.known.families)
        ):
            return _made(f"{name}[{','.join(letters)}]")
        return None

    def _member(self, name: str, slots: list[str]) -> ast.expr:
        own = self.known.families[name]
        if len(slots) < len(own) and not slots:
            slots = list(own)
        elif not own:
            slots = []
        return _made(f"{name}[{','.join(slots)}]" if slots else name)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        inner, slots = _unfolded(node)
        if not isinstance(inner, ast.Name):
            if isinstance(inner, ast.Attribute) and inner.attr == "T" and isinstance(inner.value, ast.Name):
                return ast.Attribute(_made(f"{inner.value.id}[{','.join(map(_text, slots))}]"), "T", ast.Load())
            raise _UnknownError
        texts = [_text(slot) for slot in slots if not isinstance(slot, ast.Slice)]
        if inner.id in self.known.families:
            return self._member(inner.id, texts)
        return _made(f"{inner.id}[{','.join(texts)}]" if texts else inner.id)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if node.attr in ("T", "mT"):
            value = self.visit(node.value)
            turned = ast.Attribute(value, "T", ast.Load())
            return turned if self.statement.is_weight(value) else value
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in MODULES:
            return self.visit_Name(ast.Name(node.attr, ast.Load()))
        raise _UnknownError

    # -- functions -----------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function, given = node.func, list(node.args)
        if isinstance(function, ast.Call) and not isinstance(function.func, ast.Call):  # nn.LeakyReLU(0.2)(x)
            given, function = [*given, *function.args], function.func
        if isinstance(function, ast.Attribute) and not self._of_module(function):  # x.tanh()
            given, function = [function.value, *given], ast.Name(function.attr, ast.Load())
        if isinstance(function, ast.Attribute):
            function = ast.Name(function.attr, ast.Load())
        if isinstance(function, ast.Subscript):
            name = function.value.id if isinstance(function.value, ast.Name) else ""
            return self._reduced(name, [_text(part) for part in _parts(function)], node)
        if not isinstance(function, ast.Name):
            raise _UnknownError
        keywords = {keyword.arg or "": keyword.value for keyword in node.keywords if keyword.arg not in IDLE}
        return self._applied(function.id, given, keywords, node)

    def _applied(self, name: str, given: list[ast.expr], keywords: dict[str, ast.expr], node: ast.Call) -> ast.expr:
        plain = _plain(name)
        if name in self.known.families and given and all(_text(part) in self.known.indices for part in given):
            return self._member(name, [_text(part) for part in given])
        base, _, index = name.rpartition("_")
        if base in REDUCTIONS and index in self.known.indices:
            return self._reduced(base, [index], node)
        if plain in PRODUCTS or name == "Dot":
            args = [self.visit(part) for part in given]
            if name == "MatMul" and not any(self.statement.is_weight(part) for part in args):
                raise _UnknownError  # one of the vectors may be a weight that is to be declared
            return ast.Call(ast.Name(plain, ast.Load()), args, [ast.keyword(k, v) for k, v in keywords.items()])
        if plain == "where" and len(given) == 3:
            return _call("where", [self.condition(given[0]), self.visit(given[1]), self.visit(given[2])])
        if plain == "gelu" and "approximate" in keywords:
            plain, keywords = ("gelutanh" if "tanh" in _text(keywords["approximate"]) else "gelu"), {}
        reduces = plain in REDUCTIONS and (plain not in ("max", "min") or len(given) == 1)
        if reduces or (plain in OVER_COORDINATES and given):
            return self._over(plain, given, keywords, node)
        args = [self.visit(part) for part in given]
        if plain == "clamp" or (plain == "clip" and len(given) + len(keywords) < 3):
            bounds = {KEYWORDS.get(key, key): self.visit(value) for key, value in keywords.items()}
            bounds |= dict(zip(("lo", "hi"), args[1:], strict=False))
            if bounds.keys() == {"lo", "hi"}:
                return _call("clip", [args[0], bounds["lo"], bounds["hi"]])
            return _call("max" if "lo" in bounds else "min", [args[0], *bounds.values()])
        table = ONE if len(args) == 1 else TWO if len(args) == 2 else {}
        if plain in table and (plain not in ATOMS or len(args) == 2) and not keywords:
            return _filled(table[plain], dict(zip("xy", args, strict=False)))
        meant = name if name in ATOMS or name in ("min", "max") else function_meant(name)
        if not meant:
            raise _UnknownError
        renamed = [ast.keyword(KEYWORDS.get(key, key), self.visit(value)) for key, value in keywords.items()]
        return ast.Call(ast.Name(meant, ast.Load()), args, renamed)

    @staticmethod
    def _of_module(node: ast.Attribute) -> bool:
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return isinstance(root, ast.Name) and root.id in MODULES

    def _over(self, name: str, given: list[ast.expr], keywords: dict[str, ast.expr], node: ast.Call) -> ast.expr:
        """A reduction whose index is not written where the language wants it."""
        arg = given[0]
        if isinstance(arg, ast.GeneratorExp | ast.ListComp) and len(arg.generators) == 1:
            index = _text(arg.generators[0].target)
            if index in self.known.indices:
                return self._reduced(name, [index], node, arg.elt)
        said = [self.visit(part) for part in (*given[1:], *(keywords[key] for key in OVER if key in keywords))]
        named = [_text(part) for part in said if _text(part) in self.known.indices]
        used = _used(self.visit(_copy(arg)), self.known.indices, free=True) if name in REDUCTIONS else []
        if named:
            over = named
        elif name in REDUCTIONS and REDUCTIONS[name].removes:
            over = [index for index in used if index not in self.left and index not in self.summed]
        else:
            over = [index for index in used if index in self.summed] or used[-1:]
        if over:
            return self._reduced(name, over, node, arg)
        if name in OVER_COORDINATES:
            return self.statement.over_coordinates(name, self.visit(arg))
        raise _UnknownError

    def _reduced(self, name: str, over: list[str], node: ast.Call, arg: ast.expr | None = None) -> ast.expr:
        meant = name if name in REDUCTIONS else function_meant(name)
        if meant not in REDUCTIONS or not node.args:
            raise _UnknownError
        removes = REDUCTIONS[meant].removes
        self.summed += over if removes else []
        inner = self.visit(node.args[0] if arg is None else arg)
        if removes:
            del self.summed[len(self.summed) - len(over) :]
        return ast.Call(_made(f"{meant}[{','.join(over)}]"), [inner], [])

    # -- conditions ----------------------------------------------------------------------------------------------------

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        return _call("where", [self.condition(node.test), self.visit(node.body), self.visit(node.orelse)])

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        return _call("where", [self.condition(node), ast.Constant(1), ast.Constant(0)])

    def condition(self, node: ast.expr) -> ast.expr:
        """A node as a condition."""
        if isinstance(node, ast.Compare):
            terms = [self.visit(part) for part in (node.left, *node.comparators)]
            found = [ast.Compare(a, [op], [b]) for a, op, b in zip(terms, node.ops, terms[1:], strict=False)]
            return _joined(found, ast.BitAnd())
        if isinstance(node, ast.BoolOp):
            joint = ast.BitAnd() if isinstance(node.op, ast.And) else ast.BitOr()
            return _joined([self.condition(part) for part in node.values], joint)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
            return ast.BinOp(self.condition(node.left), node.op, self.condition(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
            inner = self.condition(node.operand)
            if isinstance(inner, ast.Compare):
                return ast.Compare(inner.left, [OPPOSITE[type(inner.ops[0])]()], inner.comparators)
            raise _UnknownError
        return ast.Compare(self.visit(node), [ast.NotEq()], [ast.Constant(0)])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if isinstance(node.op, ast.Pow) and _text(node.left) in ("e", "math.e", "np.e") and "e" not in self.taken():
            return _call("exp", [self.visit(node.right)])
        names = {part.id for part in ast.walk(node.left) if isinstance(part, ast.Name)} & self.known.families.keys()
        if isinstance(node.op, ast.MatMult) and names and names <= {*self.known.scalars}:  # a matrix of scores
            inner = _used(self.visit(_copy(node.right)), self.known.indices, free=True)
            over = [index for index in inner if index not in self.left and index not in self.summed]
            if not over:
                raise _UnknownError
            product = ast.Call(ast.Name("sum", ast.Load()), [ast.BinOp(node.left, ast.Mult(), node.right)], [])
            return self._reduced("sum", over, product)
        found = super().generic_visit(node)
        assert isinstance(found, ast.expr)
        return found

    def taken(self) -> set[str]:
        """Names of the program."""
        return {*self.known.constants, *self.known.families, *self.known.indices}


# ---- trees ----------------------------------------------------------------------------------------------------------


def _made(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _copy(node: ast.expr) -> ast.expr:
    return _made(ast.unparse(node))


def _call(name: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), args, [])


def _joined(parts: list[ast.expr] | list[ast.Compare], operator: ast.operator) -> ast.expr:
    found: ast.expr = parts[0]
    for part in parts[1:]:
        found = ast.BinOp(found, operator, part)
    return found


def _filled(template: str, parts: Mapping[str, ast.expr]) -> ast.expr:
    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return _copy(parts[node.id]) if node.id in parts else node

    found = Fill().visit(_made(template))
    assert isinstance(found, ast.expr)
    return found


def _parts(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _unfolded(node: ast.expr) -> tuple[ast.expr, list[ast.expr]]:
    """What carries indices, and all of them: p and i, j of p[i][j]."""
    slots: list[ast.expr] = []
    while isinstance(node, ast.Subscript):
        slots = [*_parts(node), *slots]
        node = node.value
    return node, slots


def _base(node: ast.AST) -> ast.expr:
    found = node.value if isinstance(node, ast.Attribute) and node.attr == "T" else node
    assert isinstance(found, ast.expr)
    return found


def _name(node: ast.AST) -> str:
    node = node.value if isinstance(node, ast.Subscript) else node
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.AST) -> str:
    """The function that a node applies, in lower case; '' if it is no call."""
    function = node.func if isinstance(node, ast.Call) else None
    name = function.attr if isinstance(function, ast.Attribute) else _name(function) if function is not None else ""
    return _plain(name)


def _pair(node: ast.expr, elementwise: bool) -> tuple[tuple[ast.expr, ast.expr] | None, list[ast.keyword]]:
    """The two factors of a product in any spelling, and keywords beside them."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return (node.left, node.right), []
    if elementwise and isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return (node.left, node.right), []
    if _called(node) in PRODUCTS and isinstance(node, ast.Call) and len(node.args) == 2:
        return (node.args[0], node.args[1]), node.keywords
    if elementwise and _called(node) == "sum" and isinstance(node, ast.Call) and len(node.args) == 1:
        return _pair(node.args[0], elementwise)
    return None, []


def _used(node: ast.AST, indices: Collection[str], free: bool = False) -> list[str]:
    """Indices that occur in a tree, in order; with `free`, those that no reduction in it removes."""
    found: dict[str, None] = {}

    def walk(part: ast.AST, bound: frozenset[str]) -> None:
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Subscript):
            reducer = _name(part.func)
            inside = {_text(index) for index in _parts(part.func)}
            if free and reducer in REDUCTIONS and REDUCTIONS[reducer].removes:
                bound = bound | inside
            elif free:
                found.update(dict.fromkeys(sorted((inside & set(indices)) - bound)))
            for arg in part.args:
                walk(arg, bound)
            return
        if isinstance(part, ast.Name) and part.id in indices and part.id not in bound:
            found[part.id] = None
        for child in ast.iter_child_nodes(part):
            walk(child, bound)

    walk(node, frozenset())
    return list(found)
