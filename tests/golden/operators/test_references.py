"""The references of AllGatherV and ReduceScatterV: values worked out by hand, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from golden.operators.all_gather_v import all_gather_v
from golden.operators.reduce_scatter_v import reduce_scatter_v


def worked_example() -> list[np.ndarray[Any, np.dtype[np.float16]]]:
    x0 = [[0, 1, 2, 3], [4, 5, 6, 7]]
    x1 = [[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]]
    return [np.array(x, np.float16) for x in (x0, x1)]


def test_gather_the_worked_example() -> None:
    got = all_gather_v(worked_example(), [4, 2], [0, 4], 5)
    assert got.dtype == np.float16
    assert got.tolist() == [[0, 1, 2, 3], [3, 2, 0, 0]] + [[0, 0, 0, 0]] * 3


@pytest.mark.parametrize(
    ("counts", "displs", "rows", "message"),
    [
        ([4], [0, 4], 5, r"recv_counts must have length 2, one per rank, got 1"),
        ([4, 2], [0], 5, r"rdispls must have length 2, one per rank, got 1"),
        ([9, 2], [0, 9], 5, r"recv_counts\[0\] is 9, xs\[0\] has 8 elements"),
        ([4, -1], [0, 4], 5, r"recv_counts\[1\] is -1"),
        ([4, 4], [0, 5], 2, r"block 1 \(rdispls 5 \+ recv_counts 4\) exceeds .* 8 elements"),
        ([4, 4], [-1, 4], 2, r"block 0 \(rdispls -1"),
        ([4, 4], [2, 0], 2, r"blocks 1 and 0 overlap at element 2"),
    ],
)
def test_gather_refuses(counts: list[int], displs: list[int], rows: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        all_gather_v(worked_example(), counts, displs, rows)


def whole(rank: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.arange(8, dtype=np.int32).reshape(4, 2) * (1, 10, -100)[rank]


def test_scatter_packed_slices() -> None:
    got = reduce_scatter_v([whole(r) for r in range(3)], [3, 0, 5], [0, 3, 3], [2, 0, 3])
    assert [y.tolist() for y in got] == [
        [[0, -89], [-178, 0]],
        [],
        [[-267, -356], [-445, -534], [-623, 0]],
    ]
    assert [y.shape for y in got] == [(2, 2), (0, 2), (3, 2)]


def test_scatter_overlapping_slices_and_a_tail() -> None:
    got = reduce_scatter_v([whole(r) for r in range(3)], [2, 2, 1], [5, 5, 6], [1, 2, 1], "max")
    assert [y.tolist() for y in got] == [[[50, 60]], [[50, 60], [0, 0]], [[60, 0]]]


def test_scatter_adds_in_rank_order() -> None:
    # 1 is lost beside 2^24, which goes away again only after it; the other way round 1 stays.
    columns = [[1.0, 2.0**24], [2.0**24, -(2.0**24)], [-(2.0**24), 1.0]]
    xs = [np.array([column], np.float32) for column in columns]
    got = reduce_scatter_v(xs, [1, 1, 2], [0, 1, 0], [1, 1, 1])
    assert [y.tolist() for y in got] == [[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]]


@pytest.mark.parametrize(
    ("counts", "displs", "rows", "message"),
    [
        ([1], [0, 1, 2], [1, 1, 1], r"send_counts must have length 3, one per rank, got 1"),
        ([1, 1, 1], [0, 1], [1, 1, 1], r"sdispls must have length 3, one per rank, got 2"),
        ([1, 1, 1], [0, 1, 2], [1], r"rows must have length 3, one per rank, got 1"),
        ([1, 4, 1], [0, 5, 2], [1, 2, 1], r"slice 1 \(sdispls 5 \+ send_counts 4\) is outside"),
        ([1, 1, 1], [0, 1, -1], [1, 1, 1], r"slice 2 \(sdispls -1"),
        ([1, -1, 1], [0, 1, 2], [1, 1, 1], r"slice 1 \(sdispls 1 \+ send_counts -1\)"),
        ([3, 1, 1], [0, 1, 2], [1, 1, 1], r"send_counts\[0\] is 3, output 0 has 2 elements"),
    ],
)
def test_scatter_refuses(
    counts: list[int], displs: list[int], rows: list[int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        reduce_scatter_v([whole(r) for r in range(3)], counts, displs, rows)
