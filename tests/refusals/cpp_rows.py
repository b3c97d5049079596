"""Gives the table's rows of structs to a C++ program and compares what is said: a test of ctest.

python3 -m tests.refusals.cpp_rows build/.../refusal_rows
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

SKIPPED = 77

try:
    from collops.core import core
    from collops.errors import Error
    from tests.refusals.refusal_table import Row, sections, write
    from tests.refusals.right_calls import RIGHT, On
except ImportError as error:
    if error.name not in ("collops", "numpy"):
        raise
    print(f"the package is not installed for this interpreter: {error}")
    sys.exit(SKIPPED)

Seen = dict[str, Any]
# What JSON does not have, and a type that Python alone has a name for.
PYTHONS = ("hccl_comm", "rsv", "S5")


def described(value: Any) -> Seen:
    """A tensor as the core sees it; counts with their numbers where these may be read."""
    device = value.device if isinstance(value, On) else "cpu"
    value = value.tensor if isinstance(value, On) else value
    seen: Seen = {**core().describe(value), "said": device, "numbers": ""}
    inner = getattr(value, "tensor", value)
    flags = {"c": "contiguous", "r": "read_only", "f": "foreign_endian"}
    seen["flags"] = "".join(letter for letter, name in flags.items() if seen[name]) or "-"
    seen["sizes"] = ",".join(map(str, inner.shape))
    if seen["address"]:
        seen["bytes"] = inner.nbytes
        if seen["dtype"] == "int64" and seen["flags"] == "c" and device == "cpu":
            seen["numbers"] = ",".join(map(str, inner.ravel().tolist()))
    return seen


def place(tensors: list[Seen]) -> None:
    """Where each lies in the program's memory: as far from the others as here, or apart."""
    end_here, end_there, shift = 0, 0, 0
    for seen in sorted((one for one in tensors if one["address"]), key=lambda one: one["address"]):
        begin = seen["address"]
        if begin > end_here:  # it shares nothing with those before
            end_there = (end_there + 127) // 64 * 64
            shift = end_there - begin
        seen["offset"] = begin + shift
        end_here = max(end_here, begin + seen["bytes"])
        end_there = max(end_there, end_here + shift)


def line_of(row: Row, name: str) -> str:
    """The call in the program's words."""
    values = RIGHT[name].call(0)
    exec(row.program, values)
    ins, outs = RIGHT[name].tensors(values)
    tensors = [described(value) for value in (*ins, *outs)]
    place(tensors)
    words = [
        " ".join(
            str(one.get(word, "-")) or "-"
            for word in ("dtype", "format", "said", "flags", "offset", "sizes", "numbers")
        )
        for one in tensors
    ]
    return "\t".join([name, RIGHT[name].param(values).to_json(), str(len(ins)), *words])


def told(program: str, variables: dict[str, str], lines: list[str]) -> list[str]:
    """What the program says to each line."""
    done = subprocess.run(
        [program],
        input="".join(f"{line}\n" for line in lines),
        env={**os.environ, "COLLOPS_JOB_ID": f"refusals-{os.getpid()}", **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    said = done.stdout.splitlines()
    assert (done.returncode, len(said)) == (0, len(lines)), f"it ended at {lines[len(said)]}"
    return said


def main() -> int:
    """Prints the differences; 1 if there are any."""
    by_variables: dict[tuple[tuple[str, str], ...], list[tuple[str, str, Row, int]]] = {}
    for number, row in (one for part in sections("structs") for one in part):
        if any(word in row.program for word in PYTHONS):
            continue
        for name in row.names:
            try:
                line = line_of(row, name)
            except Error:  # a value that is none of a struct's or no tensor
                continue
            key = tuple(row.variables.items())
            by_variables.setdefault(key, []).append((line, name, row, number))
    count = wrong = 0
    heard = {}
    for key, rows in by_variables.items():
        said = told(sys.argv[1], dict(key), [line for line, *_ in rows])
        for (_, name, row, number), text in zip(rows, said, strict=True):
            count += 1
            if "on(" in row.program:  # which Python does not run
                heard[number, name] = text
            if text != row.expected(name):
                wrong += 1
                print(f"{name} {row.program}\n  C++:   {text}\n  table: {row.expected(name)}")
    if os.environ.get("COLLOPS_UPDATE_REFUSALS"):
        write(heard)
    print(f"{count} refusals, {wrong} differ")
    return int(wrong > 0 or count < 500)


if __name__ == "__main__":
    sys.exit(main())
