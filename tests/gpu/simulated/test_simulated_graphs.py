"""Streams of the simulated GPUs that are captured into graphs, and what is illegal meanwhile."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_MERGE,
    CAPTURE_UNJOINED,
    CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED,
    CAPTURE_WRONG_THREAD,
    CAPTURED_EVENT,
    GLOBAL,
    LEGACY,
    RELAXED,
    THREAD_LOCAL,
    U32,
    U64,
    Driver,
    P,
)

SIZE = 128


def fill(cuda: Driver, stream: int, address: int = 0) -> int:
    return cuda.fill(address or cuda.alloc(SIZE), 1, SIZE, stream)


def fork(cuda: Driver, stream: int) -> int:
    """A stream that has joined the capture of the given one."""
    joined, event = cuda.stream(), cuda.event()
    assert cuda.record(event, stream) == 0
    assert cuda.wait(joined, event) == 0
    return joined


def join(cuda: Driver, stream: int, joined: int) -> None:
    event = cuda.event()
    assert cuda.record(event, joined) == 0
    assert cuda.wait(stream, event) == 0


def test_nothing_runs_before_the_replay_and_then_in_order(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        x, y, z = (cuda.put(np.zeros(SIZE, np.uint8)) for _ in range(3))
        stream = cuda.stream()
        assert cuda.begin_capture(stream) == 0
        assert cuda.copy(y, x, SIZE, stream) == 0
        side = fork(cuda, stream)
        assert cuda.copy(z, y, SIZE, side) == 0
        join(cuda, stream, side)
        assert cuda.fill(y, 9, SIZE, stream) == 0
        code, graph = cuda.end_capture(stream)
        replay = cuda.instantiate(graph)
        cuda.call("cuGraphDestroy", P(graph))
        found = [int(cuda.read(z, SIZE, np.uint8)[5])]
        for value in (3, 4, 5):
            cuda.write(x, np.full(SIZE, value, np.uint8))
            cuda.call("cuGraphLaunch", P(replay), P(stream))
            cuda.sync(stream)
            found.append(int(cuda.read(z, SIZE, np.uint8)[5]))
            assert cuda.read(y, SIZE, np.uint8)[5] == 9
        return code, found

    assert on_gpu(work) == (0, [0, 3, 4, 5])


def test_replays_of_one_graph_on_two_streams_come_one_after_the_other(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        x, first, second = cuda.alloc(SIZE), cuda.stream(), cuda.stream()
        assert cuda.begin_capture(first) == 0
        assert fill(cuda, first, x) == 0
        replay = cuda.instantiate(cuda.end_capture(first)[1])
        with cuda.held(first):
            cuda.call("cuGraphLaunch", P(replay), P(first))
            cuda.call("cuGraphLaunch", P(replay), P(second))
            early = cuda.code("cuStreamQuery", P(second))
        cuda.sync(second)
        return early

    assert on_gpu(work) == 600


# Called while a stream is captured by this thread, in thread-local mode: the answer, and that of
# the capture's end.
ILLEGAL: dict[str, tuple[Callable[[Driver, int, int], int], int, int]] = {
    "cuMemAlloc": (
        lambda c, s, old: c.code("cuMemAlloc_v2", ctypes.byref(U64()), P(64)),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "cuMemFree": (
        lambda c, s, old: c.code("cuMemFree_v2", U64(old)),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "cuStreamSynchronize": (
        lambda c, s, old: c.code("cuStreamSynchronize", P(s)),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "cuStreamQuery": (
        lambda c, s, old: c.code("cuStreamQuery", P(s)),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "cuCtxSynchronize": (
        lambda c, s, old: c.code("cuCtxSynchronize"),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "cuEventQuery": (
        lambda c, s, old: c.code("cuEventQuery", P(c.event())),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "pageable memory": (
        lambda c, s, old: c.code(
            "cuMemcpyHtoDAsync_v2", U64(old), bytes(8), ctypes.c_size_t(8), P(s)
        ),
        CAPTURE_UNSUPPORTED,
        CAPTURE_INVALIDATED,
    ),
    "a wait for what is not captured": (
        lambda c, s, old: wait_outside(c, s),
        CAPTURE_ISOLATION,
        CAPTURE_INVALIDATED,
    ),
    "a wait that joins two captures": (
        lambda c, s, old: merge(c, s),
        CAPTURE_MERGE,
        CAPTURE_INVALIDATED,
    ),
    "a second begin": (lambda c, s, old: c.begin_capture(s), 1, 0),
    "a stream that is not joined": (
        lambda c, s, old: fill(c, fork(c, s), old),
        0,
        CAPTURE_UNJOINED,
    ),
    "the end on another stream": (
        lambda c, s, old: c.end_capture(fork(c, s))[0],
        CAPTURE_UNMATCHED,
        CAPTURE_INVALIDATED,
    ),
    "a new stream and event": (lambda c, s, old: min(c.stream(), c.event(), 0), 0, 0),
    "other streams": (lambda c, s, old: fill(c, c.stream(), old), 0, 0),
}


def wait_outside(cuda: Driver, stream: int) -> int:
    other, event = cuda.stream(), cuda.event()
    assert cuda.record(event, other) == 0
    return cuda.wait(stream, event)


def merge(cuda: Driver, stream: int) -> int:
    other, event = cuda.stream(), cuda.event()
    assert cuda.begin_capture(other) == 0
    assert cuda.record(event, other) == 0
    return cuda.wait(stream, event)


@pytest.mark.parametrize("name", ILLEGAL)
def test_calls_during_a_capture(on_gpu: Any, name: str) -> None:
    call, code, end = ILLEGAL[name]

    def work(cuda: Driver) -> Any:
        stream, old = cuda.stream(), cuda.alloc(SIZE)
        assert cuda.begin_capture(stream) == 0
        return call(cuda, stream, old), cuda.end_capture(stream)[0]

    assert on_gpu(work) == (code, end)


@pytest.mark.parametrize(
    ("mode", "code"), [(GLOBAL, CAPTURE_UNSUPPORTED), (THREAD_LOCAL, 0), (RELAXED, 0)]
)
def test_what_another_thread_may_do(on_gpu: Any, mode: int, code: int) -> None:
    def work(cuda: Driver) -> Any:
        stream, codes = cuda.stream(), []
        assert cuda.begin_capture(stream, mode) == 0

        def other() -> None:
            cuda.choose(0)
            codes.append(cuda.code("cuMemAlloc_v2", ctypes.byref(U64()), P(64)))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return codes, cuda.end_capture(stream)[0]

    assert on_gpu(work) == ([code], CAPTURE_INVALIDATED if code else 0)


def test_a_thread_may_relax_its_own_mode(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, mode = cuda.stream(), ctypes.c_int(RELAXED)
        assert cuda.begin_capture(stream, GLOBAL) == 0
        cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        cuda.alloc(64)
        cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        return mode.value, cuda.end_capture(stream)[0]

    assert on_gpu(work) == (RELAXED, 0)


def test_the_end_in_another_thread(on_gpu: Any) -> None:
    def work(cuda: Driver) -> list[int]:
        stream, codes = cuda.stream(), []
        assert cuda.begin_capture(stream) == 0

        def other() -> None:
            cuda.choose(0)
            codes.append(cuda.end_capture(stream)[0])

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        return codes

    assert on_gpu(work) == [CAPTURE_WRONG_THREAD]


def test_the_legacy_stream_meanwhile(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        blocking, free, x = cuda.stream(0), cuda.stream(), cuda.alloc(SIZE)
        itself = cuda.begin_capture(LEGACY)
        assert cuda.begin_capture(free) == 0
        beside_free = fill(cuda, LEGACY, x)
        assert cuda.begin_capture(blocking) == 0
        beside_blocking = fill(cuda, LEGACY, x)
        ends = cuda.end_capture(free)[0], cuda.end_capture(blocking)[0]
        return itself, beside_free, beside_blocking, ends

    expected = (CAPTURE_UNSUPPORTED, 0, CAPTURE_IMPLICIT, (0, CAPTURE_INVALIDATED))
    assert on_gpu(work) == expected


def test_a_captured_event_cannot_be_asked(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, event = cuda.stream(), cuda.event()
        assert cuda.begin_capture(stream) == 0
        assert cuda.record(event, stream) == 0
        assert cuda.end_capture(stream)[0] == 0
        return cuda.code("cuEventQuery", P(event)), cuda.wait(cuda.stream(), event)

    assert on_gpu(work) == (CAPTURED_EVENT, CAPTURED_EVENT)


def test_a_replay_that_uses_freed_memory_is_a_mistake(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, x = cuda.stream(), cuda.alloc(SIZE)
        assert cuda.begin_capture(stream) == 0
        assert fill(cuda, stream, x) == 0
        replay = cuda.instantiate(cuda.end_capture(stream)[1])
        cuda.free(x)
        return cuda.code("cuGraphLaunch", P(replay), P(stream)), cuda.mistakes()

    assert on_gpu(work) == (1, 1)


def test_what_a_graph_keeps_lives_as_long_as_its_last_replay(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        ended: list[int] = []
        inside: list[int] = []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def destroy(_: Any) -> None:
            ended.append(1)
            inside.append(cuda.code("cuCtxGetCurrent", ctypes.byref(P())))

        stream, x = cuda.stream(), cuda.alloc(SIZE)
        assert cuda.begin_capture(stream) == 0
        status, graph = ctypes.c_int(), P()
        info = (P(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None)
        cuda.call("cuStreamGetCaptureInfo_v2", *info)
        kept = cuda.new("cuUserObjectCreate", P(), destroy, U32(1), U32(1))
        cuda.call("cuGraphRetainUserObject", graph, P(kept), U32(1), U32(1))
        assert fill(cuda, stream, x) == 0
        code, whole = cuda.end_capture(stream)
        replay = cuda.instantiate(whole)
        seen = [status.value, code, len(ended)]
        with cuda.held(stream):
            cuda.call("cuGraphLaunch", P(replay), P(stream))
            cuda.call("cuGraphDestroy", P(whole))
            cuda.call("cuGraphExecDestroy", P(replay))
            seen.append(len(ended))
        cuda.sync(stream)
        return seen, len(ended), inside, cuda.mistakes()

    assert on_gpu(work) == ([1, 0, 0, 0], 1, [800], 1)
