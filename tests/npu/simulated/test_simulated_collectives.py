"""Collectives of the simulated libhccl: what conformance, which has their results, does not see."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.npu.simulated.simulated_rank import BFLOAT16, MAX, PROD, SUM, Rank, type_of


def numbers(rank: int, count: int, dtype: Any = np.int32) -> Any:
    """What rank `rank` sends; small enough for an exact sum in every type."""
    return ((np.arange(count) * 3 + rank * 5) % 7).astype(dtype)


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
