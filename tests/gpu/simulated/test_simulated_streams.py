"""Streams and events of the simulated GPUs: what waits for what, and what does not."""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import (
    INVALID_HANDLE,
    LEGACY,
    NON_BLOCKING,
    NOT_READY,
    PER_THREAD,
    Driver,
    P,
)

SIZE = 256


def is_filled(cuda: Driver, address: int, value: int) -> bool:
    """Read by a stream that waits for no other."""
    stream = cuda.stream()
    host = np.empty(SIZE, np.uint8)
    args = (P(host.ctypes.data), ctypes.c_uint64(address), ctypes.c_size_t(SIZE), P(stream))
    cuda.call("cuMemcpyDtoHAsync_v2", *args)
    return bool((host == value).all())


def test_a_call_returns_before_its_work_is_done(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        address, stream = cuda.alloc(SIZE), cuda.stream()
        with cuda.held(stream):
            assert cuda.fill(address, 7, SIZE, stream) == 0
            early = cuda.code("cuStreamQuery", P(stream)), is_filled(cuda, address, 7)
        cuda.sync(stream)
        return early, cuda.code("cuStreamQuery", P(stream)), is_filled(cuda, address, 7)

    assert on_gpu(work) == ((NOT_READY, False), 0, True)


@pytest.mark.parametrize("waits", [True, False])
def test_streams_are_ordered_by_events_only(on_gpu: Any, waits: bool) -> None:
    def work(cuda: Driver) -> bool:
        source, result = cuda.alloc(SIZE), cuda.alloc(SIZE)
        first, second, event = cuda.stream(), cuda.stream(), cuda.event()
        with cuda.held(first):
            assert cuda.fill(source, 7, SIZE, first) == 0
            assert cuda.record(event, first) == 0
            assert not waits or cuda.wait(second, event) == 0
            assert cuda.copy(result, source, SIZE, second) == 0
            give_time(cuda, second, waits)
        cuda.sync(first)
        cuda.sync(second)
        return is_filled(cuda, result, 7)

    assert on_gpu(work) == waits


def give_time(cuda: Driver, stream: int, waits: bool) -> None:
    """Time for a stream to do its work, if it waits for nothing."""
    if waits:
        time.sleep(0.05)
    else:
        cuda.sync(stream)


def order(cuda: Driver, first: int, second: int, waits: bool) -> bool:
    """Whether the second stream waits for the first one unasked; `waits`: what it ought to do."""
    source, result = cuda.alloc(SIZE), cuda.alloc(SIZE)
    with cuda.held(first):
        assert cuda.fill(source, 7, SIZE, first) == 0
        assert cuda.copy(result, source, SIZE, second) == 0
        give_time(cuda, second, waits)
    cuda.sync(first)
    cuda.sync(second)
    return is_filled(cuda, result, 7)


def test_the_legacy_stream_and_the_others(on_gpu: Any) -> None:
    expected = {
        "blocking, legacy": True,
        "legacy, blocking": True,
        "legacy, own of the thread": True,
        "own of the thread, null": True,
        "non-blocking, legacy": False,
        "legacy, non-blocking": False,
        "blocking, blocking": False,
    }

    def work(cuda: Driver) -> dict[str, bool]:
        blocking, free = cuda.stream(0), cuda.stream(NON_BLOCKING)
        pairs = {
            "blocking, legacy": (blocking, LEGACY),
            "legacy, blocking": (LEGACY, blocking),
            "legacy, own of the thread": (LEGACY, PER_THREAD),
            "own of the thread, null": (PER_THREAD, 0),
            "non-blocking, legacy": (free, LEGACY),
            "legacy, non-blocking": (LEGACY, free),
            "blocking, blocking": (blocking, cuda.stream(0)),
        }
        return {name: order(cuda, *pair, expected[name]) for name, pair in pairs.items()}

    assert on_gpu(work) == expected


def test_a_thread_has_a_stream_of_its_own(on_gpu: Any) -> None:
    def work(cuda: Driver) -> list[int]:
        answers = []

        def other() -> None:
            cuda.choose(0)
            answers.append(cuda.code("cuStreamQuery", P(PER_THREAD)))

        with cuda.held(PER_THREAD):
            assert cuda.fill(cuda.alloc(SIZE), 1, SIZE, PER_THREAD) == 0
            answers.append(cuda.code("cuStreamQuery", P(PER_THREAD)))
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        return answers

    assert on_gpu(work) == [NOT_READY, 0]


def test_events(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, event, timed = cuda.stream(), cuda.event(), [cuda.event(0), cuda.event(0)]
        never = cuda.code("cuEventQuery", P(event))
        cuda.record(timed[0], stream)
        cuda.sync(stream)
        with cuda.held(stream):
            cuda.record(event, stream)
            early = cuda.code("cuEventQuery", P(event))
            time.sleep(0.01)
        cuda.record(timed[1], stream)
        cuda.call("cuEventSynchronize", P(timed[1]))
        ms = ctypes.c_float()
        first, last = (P(one) for one in timed)
        cuda.call("cuEventElapsedTime", ctypes.byref(ms), first, last)
        untimed = cuda.code("cuEventElapsedTime", ctypes.byref(ms), P(event), last)
        with cuda.on(2):
            other = cuda.code("cuEventRecord", P(event), P(cuda.stream()))
        cuda.call("cuEventDestroy_v2", P(event))
        gone = cuda.record(event, stream)
        return never, early, ms.value > 5, untimed, other, gone

    assert on_gpu(work) == (0, NOT_READY, True, INVALID_HANDLE, INVALID_HANDLE, INVALID_HANDLE)


def test_a_callback_may_not_call_cuda(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        answers: list[int] = []

        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def function(_: Any) -> None:
            answers.append(cuda.code("cuCtxGetCurrent", ctypes.byref(P())))

        stream = cuda.stream()
        cuda.call("cuLaunchHostFunc", P(stream), function, P())
        cuda.sync(stream)
        return answers, cuda.mistakes()

    assert on_gpu(work) == ([800], 1)


def test_a_destroyed_stream_is_none(on_gpu: Any) -> None:
    def work(cuda: Driver) -> int:
        stream = cuda.stream()
        cuda.call("cuStreamDestroy_v2", P(stream))
        return cuda.fill(cuda.alloc(8), 0, 8, stream)

    assert on_gpu(work) == INVALID_HANDLE


def test_pageable_host_memory_is_read_at_once(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, address, host = cuda.stream(), cuda.alloc(SIZE), np.full(SIZE, 7, np.uint8)
        with cuda.held(stream):
            assert cuda.copy(address, host.ctypes.data, SIZE, stream) == 0
            host[:] = 1
        cuda.sync(stream)
        back = np.empty(SIZE, np.uint8)
        assert cuda.copy(back.ctypes.data, address, SIZE, stream) == 0
        return set(back)

    assert on_gpu(work) == {7}
