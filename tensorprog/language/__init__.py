"""What a program is: text or Python in, an immutable validated `Netsor` out; and samples, which both interpreters fill.

Expressions over a registry of nonlinearities (`atoms`, `expr`, `substitute`, `parse`), statements (`ir`), the rules of
a valid program (`validity`), the order in which statements run (`schedule`), expressions on arrays with named axes
(`named_arrays`, `evaluate`), and the two front ends (`builder`, `yaml_io`) with what they share (`schema`, `entries`).
"""
