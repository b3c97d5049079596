"""Writes a case file of AllGatherV and ReduceScatterV on 4 ranks, runs it, and prints the rate.

python tests/golden_run/case_rate.py [--cases N] [--at-least R]

Tensors x are of up to 64 KiB, of every size and dtype, uneven in no way that a file cannot state.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

from collops.golden.case_files.csv_cases import COLUMNS

from collops.golden_run.command import run_jobs
from collops.golden_run.jobs import read_jobs
from collops.golden_run.runner import Runner

RANKS = 4
MOST_BYTES = 1 << 16
WIDTHS = {"float16": 2, "bf16": 2, "int8": 1}


def row(number: int, chance: random.Random) -> dict[str, str]:
    """The cells of a row; operators alternate, all else is drawn."""
    gathers = number % 2 == 0
    dtype = chance.choice(list(WIDTHS))
    columns = chance.choice([1, 7, 64, 100, 256])
    rows = max(RANKS, chance.randint(1, MOST_BYTES // (columns * WIDTHS[dtype])) // RANKS * RANKS)
    out = rows * RANKS if gathers else rows // RANKS
    counts = f"1;{RANKS};{RANKS}" if gathers else f"{RANKS};{RANKS};1"
    params = {"rank": 0, "rankSize": RANKS, "rankRoot": 0, "backend": "hccl"}
    if not gathers:
        params["reduceType"] = chance.choice(["sum", "max", "min"])
    return {
        "CaseNum": str(number),
        "CaseName": f"{dtype}_{rows}_by_{columns}",
        "OpName": "AllGatherVOperation" if gathers else "ReduceScatterVOperation",
        "OpParam": json.dumps(params),
        "InNum": "5",
        "InDType": f"{dtype};int64;int64;int64;float16",
        "InFormat": "nd;nd;nd;nd;nd",
        "InShape": f"{rows},{columns};{counts};{out}",
        "OutNum": "1",
        "OutDType": dtype,
        "OutFormat": "nd",
        "OutShape": f"{out},{columns}",
        "DataGenType": "random",
        "ExpectedError": "NO_ERROR",
    }


def write_file(path: Path, cases: int, seed: int = 0) -> None:
    """Writes a case file; the same seed gives the same rows."""
    chance = random.Random(seed)
    rows = [row(number, chance) for number in range(cases)]
    lines = ["|".join(cells.get(name, "") for name in COLUMNS) for cells in rows]
    path.write_text("\n".join(["|".join(COLUMNS), *lines]) + "\n")


def main() -> int:
    """Runs the file: 0 if all passed at the rate that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--at-least", type=float, default=0.0, help="cases per second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.csv"
        write_file(path, options.cases)
        summary = run_jobs(Runner({"COLLOPS_BACKEND": "shm"}), read_jobs([path]))
    print(summary.closing_line())
    return 1 if summary.problem() or summary.rate < options.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
