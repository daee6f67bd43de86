"""Gaussian expectations of one and two variables, each with value and reported error."""

from tensorprog.gaussian.estimate import Estimate
from tensorprog.gaussian.expectation import cross, mean
from tensorprog.gaussian.function import Function, Term
from tensorprog.gaussian.qmc import expect, normal_points

__all__ = ["Estimate", "Function", "Term", "cross", "expect", "mean", "normal_points"]
