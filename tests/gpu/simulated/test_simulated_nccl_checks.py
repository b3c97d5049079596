"""Mistakes of a caller of NCCL, made on purpose: the simulated libnccl finds each."""

from __future__ import annotations

import ctypes
import os
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
    INTERNAL,
    SUM,
    SYSTEM_ERROR,
    USAGE,
    NcclRank,
    UniqueId,
    type_of,
)

FLOAT32, INT32 = type_of(np.float32), type_of(np.int32)
COUNT = 64
SHORT = {"COLLOPS_SIM_TIMEOUT_S": "1"}
LONG = {"COLLOPS_SIM_TIMEOUT_S": f"{patience(60):g}"}


def shorten() -> None:
    """From now on the simulation waits for a second only; it began with LONG."""
    os.environ.update(SHORT)


def buffers(one: NcclRank) -> tuple[int, int]:
    return one.empty(one.ranks * COUNT, np.float32), one.empty(one.ranks * COUNT, np.float32)


def other_device(one: NcclRank) -> int:
    with one.cuda.on(7):
        return one.cuda.alloc(4 * COUNT)


def on_other_device(one: NcclRank) -> int:
    with one.cuda.on(7):
        stream = one.cuda.stream()
    return one.start("ncclAllGather", *buffers(one), COUNT, FLOAT32, stream=stream)


def on_legacy_of_other(one: NcclRank) -> int:
    with one.cuda.on(7):
        return one.start("ncclAllGather", *buffers(one), COUNT, FLOAT32, stream=LEGACY)


def in_host_memory(one: NcclRank) -> int:
    host = np.zeros(one.ranks * COUNT, np.float32)
    return one.start("ncclAllReduce", host.ctypes.data, host.ctypes.data, COUNT, FLOAT32, SUM)


def gather(one: NcclRank, x: int, y: int, count: int = COUNT, kind: int = FLOAT32) -> int:
    return one.start("ncclAllGather", x, y, count, kind)


REFUSED: dict[str, Callable[[NcclRank], int]] = {
    "too little to receive": lambda one: gather(one, *buffers(one), COUNT + 1),
    "counts in bytes": lambda one: gather(one, *buffers(one), 4 * COUNT),
    "no such type": lambda one: gather(one, *buffers(one), kind=77),
    "host memory": in_host_memory,
    "memory of another device": lambda one: gather(one, other_device(one), buffers(one)[0]),
    "a stream of another device": on_other_device,
    "the legacy stream of another device": on_legacy_of_other,
    "no such stream": lambda one: one.start(
        "ncclAllGather", *buffers(one), COUNT, FLOAT32, stream=8192
    ),
    "no such root": lambda one: one.start("ncclBroadcast", *buffers(one), COUNT, FLOAT32, 2),
    "no such peer": lambda one: one.start("ncclSend", buffers(one)[0], COUNT, FLOAT32, -1),
    "no such communicator": lambda one: one.start(
        "ncclAllGather", *buffers(one), COUNT, FLOAT32, comm=P(64)
    ),
    "overlapping buffers": lambda one: overlapping(one),
}


def overlapping(one: NcclRank) -> int:
    whole = one.empty(4 * COUNT, np.float32)
    return gather(one, whole + 4 * COUNT // 2, whole)


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls_are_refused(on_ranks: Any, name: str) -> None:
    def work(one: NcclRank) -> Any:
        alone = REFUSED[name](one)
        with one.group() as codes:
            REFUSED[name](one)
        # The communicator still works.
        x, y = buffers(one)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)
        return alone, codes

    assert on_ranks(work, 2) == [(ARGUMENT, [ARGUMENT])] * 2


def test_a_group_end_without_a_start(on_ranks: Any) -> None:
    assert on_ranks(lambda one: int(one.nccl.ncclGroupEnd()), 1) == [USAGE]


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
        one.sync()
        return one.async_error(), one.text().split(": ")[-1].split(" in ")[-1]

    assert on_ranks(work, 2) == [(INTERNAL, name)] * 2


def test_messages_that_do_not_match(on_ranks: Any) -> None:
    def work(one: NcclRank) -> int:
        x = one.empty(COUNT, np.float32)
        if one.rank == 0:
            one.start("ncclSend", x, COUNT, FLOAT32, 1)
        else:
            one.start("ncclRecv", x, COUNT - 1, FLOAT32, 0)
            one.sync()
        one.meet("compared")
        return one.cuda.mistakes()

    assert on_ranks(work, 2)[1] == 1


@pytest.mark.parametrize("grouped", [True, False])
def test_two_sends_and_receives_need_a_group(on_ranks: Any, grouped: bool) -> None:
    def work(one: NcclRank) -> int:
        x, y = buffers(one)
        one.meet("made")
        if grouped:
            one.nccl.ncclGroupStart()
        else:
            shorten()
        assert one.start("ncclSend", x, COUNT, FLOAT32, 1 - one.rank) == 0
        assert one.start("ncclRecv", y, COUNT, FLOAT32, 1 - one.rank) == 0
        if grouped:
            one.nccl.ncclGroupEnd()
        one.cuda.code("cuStreamSynchronize", P(one.stream))
        return int(one.cuda.mistakes() > 0)

    assert on_ranks(work, 2, **LONG) == [0 if grouped else 1] * 2


def test_a_message_of_a_rank_to_itself_needs_both_in_a_group(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        code = one.start("ncclSend", buffers(one)[0], COUNT, FLOAT32, 0)
        return code, one.cuda.mistakes()

    assert on_ranks(work, 1) == [(USAGE, 1)]


@pytest.mark.parametrize("threads", [False, True])
def test_a_missing_rank_is_waited_for_until_an_abort(on_ranks: Any, threads: bool) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)  # connects
        if one.rank == 1:
            return None
        assert gather(one, x, y) == 0
        time.sleep(0.2)
        waits = one.cuda.code("cuStreamQuery", P(one.stream))
        assert one.nccl.ncclCommAbort(one.comm) == 0
        one.sync()
        return waits, one.cuda.mistakes()

    assert on_ranks(work, 2, threads)[0] == (600, 0)


@pytest.mark.parametrize("name", ["ncclAllGather", "ncclSend"])
def test_the_first_call_waits_on_the_host_until_an_abort(on_ranks: Any, name: str) -> None:
    def work(one: NcclRank) -> Any:
        if one.rank == 1:
            return None
        x, y = buffers(one)
        begin = time.monotonic()
        threading.Timer(0.3, lambda: one.nccl.ncclCommAbort(one.comm)).start()
        args = (x, y, COUNT, FLOAT32) if name == "ncclAllGather" else (x, COUNT, FLOAT32, 1)
        code = one.start(name, *args)
        return code, time.monotonic() - begin > 0.2, one.cuda.mistakes()

    assert on_ranks(work, 2)[0] == (INTERNAL, True, 0)


def test_a_missing_rank_without_an_abort_is_reported(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)
        if one.rank == 1:
            return None
        shorten()
        assert gather(one, x, y) == 0
        while one.async_error() == 0:
            time.sleep(0.01)
        return one.async_error(), one.cuda.mistakes()

    assert on_ranks(work, 2, **LONG)[0] == (INTERNAL, 1)


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


def test_an_aborted_communicator_takes_no_calls(on_ranks: Any) -> None:
    def work(one: NcclRank) -> int:
        assert one.nccl.ncclCommAbort(one.comm) == 0
        return gather(one, *buffers(one))

    assert on_ranks(work, 2) == [ARGUMENT] * 2


def test_what_a_call_uses_is_not_freed_before(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        with one.cuda.held(one.stream):
            assert gather(one, x, y) == 0
            freed = [one.cuda.code("cuMemFree_v2", U64(address)) for address in (x, y)]
        one.sync()
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
        one.sync()
        return codes, one.cuda.mistakes()

    assert on_ranks(work, 2) == [([USAGE], 1)] * 2


@pytest.mark.parametrize("allowed", ["0", "1"])
def test_two_ranks_on_one_gpu(on_ranks: Any, allowed: str) -> None:
    def work(one: NcclRank) -> int:
        one.cuda.choose(3)
        one.stream = one.cuda.stream()
        code = one.init()
        if code == 0:
            one.run("ncclAllGather", *buffers(one), COUNT, FLOAT32)
        return code

    found = on_ranks(work, 2, init=False, NCCL_MULTI_RANK_GPU_ENABLE=allowed)
    assert found == [0 if allowed == "1" else USAGE] * 2


def test_inits_of_two_communicators_in_a_thread_need_a_group(on_gpu: Any) -> None:
    def work(cuda: Any) -> Any:
        nccl, identity, comm = ctypes.CDLL("libnccl.so.2"), UniqueId(), P()
        nccl.ncclCommInitRank.argtypes = [P, ctypes.c_int, UniqueId, ctypes.c_int]
        assert nccl.ncclGetUniqueId(ctypes.byref(identity)) == 0
        code = nccl.ncclCommInitRank(ctypes.byref(comm), 2, identity, 0)
        return code, cuda.mistakes()

    assert on_gpu(work, **SHORT) == (SYSTEM_ERROR, 1)


def test_planned_failures(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        first = [gather(one, x, y) for _ in range(2)]
        one.sync()
        return first, one.async_error(), gather(one, x, y)

    fail = "ncclAllGather:2:3,run.nccl:1:6"
    assert on_ranks(work, 1, COLLOPS_SIM_FAIL=fail) == [([0, 3], 6, 6)]


def test_a_communicator_that_is_gone_on_this_host_is_no_error(on_ranks: Any) -> None:
    def work(one: NcclRank) -> Any:
        x, y = buffers(one)
        one.run("ncclAllGather", x, y, COUNT, FLOAT32)
        if one.rank == 1:
            return None
        time.sleep(0.3)
        assert gather(one, x, y) == 0
        time.sleep(0.2)
        error = one.async_error()
        one.nccl.ncclCommAbort(one.comm)
        return error

    assert on_ranks(work, 2)[0] == 0
