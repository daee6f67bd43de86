"""Does a theorem apply?  A program in, a `Report` out: a grade, findings, and what to change.

Exact rewrites give a program its normal form (`rewrites`); networkx views say what depends on what (`graph`); every
expression gets facts by composition (`certificates`) and by what its parts have to do with each other (`relations`);
numbers are searched that refute a fact (`falsifier`); and each clause of Assumption 1 is a rule (`clauses`).
"""
