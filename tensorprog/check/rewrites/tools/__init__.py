"""What exact rewrites are made with; the rewrites themselves stand one to a file in the package above.

`editor` changes a program statement by statement, `operands` takes a MatMul or a Dot inside what it multiplies,
`linear` takes a linear map inside an expression, `boundaries` says what stands beyond the range of an index, and
`folding` puts the numbers of constants in.
"""
