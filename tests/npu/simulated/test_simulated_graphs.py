"""Captured graphs of the simulated libascendcl that fork to other streams and join them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tests.npu.simulated.simulated_rank import SUM, Memory, Rank, type_of

UNJOINED, STREAM_CAPTURED, EVENT_CAPTURED = 107025, 107027, 107028
NOT_CAPTURED, CONFLICT, UNMATCHED = 107029, 107032, 107036
DEVICE_TO_DEVICE = 3
INT32 = type_of(np.int32)


class Capture:
    """A stream that begins a capture, a second one, and what goes from one to the other."""

    def __init__(self, one: Rank) -> None:
        self.one, self.acl, self.graph = one, one.acl, ctypes.c_void_p()
        self.main, self.side = one.stream, one.new_stream()

    def event(self, stream: Any) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        assert self.acl.aclrtCreateEventWithFlag(ctypes.byref(made), 1) == 0
        assert self.acl.aclrtRecordEvent(made, stream) == 0
        return made

    def begin(self) -> None:
        assert self.acl.aclmdlRICaptureBegin(self.main, 0) == 0

    def follow(self, waiting: Any, leading: Any) -> None:
        assert self.acl.aclrtStreamWaitEvent(waiting, self.event(leading)) == 0

    def end(self, stream: Any = None) -> int:
        return int(self.acl.aclmdlRICaptureEnd(stream or self.main, ctypes.byref(self.graph)))

    def copy(self, to: Memory, source: Memory, stream: Any) -> None:
        size = ctypes.c_size_t(to.like.nbytes)
        addresses = ctypes.c_void_p(to.address), size, ctypes.c_void_p(source.address), size
        assert self.acl.aclrtMemcpyAsync(*addresses, DEVICE_TO_DEVICE, stream) == 0


def test_two_streams_of_a_graph_follow_their_events(on_ranks: Any) -> None:
    """x is copied on one stream, summed on the other, and copied again on the first."""

    def work(one: Rank) -> list[int]:
        capture = Capture(one)
        x, middle, out = (one.device(np.zeros(1, np.int32)) for _ in range(3))
        capture.begin()
        capture.copy(middle, x, capture.main)
        capture.follow(capture.side, capture.main)
        sum_in_place = (middle, middle, 1, INT32, SUM)
        assert one.start("HcclAllReduce", *sum_in_place, stream=capture.side) == 0
        capture.follow(capture.main, capture.side)
        capture.copy(out, middle, capture.main)
        assert capture.end() == 0
        found = []
        for value in range(1, 6):
            x.write(np.array([value * 10**one.rank]))
            assert one.acl.aclmdlRIExecuteAsync(capture.graph, one.stream) == 0
            assert one.sync() == 0
            found.append(int(out.read()[0]))
        assert one.acl.aclmdlRIDestroy(capture.graph) == 0
        return found

    assert on_ranks(work, 2) == [[11 * value for value in range(1, 6)]] * 2


def test_a_missing_join_is_found(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        codes = []
        for joins in ("never", "too early", "at the end"):
            capture = Capture(one)
            x, y = one.empty(1, np.int32), one.empty(1, np.int32)
            capture.begin()
            capture.follow(capture.side, capture.main)
            if joins == "too early":
                capture.follow(capture.main, capture.side)
            capture.copy(y, x, capture.side)
            if joins == "at the end":
                capture.follow(capture.main, capture.side)
            codes.append(capture.end())
        return codes

    assert on_ranks(work, 1) == [[UNJOINED, UNJOINED, 0]]


def test_a_missing_fork_shows_in_the_result(on_ranks: Any) -> None:
    """Without its event, the second stream is not captured and its copy runs at once."""

    def work(one: Rank) -> int:
        capture = Capture(one)
        x, out = one.device(np.array([1], np.int32)), one.device(np.zeros(1, np.int32))
        capture.begin()
        capture.copy(out, x, capture.side)
        assert capture.end() == 0
        assert one.sync(capture.side) == 0
        x.write(np.array([2]))
        assert one.acl.aclmdlRIExecuteAsync(capture.graph, one.stream) == 0
        assert one.sync() == 0
        return int(out.read()[0])

    assert on_ranks(work, 1) == [1]


def test_nobody_asks_for_a_captured_event(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        capture, status = Capture(one), ctypes.byref(ctypes.c_int())
        capture.begin()
        event = capture.event(capture.main)
        asked = [
            one.acl.aclrtQueryEventStatus(event, status),
            one.acl.aclrtQueryEventWaitStatus(event, status),
            one.acl.aclrtSynchronizeEvent(event),
            capture.end(),
            one.acl.aclrtStreamWaitEvent(capture.side, event),
            one.acl.aclrtRecordEvent(event, capture.main),
            one.acl.aclrtSynchronizeEvent(event),
            one.acl.aclrtQueryEventStatus(event, status),
        ]
        return asked

    assert on_ranks(work, 1) == [[*[EVENT_CAPTURED] * 3, 0, EVENT_CAPTURED, 0, 0, 0]]


def test_captures_do_not_mix(on_ranks: Any) -> None:
    def work(one: Rank) -> list[int]:
        first, second = Capture(one), Capture(one)
        second.main = one.new_stream()
        first.begin()
        second.begin()
        event = first.event(first.main)
        codes = [
            one.acl.aclmdlRICaptureBegin(first.main, 0),
            one.acl.aclrtStreamWaitEvent(second.main, event),
            first.end(first.side),
        ]
        first.follow(first.side, first.main)
        codes.append(first.end(first.side))
        first.follow(first.main, first.side)
        return [*codes, second.end(second.main), first.end()]

    wanted = [STREAM_CAPTURED, CONFLICT, NOT_CAPTURED, UNMATCHED, 0, 0]
    assert on_ranks(work, 1) == [wanted]
