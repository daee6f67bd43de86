"""How results look: terminals, notebooks, pages, drawings of programs and plots.  Results in, text and pictures out."""
