"""Pictures: densities against the limit, convergence in the width, covariances.

Functions take `ax=None` and return the axes; colours are told apart by colour-blind readers, and widths by markers too.
"""

from tensorprog.show.plots.axes import PlotsUnavailableError, save, svg
from tensorprog.show.plots.densities import density, density_of, tail_bins
from tensorprog.show.plots.heatmaps import covariance
from tensorprog.show.plots.widths import convergence

__all__ = ["PlotsUnavailableError", "convergence", "covariance", "density", "density_of", "save", "svg", "tail_bins"]
