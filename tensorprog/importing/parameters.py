"""Parameters as weights, initial vectors or numbers, with the law of their own initialiser."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tensorprog.importing.capture import Parameter
from tensorprog.importing.sketch import Again, Sketch
from tensorprog.importing.values import AxisPart, Traced, scaled
from tensorprog.language.expr import Affine, Constant, Expr, IndexValue, Number, Variable, call, slots_of, sum_of
from tensorprog.language.ir import MatMul, Nonlin, Table

__all__ = ["Parameters"]

ONE = Fraction(1)
_NOT_INDEPENDENT = {
    "orthogonal": "are orthogonal",
    "unknown": "are of an unknown law",
    "rows": "are initialised differently from row to row",
}


class Parameters(Sketch):
    """A sketch that knows what parameters are."""

    def parameter(self, node: str) -> Traced:
        """A parameter that nothing has used yet."""
        entry = self.captured.parameters[node]
        axes = tuple(self.axis((node, k), one, other) for k, (one, other) in enumerate(zip(*entry.shapes, strict=True)))
        own = [atom for axis in axes for atom in axis if not atom.is_width]
        return Traced(axes, Variable(f"@{node}", tuple(atom.slot for atom in own)), parameter=node)

    def entry(self, value: Traced) -> Parameter:
        """The parameter of a value.

        Raises    ProgramError for entries that are not independent, or of an unknown law
        """
        entry = self.captured.parameters[value.parameter]
        if entry.law.kind in _NOT_INDEPENDENT:
            raise self.refuse(
                f"the entries of {entry.name} {_NOT_INDEPENDENT[entry.law.kind]}",
                "initialise it with independent normal or uniform entries (torch.nn.init.normal_, kaiming_normal_, ..)",
            )
        return entry

    def slots(self, value: Traced) -> tuple[Affine, ...]:
        """At which of its indices a parameter is read."""
        assert isinstance(value.expr, Variable)
        return value.expr.slots

    # -- vectors ------------------------------------------------------------------------------------------------

    def as_vector(self, value: Traced) -> Traced:
        """A parameter as random vectors; one without a width as numbers, or as copies of a number in coordinates."""
        entry = self.entry(value)
        widths = value.widths
        if len(widths) > 1:
            raise self.refuse(
                f"{entry.name} is a matrix of the width, used as if it were a vector",
                "multiply vectors by it: x @ W, nn.Linear",
            )
        ratio = self.ratio(widths[0]) if widths else ONE
        made, power = self._declared(value, entry, ratio)
        vector = Variable(made.name, self.slots(value))
        expr: Expr = vector
        copies = frozenset() if widths else frozenset([value.parameter])
        if copies and value.parameter in self.decisions.scores:
            expr, copies = self.as_score(self.mixed(entry, vector)), frozenset()
        return Traced(value.axes, scaled(expr, value.scale), value.power + power, copies=copies)

    def _declared(self, value: Traced, entry: Parameter, ratio: Fraction) -> tuple[Variable, Fraction]:
        """The family of vectors of a parameter, declared once, and its power of n."""
        if self.used.get(entry.name, ("vector",))[0] != "vector":
            raise self._twice(entry)
        if entry.name in self.used:
            found: tuple[str, Variable, Fraction] = self.used[entry.name]
            return found[1], found[2]
        law, (one, other) = entry.law, entry.laws
        number, power = self.law(entry, None)
        moves = abs(one.mean - other.mean) > 1e-9 * max(abs(one.mean), abs(other.mean))
        if not self.at and law.mean and (moves or power):
            raise self.refuse(f"the mean of {entry.name} changes with the width", "keep it the same, or give at=")
        lasting = not self.exponents.get(entry.name)  # what vanishes with the width is small enough for a Gaussian
        uniform = lasting and law.kind == "uniform"
        mean, cov = (0, Number(1)) if uniform else (law.mean or 0, Number(number))
        made = self.initial(self._indices(value), cov, ratio, entry.name, mean)
        if uniform:
            wave = scaled(call("erf", call("divide", made, call("sqrt", Number(2)))), math.sqrt(3 * number))
            made = self.state(Nonlin, sum_of([wave, Number(law.mean)]), role="uniform", slots=made.slots)
        elif not law.gaussian and (lasting or self.at):
            self.as_gaussian.add(entry.name)
            self.note(
                "biases and other vectors that vanish with the width are taken as Gaussian of the same variance"
                if not lasting
                else f"{entry.name}: entries that are not Gaussian are taken as Gaussian of the same variance"
            )
        self.used[entry.name] = ("vector", made, power / 2)
        return made, power / 2

    def _indices(self, value: Traced) -> tuple[str, ...]:
        """Fresh reading of the parameter's own indices, whatever has become of its axes."""
        return tuple(atom.name for atom in self.parameter(value.parameter).atoms if not atom.is_width)

    # -- weights ------------------------------------------------------------------------------------------------

    def weight(self, value: Traced, fan: AxisPart, rows: Fraction) -> tuple[Variable, Fraction]:
        """A parameter as weights that are multiplied along one of its widths; the weights, and their power of n."""
        entry = self.entry(value)
        use = ("weight", fan.key and fan.key[:2])
        known = self.used.get(entry.name)
        if known is not None and known[:2] != use:
            raise self._twice(entry)
        if known is None:
            if any(abs(law.mean) > 1e-12 * law.deviation for law in entry.laws):
                raise self.refuse(f"the entries of {entry.name} have a mean other than 0", "let it be 0")
            ratio = self.ratio(fan)
            variance, power = self.law(entry, ratio)
            made = self.weights(self._indices(value), variance, (rows, ratio), entry.name)
            if not entry.law.gaussian:
                self.as_gaussian.add(entry.name)
                self.note(
                    "entries of hidden weights that are not Gaussian are taken as Gaussian of the same variance: "
                    "the limit is the same, finite widths differ by O(1/n)"
                )
            known = self.used[entry.name] = (*use, made.name, power / 2)
        return Variable(known[2], self.slots(value)), known[3] + value.power

    def _twice(self, entry: Parameter) -> Exception:
        return self.refuse(
            f"{entry.name} is used in two ways (as a matrix and transposed, or as a table of vectors): "
            "weights tied to their transposes",
            "give each use a parameter of its own",
        )

    # -- input layers -------------------------------------------------------------------------------------------

    def rows_of(
        self,
        value: Traced,
        batch: Sequence[AxisPart],
        own: Sequence[AxisPart],
        width: AxisPart | None,
        data: Any,
        gram: Any,
        flat: int = 0,
    ) -> Traced:
        """Random vectors whose covariance is a Gram matrix of fixed data: an input layer, or rows of a table.

        `batch` are indices of the data, of which the last `flat` become one; `own` indices of the parameter, over which
        vectors are independent.
        """
        slots = slots_of([atom.name for atom in (*own, *batch)])
        if flat > 1:
            row, size = Affine(), 1
            for atom in reversed(batch[-flat:]):
                row, size = size * atom.slot + row, size * atom.size
            slots = (*slots[:-flat], row)
            batch = [*batch[:-flat], self.atom((size, size))]
        entry = self.entry(value)
        if entry.name in self.used:
            raise self.refuse(
                f"{entry.name} reads fixed inputs in several places",
                "read all inputs in one call, joined by torch.cat or torch.stack",
            )
        if entry.law.mean:
            raise self.refuse(f"the entries of {entry.name} have a mean other than 0", "let it be 0")
        number, power = self.law(entry, None)
        if not entry.law.gaussian:
            self.as_gaussian.add(entry.name)
            kind = "" if data is None else f"a sum over {data.shape[-1]} "
            self.note(f"{entry.name}: {kind}entries that are not Gaussian are taken as Gaussian of one covariance")
        names = tuple(atom.name for atom in (*own, *batch))
        options: dict[str, Any] = {}
        count = math.prod(atom.size for atom in batch)
        diagonal = gram.reshape(count, count)
        if np.allclose(diagonal, diagonal[0, 0] * np.eye(count), rtol=1e-12, atol=0):
            cov: Expr = Number(number * float(diagonal[0, 0]))
        elif not own and data is not None:
            cov, options = Number(number * data.shape[-1]), {"data": Table.of(data)}
        else:
            table = self.table(gram.reshape([atom.size for atom in (*batch, *batch)]), [*batch, *batch])
            second = tuple(Affine.index(f"{atom.name}_") for atom in batch)
            cov = scaled(Constant(table.name, (*(atom.slot for atom in batch), *second)), number)
            for atom in own:
                cov = call("where", call("equal", _index(atom), _index(atom, "_")), cov, Number(0))
        made = self.initial(names, cov, self.ratio(width) if width is not None else ONE, entry.name, **options)
        self.used[entry.name] = ("rows", made.name)
        copies = frozenset() if width is not None else frozenset([value.parameter])
        if copies and value.parameter in self.decisions.scores:
            score = self.as_score(self.mixed(entry, Variable(made.name, slots)))
            return Traced(value.axes, score, power / 2)
        return Traced(value.axes, Variable(made.name, slots), power / 2 + value.power, copies=copies)

    def mixed(self, entry: Parameter, vector: Variable) -> Variable:
        """Vectors behind a weight of their own: of the same covariance, and an operand of scores.

        Raises    ProgramError for numbers that are not Gaussian, unless they vanish
        """
        if not entry.law.gaussian and not self.exponents.get(entry.name):
            raise self.refuse(
                f"all coordinates share the numbers {entry.name}, which are not Gaussian",
                "initialise them by torch.nn.init.normal_",
            )
        if self.exact:
            return vector
        return self.state(MatMul, self.weights((), 1, (ONE, ONE), entry.name, "mix"), vector, role="product")

    def met(self, one: Traced, other: Traced) -> frozenset[str]:
        """Readouts in what two tensors make together; where one of them meets a vector, it must be a score.

        Raises    Again after that is decided
        """
        both = one.copies | other.copies
        if both and (one.is_vector or other.is_vector):
            self.decisions.scores |= both
            raise Again
        return both


def _index(atom: AxisPart, suffix: str = "") -> Expr:
    return IndexValue(f"{atom.name}{suffix}")
