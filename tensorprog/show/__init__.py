"""How results look: on terminals, on report.html, as drawings of programs and as plots.

In go results and their blocks; out come text for a screen, a page, or pictures.

    terminal              blocks on a screen, or as plain text in a pipe
    progress              notes and bars while a run or a sweep goes on
    notebook              one line in a notebook while something takes long
    page                  report.html: a list of blocks for each section
    graphs, graph_layout  drawings of programs, and where their boxes and arrows go
    plots                 densities, convergence in the width, covariances
    readings              what a plot shows as numbers, for panels of the page that can be pointed at
    layers                curves over layers, maps over two constants
"""
