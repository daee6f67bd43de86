"""Gaussian expectations of one and two variables, each with value and reported error."""

from .estimate import Estimate
from .expectation import cross, mean
from .function import Function, Term
from .qmc import expect, normal_points

__all__ = ["Estimate", "Function", "Term", "cross", "expect", "mean", "normal_points"]
