"""Mistakes of a caller of collectives, made on purpose: the simulated libhccl finds each."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.npu.simulated.simulated_calls import (
    COUNT,
    FLOAT32,
    FLOAT64,
    INT16,
    NAMES,
    UINT8,
    both,
    right_calls,
)
from tests.npu.simulated.simulated_rank import (
    BFLOAT16,
    E_INTERNAL,
    E_NOT_SUPPORT,
    E_PARA,
    E_PTR,
    PROD,
    SUM,
    Rank,
)

SUMS = [name for name in NAMES if "Reduce" in name]
WITH_TYPE = [name for name in NAMES if name != "HcclBarrier"]
WITH_OUTPUT = [name for name in WITH_TYPE if name != "HcclBroadcast"]
NO_CONTEXT, OF_ANOTHER = 107002, 107003
INT64 = 5
TOO_MANY = 0x7FFFFFFFF + 1


def answers(on_ranks: Any, names: list[str], call: Callable[..., Any]) -> dict[str, set[Any]]:
    """What each of two ranks answers for the names, with the text of the error."""

    def work(one: Rank) -> list[tuple[int, str]]:
        found = []
        for name in names:
            args, over = call(one, name)
            found.append((one.start(name, *args, **over), one.text().split(f"{name}: ")[-1]))
        assert one.sync() == 0
        return found

    results = on_ranks(work, 2)
    return {name: {found[i] for found in results} for i, name in enumerate(names)}


def test_every_call_is_right_without_a_mistake(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one))[name], {}

    assert answers(on_ranks, NAMES, call) == {name: {(0, "")} for name in NAMES}


@pytest.mark.parametrize("missing", ["comm", "stream"])
def test_without_a_communicator_or_a_stream(on_ranks: Any, missing: str) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one))[name], {missing: ctypes.c_void_p()}

    text = "the communicator or the stream is none of ours"
    assert answers(on_ranks, NAMES, call) == {name: {(E_PTR, text)} for name in NAMES}


def test_a_stream_of_another_device(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        assert one.acl.aclrtSetDevice(5) == 0
        stream = one.new_stream()
        assert one.acl.aclrtSetDevice(one.rank) == 0
        return right_calls(*both(one))[name], {"stream": stream}

    found = answers(on_ranks, NAMES, call)
    assert found == {name: {(E_PARA, "the stream is another device's")} for name in NAMES}


def test_another_device_of_the_thread(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        assert one.acl.aclrtSetDevice(one.rank) == 0
        args = right_calls(*both(one))[name]
        assert one.acl.aclrtSetDevice(7) == 0
        return args, {}

    found = answers(on_ranks, NAMES, call)
    text = "this thread's device is not the communicator's"
    assert found == {name: {(E_INTERNAL, text)} for name in NAMES}


@pytest.mark.parametrize("buffer", ["sendBuf", "recvBuf"])
@pytest.mark.parametrize("where", ["null", "host", "short"])
def test_buffers_that_are_not_device_memory(on_ranks: Any, buffer: str, where: str) -> None:
    host = np.ones(2 * COUNT, np.float32)
    names = WITH_TYPE if buffer == "sendBuf" else WITH_OUTPUT

    def call(one: Rank, name: str) -> Any:
        x, y = both(one)
        wrong = {"null": 0, "host": host, "short": x.address + 2 * COUNT * 4 - 4}[where]
        # Roots take the rank's own buffers, so that it is looked at on both ranks.
        args = right_calls(*((wrong, y) if buffer == "sendBuf" else (x, wrong)))[name]
        if name == "HcclReduce":
            args = (*args[:-1], one.rank)
        return args, {}

    text = "is null" if where == "null" else ": the elements do not lie in this device's memory"
    space = " " if where == "null" else ""
    want = {(E_PTR if where == "null" else E_PARA, f"{buffer}{space}{text}")}
    assert answers(on_ranks, names, call) == dict.fromkeys(names, want)


def test_buffers_that_overlap(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        memory = one.empty(4 * COUNT, np.float32)
        args = right_calls(memory, memory.address + 4)[name]
        if name == "HcclReduce":
            args = (*args[:-1], one.rank)
        return args, {}

    want = {(E_PARA, "recvBuf overlaps sendBuf")}
    assert answers(on_ranks, WITH_OUTPUT, call) == dict.fromkeys(WITH_OUTPUT, want)


def test_only_sums_of_whole_buffers_run_in_place(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        x, _ = both(one)
        args = right_calls(x, x)[name]
        return args, {}

    in_place = ("HcclAllReduce", "HcclReduce")
    found = answers(on_ranks, WITH_OUTPUT, call)
    want = {n: {(0, "") if n in in_place else (E_PARA, "recvBuf is sendBuf")} for n in WITH_OUTPUT}
    assert found == want


def test_counts_past_the_limit(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one), count=TOO_MANY)[name], {}

    names = WITH_TYPE
    want = {(E_PARA, "a count or displacement is too large")}
    assert answers(on_ranks, names, call) == dict.fromkeys(names, want)


def test_roots_and_reductions_out_of_range(on_ranks: Any) -> None:
    def rooted(one: Rank, name: str) -> Any:
        return (*right_calls(*both(one))[name][:-1], 2), {}

    names = ["HcclBroadcast", "HcclReduce"]
    want = {(E_PARA, "there is no rank 2")}
    assert answers(on_ranks, names, rooted) == dict.fromkeys(names, want)

    def reduced(one: Rank, name: str) -> Any:
        return right_calls(*both(one), op=4)[name], {}

    want = {(E_PARA, "there is no such reduction")}
    assert answers(on_ranks, SUMS, reduced) == dict.fromkeys(SUMS, want)


@pytest.mark.parametrize(
    ("kind", "op", "names", "text"),
    [
        (FLOAT64, SUM, SUMS, "this data type is not taken by this call"),
        (UINT8, SUM, SUMS, "this data type is not taken by this call"),
        (INT16, PROD, SUMS[:1] + SUMS[2:], "no product of this data type on this device"),
        (BFLOAT16, PROD, SUMS[:1] + SUMS[2:], "no product of this data type on this device"),
        (FLOAT32, PROD, ["HcclReduceScatterV"], "no product on this device"),
        (12, SUM, WITH_TYPE, "this data type is not taken by this call"),
    ],
)
def test_types_that_are_not_documented(
    on_ranks: Any, kind: int, op: int, names: list[str], text: str
) -> None:
    def call(one: Rank, name: str) -> Any:
        return right_calls(*both(one), kind=kind, op=op)[name], {}

    want = {(E_NOT_SUPPORT, text)}
    assert answers(on_ranks, names, call) == dict.fromkeys(names, want)


def test_an_own_count_that_contradicts_the_list(on_ranks: Any) -> None:
    def call(one: Rank, name: str) -> Any:
        args = list(right_calls(*both(one))[name])
        args[1 if name == "HcclAllGatherV" else 4] += 1
        return args, {}

    names = ["HcclAllGatherV", "HcclReduceScatterV"]
    want = {(E_PARA, "the own count is 3 but the list says 2")}
    assert answers(on_ranks, names, call) == dict.fromkeys(names, want)


def test_the_v_calls_have_fewer_types(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        found = []
        for name in ("HcclAllGatherV", "HcclReduceScatterV"):
            for kind in (INT16, INT64):
                found.append(one.start(name, *right_calls(*both(one), kind=kind)[name]))
        assert one.sync() == 0
        return found

    assert on_ranks(work, 2) == [[E_NOT_SUPPORT, E_NOT_SUPPORT, 0, E_NOT_SUPPORT]] * 2


def test_calls_of_a_thread_with_another_npu_or_none(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[list[int], list[int], int]:
        event, status, place = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
        out, four = ctypes.c_void_p(both(one)[0].address), ctypes.c_size_t(4)
        assert one.acl.aclrtCreateEvent(ctypes.byref(event)) == 0
        of_the_npu = [
            lambda: one.hccl.HcclCommDestroy(one.comm),
            lambda: one.acl.aclrtRecordEvent(event, one.stream),
            lambda: one.acl.aclrtMemsetAsync(out, four, 0, four, one.stream),
        ]
        of_any = [
            lambda: one.acl.aclrtGetDevice(ctypes.byref(status)),
            lambda: one.acl.aclrtMalloc(ctypes.byref(place), four, 0),
            lambda: one.acl.aclrtCreateEvent(ctypes.byref(place)),
            lambda: one.acl.aclrtQueryEventStatus(event, ctypes.byref(status)),
            lambda: one.acl.aclrtDestroyEvent(event),
        ]
        without: list[int] = []
        calls = [*of_the_npu, *of_any]
        thread = threading.Thread(target=lambda: without.extend(call() for call in calls))
        thread.start()
        thread.join()
        assert one.acl.aclrtSetDevice(7) == 0
        other = [call() for call in of_the_npu]
        assert one.acl.aclrtSetDevice(one.rank) == 0
        return other, without, one.acl.aclrtRecordEvent(event, one.stream)

    none = [E_INTERNAL, *[NO_CONTEXT] * 7]
    assert on_ranks(work, 2) == [([E_INTERNAL, OF_ANOTHER, OF_ANOTHER], none, 0)] * 2
