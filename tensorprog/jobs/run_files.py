"""The files of a run: report.json and samples.npz, written so that a reader never sees half of one."""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorprog.language.averages import average_members
from tensorprog.language.errors import TensorprogError
from tensorprog.language.ir import Netsor, Table
from tensorprog.language.writing_files import partial_name, whole, writing
from tensorprog.results.comparison import MAX_MEMBERS, Comparison
from tensorprog.results.distances import moments
from tensorprog.results.law_summary import Reference, label, members

__all__ = ["SamplesFile", "constants_json", "finite_json", "limit_json", "to_text", "write_text", "writing"]

Array = NDArray[Any]

MAX_LISTED = 4096  # members of a family that are listed one by one
MAX_COVARIANCE = 128  # members of a family whose covariance matrix is written out


# ---- files ----------------------------------------------------------------------------------------------------------


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: readers see the old one or the new one."""
    with writing(path), whole(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


class SamplesFile:
    """samples.npz, written array by array: memory holds one width at a time, and leaving the block completes the file.

    Holds `meta.json` (program text, version, seed, widths), the program's tables, and, for each output and width, e.g.
    `y_n64` with shape (samples, *members) or (samples, coordinates, *members).
    """

    def __init__(
        self, path: str | os.PathLike[str], meta: Mapping[str, Any], tables: Mapping[str, Array] | None = None
    ) -> None:
        self.path = Path(path)
        self.partial = partial_name(self.path)
        self.meta, self.tables = dict(meta), dict(tables or {})
        self.names: list[str] = []

    def __enter__(self) -> SamplesFile:
        with writing(self.path):
            self.partial.parent.mkdir(parents=True, exist_ok=True)
            self._zip = zipfile.ZipFile(self.partial, "w", zipfile.ZIP_STORED)
        return self

    def add(self, name: str, array: Array) -> None:
        """Append one array."""
        try:
            with writing(self.path), self._zip.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asarray(array), allow_pickle=False)
        except BaseException:  # interrupted half way: leave this array out
            half = self._zip.NameToInfo.pop(f"{name}.npy", None)
            self._zip.filelist[:] = [entry for entry in self._zip.filelist if entry is not half]
            raise
        self.names.append(name)

    def __exit__(self, *exception: object) -> None:
        with writing(self.path):
            try:
                if self.names:
                    for name, array in (self.tables | {"meta.json": np.array(json.dumps(self.meta))}).items():
                        self.add(name, array)
                self._zip.close()
                if self.names:
                    self.partial.replace(self.path)
            finally:
                self.partial.unlink(missing_ok=True)


# ---- report.json ----------------------------------------------------------------------------------------------------


def to_text(report: Mapping[str, Any]) -> str:
    """One JSON object as text; numbers that are not finite have become null before."""
    return json.dumps(_clean(report), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def _clean(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _clean(value.tolist())
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Mapping):
        return {str(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def constants_json(netsor: Netsor) -> dict[str, Any]:
    """Constants by name: numbers, nested lists of small tables, the text of expressions."""
    result: dict[str, Any] = {}
    for constant in netsor.constants:
        value = constant.value
        if isinstance(value, int | float):
            result[constant.name] = value
        elif isinstance(value, Table):
            small = math.prod(value.shape) <= MAX_LISTED
            result[constant.name] = value.array if small else {"shape": list(value.shape), "file": value.file or None}
        else:
            result[constant.name] = str(value)
    return result


def _index(netsor: Netsor, name: str) -> list[list[int]] | None:
    size = math.prod(netsor.families[name].shape)
    return [list(index) for index in members(netsor, name)] if size <= MAX_LISTED else None


def limit_json(reference: Reference, kept: Sequence[str] = ()) -> dict[str, Any]:
    """The limit's numbers: families flattened in C order, with their indices beside them; `kept` beside the outputs."""

    def family(name: str) -> dict[str, Any]:
        netsor = reference.netsor
        size = math.prod(netsor.families[name].shape)
        entry: dict[str, Any] = {"index": _index(netsor, name), "mean": None, "cov": None, "kurtosis": None}
        if size > MAX_LISTED:
            return entry | {"members": size}
        try:
            values = reference.moments(name)
        except (TensorprogError, FloatingPointError) as error:  # too large, or a number the law does not offer
            return entry | {"refused": str(error)}
        entry |= {"mean": values["mean"][0], "kurtosis": values["kurtosis"][0], "kurtosis_error": values["kurtosis"][1]}
        if size <= MAX_COVARIANCE:
            found = reference.covariance(name)
            entry["cov"] = None if found is None else found[0]
        else:
            entry["variance"] = values["variance"][0]
        return entry

    return {"outputs": {name: family(name) for name in dict.fromkeys([*reference.law.outputs, *kept])},
            "scores": {name: family(name) for name in reference.law.scores}, "error": float(reference.law.error),
            "widths": {name: "infinity" if n == math.inf else n for name, n in reference.law.widths.items()}}


def finite_json(samples: Any, comparison: Comparison, kept: Sequence[str] = ()) -> dict[str, Any]:
    """The numbers of one width, those of the names `kept` beside the outputs."""
    rows = {row.variable: row for row in comparison.rows}
    outputs: dict[str, Any] = {}
    for name in dict.fromkeys([*samples.outputs, *kept]):
        index = members(samples.netsor, name, MAX_LISTED)
        array = np.asarray(samples[name])
        vector = samples.netsor.families[name].kind == "vector"
        coordinates = samples.coordinates if vector else 1
        flat = array.reshape(len(array), coordinates, -1)
        entry: dict[str, Any] = {"index": [list(member) for member in index]}
        for key, (value, error) in moments(flat[..., : len(index)]).items():
            entry |= {key: value, f"{key}_se": error}
        size = flat.shape[-1]
        entry["cov"] = None
        if size <= MAX_COVARIANCE and flat.shape[0] * coordinates > 1:
            entry["cov"] = np.atleast_2d(np.cov(flat.reshape(-1, size), rowvar=False, bias=True))
        if size > len(index):
            entry["members"] = size
        compared = [rows.get(label(name, member)) for member in index[:MAX_MEMBERS]]
        for key in ("ks", "ks_se", "ks_p", "ks_floor", "w1", "w1_se", "w1_floor", "energy", "energy_se", "energy_floor",
                    "kl", "kl_se", "kl_floor", "kl_precise", "kl_precise_se"):
            values = [getattr(row, key) if row is not None else math.nan for row in compared]
            entry[key] = None if comparison.reference == "nothing" else values + [math.nan] * (len(index) - len(values))
        methods = [row.kl_method for row in compared if row is not None]
        entry["kl_method"] = methods[0] if methods and entry["kl"] is not None else None
        outputs[name] = entry
    found = {"width": samples.width, "method": samples.method, "samples": samples.samples, "seed": samples.seed,
             "seconds": round(float(samples.seconds), 4), "outputs": outputs}
    if samples.averages:
        found["averages"] = {target.partition("[")[0]: _average(samples, comparison, target) for target in samples.psi}
    return found


def _average(samples: Any, comparison: Comparison, target: str) -> dict[str, Any]:
    """One average: numbers, or for a family lists with `index` beside them."""
    name, bracket, _ = target.partition("[")
    index = average_members(samples.netsor, samples.psi, name)[:MAX_MEMBERS]
    rows = [comparison.average(label(name, member)).to_json() for member in index]
    entry: dict[str, Any] = {"psi": samples.psi[target]} | ({"index": [list(m) for m in index]} if bracket else {})
    for key in rows[0]:
        if key not in ("average", "n"):
            entry[key] = [row[key] for row in rows] if bracket else rows[0][key]
    return entry
