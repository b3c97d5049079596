"""Any dimension of the plain level: the result is numpy's, contiguous, and may be given."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

SIZES = [2, 0, 3]
SHAPE = (2, 5, 3)  # of a whole; its dim 1 makes 5 rows


def whole(rank: int, shape: tuple[int, ...], dtype: Any = np.float64) -> Any:
    """Different in every rank and position."""
    count = int(np.prod(shape))
    return ((np.arange(count) + 23 * rank) % 97).reshape(shape).astype(dtype)


def with_rows(dim: int, rows: int) -> tuple[int, ...]:
    shape = list(SHAPE)
    shape[dim] = rows
    return tuple(shape)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "C": np.ascontiguousarray,
    "F": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "backward": lambda x: np.ascontiguousarray(x[::-1])[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [1, 2, -1, -2])
def test_all_gatherv_is_concatenate(dim: int, layout: str) -> None:
    def work(rank: int) -> list[bool]:
        comm = collops.init()
        blocks = [whole(r, with_rows(dim, size)) for r, size in enumerate(SIZES)]
        x = LAYOUTS[layout](blocks[rank])
        want = np.concatenate(blocks, dim)
        out = LAYOUTS[layout](np.full(want.shape, -1.0))
        results = [comm.all_gatherv(x, dim=dim), comm.all_gatherv(x, SIZES, dim)]
        given = comm.all_gatherv(x, SIZES, dim=dim, out=out)
        return [
            given is out,
            np.array_equal(out, want),
            *(np.array_equal(got, want) and got.flags.c_contiguous for got in results),
        ]

    assert run_ranks(work, 3) == [[True] * 4] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [1, 2, -1, -2])
@pytest.mark.parametrize("op", ["sum", "max"])
def test_reduce_scatterv_is_a_slice_of_the_reduction(op: str, dim: int, layout: str) -> None:
    def work(rank: int) -> list[bool]:
        comm = collops.init()
        shape = with_rows(dim, 5)
        xs = [whole(r, shape) for r in range(3)]
        reduced = sum(xs) if op == "sum" else np.max(xs, 0)
        x = LAYOUTS[layout](xs[rank])
        want = np.split(reduced, np.cumsum(SIZES)[:-1], dim)[rank]
        evenly = np.array_split(reduced, 3, dim)[rank]
        out = LAYOUTS[layout](np.full(want.shape, -1.0))
        given = comm.reduce_scatterv(x, SIZES, dim, op=op, out=out)
        fresh = comm.reduce_scatterv(x, SIZES, dim, op=op)
        default = comm.reduce_scatterv(x, dim=dim, op=op)
        return [
            given is out and np.array_equal(out, want),
            np.array_equal(fresh, want) and fresh.flags.c_contiguous,
            np.array_equal(default, evenly) and np.array_equal(x, xs[rank]),
        ]

    assert run_ranks(work, 3) == [[True] * 3] * 3


def test_x_may_be_its_own_block_of_out() -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        want = whole(0, (3, 4), np.int32)
        out = np.full((3, 4), -1, np.int32)
        mine = out[:, 1:] if rank else out[:, :1]
        mine[...] = want[:, 1:] if rank else want[:, :1]
        comm.all_gatherv(mine, [1, 3], dim=1, out=out)
        return bool(np.array_equal(out, want))

    assert run_ranks(work, 2) == [True, True]


def test_ranks_of_other_layouts_meet_in_one_call() -> None:
    def work(rank: int) -> list[float]:
        comm = collops.init()
        x = whole(rank, (2, 3))
        x = np.asfortranarray(x) if rank else x
        out = np.empty((2, 6)) if rank else None
        gathered = comm.all_gatherv(x, dim=1, out=out)
        return list((gathered - np.concatenate([whole(0, (2, 3)), whole(1, (2, 3))], 1)).ravel())

    assert run_ranks(work, 2) == [[0.0] * 12] * 2


def peak_of(call: Any) -> int:
    call()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_gather_along_a_dim_copies_the_result_alone() -> None:
    def measure(rank: int) -> list[int]:
        comm = collops.init()
        x = whole(rank, (64, 1000), np.float32)
        out = np.empty((64, 2000), np.float32)
        flat, flat_out = x.reshape(1, -1), out.reshape(1, -1)
        return [
            peak_of(lambda: comm.all_gatherv(x, [1000] * 2, dim=1, out=out)),
            peak_of(lambda: comm.all_gatherv(flat, [64_000] * 2, dim=1, out=flat_out)),
        ]

    for copied, direct in run_ranks(measure, 2):
        assert 512_000 <= copied < 530_000
        assert direct < 20_000
