"""What a program is: text or Python in, an immutable validated `Netsor` out; and `Samples`, which draws come in.

Expressions over a registry of nonlinearities (`atoms`) are built, folded and printed in `expr`, and read in `parse`.
`records` has declarations and statements, `validity` the rules of a program, `ir` the program that keeps them,
`schedule` the order in which its statements run.  `evaluate` puts expressions on arrays with named axes, `initials` and
`weight_members` initial vectors and weights.

The front ends, `builder` in Python and `reading` and `writing` for files, follow from one table of sections and
options, whose values `schema` makes into records; `data_files` reads the arrays beside a file.
`averages` adds the statements of averages that users ask for.

All others use `errors` (exceptions, and the one form of a problem), `facts` (HOLDS, FAILS or UNKNOWN), `formats`
(members and numbers as text), `files` (written in one step, and locks), `extras` (which command installs
what is missing) and `linalg` (matrices that may be singular).
"""
