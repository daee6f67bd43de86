"""Write the frozen table anew: `python -m tests.frozen.record` asks every program what it says today.

It is for the rare change that is meant to change numbers.  Programs are the shipped ones, those of README and the
pages, and the realistic ones that were written by hand.  What takes more than a minute, or has no answer, is left out.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorprog as tp
from tests.frozen.questions import ask, questions_about
from tests.hand.tables import rows

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = Path(__file__).parent / "table.json"
LIMIT = {"hand": 20}  # seconds a question, 60 where it says nothing
FIRST_ORDERS = ("attention", "attention_relu", "mlp", "attention_1n")
KERNELS = ("mlp", "mlp_bias", "resnet", "cnn", "rnn")
FURTHER = {
    "shipped mlp": [["gradient", "grad_x[0]"]],
    "shipped resnet": [["gradient", "grad_x[0]"]],
    "page depth blocks": [["depth", "x", "variance", 6], ["depth", "x", "token_correlation", 6]],
    "shipped deep_attention": [["depth", "x", "variance", 2]],
}


def sources() -> Iterator[tuple[str, str]]:
    """A key for each program, and its text where it has no name of its own."""
    for path in sorted((ROOT / "programs").glob("*.yaml")):
        yield f"shipped {path.stem}", ""
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S):
            if "body:" in block and "program:" in block:
                yield f"page {page.stem} {re.search(r'program: *(.*)', block).group(1)}", block
    for place, row in enumerate(rows("realistic")):
        yield f"hand {place}", row.text


def program_of(key: str, text: str) -> tp.Program:
    """The program of a key of the table."""
    if not text:
        return tp.load(key.split()[1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "program.yaml")
        path.write_text(text, encoding="utf-8")
        return tp.load(path)


def record(source: tuple[str, str]) -> dict[str, Any] | None:
    """What one program says: its grade, and its answers with errors and seconds."""
    key, text = source

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    try:
        program = program_of(key, text)
        entry: dict[str, Any] = {"program": key, "text": text, "grade": program.check().grade, "rows": []}
    except Exception as problem:
        print(key, type(problem).__name__, flush=True)
        return None
    asked: list[list[Any]] = []
    name = key.split()[1]
    try:
        signal.alarm(LIMIT.get(key.split()[0], 60))
        asked = questions_about(program, thorough=not key.startswith("hand")) if entry["grade"] != "outside" else []
    except Exception as problem:
        print(key, type(problem).__name__, flush=True)
    finally:
        signal.alarm(0)
    if key.startswith("shipped") and asked:
        first = asked[0][1]
        asked += [["correction", kind, first] for kind in ("variance", "kurtosis") if name in FIRST_ORDERS]
        asked += [["ntk", first.partition("[")[0]]] if name in KERNELS else []
    for question in [*asked, *FURTHER.get(key, [])]:
        start = time.process_time()
        try:
            signal.alarm(LIMIT.get(key.split()[0], 60))
            value, error = ask(program, question)
        except Exception as problem:
            print(key, question, type(problem).__name__, flush=True)
            continue
        finally:
            signal.alarm(0)
        if not math.isfinite(value + error):
            continue
        entry["rows"].append([question, value, error, round(time.process_time() - start, 2)])
    entry["seconds"] = round(sum(row[3] for row in entry["rows"]), 2)
    return entry


def main() -> None:
    """Ask all programs, two at a time, and write the table."""
    wanted = sys.argv[1:]
    chosen = [source for source in sources() if not wanted or any(word in source[0] for word in wanted)]
    with multiprocessing.Pool(2, maxtasksperchild=20) as pool:
        entries = []
        for entry in pool.imap(record, chosen):
            if entry:
                entries.append(entry)
                print(entry["program"], entry["grade"], len(entry["rows"]), entry["seconds"], flush=True)
                lines = ",\n".join(json.dumps(one) for one in entries)
                TABLE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
