"""How results look: on terminals, on report.html, as drawings of programs and as plots.

In go results and their blocks; out come text for a screen, a page, or pictures.

    terminal   blocks on a screen, or as plain text in a pipe; notes and bars while something takes long
    page       report.html: a list of blocks for each section
    graphs     drawings of programs, SVG
    plots      densities, convergence in the width, covariances
"""
