"""Gradients of programs, as programs, and tangent kernels: `backward`, `ntk`.

derivatives    derivatives of the language's functions as expressions
adjoint        what each statement hands on to the families that it reads
assembly       the adjoint program as a whole, recurrences backwards
tangents       how families move when parameters do, as a program
kernel         the program whose covariance is the tangent kernel
networks       tangent kernels of networks of a finite width
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from tensorprog.gradients.assembly import adjoint
from tensorprog.gradients.kernel import tangents_in_the_limit
from tensorprog.gradients.networks import NetworkKernels, kernels_of_networks
from tensorprog.program import Program, netsor_of

if TYPE_CHECKING:
    from tensorprog.limit.law.structured_covariance import Covariance

__all__ = ["NetworkKernels", "backward", "ntk"]


def backward(P: Program) -> Program:
    """The adjoint program: P with the gradients of sum(xi . y) / sqrt(n) by all its families.

    The sum runs over the members of the outputs, with a fresh vector xi of standard normals for each of them, the
    initial vectors xi_<output>.  The family grad_<name> of a vector is sqrt(its width) times the gradient, so that its
    coordinates neither grow nor fall with the width; that of a score is the gradient itself, that of an average
    n**-0.5 times it.  Gradients of vectors are outputs, beside those of P.

    Outputs that are averages, or functions of averages such as a loss, add sqrt(n) times themselves to the sum, so that
    grad_<name> of a vector of width n is n times their gradient.

    Raises    ProgramError for outputs that are functions of scores, and functions whose derivative is not known as an
              expression
    """
    found = Program.from_netsor(adjoint(netsor_of(P, "backward")))
    assert isinstance(found, Program)
    return found


@overload
def ntk(
    P: Program, name: str, *, parameters: Sequence[str] | None = None, max_memory: str | int = "1GiB"
) -> Covariance: ...


@overload
def ntk(
    P: Program,
    name: str,
    *,
    parameters: Sequence[str] | None = None,
    max_memory: str | int = "1GiB",
    width: int,
    samples: int = 64,
    directions: int = 4,
    seed: int = 0,
) -> NetworkKernels: ...
def ntk(
    P: Program,
    name: str,
    *,
    parameters: Sequence[str] | None = None,
    max_memory: str | int = "1GiB",
    width: int | None = None,
    samples: int = 64,
    directions: int = 4,
    seed: int = 0,
) -> Covariance | NetworkKernels:
    """The neural tangent kernel of a family of vectors in the limit, between all its members, with errors.

    Each weight is sigma / sqrt(n_in) times standard normals, and the kernel the inner product of the derivatives of one
    coordinate by these.  `parameters` names the weights and initial vectors (biases) that count; by default all weights
    and the layers that read `data`.

    With a width, the kernels of so many networks of that width instead, averages over all coordinates: with scores they
    differ from network to network at every width, and `deviation` says how much.  Each is measured along `directions`.

    Shapes    as those of law.cov(name), a number for a member such as 'f[0]'; of networks (samples, members, members)
    Raises    NotCompiledError where the kernel stays random in the limit (scores, widths that stay finite),
              OutsideError for a program outside the theorems
    Source    Jacot, Gabriel & Hongler 2018 (arXiv 1806.07572); Yang 2020 (arXiv 2006.14548)
    """
    given = netsor_of(P, "ntk")
    if width is not None:
        return kernels_of_networks(given, name, parameters, width, samples, directions, seed, max_memory)
    family = name.partition("[")[0].strip() if isinstance(name, str) else name
    key = "ntk", family, None if parameters is None else tuple(parameters)
    if key not in given.remembered:
        netsor, tangent = tangents_in_the_limit(given, family, parameters)
        given.remembered[key] = Program.from_netsor(netsor), tangent
    found, tangent = given.remembered[key]
    member = tangent if name == family else f"{tangent}[{name.partition('[')[2]}"
    kernel: Covariance = found.limit(max_memory=max_memory).cov(member)
    return kernel
