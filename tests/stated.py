"""How many standard errors a stated error is: Student's t at 99.9 % for a mean over the usual number of replicates."""

from tensorprog.gaussian.several import deviations

__all__ = ["STATED"]

STATED = deviations()
