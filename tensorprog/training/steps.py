"""Steps of gradient descent as a program: forward, backward, and products with weights that have moved.

In the order of the program, for step t with the gradients of all steps s before,

    W_t x    = b_t W x - sum_s a_ts sum_p dg_s,p (x_s,p . x)/c      over all products g_p = W x_p; c columns of W
    W_t^T d  = b_t W^T d - sum_s a_ts sum_p x_s,p (dg_s,p . d)/c
    h_t      = b_t h - sum_s a_ts K dh_s                           initial vectors; K is the Gram matrix of a layer

where dz is dL/dz times the width of z (`gradients.adjoint`), of order one.  So rates are those of the maximal update
parametrisation: eta rows/columns for matrices, and eta times their width for the first layer and the readout f = v.z/n.
b_t is 1 and a_ts the rate eta, but for momentum and decay (`shares`).

Source    Yang & Hu 2021 (arXiv 2011.14522)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorprog.gradients.assembly import adjoint
from tensorprog.gradients.derivatives import fraction, root_of, times
from tensorprog.language.averages import unused
from tensorprog.language.errors import fail
from tensorprog.language.expr import (
    Affine,
    Call,
    Constant,
    Expr,
    Number,
    Reduction,
    Variable,
    affine_expr,
    rebuild,
    reindexed,
    replace_variables,
    slots_of,
    substitute,
    sum_of,
)
from tensorprog.language.ir import ConstantDef, Dot, Index, Initial, MatMul, Netsor, Nonlin, Statement, Table, mapped

__all__ = ["training_program"]


@dataclass(frozen=True)
class _Outer:
    """A part of the gradient by a weight: factor * left (x) right / columns, over the indices of a product."""

    left: Variable
    right: Variable
    weight: Variable
    factor: Expr


def training_program(
    netsor: Netsor,
    loss: str,
    steps: int,
    rate: float = 1.0,
    rates: Mapping[str, float] | None = None,
    momentum: float = 0.0,
    decay: float = 0.0,
    tables: Mapping[str, Sequence[Any]] | None = None,
    parameters: Collection[str] = (),
    lost: Mapping[str, float] | None = None,
) -> Netsor:
    """The program of a network, and of those that `steps` of full-batch gradient descent on a loss make of it.

    Families of step t have the name of the program with `_t` behind it.  `rates` gives weights and initial vectors
    rates of their own; 0 keeps them as they are.  `tables` has constants that differ from step to step, an array for
    each step from the first to the last, such as the share of each input in the loss of a batch.  `parameters` are
    functions of initial vectors that move in the place of these.  `lost` is the part of itself that a parameter loses
    in a step, where it is not its rate times the decay.

    Raises    ProgramError for a loss that is no function of averages, and names that are no parameters
    """
    made = _Training(netsor, loss, rate, rates or {}, tables or {}, parameters)
    if not 0 <= momentum < 1:
        raise fail(f"momentum is a number from 0 to less than 1, not {momentum}")
    for name, own in made.rates.items():
        if not own >= 0:
            raise fail(f"the rate of {name} is {own:g}: rates are numbers from 0 on")
    made.momentum, made.lost = momentum, {name: own * decay for name, own in made.rates.items()} | dict(lost or {})
    return made.program(steps)


def shares(rate: float, momentum: float, lost: float, steps: int) -> tuple[float, list[float]]:
    """What a parameter is after some steps: so much of its first value, less so much of the gradient of each step.

    With momentum mu, speed = mu speed + rate gradient + lost parameter and parameter -= speed.
    """
    parameter, speed = np.eye(steps + 1)[0], np.zeros(steps + 1)
    for step in range(steps):
        speed = momentum * speed + lost * parameter
        speed[step + 1] += rate
        parameter = parameter - speed
    return float(parameter[0]), (-parameter[1:]).tolist()


class _Training:
    """The statements of a training program, as they are made."""

    momentum = 0.0
    lost: Mapping[str, float]

    def __init__(
        self,
        netsor: Netsor,
        loss: str,
        rate: float,
        rates: Mapping[str, float],
        tables: Mapping[str, Sequence[Any]],
        parameters: Collection[str],
    ) -> None:
        family = netsor.families.get(loss)
        if family is None or family.kind != "scalar" or family.shape:
            said = f"{loss} has indices: a loss is one number" if family and family.kind == "scalar" else ""
            raise fail(
                f"{said or f'{loss} is no scalar of the program'}, without indices",
                fix="a loss such as L = Nonlin(sum[i]((f[i] - y[i])**2)/2), f[i] averages",
            )
        self.reported = netsor.outputs
        self.source = replace(netsor, outputs=(loss,))
        self.whole = adjoint(self.source)
        self.tables, self.names = tables, self.whole.taken
        self.forward = self.whole.body[: len(netsor.body)]
        self.backward = self.whole.body[len(netsor.body) :]
        functions = [s for s in self.forward if s.target.name in parameters]
        replaced = {reference.name for s in functions for reference in s.inputs}
        self.moved = [v for v in netsor.initial if v.name not in replaced and f"grad_{v.name}" in self.whole.families]
        for s in functions:
            name, indices = s.target.name, tuple(str(slot) for slot in s.target.slots)
            self.moved.append(Initial(name, indices, Number(0), Number(1), None, netsor.families[name].width))
        known = {*netsor.weight, *(v.name for v in self.moved)}
        for name in rates:
            if name not in known:
                raise fail(f"{name} is no weight or initial vector that the loss depends on")
        self.rates = {name: rates.get(name, rate) for name in known}
        self.renamed = {s.target.name for s in self.whole.body}
        self.second: dict[str, Index] = {}
        self.constants: list[ConstantDef] = []
        self.body: list[Statement] = []

    def program(self, steps: int) -> Netsor:
        """All steps."""
        for step in range(steps + 1):
            for vector in self.moved if step else ():
                self._move(vector, step)
            for statement in (*self.forward, *(self.backward if step < steps else ())):
                if not (step and self._moves(statement.target.name)):
                    self._statement(statement, step)
        outputs = [
            self._name(name, step) for step in range(steps + 1) for name in (*self.source.outputs, *self.reported)
        ]
        parts: dict[str, Any] = {
            **self.whole.parts,
            "name": f"{self.source.name}_training",
            "title": f"{steps} steps of gradient descent of {self.source.name}",
            "indices": (*self.whole.indices, *self.second.values()),
            "constants": (*self.whole.constants, *self.constants),
            "body": tuple(self.body),
            "outputs": tuple(dict.fromkeys(outputs)),
        }
        return Netsor(**parts)

    # -- names ----------------------------------------------------------------------------------------------------

    def _name(self, name: str, step: int) -> str:
        """The name of a family at a step; parameters that do not move have one."""
        return f"{name}_{step}" if name in self.renamed or (step and self._moves(name)) else name

    def _moves(self, name: str) -> bool:
        """Whether this is a vector that is a parameter and has a rate, or loses a part of itself."""
        return any(v.name == name and (self.rates[name] or self.lost[name]) for v in self.moved)

    def _shares(self, name: str, steps: int) -> tuple[float, list[float]]:
        """What a parameter is after some steps: see `shares`."""
        rate, lost = self.rates[name], self.lost[name]
        return shares(rate, self.momentum, lost, steps if rate or lost else 0)

    def _at(self, reference: Variable, step: int) -> Variable:
        return replace(reference, name=self._name(reference.name, step))

    def _copies(self, names: Sequence[str]) -> dict[str, Affine]:
        """Second indices of the same ranges."""
        for name in names:
            if name not in self.second:
                own = self.whole.index[name]
                self.second[name] = replace(own, name=unused(f"{name}2", self.names), boundary="", text="")
        return {name: Affine.index(self.second[name].name) for name in names}

    # -- statements -----------------------------------------------------------------------------------------------

    def _move(self, vector: Initial, step: int) -> None:
        """Initial vectors after some steps: of one parameter, or of a layer that reads data."""
        if not self._moves(vector.name):
            return
        own = Variable(vector.name, slots_of(vector.indices))
        joint = [name for name in vector.indices if name in vector.joint]
        moved = self._copies(joint)
        gram: Expr = Number(1)
        if joint:
            gram = self._gram(vector, moved)
        terms, width = [], root_of(self.source.width_of(vector.width, 1))
        kept, taken = self._shares(vector.name, step)
        for before, share in enumerate(taken):
            gradient = Variable(self._name(f"grad_{vector.name}", before), own.slots)
            part = times(Number(share), width, gram, reindexed(gradient, moved))
            terms.append(Reduction("sum", tuple(str(form.bare) for form in moved.values()), part) if moved else part)
        first = times(Number(kept), self._at(own, 0))
        self.body.append(Nonlin(self._at(own, step), Call("subtract", (first, sum_of(terms)))))

    def _gram(self, vector: Initial, moved: Mapping[str, Affine]) -> Expr:
        """The Gram matrix of the data behind a layer: as declared, or the covariance."""
        if vector.data is None and not isinstance(vector.cov, Table):
            return substitute(vector.cov, {f"{name}_": form for name, form in moved.items()})
        array = vector.cov.array if isinstance(vector.cov, Table) else None
        if vector.data is not None:
            array = vector.data.array @ vector.data.array.T / vector.data.shape[1]
        name = unused(f"gram_{vector.name}", self.names)
        indices = (*vector.indices, *(str(form.bare) for form in moved.values()))
        shape = tuple(stop - start for start, stop in self.whole.families[vector.name].ranges)
        assert array is not None
        self.constants.append(ConstantDef(name, Table.of(array.reshape(shape * 2)), indices))
        return Constant(name, slots_of(indices))

    def _statement(self, statement: Statement, step: int) -> None:
        """One statement of the program at a step."""

        def put(reference: Variable) -> Variable:
            return self._at(reference, step)

        def changed(expr: Expr) -> Expr:
            return rebuild(replace_variables(expr, put), lambda node: self._of_step(node, step))

        if not isinstance(statement, MatMul):
            self.body.append(mapped(statement, changed))
        else:
            target = put(statement.target)
            product = replace(statement, target=target, vector=put(statement.vector))
            kept, taken = self._shares(statement.weight.name, step)
            terms = [
                times(Number(share), self._along(outer, product))
                for before, share in enumerate(taken)
                for outer in self._gradient(statement.weight.name, before)
            ]
            if terms:
                first = Variable(unused(f"{target.name}_first", self.names), tuple(s for s in target.slots if s.bare))
                self.body.append(replace(product, target=first))
                self.body.append(Nonlin(target, Call("subtract", (times(Number(kept), first), sum_of(terms)))))
            else:
                self.body.append(product)

    def _of_step(self, node: Expr, step: int) -> Expr | None:
        """A constant that differs from step to step, as it is at this step."""
        if not isinstance(node, Constant) or node.name not in self.tables:
            return None
        own = replace(node, name=f"{node.name}_{step}")
        if own.name not in {constant.name for constant in self.constants}:
            table = Table.of(self.tables[node.name][step])
            self.constants.append(replace(self.source.constant[node.name], name=own.name, value=table))
        return own

    def _gradient(self, weight: str, step: int) -> Iterator[_Outer]:
        """The gradient by a weight at a step, one outer product for each product of the program."""
        rows, columns = (self.source.width_of(width, 1) for width in self.source.weight[weight].shape)
        for s in self.forward:
            if isinstance(s, MatMul) and s.weight.name == weight and f"grad_{s.target.name}" in self.whole.families:
                gradient = Variable(self._name(f"grad_{s.target.name}", step), s.target.slots)
                width = self.source.width_of(self.whole.families[s.target.name].width, 1)
                factor = root_of(width)  # n dL/dz of vectors of other widths
                vector = self._at(s.vector, step)
                if s.transposed:
                    yield _Outer(vector, gradient, s.weight, times(factor, fraction(rows / columns)))
                else:
                    yield _Outer(gradient, vector, s.weight, factor)

    def _along(self, outer: _Outer, product: MatMul) -> Expr:
        """What a part of the gradient makes of the vector of a product."""
        rows, columns = (self.source.width_of(width, 1) for width in self.source.weight[product.weight.name].shape)
        kept, met = (outer.right, outer.left) if product.transposed else (outer.left, outer.right)
        own = dict.fromkeys(
            name for part in (outer.left, outer.right, outer.weight) for s in part.slots for name in s.indices
        )
        moved, conditions = self._copies(list(own)), list[Expr]()
        for one, two in zip(outer.weight.slots, product.weight.slots, strict=True):
            if one.bare and one.at(moved).bare == moved[one.bare].bare and two.bare:
                moved[one.bare] = two  # the same member of the weight
            elif one.at(moved) != two:
                equal = Call("equal", (affine_expr(one.at(moved)), affine_expr(two)))
                conditions.append(Call("where", (equal, Number(1), Number(0))))
        vector, met = product.vector, reindexed(met, moved)
        indices = dict.fromkeys(name for part in (met, vector) for slot in part.slots for name in slot.indices)
        average = Variable(unused(f"mean_{met.name}_{vector.name}", self.names), slots_of(tuple(indices)))
        self.body.append(Dot(average, met, vector, "1/n"))
        scale = fraction(rows / columns) if product.transposed else Number(1)
        term = times(outer.factor, scale, *conditions, average, reindexed(kept, moved))
        over = [str(form.bare) for name, form in moved.items() if form.bare == self.second[name].name]
        return Reduction("sum", tuple(over), term) if over else term
