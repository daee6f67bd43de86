"""What a program is: text or Python in, an immutable validated `Netsor` out; and `Samples`, which draws come in.

Expressions over a registry of nonlinearities (`atoms`) are built, folded and printed in `expr`, read in `parse`, and
their indices replaced in `substitute`.  `records` has declarations and statements, `validity` the rules of a program,
`ir` the program that keeps them, `schedule` the order in which its statements run.  `named_arrays` are arrays with
named axes; `evaluate`, `initials` and `weight_members` put expressions, initial vectors and weights on them.

The two front ends, `builder` and `yaml_io`, follow from one table of sections and options (`schema`) and share what
makes records of values (`make_records`).
"""
