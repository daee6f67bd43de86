"""A law against its own draws and against networks: every number it states beside one that was found without it.

The numbers of a law come from averages over the scores by rules that choose their nodes; its draws come from random
numbers, and networks from random weights.  So a rule that misses a spike, or a density that is a comb, is seen here.

    z = (|difference| - stated error, if that is positive) / hypot(standard error, stated error / t)

with the sign of the difference, and t the number of standard errors that a stated error is (`gaussian.several`).
Shares of draws have exact binomial tails, whatever their number.  At finite width an expectation is a + b/n + c/n**2 +
.., and what is compared is a, from a fit of a, b and c to all widths.  Outputs that are Gaussian given all but the
weights used last enter by these Gaussians, with far less noise than by draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.blocks import Block, Grid, paragraph
from tensorprog.blocks.html import Shown
from tensorprog.blocks.text import to_text
from tensorprog.finite.run import run
from tensorprog.gaussian.several import deviations
from tensorprog.language.errors import MemoryLimitError, NotCompiledError, ProgramError, check_count
from tensorprog.language.formats import BRACKETS, label, members, plain_fields, quantity, split
from tensorprog.language.samples import column
from tensorprog.results.conditional import gaussians, with_conditional
from tensorprog.results.distances import moments_of_one, tied
from tensorprog.results.divergence import kl_gaussian

if TYPE_CHECKING:
    from tensorprog.limit.law.law import NumericLaw

__all__ = ["CHANCE", "LawCheck", "LawRow", "check_law"]

Array = NDArray[Any]
Number = tuple[float, float]
CHANCE = 1e-6  # that a right law has any |z| above the threshold
MEMBERS = 6  # of each output whose laws are compared, spread over the family
LARGEST = 4096  # members of a family of scores that is compared
PILOT = 1 << 12  # draws that only say where distribution functions and densities are compared
CELL = 64  # pilot draws in a cell of a density
LEVELS = (1 / 64, 1 / 16, 1 / 4, 1 / 2, 3 / 4, 15 / 16, 63 / 64)  # of the pilot
FAR = (4.0, 8.0, 16.0)  # deviations from the mean at which tails are compared
QUANTILES = (0.001, 0.05, 0.5, 0.95, 0.999)
DIVERGENCE_DRAWS = 512
ORDERS = 10, 16  # of Gauss-Legendre rules over a cell
ROUNDING = 1e-10  # relative to the size of a variable
NUMBERS = 1 << 25  # drawn at once


@dataclass(frozen=True)
class LawRow:
    """One number of a law beside the same from its draws, or from networks (`against`); `z` in standard errors.

    `kind` is "mean", "variance", "kurtosis", "covariance", "probability", "density", "quantile" or "divergence".
    """

    quantity: str
    kind: str
    family: str
    against: str
    value: float
    error: float
    other: float
    se: float
    z: float

    to_json = plain_fields


@dataclass(frozen=True, repr=False)
class LawCheck(Shown):
    """The comparisons of `Law.check`, all of them in `rows`; `missing` says what the law does not offer.

    `threshold` is the |z| that any comparison exceeds with a probability of one in a million if the law is right.
    """

    program: str
    rows: tuple[LawRow, ...]
    samples: int
    seed: int
    widths: tuple[int, ...] = ()
    networks: int = 0
    missing: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """The |z| from which a number counts as contradicted."""
        from scipy.special import ndtri

        return float(-ndtri(CHANCE / (2 * max(1, len(self.rows)))))

    @property
    def contradicted(self) -> tuple[LawRow, ...]:
        """The comparisons beyond the threshold, the worst first."""
        return tuple(row for row in sorted(self.rows, key=lambda row: -abs(row.z)) if abs(row.z) > self.threshold)

    @property
    def agrees(self) -> bool:
        """Whether no comparison is beyond the threshold."""
        return not self.contradicted

    @property
    def largest(self) -> tuple[LawRow, ...]:
        """Of each family and kind of number the comparison with the largest |z|, and all that are contradicted."""
        worst: dict[tuple[str, str, str], LawRow] = {}
        for row in self.rows:
            key = row.family, row.kind, row.against
            worst[key] = row if key not in worst or abs(row.z) > abs(worst[key].z) else worst[key]
        kept = {id(row) for row in (*worst.values(), *self.contradicted)}
        return tuple(row for row in self.rows if id(row) in kept)

    def table(self, rows: Sequence[LawRow] | None = None) -> tuple[list[str], list[list[str]]]:
        """Header and cells as text, of all rows or of those given."""
        cells = [
            [
                row.quantity,
                quantity(row.value, row.error) if math.isfinite(row.value) else str(row.value),
                row.against,
                quantity(row.other, row.se),
                f"{row.z:.1f}",
            ]
            for row in (self.rows if rows is None else rows)
        ]
        return ["quantity", "law", "against", "found", "z"], cells

    @property
    def verdict(self) -> str:
        """The outcome in a sentence."""
        drawn = f"{self.samples:,} draws" + (
            f" and {self.networks:,} networks at each of n = {', '.join(map(str, self.widths))}" if self.widths else ""
        )
        count = f"{len(self.rows)} numbers compared with {drawn}"
        if self.agrees:
            return f"{count}: no |z| above {self.threshold:.1f}; the law agrees with them"
        return f"{count}: {len(self.contradicted)} have |z| above {self.threshold:.1f}; the law contradicts them"

    @property
    def notes(self) -> list[str]:
        """What the table leaves out, and what is in brackets."""
        left = len(self.rows) - len(self.largest)
        shown = [f"of each kind of number that with the largest |z|; {left} others are smaller"] if left > 0 else []
        return [
            *shown,
            *(f"not compared: {text}" for text in self.missing),
            f"{BRACKETS} (of the law: its stated error)",
        ]

    def blocks(self) -> list[Block]:
        """The largest disagreement of each kind of number, those beyond the threshold marked; then the outcome."""
        rows = self.largest
        header, cells = self.table(rows)
        marked = tuple(k for k, row in enumerate(rows) if row in self.contradicted)
        title = f"{self.program}: the limit against its own draws" + (" and networks" if self.widths else "")
        grid = Grid(title, tuple(header), tuple(map(tuple, cells)), "; ".join(self.notes), marked, (0, 2))
        return [grid, paragraph(self.verdict)]

    def __str__(self) -> str:
        return to_text(self.blocks())

    __repr__ = __str__

    def to_json(self) -> dict[str, Any]:
        """All rows as dictionaries, with the threshold and whether the law agrees."""
        return {
            "program": self.program,
            "samples": self.samples,
            "seed": self.seed,
            "widths": list(self.widths),
            "networks": self.networks,
            "threshold": self.threshold,
            "agrees": self.agrees,
            "missing": list(self.missing),
            "rows": [row.to_json() for row in self.rows],
        }


def check_law(
    law: NumericLaw, samples: int = 2**16, seed: int = 0, widths: Sequence[int] | None = None, networks: int = 2**12
) -> LawCheck:
    """What `Law.check` gives."""
    samples, seed = check_count("samples", samples, 2), check_count("seed", seed, 0)
    networks = check_count("networks", networks, 2) if widths else 0
    widths = tuple(check_count("widths", width) for width in widths or ())
    if widths and len(set(widths)) < 3:
        raise ProgramError(
            "widths are at least three different numbers, such as (64, 128, 256): the limit is what a "
            "fit of a + b/n + c/n**2 has at n = infinity"
        )
    check = _Check(law, samples, seed)
    rows = [*check.drawn(), *(check.extrapolated(widths, networks) if widths else ())]
    return LawCheck(law.netsor.name, tuple(rows), samples, seed, widths, networks, tuple(check.missing))


@dataclass(frozen=True)
class _Stated:
    """A number that the law states; `scale` is the size of what rounds, `deviation` that of one draw by the law."""

    text: str
    kind: str
    family: str
    number: Number
    scale: float
    deviation: float = 0.0


class _Check:
    """The law, the members compared, and what it says of them, asked once."""

    def __init__(self, law: NumericLaw, samples: int, seed: int) -> None:
        self.law, self.samples, self.seed = law, samples, seed
        self.netsor = law.netsor
        self.missing: dict[str, None] = {}
        self.variables: dict[str, list[str]] = {}  # by family
        for name in law.outputs:
            self.variables[name] = self._spread(name)
        for name in law.scores:
            if math.prod(self.netsor.families[name].shape) <= LARGEST:
                self.variables[name] = self._spread(name)
            else:
                self.missing[f"{name}, which has more than {LARGEST} members"] = None
        self.every = [(family, variable) for family, names in self.variables.items() for variable in names]
        self.moments = {v: tuple(self._stated(what, v) for what in ("mean", "var", "kurtosis")) for _, v in self.every}
        self.pilot = {v: np.sort(x) for v, x in self._draws(PILOT, seed + 1).items()}

    def _spread(self, name: str) -> list[str]:
        every = members(self.netsor, name, 1 << 16)
        places = np.unique(np.linspace(0, len(every) - 1, min(len(every), MEMBERS)).astype(int))
        return [label(name, every[k]) for k in places]

    def _ask(self, what: str, variable: str, question: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """The answer, with its error if it has one; None, and a line among what is missing, where the law has none."""
        try:
            return question(*args, **named)
        except (NotCompiledError, MemoryLimitError) as error:
            self.missing[f"{what} of {variable}: {error}"] = None
            return None

    def _stated(self, what: str, variable: str, *args: Any) -> Any:
        """What the law answers by a method, with its error, or None."""
        return self._ask(what, variable, getattr(self.law, what), variable, *args, with_error=True)

    def _draws(self, samples: int, seed: int) -> dict[str, Array]:
        """Draws of the members compared, a number at a time that fits."""
        sizes = sum(math.prod(self.netsor.families[name].shape) for name in self.variables)
        step = max(1, min(samples, NUMBERS // max(1, sizes)))
        pieces: dict[str, list[Array]] = {variable: [] for _, variable in self.every}
        for number, start in enumerate(range(0, samples, step)):
            drawn = self.law.sample(min(step, samples - start), seed=seed + (number << 32))
            for family, variable in self.every:
                pieces[variable].append(column(drawn, family, split(self.netsor, variable)[1])[:, 0].copy())
        return {variable: np.concatenate(arrays) for variable, arrays in pieces.items()}

    def _row(self, stated: _Stated, found: Number, against: str = "draws") -> LawRow:
        value, error, other, se = map(float, (*stated.number, *found))
        z = _score(stated.number, found, ROUNDING * stated.scale)
        return LawRow(stated.text, stated.kind, stated.family, against, value, error, other, se, z)

    def _share(
        self, text: str, kind: str, family: str, stated: Number, hits: int, count: int, low: float | None = None,
        high: float | None = None,
    ) -> LawRow:  # fmt: skip
        """A probability, which lies between `low` and `high` or within its error, beside so many hits of draws."""
        value, error = map(float, stated)
        share = hits / count
        se = math.sqrt(max(share * (1 - share), 1 / count) / count)
        low, high = value - error if low is None else low, value + error if high is None else high
        return LawRow(text, kind, family, "draws", value, error, share, se, _binomial(hits, count, low, high, error))

    # -- draws ----------------------------------------------------------------------------------------------------

    def drawn(self) -> Iterator[LawRow]:
        """The law beside its own draws."""
        values = self._draws(self.samples, self.seed)
        columns = {variable: x[:, None] for variable, x in values.items()}
        for stated, (value, error) in self._statistics(columns).items():
            # draws without a rare large value suggest too small an error
            yield self._row(stated, (value, max(error, stated.deviation / math.sqrt(self.samples))))
        for family, variable in self.every:
            x = values[variable]
            yield from self._probabilities(family, variable, x)
            if variable == self.variables[family][0] and family in self.law.outputs:
                yield from self._divergence(family, variable, x)

    def _statistics(
        self, draws: Mapping[str, Array], laws: Mapping[str, tuple[Array, Array]] | None = None
    ) -> dict[_Stated, Number]:
        """Moments and covariances of draws, with their errors; moments by the Gaussians that the draws are of.

        Shapes    draws, and means and variances of the Gaussians: (networks, coordinates)
        """
        found = {}
        for family, variable in self.every:
            mean, variance, kurtosis = self.moments[variable]
            if variable not in draws or mean is None or variance is None:
                continue
            own = moments_of_one(*(laws or {}).get(variable, (draws[variable],)))
            size, spread = self._size(variable), math.sqrt(max(0.0, variance[0]))
            top = max(0.0, (kurtosis or (0.0,))[0])
            wide = variance[0] * math.sqrt(top) if math.isfinite(variance[0] * top) else 0.0
            found[_Stated(f"mean {variable}", "mean", family, mean, size, spread)] = own["mean"]
            found[_Stated(f"var {variable}", "variance", family, variance, size**2, wide)] = own["variance"]
            if kurtosis is not None and own["variance"][0] > (ROUNDING * size) ** 2 and variance[0] > variance[1]:
                wide = self._kurtosis_deviation(variable, variance[0], kurtosis[0]) if laws is None else 0.0
                found[_Stated(f"kurtosis {variable}", "kurtosis", family, kurtosis, 1.0, wide)] = own["kurtosis"]
        for family, first, second, number in self.covariances():
            if first in draws and second in draws:
                x, y = (draws[name] - draws[name].mean() for name in (first, second))
                top = max(0.0, *((self.moments[name][2] or (3.0,))[0] for name in (first, second)))
                stated = _Stated(
                    f"cov({first}, {second})",
                    "covariance",
                    family,
                    number,
                    self._size(first) * self._size(second),
                    abs(number[0]) * math.sqrt(top),
                )
                product = (x * y).mean(axis=1)
                found[stated] = float(product.mean()), _error(product)
        return found

    def _size(self, variable: str) -> float:
        mean, variance, _ = self.moments[variable]
        return math.sqrt(max(0.0, variance[0])) + abs(mean[0]) if math.isfinite(variance[0]) else math.inf

    def _kurtosis_deviation(self, variable: str, variance: float, kurtosis: float) -> float:
        """The deviation that the law's own moments of orders 6 and 8 give."""
        with suppress(NotCompiledError, MemoryLimitError, OverflowError):
            sixth, eighth = (float(self.law.moment(variable, k)) / variance ** (k / 2) for k in (6, 8))
            square = eighth - 4 * kurtosis * sixth + 4 * kurtosis**3 - kurtosis**2
            return math.sqrt(max(0.0, square)) if math.isfinite(square) else 0.0
        return 0.0

    def _probabilities(self, family: str, variable: str, x: Array) -> Iterator[LawRow]:
        """Distribution function, quantiles and density, through shares of draws."""
        if None in self.moments[variable][:2]:
            return
        x, count = np.sort(x), len(x)
        size = max(float(np.abs(self.pilot[variable]).max()), 1e-300)
        points = self.points(variable)
        near = ROUNDING * size * np.array([-1.0, 0.0, 1.0])  # an atom may lie a rounding error away
        asked = self._stated("cdf", variable, points[:, None] + near)
        if asked is not None:
            for point, (low, value, high), (below, error, above) in zip(points, *asked, strict=True):
                hits = int(np.searchsorted(x, point, side="right"))
                yield self._share(f"P({variable} <= {point:.4g})", "probability", family, (value, error), hits, count,
                                  low - below, high + above)  # fmt: skip
        levels = self._ask("quantiles", variable, self.law.quantile, variable, QUANTILES)
        if levels is not None:
            wrong = self.law.cdf(variable, levels, with_error=True)[1]
            for level, point, error in zip(QUANTILES, np.asarray(levels), wrong, strict=True):
                least = int(np.searchsorted(x, point - ROUNDING * size, side="left"))
                upto = int(np.searchsorted(x, point + ROUNDING * size, side="right"))
                hits = min(max(round(level * count), least), upto)  # at an atom the distribution function jumps
                yield self._share(f"P({variable} <= its quantile {level})", "quantile", family, (level, error), hits,
                                  count)  # fmt: skip
        yield from self._cells(family, variable, x, size)

    def points(self, variable: str, tails: bool = True) -> Array:
        """Where distribution functions are compared: at quantiles of the pilot, and far out in the tails.

        At finite width tails are no power series in 1/n that a few terms describe.
        """
        pilot = self.pilot[variable]
        inner = pilot[[round(level * (PILOT - 1)) for level in LEVELS]]
        mean, variance, _ = self.moments[variable]
        if not tails or not math.isfinite(mean[0] + variance[0]):
            return np.unique(inner)
        far = [mean[0] + sign * k * math.sqrt(max(0.0, variance[0])) for k in FAR for sign in (-1, 1)]
        return np.unique(np.concatenate([inner, far]))

    def _cells(self, family: str, variable: str, x: Array, size: float) -> Iterator[LawRow]:
        """Integrals of the density over cells between draws of the pilot."""
        pilot = self.pilot[variable]
        middle = [min(max(round(level * (PILOT - 1)), CELL // 2), PILOT - 1 - CELL // 2) for level in LEVELS]
        low, high = (pilot[[k + side * CELL // 2 for k in middle]] for side in (-1, 1))
        rules = [np.polynomial.legendre.leggauss(order) for order in ORDERS]
        nodes = np.concatenate([(1 + points) / 2 for points, _ in rules])
        asked = self._stated("density", variable, low[:, None] + (high - low)[:, None] * nodes)
        if asked is None:
            return
        edge = ROUNDING * size  # an atom at the edge of a cell does not belong to it
        for a, b, density, wrong in zip(low, high, *asked, strict=True):
            inside = pilot[np.searchsorted(pilot, a + edge) : np.searchsorted(pilot, b - edge)]
            if b - a <= 4 * edge or tied(inside) or not np.isfinite(density + wrong).all():
                continue  # an atom: the integral of the density is not all; or infinite, or not known
            coarse, fine = (
                (b - a) / 2 * float(weights @ part)
                for (_, weights), part in zip(rules, np.split(density, [ORDERS[0]]), strict=True)
            )
            error = abs(fine - coarse) + (b - a) / 2 * float(rules[-1][1] @ wrong[ORDERS[0] :])
            hits = int(np.diff(np.searchsorted(x, (a + edge, b - edge)))[0])
            yield self._share(f"density of {variable} over {a:.4g}..{b:.4g}", "density", family, (fine, error), hits,
                              len(x))  # fmt: skip

    def _divergence(self, family: str, variable: str, x: Array) -> Iterator[LawRow]:
        """KL to the Gaussian of equal mean and variance: E log f(y) over draws, f the law's own density."""
        variance = self.moments[variable][1]
        if variance is None or not 0 < variance[0] < math.inf:
            return
        stated = self._ask("kl_gaussian", variable, kl_gaussian, self.law, variable)
        if stated is None:
            return
        with np.errstate(divide="ignore"):
            log = np.log(self.law.density(variable, x[:DIVERGENCE_DRAWS]))
        found = math.inf, math.inf
        if np.isfinite(log).all():
            entropy = 0.5 * math.log(2 * math.pi * math.e * variance[0])
            found = float(log.mean()) + entropy, float(log.std()) / math.sqrt(len(log))
        elif math.isfinite(stated[0]):
            found = math.nan, math.nan  # draws where the density is 0 or infinite
        yield self._row(_Stated(f"KL of {variable} to a Gaussian", "divergence", family, stated, 0.0), found)

    def covariances(self) -> Iterator[tuple[str, str, str, Number]]:
        """Of the members compared all pairs in one family, and in two outputs: family, both, value with error."""
        outputs = set(self.law.outputs)
        for one, first in self.variables.items():
            for two, second in self.variables.items():
                if one > two or (one != two and not {one, two} <= outputs):
                    continue
                sizes = [math.prod(self.netsor.families[name].shape) for name in (one, two)]
                if math.prod(sizes) > LARGEST**2 // 16:
                    self.missing[f"the covariance of {one} and {two}, which is large"] = None
                    continue
                asked = self._ask("cov", one, self.law.cov, one, two, with_error=True)
                if asked is None:
                    continue
                value, error = (np.asarray(part, dtype=float).reshape(sizes) for part in asked)
                for number, a in enumerate(first):
                    for b in second[number + 1 :] if one == two else second:
                        place = split(self.netsor, a)[1], split(self.netsor, b)[1]
                        if None not in (*self.moments[a][:2], *self.moments[b][:2]):
                            yield one, a, b, (float(value[place]), float(error[place]))

    # -- networks -------------------------------------------------------------------------------------------------

    def extrapolated(self, widths: Sequence[int], networks: int) -> Iterator[LawRow]:
        """The law of the outputs beside networks of these widths, extrapolated to infinite width."""
        each = [self._networks(width, networks) for width in widths]
        for key in dict.fromkeys(key for found in each for key in found):
            values, errors = zip(*(found[key] for found in each), strict=True)
            found = _intercept(np.asarray(widths), np.asarray(values), np.asarray(errors) + 1e-14 * key.scale)
            yield self._row(key, found, "networks")

    def _networks(self, width: int, networks: int) -> dict[_Stated, Number]:
        """Values at one width with their standard errors over networks, by what is stated of them."""
        gaussian = None
        with suppress(NotCompiledError):
            gaussian = with_conditional(self.netsor)
        coordinates = 1 if gaussian and not gaussian.refused else min(width, 64)
        drawn: Any = run(
            gaussian.netsor if gaussian else self.netsor, width, networks, seed=self.seed, coordinates=coordinates
        )
        drawn = gaussian.separate(drawn) if gaussian else drawn
        draws: dict[str, Array] = {}
        laws: dict[str, tuple[Array, Array]] = {}
        shares: dict[_Stated, Number] = {}
        for family, variable in self.every:
            if family not in self.law.outputs or None in self.moments[variable][:2]:
                continue
            place = split(self.netsor, variable)[1]
            draws[variable] = column(drawn, family, place)
            m: Array = draws[variable]
            v: Array | None = None
            if family in drawn.conditional:
                m, v = laws[variable] = gaussians(drawn, family, place)
            points = self.points(variable, tails=False)
            asked = self._stated("cdf", variable, points)
            if asked is not None and not tied(self.pilot[variable]):
                for point, value, error in zip(points, *asked, strict=True):
                    share = _below(point, m, v).mean(axis=1)
                    least = math.sqrt(max(value * (1 - value), 0.0)) / networks
                    key = _Stated(f"P({variable} <= {point:.4g})", "probability", family, (value, error), 1.0)
                    shares[key] = float(share.mean()), max(_error(share), least)
        return self._statistics(draws, laws) | shares


def _error(effect: Array) -> float:
    """Standard error of a statistic with this influence of each network."""
    return float(effect.std(ddof=1)) / math.sqrt(len(effect))


def _below(point: float, mean: Array, variance: Array | None) -> Array:
    """The chance that Gaussians lie below a point; without variances they are numbers."""
    from scipy.special import ndtr

    if variance is None:
        return np.asarray(mean <= point)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = ndtr((point - mean) / np.sqrt(variance))
    return np.where(variance > 0, value, mean <= point)


def _score(stated: Number, found: Number, rounding: float) -> float:
    """By how many standard errors two numbers differ beyond the stated error; infinite if one is not a number."""
    value, error, other, se = *stated, *found
    if math.isnan(value) or math.isnan(error):
        return math.inf
    if math.isinf(value) or math.isinf(error):
        return 0.0  # nothing that a finite number of draws contradicts
    if math.isnan(other) or math.isnan(se):
        return math.inf
    excess = abs(other - value) - error - rounding
    if excess <= 0:
        return 0.0
    scale = math.hypot(se, error / deviations())
    return math.copysign(excess / scale if scale > 0 else math.inf, other - value)


def _binomial(hits: int, count: int, low: float, high: float, error: float) -> float:
    """z of a number of hits by the exact tails of a binomial law with a probability between low and high.

    An error that is not small beside the standard error makes z smaller, as in `_score`.
    """
    from scipy.special import bdtr, bdtrc, ndtri

    if math.isnan(low) or math.isnan(high):
        return math.inf
    if not (math.isfinite(low) and math.isfinite(high)):
        return 0.0
    low, high = min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0)
    share = min(max(hits / count, 1 / count), 1 - 1 / count)
    se = math.sqrt(share * (1 - share) / count)
    weight = se / math.hypot(se, error / deviations())
    if hits > count * high:
        return weight * float(-ndtri(min(0.5, max(1e-300, bdtrc(hits - 1, count, high)))))
    if hits < count * low:
        return weight * float(ndtri(min(0.5, max(1e-300, bdtr(hits, count, low)))))
    return 0.0


def _intercept(widths: Array, values: Array, errors: Array) -> Number:
    """The value at infinite width, and its standard error, of a fit of a + b/n + c/n**2 by weighted least squares."""
    design = (widths.min() / widths)[:, None] ** np.arange(3)
    weights = 1 / np.maximum(errors, 1e-300)
    scale = weights.max()
    inverse = np.linalg.pinv(design * (weights / scale)[:, None])
    return float(inverse[0] @ (values * weights / scale)), float(np.linalg.norm(inverse[0])) / float(scale)
