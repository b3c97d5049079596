"""Calls of the simulated libnccl: what conformance, which has their results, does not see."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import P
from tests.gpu.simulated.simulated_nccl import AVG, IN_PROGRESS, MAX, SUM, NcclRank, type_of

COUNT = 1001


def mine(rank: int, count: int = COUNT, dtype: Any = np.float32) -> Any:
    return (np.arange(count) % 97 + 100 * rank).astype(dtype)


def in_ring(parts: list[Any], owner: int) -> Any:
    """The sum in a ring's order, rounded at each step."""
    order = [parts[(owner + step) % len(parts)] for step in range(1, len(parts) + 1)]
    total = order[0]
    for part in order[1:]:
        total = (total + part).astype(total.dtype)
    return total


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_have_the_order_of_a_ring(on_ranks: Any, ranks: int, dtype: str) -> None:
    random = np.random.default_rng(5)
    data = (random.standard_normal((ranks, ranks * COUNT)) * 50).astype(dtype)

    def work(one: NcclRank) -> Any:
        kind, x = type_of(dtype), one.cuda.put(data[one.rank])
        y, z = one.empty(ranks * COUNT, dtype), one.empty(COUNT, dtype)
        one.run("ncclReduceScatter", x, z, COUNT, kind, SUM)
        scattered = one.read(z, COUNT, dtype)
        one.run("ncclAllReduce", x, y, ranks * COUNT, kind, SUM)
        return scattered, one.read(y, ranks * COUNT, dtype)

    blocks = data.reshape(ranks, ranks, COUNT)
    for rank, (scattered, whole) in enumerate(on_ranks(work, ranks)):
        assert (scattered == in_ring(list(blocks[:, rank]), rank)).all()
        for r in range(ranks):
            assert (whole[r * COUNT : (r + 1) * COUNT] == in_ring(list(blocks[:, r]), r)).all()
    if dtype == "float32" and ranks == 3:
        in_rank_order = (blocks[0] + blocks[1]) + blocks[2]
        assert (
            np.concatenate([in_ring(list(blocks[:, r]), r) for r in range(3)])
            != (in_rank_order.ravel())
        ).any()


def test_other_reductions_and_a_root(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        kind, x = type_of(np.int32), one.cuda.put(mine(one.rank, dtype=np.int32))
        y = one.empty(COUNT, np.int32)
        one.run("ncclAllReduce", x, y, COUNT, kind, MAX)
        most = one.read(y, COUNT, np.int32)
        one.run("ncclReduce", x, y, COUNT, kind, AVG, 1)
        return most, one.read(y, COUNT, np.int32)

    results = on_ranks(work, 3)
    for rank, (most, average) in enumerate(results):
        assert (most == mine(2, dtype=np.int32)).all()
        assert (average == mine(1 if rank == 1 else 2, dtype=np.int32)).all()


@pytest.mark.parametrize("blocking", [0, 1])
def test_a_group_of_broadcasts(on_ranks: Any, blocking: int) -> None:
    counts = [5, 0, 700]

    def work(one: NcclRank) -> Any:
        kind, x = type_of(np.float32), one.cuda.put(mine(one.rank))
        y = one.empty(sum(counts), np.float32)
        with one.group() as codes:
            for root, count in enumerate(counts):
                at = y + 4 * sum(counts[:root])
                assert one.start("ncclBroadcast", x, at, count, kind, root) == 0
        assert codes[0] == (0 if blocking else IN_PROGRESS)
        assert one.settled() == 0
        one.sync()
        return one.read(y, sum(counts), np.float32)

    expected = np.concatenate([mine(r, count) for r, count in enumerate(counts)])
    for result in on_ranks(work, 3, blocking=blocking):
        assert (result == expected).all()


def test_a_call_that_does_not_block_is_on_its_stream_once_it_is_settled(on_ranks: Any) -> None:
    def work(one: NcclRank) -> list[int]:
        x, codes = one.cuda.put(mine(one.rank)), set()
        for _ in range(20):
            codes.add(one.start("ncclAllReduce", x, x, COUNT, type_of(np.float32), SUM))
            codes.add(one.start("ncclAllReduce", x, x, COUNT, type_of(np.float32), SUM))
            one.settled()
            one.sync()
        return sorted(codes)

    # The second call of a pair comes while the first one is in progress.
    found = on_ranks(work, 1, blocking=0)
    assert found[0][-1] == IN_PROGRESS
    assert 5 in found[0]


def test_a_captured_group_is_replayed(on_ranks: Any) -> None:
    def work(one: NcclRank) -> list[Any]:
        cuda, kind = one.cuda, type_of(np.float32)
        x, y = cuda.put(mine(one.rank)), one.empty(2 * COUNT, np.float32)
        side = cuda.stream()
        assert cuda.begin_capture(one.stream) == 0
        event, back = cuda.event(), cuda.event()
        assert cuda.record(event, one.stream) == 0
        assert cuda.wait(side, event) == 0
        assert one.start("ncclAllGather", x, y, COUNT, kind, stream=side) == 0
        assert cuda.record(back, side) == 0
        assert cuda.wait(one.stream, back) == 0
        code, graph = cuda.end_capture(one.stream)
        assert code == 0
        replay, found = cuda.instantiate(graph), []
        for value in range(3):
            cuda.write(x, mine(one.rank + 10 * value))
            cuda.call("cuGraphLaunch", P(replay), P(one.stream))
            one.sync()
            found.append(one.read(y, 2 * COUNT, np.float32))
        return found

    for found in on_ranks(work, 2):
        for value, result in enumerate(found):
            expected = [mine(r + 10 * value) for r in range(2)]
            assert (result.reshape(2, COUNT) == expected).all()


def test_messages_of_one_group_and_of_several_calls(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        kind, x = type_of(np.float32), one.cuda.put(mine(one.rank))
        y, z = one.empty(COUNT, np.float32), one.empty(3, np.float32)
        steps = [("ncclSend", x, COUNT), ("ncclSend", x, 3), ("ncclRecv", y, COUNT)]
        if one.rank == 1:
            steps = [("ncclRecv", y, COUNT), ("ncclRecv", z, 3), ("ncclSend", x, COUNT)]
            for name, address, count in steps:
                assert one.start(name, address, count, kind, 0) == 0
        else:
            with one.group():
                for name, address, count in steps:
                    assert one.start(name, address, count, kind, 1) == 0
        one.sync()
        return one.read(y, COUNT, np.float32), one.read(z, 3, np.float32), one.async_error()

    (first, _, _), (second, few, error) = on_ranks(work, 2)
    assert (first == mine(1)).all()
    assert (second == mine(0)).all()
    assert (few == mine(0, 3)).all()
    assert error == 0


@pytest.mark.parametrize("blocking", [0, 1])
def test_split(on_ranks: Any, blocking: int) -> None:
    def work(one: NcclRank) -> Any:
        part, color = P(), -1 if one.rank == 3 else one.rank % 2
        split = one.nccl.ncclCommSplit(one.comm, color, -one.rank, ctypes.byref(part), None)
        assert split in (0, IN_PROGRESS), one.text()
        one.settled()
        if color < 0:
            return part.value
        one.settled(part)
        size, rank = ctypes.c_int(), ctypes.c_int()
        assert one.nccl.ncclCommCount(part, ctypes.byref(size)) == 0
        assert one.nccl.ncclCommUserRank(part, ctypes.byref(rank)) == 0
        x, y = one.cuda.put(mine(one.rank, 1)), one.empty(size.value, np.float32)
        code = one.start("ncclAllGather", x, y, 1, type_of(np.float32), comm=part)
        assert code in (0, IN_PROGRESS), one.text()
        one.settled(part)
        one.sync()
        return size.value, rank.value, list(one.read(y, size.value, np.float32))

    # The keys put higher ranks first.
    evens, alone = [400.0, 200.0, 0.0], [100.0]
    assert on_ranks(work, 5, blocking=blocking) == [
        (3, 2, evens),
        (1, 0, alone),
        (3, 1, evens),
        None,
        (3, 0, evens),
    ]


def test_several_communicators_of_one_thread(on_gpu: Any) -> None:
    def work(_: Any) -> Any:
        nccl, comms = ctypes.CDLL("libnccl.so.2"), (P * 3)()
        assert nccl.ncclCommInitAll(comms, 3, None) == 0
        found = ctypes.c_int()
        devices = []
        for comm in comms:
            assert nccl.ncclCommCuDevice(P(comm), ctypes.byref(found)) == 0
            devices.append(found.value)
        return devices

    assert on_gpu(work) == [0, 1, 2]
