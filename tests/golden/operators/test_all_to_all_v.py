"""The all-to-all with counts: its reference by hand, and its cases in both structs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.case_files.case_fields import case_of, fields_of
from golden.cases import all_cases, expected, inputs, struct_fields
from golden.data.exchange import Exchange, exchange
from golden.operators.all_to_all_v import all_to_all_v, all_to_all_v_rows

BY_STRUCT = all_cases("all_to_all_v")
XS: list[np.ndarray[Any, Any]] = [np.arange(6).reshape(2, 3), 10 + np.arange(4)]


def call_of(**tables: list[list[int]]) -> Exchange:
    return exchange(tables.pop("counts", [[2, 1], [1, 2]]), **tables)


def test_a_small_example_worked_out_by_hand() -> None:
    assert [y.tolist() for y in all_to_all_v(XS, call_of())] == [[[0, 1, 10]], [[2, 11, 12]]]


def test_slices_may_overlap_and_blocks_lie_in_any_order() -> None:
    call = call_of(sdispls=[[3, 4], [3, 0]], rdispls=[[1, 0], [2, 0]])
    assert [y.tolist() for y in all_to_all_v(XS, call)] == [[[13, 3, 4]], [[10, 11, 4]]]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"counts": [[2]]}, "send_counts must be 2 x 2 numbers"),
        ({"rdispls": [[0, 2]]}, "rdispls must be 2 x 2 numbers"),
        ({"sdispls": [[0, 6], [0, 1]]}, r"slice 1 of rank 0 \(sdispls 6 \+ send_counts 1\) is out"),
        ({"sdispls": [[0, 2], [0, -1]]}, r"slice 1 of rank 1 \(sdispls -1"),
        ({"counts": [[2, -1], [1, 2]]}, r"slice 1 of rank 0 \(sdispls 2 \+ send_counts -1\)"),
        (
            {"rdispls": [[0, 3], [0, 1]]},
            r"block 1 of rank 0 \(rdispls 3 \+ recv_counts 1\) exceeds",
        ),
        ({"rdispls": [[0, 2], [-1, 1]]}, r"block 0 of rank 1 \(rdispls -1"),
        ({"rdispls": [[0, 2], [1, 0]]}, "blocks 1 and 0 of rank 1 overlap at element 1"),
    ],
)
def test_wrong_arguments_are_refused(tables: dict[str, list[list[int]]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        all_to_all_v(XS, call_of(**tables))


def test_two_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"xs\[1\] is int8, xs\[0\] is int64"):
        all_to_all_v([XS[0], XS[1].astype("i1")], call_of())


def test_both_structs_have_the_same_calls() -> None:
    others = all_cases("all_to_all_v_v2")
    assert len(others) == len(BY_STRUCT)
    for case, other in zip(BY_STRUCT, others, strict=True):
        assert other.id == case.id.replace("all_to_all_v.", "all_to_all_v_v2.")
        for rank, (own, tensors) in enumerate(zip(inputs(case), inputs(other), strict=True)):
            names = ["sendCounts", "sdispls", "recvCounts", "rdispls"]
            assert list(own) == ["x"]
            assert list(tensors) == ["x", *names, "y"]
            assert tensors["x"].tobytes() == own["x"].tobytes()
            assert struct_fields(case, rank) == {name: tensors[name].tolist() for name in names}
            assert struct_fields(other, rank) == {}
            assert {tensors[name].dtype for name in names} == {np.dtype(np.int64)}
            assert (tensors["y"].dtype, tensors["y"].shape) == (np.int8, (other.rows[rank],))


@pytest.mark.parametrize("operator", ["all_to_all_v", "all_to_all_v_v2"])
def test_lists_of_another_length_are_no_case(operator: str) -> None:
    case = all_cases(operator, text="p2.shares-even")[0]
    fields = fields_of(case)
    assert case_of(fields) == case
    with pytest.raises(TypeError, match="rdispls is not a list of whole numbers, got 'x'"):
        case_of({**fields, "rdispls": "x"})
    with pytest.raises(TypeError, match="transpose is neither true nor false, got 1"):
        case_of({**fields, "transpose": 1})
    with pytest.raises(ValueError, match="a table of 2 ranks has 4 numbers, got 1"):
        expected(case_of({**fields, "rdispls": [0]}))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([[1, 1]], "send_sizes must be 2 x 2 numbers"),
        ([[1, 1], [2]], "send_sizes must be 2 x 2 numbers"),
        ([[1, 2], [1, 1]], r"send_sizes\[0\] are \[1, 2\], xs\[0\] has 2 rows"),
        ([[1, 1], [3, -1]], r"send_sizes\[1\] are \[3, -1\], xs\[1\] has 2 rows"),
    ],
)
def test_sizes_that_are_refused(sizes: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        all_to_all_v_rows([np.zeros((2, 3)), np.zeros((2, 3))], sizes)


def test_rows_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rows of xs\[1\] are \(4,\) float64, of xs\[0\] \(3,\)"):
        all_to_all_v_rows([np.zeros((2, 3)), np.zeros((2, 4))], [[1, 1], [1, 1]])
