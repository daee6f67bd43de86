"""Sweeps: one program at several widths and constants, several times over, compared with the limit of each.

The *cell* is the unit of everything: one choice of the constants swept, one width, one repeat.  Its random stream
follows from the seed and from what the cell itself is, so its numbers do not depend on the other cells, on their order
or on the workers that draw them.
"""

from tensorprog.jobs.sweeps.work import sweep

__all__ = ["sweep"]
