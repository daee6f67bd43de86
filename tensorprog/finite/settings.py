"""What the numbers of a run depend on, as plain values that can be written to a file and compared."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from typing import Any

from tensorprog.finite.job import Job
from tensorprog.finite.task import libraries
from tensorprog.language.atoms.declared import declared_function
from tensorprog.language.ir import Netsor
from tensorprog.language.samples import program_text

__all__ = ["differences", "settings"]


def settings(job: Job) -> dict[str, Any]:
    """Everything that determines the numbers of a block, by name.

    Scale     tables of numbers enter by their digests
    """
    return {
        "program": re.sub(" +", " ", program_text(job.netsor)),  # columns are aligned: one line moves others
        "tables": _tables(job.netsor),
        **_functions(job.netsor),
        "width": job.plan.width,
        "seed": job.seed,
        "method": job.method,
        "coordinates": job.coordinates,
        "names": sorted(job.kept),
        "dtype": job.dtype,
        "networks in a block": job.block,
        **libraries(),
        "processor": _processor(),
    }


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """One phrase for each value that differs."""
    phrases = []
    for key in {**there, **here}:
        old, new = there.get(key), here.get(key)
        if old != new:
            phrases.append(f"{key} is {_shown(key, old, new)} there, {_shown(key, new, old)} here")
    return phrases


def _shown(key: str, value: Any, other: Any) -> str:
    if key == "program":  # the first line that differs
        lines, others = str(value).splitlines(), str(other).splitlines()
        new = [line for position, line in enumerate(lines) if position >= len(others) or others[position] != line]
        return repr(new[0].strip()) if new else "shorter"
    if isinstance(value, dict):
        return ", ".join(f"{name} ({digest[:8]})" for name, digest in value.items()) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _tables(netsor: Netsor) -> dict[str, str]:
    """Digest of each table of numbers: the program's text has only the names of their files."""
    return {
        name: hashlib.sha256(repr(table.shape).encode() + table.data).hexdigest()
        for name, table in netsor.tables.items()
    }


def _functions(netsor: Netsor) -> dict[str, dict[str, str]]:
    """Digest of each function declared in Python, where there are any: the text has only their names."""
    digests = {name: declared_function(name).digest for name in netsor.own}
    return {"functions": digests} if digests else {}


def _processor() -> str:
    """The kind of processor, as far as BLAS tells kinds apart: others round differently."""
    from threadpoolctl import threadpool_info

    kinds = [library["architecture"] for library in threadpool_info() if "architecture" in library]
    return " ".join([platform.machine(), *kinds[:1]])
