"""Rules of NCCL that the simulated one holds its callers to. What works when they are kept is what
the tests of collops run on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from patience import patience
from tests.gpu.simulated.simulated_driver import LEGACY, U64, P
from tests.gpu.simulated.simulated_nccl import (
    ARGUMENT,
    FLOAT32,
    IN_PROGRESS,
    INT32,
    INTERNAL,
    SUM,
    SYSTEM_ERROR,
    USAGE,
    NcclRank,
    config,
)

COUNT = 64
SHORT = {"COLLOPS_SIM_TIMEOUT_S": "1"}
LONG = {"COLLOPS_SIM_TIMEOUT_S": f"{patience(60):g}"}


def shorten() -> None:
    """From now on the simulation waits for a second only; it began with LONG."""
    os.environ.update(SHORT)


def buffers(one: NcclRank) -> tuple[int, int]:
    return one.empty(one.ranks * COUNT), one.empty(one.ranks * COUNT)


def gather(
    one: NcclRank, x: int, y: int, count: int = COUNT, kind: int = FLOAT32, **over: Any
) -> int:
    return one.start("ncclAllGather", x, y, count, kind, **over)


def elsewhere(one: NcclRank, call: Callable[[], int]) -> int:
    """A call where another device is this thread's."""
    with one.cuda.on(7):
        return call()


def in_host_memory(one: NcclRank) -> int:
    host = np.zeros(one.ranks * COUNT, np.float32)
    return one.start("ncclAllReduce", host.ctypes.data, host.ctypes.data, COUNT, FLOAT32, SUM)


def overlapping(one: NcclRank) -> int:
    whole = one.empty(4 * COUNT)
    return gather(one, whole + 4 * COUNT // 2, whole)


REFUSED: dict[str, Callable[[NcclRank], int]] = {
    "too little to receive": lambda one: gather(one, *buffers(one), COUNT + 1),
    "counts in bytes": lambda one: gather(one, *buffers(one), 4 * COUNT),
    "no such type": lambda one: gather(one, *buffers(one), kind=77),
    "host memory": in_host_memory,
    "memory of another device": lambda one: gather(
        one, elsewhere(one, lambda: one.empty(COUNT)), buffers(one)[0]
    ),
    "a stream of another device": lambda one: gather(
        one, *buffers(one), stream=elsewhere(one, one.cuda.stream)
    ),
    "the legacy stream of another device": lambda one: elsewhere(
        one, lambda: gather(one, *buffers(one), stream=LEGACY)
    ),
    "no such stream": lambda one: gather(one, *buffers(one), stream=8192),
    "no such root": lambda one: one.start("ncclBroadcast", *buffers(one), COUNT, FLOAT32, 2),
    "no such peer": lambda one: one.start("ncclSend", buffers(one)[0], COUNT, FLOAT32, -1),
    "no such communicator": lambda one: gather(one, *buffers(one), comm=P(64)),
    "overlapping buffers": overlapping,
}


def test_wrong_calls_are_refused(on_ranks: Any) -> None:
    """Alone and in a group; the communicator still works."""

    def work(one: NcclRank) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, call in REFUSED.items():
            alone = call(one)
            with one.group() as codes:
                call(one)
            found[name] = alone, codes
        one.run("ncclAllGather", *buffers(one), COUNT, FLOAT32)
        found["an end without a start"] = int(one.nccl.ncclGroupEnd())
        assert one.nccl.ncclCommAbort(one.comm) == 0
        found["an aborted communicator"] = gather(one, *buffers(one))
        return found

    expected: dict[str, Any] = dict.fromkeys(REFUSED, (ARGUMENT, [ARGUMENT]))
    expected |= {"an end without a start": USAGE, "an aborted communicator": ARGUMENT}
    assert on_ranks(work, 2) == [expected] * 2


DIFFERENT: dict[str, Callable[[NcclRank, int, int], int]] = {
    "the operation": lambda one, x, y: (
        one.start("ncclAllReduce", x, y, COUNT, FLOAT32, SUM)
        if one.rank == 0
        else gather(one, x, y)
    ),
    "the data type": lambda one, x, y: gather(one, x, y, kind=INT32 if one.rank else FLOAT32),
    "the count": lambda one, x, y: gather(one, x, y, COUNT - one.rank),
    "the reduction": lambda one, x, y: one.start("ncclAllReduce", x, y, COUNT, FLOAT32, one.rank),
    "the root": lambda one, x, y: one.start("ncclBroadcast", x, y, COUNT, FLOAT32, one.rank),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_differ(on_ranks: Any, name: str) -> None:
    def work(one: NcclRank) -> Any:
        assert DIFFERENT[name](one, *buffers(one)) == 0
        one.cuda.sync(one.stream)
        return one.async_error(), one.text().split(": ")[-1].split(" in ")[-1]

    assert on_ranks(work, 2) == [(INTERNAL, name)] * 2


def test_messages_that_do_not_match(on_ranks: Any) -> None:
    def work(one: NcclRank) -> int:
        x = one.empty(COUNT)
        if one.rank == 0:
            one.start("ncclSend", x, COUNT, FLOAT32, 1)
        else:
            one.start("ncclRecv", x, COUNT - 1, FLOAT32, 0)
            one.cuda.sync(one.stream)
        one.meet("compared")
        return one.cuda.mistakes()

    assert on_ranks(work, 2)[1] == 1


def test_a_send_before_a_receive_on_both_ranks_needs_a_group(on_ranks: Any) -> None:
    def work(one: NcclRank) -> bool:
        x, y = buffers(one)
        one.meet("made")
        shorten()
        assert one.start("ncclSend", x, COUNT, FLOAT32, 1 - one.rank) == 0
        assert one.start("ncclRecv", y, COUNT, FLOAT32, 1 - one.rank) == 0
        one.cuda.code("cuStreamSynchronize", P(one.stream))
        return one.cuda.mistakes() > 0

    assert on_ranks(work, 2, **LONG) == [True] * 2


def test_a_message_of_a_rank_to_itself_needs_both_in_a_group(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        code = one.start("ncclSend", buffers(one)[0], COUNT, FLOAT32, 0)
        return code, one.cuda.mistakes()

    assert on_ranks(work, 1) == [(USAGE, 1)]


def test_a_missing_rank_without_an_abort_is_reported(on_ranks: Any) -> None:
    """By the simulation; NCCL itself waits, also for one that has left on this host."""

    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)
        if one.rank == 1:
            return None
        os.environ["COLLOPS_SIM_TIMEOUT_S"] = "2"
        assert gather(one, x, y) == 0
        time.sleep(0.5)
        early = one.async_error()
        while one.async_error() == 0:
            time.sleep(0.01)
        return early, one.async_error(), one.cuda.mistakes()

    assert on_ranks(work, 2, **LONG)[0] == (0, INTERNAL, 1)


def test_an_abort_waits_for_the_graphs_that_have_calls(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        assert one.cuda.begin_capture(one.stream) == 0
        assert gather(one, x, y) == 0
        graph = one.cuda.end_capture(one.stream)[1]
        one.meet("captured")
        shorten()
        aborts = one.nccl.ncclCommAbort(one.comm), one.cuda.mistakes()
        one.cuda.call("cuGraphDestroy", P(graph))
        return aborts

    assert on_ranks(work, 2, **LONG) == [(0, 1)] * 2


def test_what_a_call_uses_is_not_freed_before(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        with one.cuda.held(one.stream):
            assert gather(one, x, y) == 0
            freed = [one.cuda.code("cuMemFree_v2", U64(address)) for address in (x, y)]
        one.cuda.sync(one.stream)
        return freed, one.cuda.mistakes()

    assert on_ranks(work, 2) == [([1, 1], 2)] * 2


def test_two_threads_at_once(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        codes = []

        def other() -> None:
            one.cuda.choose(one.rank)
            codes.append(gather(one, x, y))

        with one.group():
            assert gather(one, x, y) == 0
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        one.cuda.sync(one.stream)
        return codes, one.cuda.mistakes()

    assert on_ranks(work, 2) == [([USAGE], 1)] * 2


def test_two_ranks_on_one_gpu(on_ranks: Any) -> None:
    def work(one: NcclRank) -> int:
        one.cuda.choose(3)
        return one.init()

    assert on_ranks(work, 2, init=False, NCCL_MULTI_RANK_GPU_ENABLE="0") == [USAGE] * 2


def test_inits_of_two_communicators_in_a_thread_need_a_group(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        identity, comm = one.unique_id(), P()
        init, chosen = one.nccl.ncclCommInitRankConfig, config(1)
        code = init(ctypes.byref(comm), 2, identity, 0, ctypes.byref(chosen))
        return code, one.cuda.mistakes()

    assert on_ranks(work, 1, init=False, **SHORT) == [(SYSTEM_ERROR, 1)]


def test_a_call_while_one_is_in_progress(on_ranks: Any) -> None:
    """Of a communicator that does not block."""

    def work(one: NcclRank) -> list[int]:
        x, codes = one.empty(COUNT), set()
        for _ in range(20):
            for _ in range(2):
                codes.add(one.start("ncclAllReduce", x, x, COUNT, FLOAT32, SUM))
            one.settled()
            one.cuda.sync(one.stream)
        return sorted(codes)

    found = on_ranks(work, 1, blocking=0)
    assert found[0][-1] == IN_PROGRESS
    assert USAGE in found[0]


def test_sums_have_the_order_of_a_ring(on_ranks: Any) -> None:
    """Not that of the ranks; each block begins with the rank behind its own."""
    data = (np.random.default_rng(5).standard_normal((3, 3 * COUNT)) * 50).astype(np.float32)
    blocks = data.reshape(3, 3, COUNT)

    def work(one: NcclRank) -> Any:
        x, y = one.cuda.put(data[one.rank]), one.empty(3 * COUNT)
        one.run("ncclAllReduce", x, y, 3 * COUNT, FLOAT32, SUM)
        return one.cuda.read(y, (3, COUNT), np.float32)

    ring = [(blocks[(r + 1) % 3, r] + blocks[(r + 2) % 3, r]) + blocks[r, r] for r in range(3)]
    for found in on_ranks(work, 3):
        np.testing.assert_array_equal(found, ring)
    assert (np.array(ring) != (blocks[0] + blocks[1]) + blocks[2]).any()


@pytest.mark.parametrize("function", ["ncclCommDestroy", "ncclCommAbort"])
def test_a_destroy_beside_a_rank_that_has_ended_is_a_mistake(on_ranks: Any, function: str) -> None:
    """NCCL wants it from all ranks of a host, and may wait for ever; an abort is none."""

    def work(one: NcclRank) -> Any:
        one.run("ncclAllGather", *buffers(one), COUNT, FLOAT32)
        pid = one.folder / "pid"
        if one.rank == 1:
            pid.write_text(str(os.getpid()))
        one.meet("gathered")
        if one.rank == 1:
            return None
        with contextlib.suppress(ProcessLookupError):
            end = os.pidfd_open(int(pid.read_text()))
            assert select.select([end], [], [], patience(60))[0]
        return getattr(one.nccl, function)(one.comm), one.cuda.mistakes()

    mistakes = int(function == "ncclCommDestroy")
    assert on_ranks(work, 2, **LONG) == [(0, mistakes), None]
