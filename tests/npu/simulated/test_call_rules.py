"""Rules of HCCL's calls that the simulated one holds its callers to. What works when they are kept
is what the tests of collops run on."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.npu.simulated.simulated_rank import (
    BFLOAT16,
    E_INTERNAL,
    E_NOT_SUPPORT,
    E_PARA,
    E_PTR,
    E_TIMEOUT,
    PROD,
    RECV,
    SEND,
    SUM,
    Memory,
    P,
    Rank,
    items,
    type_of,
)

FLOAT32, INT16, INT32, INT64, UINT8, FLOAT64 = (
    type_of(name) for name in ("float32", "int16", "int32", "int64", "uint8", "float64")
)
COUNT = 4
LISTS = np.array([[2, 2], [0, 2]], np.uint64)
TOO_MANY = 0x7FFFFFFFF + 1
NO_CONTEXT, OF_ANOTHER, STREAM_TIMEOUT = 107002, 107003, 507046


def right_calls(x: Any, y: Any, count: Any = COUNT, kind: int = FLOAT32, op: int = SUM) -> Any:
    """Every collective of two ranks, by name; x and y have room for two ranks' elements."""
    lists = LISTS.copy()
    if count != COUNT:
        lists[0, 0] = count
    counts, displs, own = lists[0], lists[1], int(lists[0, 0])
    return {
        "HcclAllGather": (x, y, count, kind),
        "HcclAllGatherV": (x, own, y, counts, displs, kind),
        "HcclReduceScatter": (x, y, count, kind, op),
        "HcclReduceScatterV": (x, counts, displs, y, own, kind, op),
        "HcclAllReduce": (x, y, count, kind, op),
        "HcclReduce": (x, y, count, kind, op, 0),
        "HcclBroadcast": (x, count, kind, 1),
        "HcclAlltoAllV": (x, counts, displs, kind, y, counts, displs, kind),
        "HcclBarrier": (),
    }


NAMES = list(right_calls(0, 0))
WITH_TYPE = NAMES[:-1]
WITH_OUTPUT = [name for name in WITH_TYPE if name != "HcclBroadcast"]
SUMS = [name for name in NAMES if "Reduce" in name]
PRODUCTS = [name for name in SUMS if name != "HcclReduceScatterV"]
V_CALLS = ["HcclAllGatherV", "HcclReduceScatterV"]
ROOTED = ["HcclBroadcast", "HcclReduce"]
# The block of rank 0 of an HcclAllGather is where its output begins.
IN_PLACE = ["HcclAllReduce", "HcclReduce", "HcclAllGather"]


def both(one: Rank) -> tuple[Memory, Memory]:
    return one.device(np.ones(2 * COUNT, np.float32)), one.empty(2 * COUNT, np.float32)


Args = tuple[Any, ...]
Make = Callable[[Rank, str], Args]


def called(**over: Any) -> Make:
    """The right arguments but for these."""
    return lambda one, name: right_calls(*both(one), **over)[name]


def to_root(one: Rank, name: str, args: Args) -> Args:
    """To this rank, so that both look at their outputs."""
    return (*args[:-1], one.rank) if name == "HcclReduce" else args


def on_buffers(send: Callable[..., Any], receive: Callable[..., Any]) -> Make:
    """Of x and y, the buffers that are given."""

    def make(one: Rank, name: str) -> Args:
        x, y = both(one)
        return to_root(one, name, right_calls(send(x, y), receive(x, y))[name])

    return make


def short(memory: Memory) -> int:
    """Where one element is left."""
    return memory.address + 2 * COUNT * 4 - 4


def overlapping(one: Rank, name: str) -> Args:
    memory = one.empty(4 * COUNT, np.float32)
    return to_root(one, name, right_calls(memory, memory.address + 4)[name])


def idle(one: Rank, name: str) -> Args:
    """One address for both sides, which have no elements."""
    x, _ = both(one)
    lists = np.zeros((2, 2), np.uint64)
    return (x, *lists, FLOAT32, x, *lists, FLOAT32)


def contradicting(one: Rank, name: str) -> Args:
    args = list(called()(one, name))
    args[1 if name == "HcclAllGatherV" else 4] += 1
    return tuple(args)


HOST = np.ones(2 * COUNT, np.float32)
FAR = ": the elements do not lie in this device's memory"
NO_TYPE = "this data type is not taken by this call"
# What is wrong, in which calls, how they are made, and what each answers.
MISTAKES: list[tuple[Sequence[str], Make, int, str]] = [
    (WITH_TYPE, on_buffers(lambda x, y: 0, lambda x, y: y), E_PTR, "sendBuf is null"),
    (WITH_TYPE, on_buffers(lambda x, y: HOST, lambda x, y: y), E_PARA, f"sendBuf{FAR}"),
    (WITH_TYPE, on_buffers(lambda x, y: short(x), lambda x, y: y), E_PARA, f"sendBuf{FAR}"),
    (WITH_OUTPUT, on_buffers(lambda x, y: x, lambda x, y: 0), E_PTR, "recvBuf is null"),
    (WITH_OUTPUT, on_buffers(lambda x, y: x, lambda x, y: HOST), E_PARA, f"recvBuf{FAR}"),
    (WITH_OUTPUT, on_buffers(lambda x, y: x, lambda x, y: short(y)), E_PARA, f"recvBuf{FAR}"),
    (WITH_OUTPUT, overlapping, E_PARA, "recvBuf overlaps sendBuf"),
    (
        [name for name in WITH_OUTPUT if name not in IN_PLACE],
        on_buffers(lambda x, y: x, lambda x, y: x),
        E_PARA,
        "recvBuf is sendBuf",
    ),
    (["HcclAlltoAllV"], idle, E_PARA, "recvBuf is sendBuf"),
    (WITH_TYPE, called(count=TOO_MANY), E_PARA, "a count or displacement is too large"),
    (ROOTED, lambda one, name: (*called()(one, name)[:-1], 2), E_PARA, "there is no rank 2"),
    (SUMS, called(op=4), E_PARA, "there is no such reduction"),
    (SUMS, called(kind=FLOAT64), E_NOT_SUPPORT, NO_TYPE),
    (SUMS, called(kind=UINT8), E_NOT_SUPPORT, NO_TYPE),
    (V_CALLS, called(kind=INT64), E_NOT_SUPPORT, NO_TYPE),
    (V_CALLS[:1], called(kind=INT16), E_NOT_SUPPORT, NO_TYPE),
    (WITH_TYPE, called(kind=12), E_NOT_SUPPORT, NO_TYPE),
    (PRODUCTS, called(kind=INT16, op=PROD), E_NOT_SUPPORT, "no product of this data type"),
    (PRODUCTS, called(kind=BFLOAT16, op=PROD), E_NOT_SUPPORT, "no product of this data type"),
    (V_CALLS[1:], called(op=PROD), E_NOT_SUPPORT, "no product on this device"),
    (V_CALLS, contradicting, E_PARA, "the own count is 3 but the list says 2"),
]


def test_mistakes_in_the_arguments(on_ranks: Any) -> None:
    """And none without a mistake."""

    def work(one: Rank) -> list[str]:
        wrong = [f"{name}: {one.text()}" for name in NAMES if one.start(name, *called()(one, name))]
        for names, make, code, text in MISTAKES:
            for name in names:
                found, said = one.start(name, *make(one, name)), one.text()
                if found != code or f"{name}: {text}" not in said:
                    wrong.append(f"{name}: {found} {said}, not {code} {text}")
        assert one.sync() == 0
        return wrong

    assert on_ranks(work, 2) == [[]] * 2


def test_another_communicator_stream_or_device(on_ranks: Any) -> None:
    def work(one: Rank) -> list[set[tuple[int, str]]]:
        def answers(**over: Any) -> set[tuple[int, str]]:
            found = set()
            for name, args in calls.items():
                found.add((one.start(name, *args, **over), one.text().split(f"{name}: ")[-1]))
            return found

        calls = right_calls(*both(one))
        assert one.acl.aclrtSetDevice(5) == 0
        elsewhere = one.new_stream()
        of_device = answers()
        assert one.acl.aclrtSetDevice(one.rank) == 0
        return [answers(comm=P()), answers(stream=P()), answers(stream=elsewhere), of_device]

    none = {(E_PTR, "the communicator or the stream is none of ours")}
    assert (
        on_ranks(work, 2)
        == [
            [
                none,
                none,
                {(E_PARA, "the stream is another device's")},
                {(E_INTERNAL, "this thread's device is not the communicator's")},
            ]
        ]
        * 2
    )


def test_calls_of_a_thread_with_another_npu_or_none(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[list[int], list[int], int]:
        event, status, place = P(), ctypes.c_int(), P()
        out, four = P(both(one)[0].address), ctypes.c_size_t(4)
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


def test_mistakes_in_messages(on_ranks: Any) -> None:
    def work(one: Rank) -> list[tuple[int, bool]]:
        peer, x, y = 1 - one.rank, one.device(np.zeros(2, np.int32)), one.empty(2, np.int32)
        twice = items((SEND, x, peer), (RECV, y, peer), (SEND, y, peer))
        twice_received, neither = items((RECV, x, peer), (RECV, y, peer)), items((2, x, peer))
        host, batch = np.zeros(2, np.int32), "HcclBatchSendRecv"
        wrong: list[tuple[int, str, Args]] = [
            (E_PARA, "the other rank is the own one", ("HcclSend", x, 2, INT32, one.rank)),
            (E_PARA, "there is no rank 2", ("HcclRecv", x, 2, INT32, 2)),
            (E_PARA, f"sendBuf{FAR}", ("HcclSend", host, 2, INT32, peer)),
            (E_PARA, f"sendBuf{FAR}", ("HcclSend", x, 3, INT32, peer)),
            (E_PTR, "sendBuf is null", ("HcclSend", 0, 2, INT32, peer)),
            (E_PARA, "two items send to one rank", (batch, ctypes.addressof(twice), 3)),
            (E_PARA, "two items receive from", (batch, ctypes.addressof(twice_received), 2)),
            (E_PARA, "an item neither sends nor", (batch, ctypes.addressof(neither), 1)),
            (E_PTR, "a list is null", (batch, 0, 1)),
            (E_PARA, "there are no items", (batch, ctypes.addressof(twice), 0)),
        ]
        return [(one.start(*call) - code, text in one.text()) for code, text, call in wrong]

    assert on_ranks(work, 2) == [[(0, True)] * 10] * 2


def batch(one: Rank, x: Memory) -> Args:
    """To receive from rank 0."""
    one.kept = items((RECV, one.empty(4, np.int32), 0))
    return "HcclBatchSendRecv", ctypes.addressof(one.kept), 1


def all_to_all(x: Memory, y: Memory, to_first: int) -> list[Args]:
    counts, displs = LISTS.copy()
    counts[0] = to_first  # rank 0 expects 2
    return [("HcclAlltoAllV", x, counts, displs, FLOAT32, y, LISTS[0], displs, FLOAT32)]


# What the two ranks call that does not go together, by rank.
DIFFERENT: dict[str, Callable[[Rank, Memory, Memory, bool], list[Args]]] = {
    "count": lambda one, x, y, odd: [("HcclAllReduce", x, y, 4 + odd, FLOAT32, SUM)],
    "type": lambda one, x, y, odd: [("HcclAllGather", x, y, 2, INT32 if odd else FLOAT32)],
    "reduction": lambda one, x, y, odd: [("HcclReduceScatter", x, y, 4, FLOAT32, 2 * odd)],
    "root": lambda one, x, y, odd: [("HcclBroadcast", x, 4, FLOAT32, one.rank)],
    "operator": lambda one, x, y, odd: [
        ("HcclAllGather", x, y, 4, FLOAT32) if odd else ("HcclAllReduce", x, y, 4, FLOAT32, SUM)
    ],
    "order": lambda one, x, y, odd: [
        ("HcclBroadcast", x, 4, FLOAT32, root) for root in (one.rank, 1 - one.rank)
    ],
    "amounts": lambda one, x, y, odd: all_to_all(x, y, 1 if odd else 2),
    "both send": lambda one, x, y, odd: [("HcclSend", x, 4, INT32, 1 - one.rank)],
    "a message's count": lambda one, x, y, odd: [
        ("HcclRecv", x, 5, INT32, 0) if odd else ("HcclSend", x, 4, INT32, 1)
    ],
    "a message's type": lambda one, x, y, odd: [
        ("HcclRecv", x, 4, FLOAT32, 0) if odd else ("HcclSend", x, 4, INT32, 1)
    ],
    "a batch and a send": lambda one, x, y, odd: [
        batch(one, x) if odd else ("HcclSend", x, 4, INT32, 1)
    ],
    "a collective and a send": lambda one, x, y, odd: [
        ("HcclBroadcast", x, 4, INT32, 0) if odd else ("HcclSend", x, 4, INT32, 1)
    ],
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_differ_fail_on_both(on_ranks: Any, name: str) -> None:
    """On the stream, or where they connect for it: in the first call of each function."""

    def work(one: Rank) -> bool:
        calls = DIFFERENT[name](one, *both(one), one.rank == 1)
        codes = {one.start(*call) for call in calls}
        if codes == {E_TIMEOUT}:
            return "EI0006: rank" in one.text() and one.async_error() != 0
        return codes == {0} and one.sync() != 0 and one.async_error() != 0

    assert on_ranks(work, 2, HCCL_CONNECT_TIMEOUT="1") == [True] * 2


def test_the_first_call_of_each_function_waits_on_the_host(on_ranks: Any) -> None:
    """Rank 1 comes late: to AllReduce, again, to AllGather, and to both directions of a message."""

    def work(one: Rank) -> list[bool]:
        x, y = both(one)
        calls = [right_calls(x, y)[name] for name in ("HcclAllReduce", "HcclAllGather")]
        made: list[Args] = [("HcclAllReduce", *calls[0])] * 2 + [("HcclAllGather", *calls[1])]
        for sender in (0, 1):
            name = "HcclSend" if one.rank == sender else "HcclRecv"
            made += [(name, x, 1, INT32, 1 - one.rank)] * 2
        waited = []
        for number, call in enumerate(made):
            one.meet(f"call {number}")
            time.sleep(0.3 * one.rank)
            begin = time.monotonic()
            assert one.start(*call) == 0
            waited.append(time.monotonic() - begin > 0.15)
        assert one.sync() == 0
        return waited

    late = [True, False, True, True, False, True, False]
    assert on_ranks(work, 2) == [late, [False] * 7]


def test_a_send_ends_when_the_peer_has_received(on_ranks: Any) -> None:
    def work(one: Rank) -> tuple[int, int]:
        x = one.device(np.zeros(1, np.int32))
        with one.held(only=one.rank == 1):
            assert one.start("HcclRecv" if one.rank else "HcclSend", x, 1, INT32, 1 - one.rank) == 0
            early = one.acl.aclrtSynchronizeStreamWithTimeout(one.stream, 200)
            one.meet("waited")
        return early, one.sync()

    assert on_ranks(work, 2) == [(STREAM_TIMEOUT, 0)] * 2


def test_lists_are_read_again_when_the_stream_comes(on_ranks: Any) -> None:
    def work(one: Rank) -> bool:
        x, y = both(one)
        [call] = all_to_all(x, y, 2)
        with one.held():
            assert one.start(*call) == 0
            call[3][:] = 0
        return one.sync() != 0

    assert on_ranks(work, 2, COLLOPS_SIM_LATE_COUNTS="1") == [True] * 2


def test_memory_that_is_freed_too_early(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        x, y = both(one)
        with one.held():
            assert one.start("HcclAllGather", x, y, COUNT, FLOAT32) == 0
            early = [x.free(), y.free()]
        assert one.sync() == 0
        return [*early, x.free(), y.free(), x.free()]

    assert on_ranks(work, 2) == [[100000, 100000, 0, 0, 100000]] * 2


def test_bfloat16_sums_are_rounded_each_time_and_in_no_order_of_ranks(on_ranks: Any) -> None:
    """256 + 1 is a tie in bfloat16 and stays 256; the sum begins with rank 1: (1 + 1) + 256."""
    one_and_256 = {0: 0x4380, 1: 0x3F80, 2: 0x3F80}

    def work(one: Rank) -> int:
        x, out = one.device(np.array([one_and_256[one.rank]], np.uint16)), one.empty(1, np.uint16)
        one.run("HcclAllReduce", x, out, 1, BFLOAT16, SUM)
        return int(out.read()[0])

    assert on_ranks(work, 3) == [0x4381] * 3
