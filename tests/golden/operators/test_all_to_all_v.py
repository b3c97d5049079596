"""The all-to-all with counts: its reference by hand and against single moves, and its cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.case_files.case_fields import case_of, fields_of
from golden.cases import Case, all_cases, case_layout, expected, inputs, struct_fields
from golden.data import fill
from golden.data.dtypes import DTYPES, storage
from golden.data.exchange import Exchange, exchange, square
from golden.data.shares import SHARES
from golden.operators.all_to_all_v import all_to_all_v, all_to_all_v_rows, exchange_of

from tests.golden.each_of import each_case

BY_STRUCT = all_cases("all_to_all_v")
CASES = [*BY_STRUCT, *all_cases("all_to_all_v", rank_sizes=(1, 7))]
EACH_CASE = each_case(CASES)
XS: list[np.ndarray[Any, Any]] = [np.arange(6).reshape(2, 3), 10 + np.arange(4)]


def call_of(**tables: list[list[int]]) -> Exchange:
    return exchange(tables.pop("counts", [[2, 1], [1, 2]]), **tables)


def test_a_small_example_worked_out_by_hand() -> None:
    assert [y.tolist() for y in all_to_all_v(XS, call_of())] == [[[0, 1, 10]], [[2, 11, 12]]]


def test_slices_may_overlap_and_blocks_lie_in_any_order() -> None:
    call = call_of(sdispls=[[3, 4], [3, 0]], rdispls=[[1, 0], [2, 0]])
    assert [y.tolist() for y in all_to_all_v(XS, call)] == [[[13, 3, 4]], [[10, 11, 4]]]


def test_a_rank_that_receives_nothing_has_no_elements() -> None:
    outputs = all_to_all_v(XS, call_of(counts=[[0, 2], [0, 0]], sdispls=[[6, 1], [4, 4]]))
    assert [y.shape for y in outputs] == [(1, 0), (1, 2)]
    assert outputs[1].tolist() == [[1, 2]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_travels(dtype: str) -> None:
    xs = [fill((30,), dtype, rank, kind="special") for rank in range(3)]
    outputs = all_to_all_v(xs, exchange([[10] * 3] * 3))
    for r, output in enumerate(outputs):
        parts = [x[10 * r : 10 * r + 10].tobytes() for x in xs]
        assert output.tobytes() == b"".join(parts)
        assert not any(np.shares_memory(output, x) for x in xs)


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


def test_a_table_has_a_line_per_rank() -> None:
    with pytest.raises(ValueError, match="a table of 2 ranks has 4 numbers, got 3"):
        square([1, 2, 3], 2)


@EACH_CASE
def test_every_element_is_where_the_formula_says(case: Case) -> None:
    """One element at a time for small cases, and nothing beside them."""
    call, xs = exchange_of(case), [own["x"].reshape(-1) for own in inputs(case)]
    for r, output in enumerate(expected(case)):
        assert output.shape == (1, case.rows[r]) == (1, sum(call.recv_counts[r]))
        assert output.dtype == storage(case.dtype)
        filled = np.zeros(output.size, np.int64)
        for q, x in enumerate(xs):
            count, start = call.recv_counts[r][q], call.rdispls[r][q]
            assert count == call.send_counts[q][r]
            at = np.arange(min(count, 500))
            sent, got = x[call.sdispls[q][r] + at], output[0][start + at]
            assert sent.tobytes() == got.tobytes()
            filled[start : start + count] += 1
        assert (filled == 1).all()


@EACH_CASE
def test_another_rank_or_slice_would_show(case: Case) -> None:
    call, outputs = exchange_of(case), expected(case)
    for r, output in enumerate(outputs):
        parts = [
            output[0, start : start + n].tobytes()
            for n, start in zip(call.recv_counts[r], call.rdispls[r], strict=True)
            if n > 8
        ]
        assert len({part[:64] for part in parts}) == len(parts) or case.dtype == "bool"
    layout = case_layout(case)
    for r, output in enumerate(outputs):
        assert sum(block.count for block in layout.of(r)) == output.size
        assert [block.rank for block in layout.of(r)] == list(range(case.rank_size))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_axis_is_covered(size: int) -> None:
    cases = [case for case in BY_STRUCT if case.rank_size == size]
    assert {case.dtype for case in cases} == set(DTYPES)
    assert {f"dtype-{dtype}" for dtype in DTYPES} <= {case.name for case in cases}
    assert {f"shares-{name.replace(':', '-')}" for name in SHARES} <= {c.name for c in cases}
    assert {len(case.x_shapes[0]) for case in cases} == set(range(1, 9))
    assert any(len({shape[1:] for shape in case.x_shapes}) > 1 for case in cases)
    assert any(shape[0] == 0 for case in cases for shape in case.x_shapes)
    counts = {n for case in cases for n in case.counts}
    assert {0, 1, 131_101} <= counts
    assert {case.kind for case in cases} == {"index", "random", "special"}


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_layout_is_there(size: int) -> None:
    ranks = range(size)
    calls = [exchange_of(case) for case in BY_STRUCT if case.rank_size == size]

    def backwards(displs: tuple[int, ...]) -> bool:
        return displs[0] > displs[-1]

    assert any(backwards(call.sdispls[0]) and not backwards(call.rdispls[0]) for call in calls)
    assert any(backwards(call.rdispls[0]) and not backwards(call.sdispls[0]) for call in calls)
    assert any(len(set(call.lengths)) == size for call in calls)
    overlaps = [call for call in calls if call.sdispls[0][1] < call.send_counts[0][0]]
    assert any(min(call.send_counts[0]) > 0 for call in overlaps)
    pairs = [{(q, r) for q in ranks for r in ranks if call.send_counts[q][r]} for call in calls]
    assert any(sent == {(q, q) for q in ranks} for sent in pairs)
    assert any(sent and all(q != r for q, r in sent) for sent in pairs)


def test_names_say_which_cases_atb_refuses() -> None:
    for case in CASES:
        assert case.name.startswith("nothing-") == (0 in case.rows), case.id


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


def test_rows_at_the_plain_level() -> None:
    xs = [np.arange(10).reshape(5, 2), 100 + np.arange(4).reshape(2, 2), np.zeros((0, 2), int)]
    sizes = [[1, 0, 4], [0, 2, 0], [0, 0, 0]]
    outputs = all_to_all_v_rows(xs, sizes)
    assert [y.tolist() for y in outputs] == [
        [[0, 1]],
        [[100, 101], [102, 103]],
        [[2, 3], [4, 5], [6, 7], [8, 9]],
    ]
    elements = exchange([[2 * n for n in line] for line in sizes])
    for y, z in zip(outputs, all_to_all_v(xs, elements), strict=True):
        assert y.tobytes() == z.tobytes()
    assert all_to_all_v_rows(xs[:1], [[5]])[0].tolist() == xs[0].tolist()


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
