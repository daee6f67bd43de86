"""Does a theorem apply?  A program in, a `Report` out: a grade, findings, and what to change.

A program's way through the check, `check(netsor, numbers)` in `clauses`:

1.  `rewrites` brings it to its normal form by rewrites that are exact at every width: constants put in,
    weights behind scores moved inside sums, and across scores where they are used both ways, initial vectors in scores
    written as MatMuls, and scores of sums expanded where an operand needs it.  All rules judge the normal form, and
    speak of the program as it was written.
2.  `graph` answers who depends on whom, which vectors are score operands, and whether two uses of a weight can touch
    the same matrix (`overlaps`).  Families stay families, so that 96 heads take no longer than one.
3.  `facts` gives each expression its facts, range, growth, and how steep it is, by composition.  A property holds,
    fails, or is not shown; what is not shown is assumed, and a claim says so.  That a function jumps, has a pole, is
    too steep or grows too fast, `refutation` decides, by its values along lines.
4.  `signs` follows changes of sign of weights: for operands that are functions, and for gradients.
5.  `clauses` holds the rules, in the tuple `RULES`: one for each clause of Assumption 1, for what results beyond it
    cover, and for warnings.  A rule reads a `Context` and yields findings, and claims where it rests on another
    result.  A finding has its place, its reason, its source and what to write instead.
6.  The report has the grade that follows: outside if a finding fails or is unknown, extension if there are claims,
    remark if the inputs of operands are not bounded, else theorem.

A few rules ask for numbers of the limit: the mean of a score, and values at the limits of averages.
`clauses.context` has the questions.  The check does not know who answers them; without answers it says what
structure alone can tell.  With the moments of the limit they are answered by `results.limit_answers`, which is what
`Program.check` and `tp check` call.

To add a clause: a function with `@rule(name, source)` in a file of `clauses`, and a place in its tuple.
To add an exact rewrite: a file of `rewrites` with a function of an `Editor`, and a place in its tuple.
"""
