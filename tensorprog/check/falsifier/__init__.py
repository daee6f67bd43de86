"""Searches for numbers that refute a property: of functions that authors declare, and of a program's expressions.

In goes a function with what is claimed of it; out come numbers at which it fails, or nothing, which proves nothing.

    line         a function along a line: extremes, trends, jumps, bends
    refutations  for each property the rules that find numbers against it, of any function on a line
    claims       what `declare` asks: one search for each claim of a declared function
    witness      what `certificates` asks: lines through the space of an expression's arguments
"""
