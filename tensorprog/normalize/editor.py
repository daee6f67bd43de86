"""A program under rewriting: statements replaced, and new ones put before them under names of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tensorprog.expr import Affine, Expr, Number, Variable, variables
from tensorprog.graph import Structure
from tensorprog.ir import ConstantDef, Index, Netsor, Nonlin, Statement, Weight
from tensorprog.normalize.linear import instantiate
from tensorprog.rename import free_indices

__all__ = ["Editor"]


class Editor:
    """One valid program, and the changes that lead to the next one."""

    def __init__(self, netsor: Netsor, origin: Sequence[str]) -> None:
        self.netsor, self.origin = netsor, tuple(origin)
        self.structure = Structure(netsor)
        self.taken = {
            *netsor.families, *netsor.index, *netsor.constant, *(name for name, *_ in netsor.widths),
            *dict(netsor.fixed_widths),
        }
        self.changed: dict[int, Statement] = {}
        self.indices: list[Index] = list(netsor.indices)
        self.constants: list[ConstantDef] = []
        self.weights: list[Weight] = []
        self.replaced: set[str] = set()  # initial families that statements define now
        self.initials: dict[str, str] = {}  # weights made for initial families, and which
        self._before: dict[int, list[tuple[Statement, str]]] = {}
        self._made: dict[tuple[object, ...], Variable] = {}

    # -- what the program says --------------------------------------------------------------------------------------

    def vector(self, expr: Expr) -> bool:
        """Whether a vector occurs in an expression."""
        return any(self.netsor.families[v.name].kind == "vector" for v in variables(expr))

    def scored(self, expr: Expr) -> bool:
        """Whether an expression depends on a score."""
        families = [self.netsor.families[v.name] for v in variables(expr)]
        return any(not self.structure.score_dependent.isdisjoint(f.statements) for f in families)

    def definition(self, position: int, reference: Variable) -> Nonlin | None:
        """The one Nonlin that binds what a reference in a statement reads."""
        definers = self.structure.definers(position, reference)
        if len(definers) != 1 or any(self.netsor.families[reference.name].boundaries):
            return None
        statement = self.netsor.body[definers[0]]
        return statement if isinstance(statement, Nonlin) else None

    def written_out(self, nonlin: Nonlin, reference: Variable, taken: Sequence[str]) -> Expr:
        """What a reference stands for, its bound indices apart from those taken where it is to stand.

        Raises    Stuck if that cannot be written
        """
        pairs = zip(nonlin.target.slots, reference.slots, strict=True)
        values = {own.bare: slot for own, slot in pairs if own.bare is not None}
        spans = {index.name: (index.start, index.stop) for index in self.indices}

        def alike(first: str, second: str) -> bool:
            return spans[first] == (self._index(second).start, self._index(second).stop)

        return instantiate(nonlin.expr, values, frozenset(taken), self._fresh_index, alike)

    def _index(self, name: str) -> Index:
        return next(index for index in self.indices if index.name == name)

    # -- what it is to say ------------------------------------------------------------------------------------------

    def name(self, wanted: str) -> str:
        """A name that nothing has yet."""
        found, number = wanted, 1
        while found in self.taken or found.endswith("_"):
            number += 1
            found = f"{wanted.rstrip('_')}{number}"
        self.taken.add(found)
        return found

    def _fresh_index(self, name: str) -> str:
        new = self.name(name)
        self.indices.append(replace(self._index(name), name=new))
        return new

    def copy_index(self, name: str) -> str:
        """A new index with the range of another."""
        return self._fresh_index(name)

    def family(self, wanted: str, *read: Expr) -> Variable:
        """The left side of a new family, over the indices that some expressions read and do not reduce."""
        names = dict.fromkeys(name for expr in read for name in free_indices(expr))
        return Variable(self.name(wanted), tuple(Affine(((name, 1),)) for name in names))

    def once(self, key: tuple[object, ...]) -> Variable | None:
        """What was added under a key before."""
        return self._made.get(key)

    def add(self, position: int, key: tuple[object, ...], statement: Statement, origin: str = "") -> Variable:
        """Put a new statement before another (-1: before all); returns its left side.

        `origin` is what it comes from in the first program, by default what the other comes from.
        """
        self._before.setdefault(position, []).append((statement, origin or self.origin[position]))
        self._made[key] = statement.target
        return statement.target

    def ones(self, position: int, width: str, origin: str = "") -> Variable:
        """The constant vector 1 of a width."""
        key = ("ones", width)
        made = self.once(key)
        if made is None:
            made = self.add(position, key, Nonlin(Variable(self.name("ones")), Number(1), width), origin)
        return made

    def reference(self, vector: Expr, position: int, width: str) -> Variable:
        """A reference to a vector: the expression itself, or a new Nonlin that is it."""
        if isinstance(vector, Variable):
            return vector
        if not variables(vector):
            return self.ones(position, width)
        key = ("vector", vector)
        statement = self.netsor.body[position]
        made = self.once(key)
        if made is None:
            target = self.family(f"{statement.target.name}_x", vector)
            made = self.add(position, key, Nonlin(target, vector, "", statement.span))
        return made

    def result(self) -> tuple[Netsor, tuple[str, ...]]:
        """The next program, and what in the first program each of its statements comes from."""
        entries = list(self._before.get(-1, ()))
        for position, statement in enumerate(self.netsor.body):
            entries += self._before.get(position, ())
            entries.append((self.changed.get(position, statement), self.origin[position]))
        netsor = replace(
            self.netsor,
            body=tuple(statement for statement, _ in entries),
            indices=tuple(self.indices),
            initial=tuple(v for v in self.netsor.initial if v.name not in self.replaced),
            constants=(*self.netsor.constants, *self.constants),
            weights=(*self.netsor.weights, *self.weights),
        )
        return netsor, tuple(origin for _, origin in entries)
