"""Training programs: some steps of gradient descent as one longer program, whose limit is that of training.

steps        the program of a network and of the networks that follow from it, step by step
coordinates  `train`: sizes at each step, of the limit and of networks
modules      what moves of a torch module, and how fast
readouts     one coordinate of a product with a weight as an inner product, and the other way round
report       remarks, tables
exponents    powers of the width: what training moves, and which learning rates are wrong
predict      networks in the kernel regime after gradient flow, from their kernels
"""

from __future__ import annotations

from collections.abc import Mapping

from tensorprog.language.errors import check_count
from tensorprog.program import Program, netsor_of
from tensorprog.training.coordinates import train
from tensorprog.training.exponents import Exponents, ParameterExponents, exponents
from tensorprog.training.predict import Prediction, predict
from tensorprog.training.steps import training_program

__all__ = ["Exponents", "ParameterExponents", "Prediction", "exponents", "gradient_descent", "predict", "train"]


def gradient_descent(
    P: Program,
    loss: str,
    steps: int,
    rate: float = 1.0,
    rates: Mapping[str, float] | None = None,
    momentum: float = 0.0,
    decay: float = 0.0,
) -> Program:
    """The program of a network and of those that some steps of full-batch gradient descent make of it.

    `loss` is a scalar without indices, a function of averages such as a readout f[i] = Dot(v, z[i], scale=1/n).  The
    families of step t have their names with `_t` behind; outputs are the loss and all outputs of P at every step.  The
    rate is eta rows/columns for weights, and eta times their width for initial vectors; `rates` gives some their own,
    and 0 keeps a parameter fixed.  Correlated initial vectors are a layer on data: they move by their Gram matrix.
    With `momentum` earlier gradients are added; with `decay` what moves loses rate * decay of itself in a step.

    Raises    ProgramError for a loss that is no function of averages, names that are no parameters, and functions whose
              derivative is not known as an expression
    Source    Yang & Hu 2021 (arXiv 2011.14522)
    """
    check_count("steps", steps)
    netsor = netsor_of(P, "gradient_descent")
    found = Program.from_netsor(training_program(netsor, loss, steps, rate, rates, momentum, decay))
    assert isinstance(found, Program)
    return found
