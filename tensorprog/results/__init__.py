"""What is said of draws and laws: distances, divergences, comparisons, rates, a law beside its own draws, and a run.

Samples and laws in; out come numbers with uncertainties, as objects that say what is to be seen of them in `blocks()`.
Nothing here is printed or written.
"""
