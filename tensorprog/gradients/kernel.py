"""The neural tangent kernel of a program in the limit: the covariance of its tangents."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tensorprog.gradients.tangents import Tangents
from tensorprog.language.errors import NotCompiledError, Problem, ProgramError, did_you_mean
from tensorprog.language.ir import Dot, Family, MatMul, Netsor
from tensorprog.language.schedule import upstream

__all__ = ["chosen_parameters", "tangents_in_the_limit", "vector_of"]


def tangents_in_the_limit(netsor: Netsor, name: str, parameters: Sequence[str] | None) -> tuple[Netsor, str]:
    """The program of the tangents of a family, as the limit has them, and the name of its tangent.

    Raises    ProgramError for names that are no vectors or no parameters, NotCompiledError where the kernel is random
    """
    vector_of(netsor, name)
    used = upstream(netsor, [name])
    _refuse_random(netsor, name, used)
    made = Tangents(netsor, [name], chosen_parameters(netsor, used, parameters), copies=True)
    if name not in made.tangent:
        raise ProgramError(f"{name} depends on no parameter: its kernel is 0")
    return made.program([name]), made.tangent[name]


def vector_of(netsor: Netsor, name: str) -> Family:
    """A family of vectors by its name.

    Raises    ProgramError
    """
    family = netsor.families.get(name)
    if family is None or family.kind != "vector":
        known = [key for key, value in netsor.families.items() if value.kind == "vector"]
        raise ProgramError(Problem(f"{name} is not a vector of the program", fix=did_you_mean(name, known)))
    return family


def chosen_parameters(netsor: Netsor, used: Collection[str], parameters: Sequence[str] | None) -> tuple[str, ...]:
    """Weights and initial vectors that move: by default all weights, and the layers that read data.

    Raises    ProgramError for what is neither a weight nor an initial vector
    """
    multiplied = {s.weight.name for s in netsor.body if isinstance(s, MatMul) and s.target.name in used}
    vectors = [v for v in netsor.initial if v.name in used and not v.grid]
    if parameters is None:
        return (
            *(w.name for w in netsor.weights if w.name in multiplied),
            *(v.name for v in vectors if v.data is not None),
        )
    known = [*multiplied, *(v.name for v in vectors)]
    for each in parameters:
        if each not in known:
            fix = did_you_mean(each, known)
            raise ProgramError(Problem(f"{each} is no weight or initial vector that the output depends on", fix=fix))
    return tuple(dict.fromkeys(parameters))


def _refuse_random(netsor: Netsor, name: str, used: Collection[str]) -> None:
    body = [statement for statement in netsor.body if statement.target.name in used]
    score = next((s for s in body if isinstance(s, Dot) and s.scale != "1/n"), None)
    fixed = next((s for s in body if netsor.families[s.target.name].width in dict(netsor.fixed_widths)), None)
    for statement, what in (
        (score, "a score, which stays random in the limit"),
        (fixed, "a width that stays finite, whose vectors stay random in the limit"),
    ):
        if statement is not None:
            said = f"{name} depends on {what}, and so does its tangent kernel: there is no kernel to be computed"
            advice = f'kernels of networks have a law at every finite width: tp.ntk(P, "{name}", width=256)'
            raise NotCompiledError(Problem(said, statement.span, advice))
    ways = {(s.weight.name, s.transposed) for s in body if isinstance(s, MatMul)}
    both = next((weight for weight, transposed in ways if (weight, not transposed) in ways), None)
    if both is not None:
        raise NotCompiledError(
            f"{both} is used both as it is and transposed, and limits of such tangent "
            "kernels are not computed; "
            f'tp.ntk(P, "{name}", width=256) draws kernels of networks'
        )
