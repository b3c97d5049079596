"""The references and cases of the even collectives, against the V operators' and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.case_files.csv_row import CsvRow, RowTensor
from golden.case_files.row_case import expected_outputs, row_layout
from golden.case_files.row_inputs import rank_inputs
from golden.cases import Case, all_cases, case_layout, expected, inputs
from golden.data.dtypes import same_bits
from golden.data.exchange import exchange
from golden.operators.all_gather import all_gather
from golden.operators.all_gather_v import all_gather_v
from golden.operators.all_reduce import all_reduce
from golden.operators.all_to_all import all_to_all
from golden.operators.all_to_all_v import all_to_all_v
from golden.operators.broadcast import broadcast
from golden.operators.reduce_scatter import reduce_scatter
from golden.operators.reduce_scatter_v import reduce_scatter_v
from golden.operators.table import OPERATORS

from tests.golden.each_of import each_case

EVEN_OPERATORS = [name for name, one in OPERATORS.items() if one.even_case is not None]
CASES = [case for operator in EVEN_OPERATORS for case in all_cases(operator)]
EACH_CASE = each_case(CASES)
XS = [np.array([[1, 2], [3, 4]], np.int32) * s for s in (1, 10)]


@EACH_CASE
def test_a_v_operator_does_the_same(case: Case) -> None:
    xs = [own["x"] for own in inputs(case)]
    assert [list(own) for own in inputs(case)] == [["x"]] * case.rank_size
    if case.operator in ("all_gather", "broadcast"):
        flat = [x.reshape(-1) for x in xs]
        whole = all_gather_v(
            [x[:n] for x, n in zip(flat, case.counts, strict=True)],
            case.counts,
            case.displs,
            expected(case)[0].size,
        )
        wants = [whole] * case.rank_size
    elif case.operator == "all_to_all":
        # Blocks of columns are what lies one after the other once the columns come first.
        flat = [by_columns(x, case.rank_size) if case.transpose else x for x in xs]
        wants = all_to_all_v(flat, exchange([case.counts] * case.rank_size))
    else:
        flat = [x.reshape(-1, 1) for x in xs]
        wants = reduce_scatter_v(flat, case.counts, case.displs, case.counts, case.op, case.dtype)
    for got, want in zip(expected(case), wants, strict=True):
        assert same_bits(got.reshape(-1), want.reshape(-1), case.dtype)
        assert len(got) == case.rows[0]


def by_columns(x: np.ndarray[Any, Any], ranks: int) -> np.ndarray[Any, Any]:
    """A matrix as its blocks of columns, one after the other."""
    return np.ascontiguousarray(x.reshape(len(x), ranks, x.shape[1] // ranks).swapaxes(0, 1))


@EACH_CASE
def test_ranks_and_positions_differ(case: Case) -> None:
    xs = [own["x"] for own in inputs(case)]
    assert len({x.shape for x in xs}) == 1
    if xs[0].nbytes > 8 and case.dtype != "bool":
        assert len({x.tobytes() for x in xs}) == case.rank_size


def test_references_by_hand() -> None:
    assert all_gather(XS).tolist() == [[[1, 2], [3, 4]], [[10, 20], [30, 40]]]
    assert [y.tolist() for y in reduce_scatter(XS)] == [[[11, 22]], [[33, 44]]]
    assert all_reduce(XS, "max").tolist() == [[10, 20], [30, 40]]
    assert [y.tolist() for y in all_to_all(XS)] == [[[1, 2], [10, 20]], [[3, 4], [30, 40]]]
    columns = all_to_all(XS, transpose=True)
    assert [y.tolist() for y in columns] == [[[1], [3], [10], [30]], [[2], [4], [20], [40]]]
    got = broadcast(XS, 1)
    assert got.tolist() == [[10, 20], [30, 40]]
    assert not np.shares_memory(got, XS[1])


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


@pytest.mark.parametrize("operator", EVEN_OPERATORS)
def test_layouts_cover_the_outputs(operator: str) -> None:
    for case in all_cases(operator, text="p3."):
        layout = case_layout(case)
        for rank, output in enumerate(expected(case)):
            assert sum(block.count for block in layout.of(rank)) == output.size
        assert bool(layout.op) == (operator in ("reduce_scatter", "all_reduce"))


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


def test_a_row_with_customize_has_random_data() -> None:
    x = RowTensor("float16", (4, 3), generator="customize")
    row = CsvRow("a.csv:2", 1, "x", "AllReduceOperation", {"rankSize": 2}, (x,))
    [first], [second] = (rank_inputs(row, rank) for rank in (0, 1))
    assert first.shape == (4, 3)
    assert len(set(first.ravel().tolist())) > 6
    assert first.tobytes() != second.tobytes()
