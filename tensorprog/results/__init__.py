"""What is said of draws and laws: distances, divergences, comparisons, rates, a law beside its own draws, and a run.

Samples and laws in; out come numbers with uncertainties, as objects that say what is to be seen of them in `blocks()`.
Nothing here is printed or written.

    distances, divergence   one variable's draws beside a law; KL between densities that are averages of Gaussians
    conditional             outputs given all but the weights used last: exactly Gaussian at every width
    reference               what displays and comparisons ask of a law, asked once
    comparison, rates       samples beside a law, and the power of the width with which they approach it
    expansion               moments of wide networks to first order in 1/n
    imported                what became of a torch module: its parameters, their laws and powers of n
    selfcheck               a law beside its own draws
    study                   what `tp run` is asked and what it finds
    limit_answers           the check of a program with numbers from its limit: `Program.check` and `tp check`
"""
