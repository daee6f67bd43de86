"""Searches for numbers that refute a property: of functions that authors declare, and of a program's expressions."""
