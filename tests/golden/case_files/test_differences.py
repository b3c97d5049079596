"""The rows where collops differs from ATB by intent, and rows that look like them and do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from golden.case_files.csv_plan import plan_row
from golden.case_files.csv_row import CsvRow, Expectation, RowTensor
from golden.case_files.differences import DIFFERENCES

ACCEPTED = Expectation()
BAD_PARAM = Expectation("setup", "ERROR_INVALID_PARAM")
CREATION = Expectation("create", "ERROR_INVALID_PARAM")
GATHER, SCATTER = "AllGatherVOperation", "ReduceScatterVOperation"
LINEAR = "LinearParallelOperation"


def v_row(
    folder: Path, operator: str, numbers: list[list[int]], expected: Expectation, rows: int = 9
) -> CsvRow:
    """A row for 3 ranks with counts from files, and an output of 4 columns."""
    inputs = [RowTensor("float16", (9, 4))]
    for at, values in enumerate(numbers):
        np.save(folder / f"{at}.npy", np.array(values, np.int64))
        inputs.append(RowTensor("int64", (len(values),), file=f"{at}.npy"))
    inputs.append(RowTensor("float16", (rows,)))
    place, outputs = f"{folder / 'cases.csv'}:2", (RowTensor("float16", (rows, 4)),)
    return CsvRow(place, 1, "x", operator, {"rankSize": 3}, tuple(inputs), outputs, expected)


def difference(row: CsvRow) -> tuple[str, Expectation | None]:
    plan = plan_row(row)
    return (plan.reason, plan.instead) if plan.action == "differs" else (plan.action, None)


@pytest.mark.parametrize(
    ("displs", "expected", "reason"),
    [
        ([0, 3, 9], ACCEPTED, "blocks must not overlap"),
        ([0, 0, 0], ACCEPTED, "blocks must not overlap"),
        ([0, 4, 9], ACCEPTED, "run"),
        ([0, 3, 9], BAD_PARAM, "run"),
        ([0, 5, 10], BAD_PARAM, "blocks may leave gaps and lie in any order"),
        ([12, 7, 0], BAD_PARAM, "blocks may leave gaps and lie in any order"),
        ([0, 4, 9], BAD_PARAM, "run"),
        ([0, 5, 40], BAD_PARAM, "run"),
        ([-1, 5, 10], BAD_PARAM, "run"),
    ],
)
def test_blocks_of_a_gather(
    tmp_path: Path, displs: list[int], expected: Expectation, reason: str
) -> None:
    row = v_row(tmp_path, GATHER, [[4], [4, 5, 7], displs], expected)
    instead = {"run": None, "blocks must not overlap": BAD_PARAM}.get(reason, ACCEPTED)
    assert difference(row) == (reason, instead)


def test_a_layout_that_is_wrong_otherwise_is_no_difference(tmp_path: Path) -> None:
    for own, counts in (([3], [4, 5, 7]), ([0], [0, 0, 0]), ([4], [4, -5, 7])):
        row = v_row(tmp_path, GATHER, [own, counts, [0, 5, 10]], BAD_PARAM)
        assert difference(row)[0] == "run"


def test_counts_that_contradict(tmp_path: Path) -> None:
    numbers = [[4, 5, 7], [0, 4, 9], [6]]
    reason = "recvCount must be sendCounts[rank]"
    assert difference(v_row(tmp_path, SCATTER, numbers, ACCEPTED)) == (reason, BAD_PARAM)
    assert difference(v_row(tmp_path, SCATTER, numbers, BAD_PARAM))[0] == "run"
    numbers[2] = [4]
    assert difference(v_row(tmp_path, SCATTER, numbers, ACCEPTED))[0] == "run"


def test_counts_that_cannot_be_known_are_no_difference(tmp_path: Path) -> None:
    row = v_row(tmp_path, GATHER, [[4], [4, 5, 7], [0, 3, 9]], ACCEPTED)
    inputs = list(row.inputs)
    inputs[3] = replace(inputs[3], file="gone.npy")
    assert difference(replace(row, inputs=tuple(inputs)))[0] == "run"
    inputs[3] = replace(row.inputs[3], dtype="uint32")
    assert difference(replace(row, inputs=tuple(inputs)))[0] == "run"


def linear(
    expected: Expectation = ACCEPTED, rows: int = 4, dtype: str = "float16", **params: Any
) -> CsvRow:
    inputs = (RowTensor(dtype, (4, 8)), RowTensor(dtype, (6, 8)))
    outputs = (RowTensor(dtype, (rows, 6)),)
    return CsvRow("a.csv:2", 1, "x", LINEAR, {"rankSize": 2, **params}, inputs, outputs, expected)


INI = Expectation("infer_shape", "ERROR_INVALID_TENSOR_INI_MATCH")


@pytest.mark.parametrize(
    ("row", "reason", "instead"),
    [
        (linear(CREATION, backend="lcoc", rankSize=3), "lcoc takes any number of ranks", ACCEPTED),
        (linear(CREATION, backend="lcoc", rankSize=4), "run", None),
        (linear(CREATION, backend="lcoc", rankSize=1), "run", None),
        (linear(CREATION, backend="hccl", rankSize=3), "run", None),
        (linear(type=2), "type decides on every backend", None),
        (linear(type=1, backend="lccl"), "type decides on every backend", None),
        (linear(type=2, backend="lcoc"), "run", None),
        (linear(type=2, rows=8), "run", None),
        (linear(type=3), "run", None),
        (linear(type=4, twoDimTPInfo={"agDim": 1, "rsDim": 1}), "run", None),
        (linear(INI, dtype="float32"), "collops takes more dtypes than ATB", ACCEPTED),
        (linear(INI, dtype="float64"), "run", None),
    ],
)
def test_rows_of_linear_parallel(row: CsvRow, reason: str, instead: Expectation | None) -> None:
    assert difference(row) == (reason, instead)


def with_experts(
    folder: Path,
    tokens: list[list[int]],
    *,
    kind: int = 5,
    x: tuple[int, int] = (4, 8),
    rows: int = 6,
    expected: Expectation = ACCEPTED,
) -> CsvRow:
    """A row for 2 ranks with one expert each, and a matrix from a file."""
    np.save(folder / "tokens.npy", np.array(tokens, np.int32))
    inputs = (
        RowTensor("float16", x),
        RowTensor("float16", (1, 6, 8)),
        RowTensor("int32", (2, 2), file="tokens.npy"),
        RowTensor("int32", (rows,)),
    )
    params = {"rankSize": 2, "type": kind, "moeInfo": {"epSize": 2}}
    outputs = (RowTensor("float16", (rows, 6)),)
    return CsvRow(f"{folder / 'a.csv'}:2", 1, "x", LINEAR, params, inputs, outputs, expected)


DIM = Expectation("infer_shape", "ERROR_INVALID_TENSOR_DIM")
LATE_DIM = Expectation("execute", "ERROR_INVALID_TENSOR_DIM")


@pytest.mark.parametrize(
    ("tokens", "more", "reason", "instead"),
    [
        ([[1, 3], [2, 2]], {}, "run", None),
        ([[1, 3], [2, 2]], {"rows": 4}, "rows that do not fit are an error", LATE_DIM),
        ([[1, 3], [2, 3]], {}, "rows that do not fit are an error", LATE_DIM),
        ([[1, 3], [2, 3]], {"kind": 6, "x": (6, 8), "rows": 5}, "run", None),
        (
            [[1, 3], [2, 3]],
            {"kind": 6, "x": (5, 8), "rows": 5},
            "rows that do not fit are an error",
            LATE_DIM,
        ),
        ([[1, 3], [2, 3]], {"expected": LATE_DIM}, "run", None),
        ([[1, -3], [2, 3]], {}, "run", None),
        ([[1, 3], [2, 2]], {"x": (4, 9)}, "x must fit the weight", DIM),
    ],
)
def test_rows_with_experts(
    tmp_path: Path,
    tokens: list[list[int]],
    more: dict[str, Any],
    reason: str,
    instead: Expectation | None,
) -> None:
    assert difference(with_experts(tmp_path, tokens, **more)) == (reason, instead)


def test_the_page_lists_them_all() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "golden.md"
    rows = []
    for known in DIFFERENCES:
        names = ", ".join(operator.removesuffix("Operation") for operator in known.operators)
        rows.append(f"| {names} | {known.pattern} | {known.reason} |")
    assert "\n".join(["|---|---|---|", *rows, "", "## "]) in page.read_text()
