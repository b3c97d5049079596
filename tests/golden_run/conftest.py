"""Case files for the runner's tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from collops.golden.case_files.csv_cases import COLUMNS

GATHER = "AllGatherVOperation"
CaseFile = Callable[..., Path]


def row(
    number: int,
    *,
    operator: str = GATHER,
    ranks: int = 2,
    dtype: str = "float16",
    rows: int = 4,
    columns: int = 5,
    expected: str = "NO_ERROR",
    **cells: Any,
) -> dict[str, str]:
    """The cells of a legal row with the counts of the even split; `cells` replaces some of them."""
    params = {"rank": 0, "rankSize": ranks, "rankRoot": 0, "backend": "hccl"}
    params.update(cells.pop("params", {}))
    out = rows * ranks if operator == GATHER else rows // ranks
    counts = f"1;{ranks};{ranks}" if operator == GATHER else f"{ranks};{ranks};1"
    values = {
        "CaseNum": number,
        "CaseName": f"case_{number}",
        "OpName": operator,
        "OpParam": json.dumps(params),
        "InNum": 5,
        "InDType": f"{dtype};int64;int64;int64;float16",
        "InFormat": "nd;nd;nd;nd;nd",
        "InShape": f"{rows},{columns};{counts};{out}",
        "OutNum": 1,
        "OutDType": dtype,
        "OutFormat": "nd",
        "OutShape": f"{out},{columns}",
        "DataGenType": "random",
        "ExpectedError": expected,
    }
    return {name: str(value) for name, value in {**values, **cells}.items()}


@pytest.fixture
def case_file(tmp_path: Path) -> CaseFile:
    """Writes a case file: one legal row per argument, with what that argument says otherwise."""

    def write(*rows: dict[str, Any], name: str = "cases.csv") -> Path:
        lines = ["|".join(COLUMNS)]
        for number, changes in enumerate(rows, start=1):
            cells = row(number, **changes)
            lines.append("|".join(cells.get(column, "") for column in COLUMNS))
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return path

    return write
