"""How results look on terminals and on report.html, drawings of programs, and plots: results in, pictures out."""
