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


def test_dimensions_of_size_one_and_zero() -> None:
    def work(rank: int) -> list[Any]:
        comm = collops.init()
        one = whole(rank, (1, rank + 1, 2))
        gathered = comm.all_gatherv(one, dim=1)
        empty = np.empty((0, 3))
        return [
            gathered.shape,
            np.array_equal(gathered[:, :1], whole(0, (1, 1, 2))),
            np.array_equal(gathered[:, 1:], whole(1, (1, 2, 2))),
            comm.all_gatherv(empty, dim=1).shape,
            comm.reduce_scatterv(empty, dim=1).shape,
            comm.reduce_scatterv(whole(0, (1, 4)), dim=1).tolist(),
        ]

    first, second = run_ranks(work, 2)
    assert first == [(1, 3, 2), True, True, (0, 6), (0, 2), [[0.0, 2.0]]]
    assert second == [(1, 3, 2), True, True, (0, 6), (0, 1), [[4.0, 6.0]]]


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


@pytest.mark.parametrize("dtype", ["U3", "M8[us]", "g", [("a", "i1"), ("b", "f8")]], ids=str)
def test_types_without_a_number(dtype: Any) -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        size = np.dtype(dtype).itemsize
        raw = [(np.arange(6 * size) % 2 + r).astype(np.uint8).view(dtype) for r in range(2)]
        want = np.concatenate([block.reshape(3, 2) for block in raw], 1)
        out = np.zeros((3, 4), dtype)
        comm.all_gatherv(np.asfortranarray(raw[rank].reshape(3, 2)), dim=1, out=out)
        fresh = comm.all_gatherv(raw[rank].reshape(3, 2), dim=-1)
        return bool(fresh.tobytes() == out.tobytes() == want.tobytes())

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


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        block = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3) + 10 * rank
        want = torch.cat([block - 10 * rank + 10 * r for r in range(2)], 1)
        x = block.t().contiguous().t()  # another layout
        out = torch.full((6, 2), -1, dtype=torch.bfloat16).t()
        comm.all_gatherv(x, [3, 3], dim=1, out=out)
        fresh = comm.all_gatherv(x, dim=-1)
        scattered = comm.reduce_scatterv(want.float(), dim=1)
        half = 2 * want.float()[:, 3 * rank : 3 * rank + 3]
        return [
            bool((out == want).all()),
            bool((fresh == want).all()) and fresh.is_contiguous(),
            bool((scattered == half).all()),
        ]

    assert run_ranks(work, 2) == [[True] * 3] * 2


def test_torch_says_what_is_wrong_before_anything_moves() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed here")

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        out = torch.zeros(2, 4, requires_grad=rank == 1)
        with pytest.raises(collops.Error, match="out requires grad") as caught:
            comm.all_gatherv(torch.zeros(2, 2), [2, 2], dim=1, out=out)
        return [caught.value.code, comm.all_gatherv(torch.zeros(1)).tolist()]

    assert run_ranks(work, 2) == [[102, [0, 0]], [1, [0, 0]]]


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
