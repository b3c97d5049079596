"""Counts and displacements of any size and sign: a plan is made exactly where all of them fit.

The numbers of an operator's inputs come from a user's program, so they may be anything that fits
into 64 bits. Python's integers, which do not overflow, say what is right.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

import collops

RANKS = 3
# Codes of wrong numbers: a value, and a size.
REFUSALS = {1, 8}
MOST_BYTES = 256 << 30
ENDS = [2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -1, -(2**31), -(2**63)]
SMALL = st.integers(0, 9)
NUMBERS = st.one_of(SMALL, SMALL, SMALL, SMALL, st.sampled_from(ENDS))
LISTS = st.lists(NUMBERS, min_size=RANKS, max_size=RANKS)


@st.composite
def lists(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Counts and displacements: packed ones with something wrong in half of all cases."""
    counts = draw(st.lists(SMALL, min_size=RANKS, max_size=RANKS))
    displs = [sum(counts[:rank]) for rank in range(RANKS)]
    if draw(st.booleans()):
        wrong = draw(st.sampled_from([counts, displs]))
        wrong[draw(st.integers(0, RANKS - 1))] = draw(NUMBERS)
    if draw(st.integers(0, 4)) == 0:
        return draw(LISTS), draw(LISTS)
    return counts, displs


def fit(counts: list[int], displs: list[int], length: int) -> bool:
    pairs = zip(counts, displs, strict=True)
    return all(count >= 0 and start >= 0 and start + count <= length for count, start in pairs)


def overlap(counts: list[int], displs: list[int]) -> bool:
    """Whether two blocks share an element; blocks that `fit`, which may be huge."""
    pairs = zip(counts, displs, strict=True)
    blocks = sorted((start, start + count) for count, start in pairs if count)
    return any(end > begin for (_, end), (begin, _) in pairwise(blocks))


def plan(param: Any, inputs: list[Any], output: Any) -> bool:
    """Whether an operation takes the numbers; it refuses them with one of REFUSALS, or plans."""
    operation = collops.Operation(param)
    try:
        size = operation.get_workspace_size(inputs, [output])
    except collops.Error as error:
        event("refused")
        assert error.code in REFUSALS, error
        return False
    event("planned")
    assert size >= 0
    return True


def fields(**more: Any) -> dict[str, Any]:
    """Local calls need no other rank: first contact is not completed."""
    return {"rank": 1, "rank_size": RANKS, "backend": "shm", "comm_domain": "counts", **more}


def int64(values: list[int]) -> Any:
    return np.array(values, np.int64)


@given(lists(), st.integers(0, 9), st.integers(0, 30), st.one_of(st.none(), NUMBERS))
def test_all_gather_v(
    drawn: tuple[list[int], list[int]], x_count: int, rows: int, own: int | None
) -> None:
    counts, displs = drawn
    sent = counts[1] if own is None else own
    if x_count % 2 and sum(counts) in range(60):
        rows = sum(counts)  # what packed blocks fill to the end
    y = np.empty(rows, np.float16)
    inputs = [np.zeros(x_count, np.int8), int64([sent]), int64(counts), int64(displs), y]
    right = (
        sent == counts[1]
        and sent <= x_count
        and fit(counts, displs, rows)
        and any(counts)
        and not overlap(counts, displs)
    )
    assert plan(collops.AllGatherVParam(**fields()), inputs, np.zeros(rows, np.int8)) == right


@given(lists(), st.integers(0, 30), st.integers(0, 12), st.one_of(st.none(), NUMBERS))
def test_reduce_scatter_v(
    drawn: tuple[list[int], list[int]], x_rows: int, rows: int, own: int | None
) -> None:
    counts, displs = drawn
    received = counts[1] if own is None else own
    y = np.empty(rows, np.float16)
    x, output = np.zeros((x_rows, 1), np.int8), np.zeros((rows, 1), np.int8)
    inputs = [x, int64(counts), int64(displs), int64([received]), y]
    right = received == counts[1] and received <= rows and fit(counts, displs, x_rows)
    assert plan(collops.ReduceScatterVParam(**fields()), inputs, output) == right


@given(lists(), lists(), st.integers(0, 30), st.integers(1, 30))
def test_all_to_all_v_v2(
    sends: tuple[list[int], list[int]],
    receives: tuple[list[int], list[int]],
    x_count: int,
    length: int,
) -> None:
    if sum(receives[0]) in range(1, 60):
        length = sum(receives[0])
    inputs = [
        np.zeros(x_count, np.int8),
        *map(int64, (*sends, *receives)),
        np.empty(length, np.int8),
    ]
    right = (
        fit(*sends, x_count)
        and fit(*receives, length)
        and sum(receives[0]) == length
        and not overlap(*receives)
    )
    output = np.zeros((1, length), np.int8)
    assert plan(collops.AllToAllVV2Param(**fields()), inputs, output) == right


@given(lists(), lists(), st.integers(0, 30))
def test_all_to_all_v(
    sends: tuple[list[int], list[int]], receives: tuple[list[int], list[int]], x_count: int
) -> None:
    """The same numbers in the struct: creation or infer_shape refuses them."""
    names = ("send_counts", "sdispls", "recv_counts", "rdispls")
    param = collops.AllToAllVParam(**fields(**dict(zip(names, (*sends, *receives), strict=True))))
    length = sum(receives[0])
    right = (
        fit(*sends, x_count)
        and fit(*receives, length)
        and 0 < length <= MOST_BYTES
        and not overlap(*receives)
    )
    try:
        [described] = collops.Operation(param).infer_shape([np.zeros(x_count, np.int8)])
    except collops.Error as error:
        assert error.code in {*REFUSALS, 9}, error
        assert not right
    else:
        assert right
        assert tuple(described.shape) == (1, length)
