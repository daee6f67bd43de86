"""Arithmetic, comparisons and `where`: the atoms that expressions spell with operators."""

from __future__ import annotations

import math

import numpy as np

from tensorprog.language.atoms.core import INF, Atom, Interval, Regularity, near, register


def _added(first: Interval, second: Interval) -> Interval:
    """Enclosure of a sum, in which whole numbers and halves are exact."""
    ends = (a + b for a, b in zip(first, second, strict=True))
    low, high = (near(x, exact=abs(x) < 2**52 and (2 * x).is_integer()) for x in ends)
    return low[0], high[1]


def _raised(x: float, exponent: float) -> Interval:
    try:
        value = float(abs(x) ** exponent * (-1.0 if x < 0 and exponent % 2 else 1.0))
    except (OverflowError, ZeroDivisionError):
        value = INF if x > 0 or exponent % 2 == 0 else -INF
    whole = abs(value) <= 2**53 and exponent >= 0 and float(x).is_integer() and float(exponent).is_integer()
    return near(value, exact=exponent == 1 or whole or abs(x) in (0, 1, INF))


def _power_image(interval: Interval, exponent: float) -> Interval:
    low, high = interval
    if exponent == 0:
        return 1.0, 1.0
    if exponent != int(exponent) and low < 0:
        return -INF, INF
    if exponent < 0 and low <= 0 <= high:
        return (0.0, INF) if exponent % 2 == 0 or low >= 0 else (-INF, INF)
    ends = [*_raised(low, exponent), *_raised(high, exponent)]
    least, most = min(ends), max(ends)
    if exponent % 2 == 0:
        least = 0.0 if exponent > 0 and low < 0 < high else max(least, 0.0)
    return least, most


def _power_local(interval: Interval, exponent: float) -> Regularity:
    low, high = interval
    if exponent == 0:
        return Regularity(0, 0, 0.0)
    whole = exponent == int(exponent)
    if (low < 0 and not whole) or (exponent < 0 and low <= 0 <= high):
        return Regularity(INF, INF, INF, INF)
    reach = max(abs(low), abs(high))
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    if exponent < 1 and nearest == 0:  # a root has infinite slope at zero: Hölder, not Lipschitz
        return Regularity(exponent, INF, INF)
    # |f'| = |exponent| |x|**(exponent - 1), largest at the far end for exponents above 1, at the near end below
    if exponent >= 1:
        slope = abs(exponent) * _raised(reach, exponent - 1)[1] if reach < INF else (INF if exponent > 1 else 1.0)
        growth, modulus = (exponent, exponent - 1) if reach == INF else (0.0, 0.0)
    else:
        slope = abs(exponent) * _raised(nearest, exponent - 1)[1]
        growth, modulus = (max(exponent, 0.0) if reach == INF else 0.0), 0.0
    return Regularity(growth, modulus, slope if modulus == 0 else INF)


register(
    Atom(
        name="negative",
        operator="-",
        numpy=np.negative,
        pullback=("-d",),
        sympy=lambda sp, x: -x,
        image=lambda a: (-a[1], -a[0]),
        monotone=-1,
        parity=-1,
        regularity=Regularity(1, 0, 1.0),
        kinks=lambda: (),
        terms=lambda: ((-1.0, 1, "one", 1.0, 0.0),),
        doc="-x",
    )
)
register(
    Atom(
        name="add",
        arity=2,
        operator="+",
        numpy=np.add,
        pullback=("d", "d"),
        sympy=lambda sp, a, b: a + b,
        image=_added,
        regularity=Regularity(1, 0),
        doc="x + y",
    )
)
register(
    Atom(
        name="subtract",
        arity=2,
        operator="-",
        numpy=np.subtract,
        pullback=("d", "-d"),
        sympy=lambda sp, a, b: a - b,
        image=lambda a, b: _added(a, (-b[1], -b[0])),
        regularity=Regularity(1, 0),
        doc="x - y",
    )
)
register(
    Atom(
        name="multiply",
        arity=2,
        operator="*",
        numpy=np.multiply,
        pullback=("d * y", "d * x"),
        sympy=lambda sp, a, b: a * b,
        regularity=Regularity(2, 1),
        doc="x * y",
    )
)
register(
    Atom(
        name="divide",
        arity=2,
        operator="/",
        numpy=np.divide,
        pullback=("d / y", "-d * x / y**2"),
        sympy=lambda sp, a, b: a / b,
        doc="x / y; pseudo-Lipschitz only where y stays away from 0",
    )
)
register(
    Atom(
        name="power",
        params={"exponent": None},
        operator="**",
        numpy=lambda x, exponent: np.power(
            x, int(exponent) if np.ndim(exponent) == 0 and exponent == int(exponent) and exponent >= 0 else exponent
        ),
        pullback=("d * exponent * x**(exponent - 1)",),
        sympy=lambda sp, x, exponent: x**exponent,
        image=_power_image,
        local=_power_local,
        kinks=lambda exponent: () if exponent == int(exponent) and exponent >= 0 else (0.0,),
        terms=lambda exponent: ((1.0, int(exponent), "one", 1.0, 0.0),) if exponent in range(21) else None,
        doc="x ** number",
    )
)


def _condition(name: str, operator: str, relation: str, doc: str) -> None:
    register(
        Atom(
            name=name,
            arity=2,
            operator=operator,
            numpy=getattr(np, name),
            sympy=lambda sp, a, b: getattr(sp, relation)(a, b),
            image=lambda *_: (0.0, 1.0),
            regularity=Regularity(0, INF),
            doc=doc,
        )
    )


_condition("less", "<", "Lt", "x < y")
_condition("less_equal", "<=", "Le", "x <= y")
_condition("greater", ">", "Gt", "x > y")
_condition("greater_equal", ">=", "Ge", "x >= y")
_condition("equal", "==", "Eq", "x == y")
_condition("not_equal", "!=", "Ne", "x != y")
_condition("logical_and", "&", "And", "both conditions")
_condition("logical_or", "|", "Or", "either condition")
register(
    Atom(
        name="where",
        arity=3,
        numpy=np.where,
        pullback=("0", "where(x, d, 0)", "where(x, 0, d)"),
        sympy=lambda sp, c, a, b: sp.Piecewise((a, c), (b, True)),
        image=lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
        doc="where(condition, x, y): x where the condition holds, else y; continuous when the condition is on indices",
    )
)
register(
    Atom(
        name="minimum",
        arity=2,
        numpy=np.minimum,
        pullback=("where(x < y, d, 0)", "where(x < y, 0, d)"),
        sympy=lambda sp, a, b: sp.Min(a, b),
        image=lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
        regularity=Regularity(1, 0, 1.0),
        doc="min(x, y), the smaller of two",
    )
)
register(
    Atom(
        name="maximum",
        arity=2,
        numpy=np.maximum,
        pullback=("where(x > y, d, 0)", "where(x > y, 0, d)"),
        sympy=lambda sp, a, b: sp.Max(a, b),
        image=lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
        regularity=Regularity(1, 0, 1.0),
        doc="max(x, y), the larger of two",
    )
)


register(
    Atom(
        name="sqrt",
        numpy=np.sqrt,
        pullback=("d / (2 * sqrt(x))",),
        sympy=lambda sp, x: sp.sqrt(x),
        bounds=lambda: (0.0, INF),
        monotone=1,
        local=lambda a: Regularity(
            0.5 if a[1] == INF else 0.0, *((0, 0.5 / math.sqrt(a[0])) if a[0] > 0 else (INF, INF))
        ),
        kinks=lambda: (0.0,),
        domain=(0.0, INF),
        doc="square root; pseudo-Lipschitz only away from 0",
    )
)
register(
    Atom(
        name="log",
        numpy=np.log,
        pullback=("d / x",),
        sympy=lambda sp, x: sp.log(x),
        monotone=1,
        local=lambda a: (  # log x <= x, so growth 1 is an honest (not the best) power
            Regularity(1.0 if a[1] == INF else 0.0, 0, 1 / a[0]) if a[0] > 0 else Regularity(INF, INF, INF, INF)
        ),
        kinks=lambda: (0.0,),
        domain=(0.0, INF),
        doc="natural logarithm; pseudo-Lipschitz only away from 0",
    )
)
