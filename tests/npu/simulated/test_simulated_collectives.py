"""Collectives of the simulated libhccl, against numpy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from simulated_rank import BFLOAT16, MAX, MIN, PROD, SUM, Rank, type_of

RANKS = [2, 3, 5, 8]
COPIED = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64".split()
REDUCED = "int8 int16 int32 int64 float16 float32".split()
COUNT = 6


def numbers(rank: int, count: int, dtype: Any = np.int32) -> Any:
    """What rank `rank` sends; small enough for an exact sum in every type."""
    return ((np.arange(count) * 3 + rank * 5) % 7).astype(dtype)


def everybody(ranks: int, count: int, dtype: Any = np.int32) -> Any:
    return np.stack([numbers(r, count, dtype) for r in range(ranks)])


@pytest.mark.parametrize("ranks", RANKS)
def test_all_gather_in_every_type(on_ranks: Any, ranks: int) -> None:
    def work(one: Rank) -> None:
        for name in COPIED:
            dtype = np.dtype(name)
            out = one.empty(ranks * COUNT, dtype)
            x = one.device(numbers(one.rank, COUNT, dtype))
            one.run("HcclAllGather", x, out, COUNT, type_of(dtype))
            np.testing.assert_array_equal(out.read(), everybody(ranks, COUNT, dtype).ravel())

    on_ranks(work, ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", REDUCED)
def test_sums(on_ranks: Any, ranks: int, name: str) -> None:
    dtype = np.dtype(name)
    all_rows = everybody(ranks, ranks * COUNT, dtype)

    def work(one: Rank) -> None:
        for op, ufunc in ((SUM, np.add), (MAX, np.maximum), (MIN, np.minimum)):
            want = ufunc.reduce(all_rows, axis=0, dtype=dtype)
            x = one.device(all_rows[one.rank])
            out = one.empty(ranks * COUNT, dtype)
            one.run("HcclAllReduce", x, out, ranks * COUNT, type_of(dtype), op)
            np.testing.assert_array_equal(out.read(), want)
            part = one.empty(COUNT, dtype)
            one.run("HcclReduceScatter", x, part, COUNT, type_of(dtype), op)
            np.testing.assert_array_equal(part.read(), want.reshape(ranks, COUNT)[one.rank])
            rooted = one.device(np.zeros(ranks * COUNT, dtype))
            one.run("HcclReduce", x, rooted, ranks * COUNT, type_of(dtype), op, ranks - 1)
            np.testing.assert_array_equal(rooted.read(), want * (one.rank == ranks - 1))

    on_ranks(work, ranks)


def test_a_product_and_a_sum_in_place(on_ranks: Any) -> None:
    def work(one: Rank) -> list[Any]:
        x = one.device(np.array([one.rank + 2, 3], np.float32))
        one.run("HcclAllReduce", x, x, 2, type_of(np.float32), PROD)
        return x.read().tolist()

    assert on_ranks(work, 3) == [[24, 27]] * 3


def test_bfloat16_sums_are_rounded_each_time(on_ranks: Any) -> None:
    """256 + 1 is a tie in bfloat16 and stays 256, in any order."""
    one_and_256 = {0: 0x4380, 1: 0x3F80, 2: 0x3F80}

    def work(one: Rank) -> int:
        x = one.device(np.array([one_and_256[one.rank]], np.uint16))
        out = one.empty(1, np.uint16)
        one.run("HcclAllReduce", x, out, 1, BFLOAT16, SUM)
        return int(out.read()[0])

    [first, *others] = on_ranks(work, 3)
    assert first in (0x4380, 0x4381)  # (1 + 1) + 256 is 258
    assert others == [first] * 2


@pytest.mark.parametrize("ranks", RANKS)
def test_broadcast_and_scatter(on_ranks: Any, ranks: int) -> None:
    def work(one: Rank) -> None:
        for root in (0, ranks - 1):
            x = one.device(numbers(one.rank, COUNT, np.float64))
            one.run("HcclBroadcast", x, COUNT, type_of(np.float64), root)
            np.testing.assert_array_equal(x.read(), numbers(root, COUNT))
            rows = one.device(np.arange(ranks * COUNT, dtype=np.uint8) + root)
            out = one.empty(COUNT, np.uint8)
            one.run(
                "HcclScatter",
                rows if one.rank == root else 0,
                out,
                COUNT,
                type_of(np.uint8),
                root,
            )
            np.testing.assert_array_equal(out.read(), np.arange(COUNT) + one.rank * COUNT + root)

    on_ranks(work, ranks)


def amounts(ranks: int) -> Any:
    """[i][j] goes from rank i to rank j; some are nothing."""
    return np.array([[(i * 2 + j) % 4 for j in range(ranks)] for i in range(ranks)], np.uint64)


def exclusive_sum(counts: Any) -> Any:
    return np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.uint64)


@pytest.mark.parametrize("ranks", RANKS)
def test_all_to_all(on_ranks: Any, ranks: int) -> None:
    sizes = amounts(ranks)

    def work(one: Rank) -> None:
        x = one.device(100 * one.rank + np.arange(ranks * 2, dtype=np.int32))
        out = one.empty(ranks * 2, np.int32)
        kind = type_of(np.int32)
        one.run("HcclAlltoAll", x, 2, kind, out, 2, kind)
        want = [100 * r + 2 * one.rank + i for r in range(ranks) for i in range(2)]
        assert out.read().tolist() == want
        sent, received = sizes[one.rank].copy(), sizes[:, one.rank].copy()
        x = one.device(100 * one.rank + np.arange(sent.sum(), dtype=np.int64))
        kind = type_of(np.int64)
        want = []
        for r in range(ranks):
            begin = int(sizes[r, : one.rank].sum())
            want += [100 * r + begin + i for i in range(int(sizes[r, one.rank]))]
        out = one.empty(len(want), np.int64)
        displs = exclusive_sum(sent), exclusive_sum(received)
        one.run("HcclAlltoAllV", x, sent, displs[0], kind, out, received, displs[1], kind)
        assert out.read().tolist() == want
        out = one.empty(len(want), np.int64)
        one.run("HcclAlltoAllVC", x, sizes, kind, out, kind)
        assert out.read().tolist() == want

    on_ranks(work, ranks)


def test_a_barrier_waits_for_the_last_stream(on_ranks: Any) -> None:
    def work(one: Rank) -> bool:
        held = one.rank == 1
        if held:
            one.acl.SimHoldStream(one.stream)
        assert one.start("HcclBarrier") == 0
        early = one.acl.aclrtSynchronizeStreamWithTimeout(one.stream, 200)
        one.meet("waited")
        if held:
            one.acl.SimReleaseStream(one.stream)
        return early == 507046 and one.sync() == 0

    assert on_ranks(work, 3) == [True] * 3


def test_a_graph_replays_collectives(on_ranks: Any) -> None:
    def work(one: Rank) -> list[list[int]]:
        x, out = one.device(numbers(one.rank, 2)), one.empty(2, np.int32)
        kind, graph = type_of(np.int32), ctypes.c_void_p()
        assert one.acl.aclmdlRICaptureBegin(one.stream, 0) == 0
        for _ in range(2):
            assert one.start("HcclAllReduce", x, x, 2, kind, SUM) == 0
            assert one.start("HcclAllReduce", x, out, 2, kind, MAX) == 0
        assert one.acl.aclmdlRICaptureEnd(one.stream, ctypes.byref(graph)) == 0
        found = []
        for value in (1, 5):
            x.write(np.array([value, value * one.rank]))
            assert one.acl.aclmdlRIExecuteAsync(graph, one.stream) == 0
            assert one.sync() == 0
            found.append(out.read().tolist())
        return found

    assert on_ranks(work, 2) == [[[4, 2], [20, 10]]] * 2
