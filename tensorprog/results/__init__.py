"""What is said of draws and laws: distances, divergences, comparisons, rates, and a law beside its own draws.

Samples and laws in, numbers with uncertainties out; nothing here is shown or written.
"""
