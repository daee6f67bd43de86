"""tensorprog: symbolic-to-numeric Tensor Programs."""

__version__ = "0.1.0"
