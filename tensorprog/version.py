"""The version of the package, and of what its numbers depend on."""

__version__ = "0.1.0"


def libraries() -> dict[str, str]:
    """Versions of the libraries that numbers depend on."""
    import numpy
    import scipy

    return {"tensorprog": __version__, "numpy": numpy.__version__, "scipy": scipy.__version__}
