"""Program files: `load` and `loads` read them, `dump` writes them; reading executes nothing and reports all mistakes.

`pack` gives text and tables, for archives, and `shown` a text to look at.

A file is data from somebody else.  The raw text is bounded before YAML sees it, YAML gives nothing but nodes with
their positions, scalars are read by the rules of YAML 1.2 as text, and numbers come from data files only after
path, size and header have been checked.
"""

from tensorprog.language.yaml_io.data import DataError
from tensorprog.language.yaml_io.reading import load, loads
from tensorprog.language.yaml_io.writing import dump, pack, read_tables, shown, unpack

__all__ = ["DataError", "dump", "load", "loads", "pack", "read_tables", "shown", "unpack"]
