"""The references of the even collectives, by hand, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from golden.case_files.csv_row import CsvRow, RowTensor
from golden.case_files.row_case import expected_outputs, row_layout
from golden.operators.all_to_all import all_to_all
from golden.operators.broadcast import broadcast
from golden.operators.reduce_scatter import reduce_scatter
from golden.operators.table import OPERATORS

EVEN_OPERATORS = [name for name, one in OPERATORS.items() if one.even_case is not None]
XS = [np.array([[1, 2], [3, 4]], np.int32) * s for s in (1, 10)]


@pytest.mark.parametrize("operator", EVEN_OPERATORS)
def test_shapes_and_dtypes_must_agree(operator: str) -> None:
    for other in (XS[1][:1], XS[1].astype("i8")):
        with pytest.raises(ValueError, match=rf"{operator}: xs\[1\] is"):
            OPERATORS[operator].outputs({}, [[XS[0]], [other]])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="3 rows do not divide evenly among 2 ranks"):
        reduce_scatter([np.zeros(3), np.zeros(3)])
    with pytest.raises(ValueError, match=r"root must be in \[0, 2\), got 2"):
        broadcast(XS, 2)
    with pytest.raises(ValueError, match="3 elements do not divide evenly among 2 ranks"):
        all_to_all([np.zeros((1, 3)), np.zeros((1, 3))])
    with pytest.raises(ValueError, match="3 columns do not divide evenly among 2 ranks"):
        all_to_all([np.zeros((2, 3)), np.zeros((2, 3))], transpose=True)
    with pytest.raises(ValueError, match="with transpose x must have 2 dims, got 3"):
        all_to_all([np.zeros((2, 2, 2))] * 2, transpose=True)


ROWS = [
    ("AllGatherOperation", {}, [[[1, 2], [3, 4]], [[10, 20], [30, 40]]]),
    ("ReduceScatterOperation", {"reduceType": "max"}, [[10, 20]]),
    ("AllReduceOperation", {"allReduceType": "min"}, [[1, 2], [3, 4]]),
    ("AllReduceOperation", {}, [[11, 22], [33, 44]]),
    ("BroadcastOperation", {"rankRoot": 1}, [[10, 20], [30, 40]]),
    ("BroadcastOperation", {}, [[1, 2], [3, 4]]),
    ("AllToAllOperation", {}, [[1, 2], [10, 20]]),
    ("AllToAllOperation", {"transpose": True}, [[1], [3], [10], [30]]),
]


@pytest.mark.parametrize(("operator", "params", "want"), ROWS)
def test_rows_of_case_files(operator: str, params: dict[str, object], want: object) -> None:
    x = RowTensor("int32", (2, 2))
    row = CsvRow("a.csv:2", 1, "x", operator, {"rankSize": 2, **params}, (x,))
    outputs = expected_outputs(row, [[x] for x in XS])
    assert outputs[0][0].tolist() == want
    blocks = row_layout(row, [[x] for x in XS]).of(0)
    assert sum(block.count for block in blocks) == outputs[0][0].size
