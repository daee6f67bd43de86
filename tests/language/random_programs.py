"""Random valid programs for hypothesis, built through the Python front end."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from tensorprog import ProgramError
from tensorprog.language.atoms import ATOMS
from tensorprog.language.builder import Builder
from tensorprog.language.expr import Expr, call, function
from tests.reading import Netsor

ONE = sorted(
    name
    for name, atom in ATOMS.items()
    if atom.arity == 1
    and not any(default is None for default in atom.params.values())
    and name not in ("log", "sqrt", "negative")
)
NUMBERS = st.one_of(
    st.integers(-5, 5), st.floats(-9, 9, allow_nan=False).map(lambda x: round(x, 3)), st.sampled_from([1e-7, 0.1])
)
TITLES = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=30).filter(str.isprintable)


@st.composite
def expressions(draw: Any, leaves: list[Expr], indices: list[Any], depth: int = 3) -> Expr:
    """An expression in which the leaves and the values of the indices may occur."""
    inner = expressions(leaves, indices, depth - 1)
    kind = (
        draw(st.sampled_from(["leaf", "number", "atom", "operator", "where", "clip", "power", "minmax"]))
        if depth
        else "leaf"
    )
    if kind == "leaf":
        return draw(st.sampled_from(leaves))
    if kind == "number":
        return call(draw(st.sampled_from(["add", "multiply"])), draw(NUMBERS), draw(inner))
    if kind == "atom":
        return call(draw(st.sampled_from(ONE)), draw(inner))
    if kind == "operator":
        return call(draw(st.sampled_from(["add", "subtract", "multiply", "divide"])), draw(inner), draw(inner))
    if kind == "clip":
        return call("clip", draw(inner), -1, draw(st.integers(1, 3)))
    if kind == "power":
        return draw(inner) ** draw(st.integers(0, 3))
    if kind == "minmax":
        return function(draw(st.sampled_from(["min", "max"])))(draw(inner), draw(inner))
    if not indices:
        return -draw(inner)
    condition = call(
        draw(st.sampled_from(["less", "equal", "not_equal", "greater_equal"])), draw(st.sampled_from(indices)), 1
    )
    if draw(st.booleans()):
        condition = condition & (indices[0] <= 2) | (indices[0] > 3)
    return function("where")(condition, draw(inner), draw(st.one_of(NUMBERS, inner)))


@st.composite
def programs(draw: Any) -> Netsor:
    """A valid program of a few statements over two indices."""
    P = Builder(
        draw(st.sampled_from(["p", "a b", "1", "no", "x: y", "#p"])),
        {"s": draw(st.integers(2, 4)), "c": draw(NUMBERS)},
        title=draw(TITLES),
        reference=draw(TITLES),
        widths={"d": "n/s"},
        fixed_widths={"k": draw(st.sampled_from([8, "2*s"]))},
    )
    i, j = P.index("i", "s"), P.index("j", draw(st.sampled_from(["s", "0..s - 1"])))
    bound = {"i": i, "j": j}
    table = [[draw(NUMBERS) for _ in range(P.names.constants["s"])] for _ in range(P.names.constants["s"])]
    b, e = P.constant("b[i,j]", table), P.constant("e[i]", "i + c")
    vectors: dict[str, Any] = {"h": P.initial("h", draw(NUMBERS), draw(st.integers(0, 3)))}
    vectors["x0"] = P.initial(
        "x0[i]",
        mean=[draw(NUMBERS) for _ in range(P.names.constants["s"])],
        cov=draw(st.sampled_from(["0.5**abs(i - i_)", 1, "where(i == i_, 1, 0.5)", "i + 1"])),
    )
    vectors["x1"] = P.initial("x1[i]", data=table, variance=draw(st.sampled_from([1, "abs(c)"])))
    W, V = P.weight("W[i]", draw(st.sampled_from([1, "s/2", "i + 1"]))), P.weight("V")
    scalars: dict[str, Any] = {}
    for number in range(draw(st.integers(1, 6))):
        left = draw(st.sampled_from([[], ["i"], ["j"], ["i", "j"], ["j", "i"]]))
        target = f"f{number}[{','.join(left)}]" if left else f"f{number}"
        slots = st.sampled_from([*left, 0, 1, *(f"{name} - 0" for name in left), "s - 1"])

        def member(handle: Any, slots: Any = slots) -> Any:
            return handle if isinstance(handle, Expr) else handle[tuple(draw(slots) for _ in range(handle.count))]

        choose = st.sampled_from(sorted(vectors)).map(vectors.__getitem__)
        kind = draw(st.sampled_from(["matmul", "dot", "nonlin", "nonlin", "sum"]))
        if kind == "matmul":
            weight = member(draw(st.sampled_from([W, V])))
            matrix = weight.T if draw(st.booleans()) else weight
            vectors[f"f{number}"] = P.matmul(target, matrix, member(draw(choose)))
        elif kind == "dot":
            scalars[f"f{number}"] = P.dot(
                target, member(draw(choose)), member(draw(choose)), scale=draw(st.sampled_from(["n**-0.5", "1/n"]))
            )
        else:
            leaves = [member(draw(choose)) for _ in range(2)] + [member(handle) for handle in scalars.values()]
            leaves += [P.c, member(b), member(e), *(bound[name] for name in left)]
            expr = leaves[0] * draw(expressions(leaves, [bound[name] for name in left]))
            free = [name for name in ("i", "j") if name not in left]
            if kind == "sum" and free:
                index = bound[free[0]]
                over = function(draw(st.sampled_from(["sum", "mean", "max", "logsumexp"])))[index]
                expr = over(function("softmax")[index](expr * index) * expr)
            try:
                vectors[f"f{number}"] = P.nonlin(target, expr)
            except ProgramError as error:
                assume("is not a finite number" not in str(error))  # constants divided by 0
                raise
    names = [name for name in [*vectors, *scalars] if name.startswith("f")]
    P.outputs(*draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    if draw(st.booleans()):
        P.defaults(width=[8, 16], seed=draw(st.integers(0, 9)), averages={"a": "tanh(f0)**2"})
    return P.netsor
