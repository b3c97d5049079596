"""Rules of CUDA's driver that the simulated one holds its callers to. What works when they are kept
is what the tests of collops run on."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collops.testing import RankErrors, run_ranks
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
    FATBIN,
    GLOBAL,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_IMAGE,
    INVALID_VALUE,
    LEGACY,
    NON_BLOCKING,
    NOT_FOUND,
    NOT_INITIALIZED,
    NOT_PERMITTED,
    NOT_READY,
    OUT_OF_MEMORY,
    PER_THREAD,
    RELAXED,
    SIZE,
    THREAD_LOCAL,
    U32,
    U64,
    Driver,
    P,
)
from tests.gpu.simulated.waiting_kernel import WaitArgs, launched, release, waiting

BYTES = 256
GRANULE = 2 << 20
ILLEGAL_ADDRESS, TIMEOUT = 700, 702
LAZY = U32(1)
Call = Callable[[Driver], int]


class Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("bytes", ctypes.c_char * 64),)


class Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", ctypes.c_int * 2),
        ("unused", ctypes.c_uint64 * 2),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", ctypes.c_int * 2), ("rights", ctypes.c_int))


class MeetArgs(ctypes.Structure):
    """What the kernel sim_meet takes, all of whose blocks must run at once."""

    _fields_ = (("came", P),)


def fill(cuda: Driver, stream: int, address: int = 0) -> int:
    return cuda.fill(address or cuda.alloc(BYTES), 1, BYTES, stream)


def alloc(cuda: Driver, size: int = 64) -> int:
    return cuda.code("cuMemAlloc_v2", ctypes.byref(U64()), SIZE(size))


def freed(cuda: Driver) -> int:
    address = cuda.alloc(16)
    cuda.free(address)
    return address


def gone(cuda: Driver, made: int, destroy: str) -> int:
    cuda.call(destroy, P(made))
    return made


def without_context(cuda: Driver) -> int:
    cuda.call("cuCtxSetCurrent", P())
    return alloc(cuda)


def elsewhere(cuda: Driver, make: Call) -> int:
    """What another device's context makes."""
    with cuda.on(3):
        return make(cuda)


def elapsed(cuda: Driver) -> int:
    events = [cuda.event() for _ in range(2)]
    for event in events:
        assert cuda.record(event, LEGACY) == 0
    cuda.sync()
    return cuda.code("cuEventElapsedTime", ctypes.byref(ctypes.c_float()), *map(P, events))


def launch(cuda: Driver, kernel: int = 0, **over: Any) -> int:
    found = kernel or cuda.kernel(cuda.load(), "collops_convert")
    return cuda.launch(found, ctypes.create_string_buffer(64), **over)


def ipc_handle(cuda: Driver) -> Handle:
    handle = Handle()
    cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), U64(cuda.alloc(64)))
    return handle


def open_handle(cuda: Driver, handle: Handle, flags: Any = LAZY) -> tuple[int, int]:
    pointer = U64()
    cuda.cuda.cuIpcOpenMemHandle_v2.argtypes = [P, Handle, U32]
    return cuda.code("cuIpcOpenMemHandle_v2", ctypes.byref(pointer), handle, flags), pointer.value


def create(cuda: Driver, made: Any, size: int = GRANULE) -> int:
    properties = Properties(1, 1, (ctypes.c_int * 2)(1, cuda.device))
    place = ctypes.byref(properties)
    return cuda.code("cuMemCreate", ctypes.byref(made), SIZE(size), place, U64(0))


def mapped(cuda: Driver, access: bool = True) -> tuple[int, int]:
    """New memory at addresses of its own, and its handle."""
    handle, address, size = U64(), U64(), SIZE(GRANULE)
    assert create(cuda, handle) == 0
    cuda.call("cuMemAddressReserve", ctypes.byref(address), size, P(0), U64(0), U64(0))
    cuda.call("cuMemMap", address, size, P(0), handle, U64(0))
    wished = Access((ctypes.c_int * 2)(1, cuda.device), 3)
    if access:
        cuda.call("cuMemSetAccess", address, size, ctypes.byref(wished), SIZE(1))
    return address.value, handle.value


def map_again(cuda: Driver) -> int:
    address, handle = mapped(cuda)
    return cuda.code("cuMemMap", U64(address), SIZE(GRANULE), P(0), U64(handle), U64(0))


def unmapped(cuda: Driver) -> int:
    address, _ = mapped(cuda)
    cuda.call("cuMemUnmap", U64(address), SIZE(GRANULE))
    return address


REFUSED: dict[str, tuple[Call, int]] = {
    "a copy behind the end": (lambda c: c.copy(c.alloc(8), c.alloc(16), 9), INVALID_VALUE),
    "a fill behind the end": (lambda c: c.fill(c.alloc(8), 0, 9), INVALID_VALUE),
    "a copy from freed memory": (lambda c: c.copy(c.alloc(16), freed(c), 16), INVALID_VALUE),
    "freed twice": (lambda c: c.code("cuMemFree_v2", U64(freed(c))), INVALID_VALUE),
    "freed inside": (lambda c: c.code("cuMemFree_v2", U64(c.alloc(512) + 256)), INVALID_VALUE),
    "no bytes": (lambda c: alloc(c, 0), INVALID_VALUE),
    "too much": (lambda c: alloc(c, 5 << 30), OUT_OF_MEMORY),
    "no such context": (lambda c: c.code("cuCtxPushCurrent_v2", P(7)), INVALID_CONTEXT),
    "no context": (without_context, INVALID_CONTEXT),
    "no such stream": (lambda c: fill(c, 4096), INVALID_HANDLE),
    "a destroyed stream": (
        lambda c: fill(c, gone(c, c.stream(), "cuStreamDestroy_v2")),
        INVALID_HANDLE,
    ),
    "a stream of another device": (
        lambda c: fill(c, elsewhere(c, Driver.stream)),
        INVALID_HANDLE,
    ),
    "a destroyed event": (
        lambda c: c.record(gone(c, c.event(), "cuEventDestroy_v2"), LEGACY),
        INVALID_HANDLE,
    ),
    "an event of another device": (
        lambda c: c.record(elsewhere(c, Driver.event), LEGACY),
        INVALID_HANDLE,
    ),
    "times of events without any": (elapsed, INVALID_HANDLE),
    "no fatbin": (
        lambda c: c.code("cuModuleLoadData", ctypes.byref(P()), bytes(64)),
        INVALID_IMAGE,
    ),
    "no such kernel": (
        lambda c: c.code("cuModuleGetFunction", ctypes.byref(P()), P(c.load()), b"nothing"),
        NOT_FOUND,
    ),
    "no blocks": (lambda c: launch(c, blocks=0), INVALID_VALUE),
    "too many threads": (lambda c: launch(c, threads=1025), INVALID_VALUE),
    "a kernel of another context": (
        lambda c: launch(c, elsewhere(c, lambda d: d.kernel(d.load(), "collops_convert"))),
        INVALID_HANDLE,
    ),
    "no IPC handle": (lambda c: open_handle(c, Handle())[0], INVALID_HANDLE),
    "an IPC handle without peers": (
        lambda c: open_handle(c, ipc_handle(c), U32(0))[0],
        INVALID_VALUE,
    ),
    "an IPC handle of this process": (
        lambda c: open_handle(c, ipc_handle(c))[0],
        INVALID_CONTEXT,
    ),
    "memory is closed that is its own": (
        lambda c: c.code("cuIpcCloseMemHandle", U64(c.alloc(64))),
        INVALID_VALUE,
    ),
    "mapped without access": (lambda c: c.fill(mapped(c, False)[0], 0, 8), INVALID_VALUE),
    "mapped twice": (map_again, INVALID_VALUE),
    "addresses still mapped": (
        lambda c: c.code("cuMemAddressFree", U64(mapped(c)[0]), SIZE(GRANULE)),
        INVALID_VALUE,
    ),
    "mapped memory is freed as allocated": (
        lambda c: c.code("cuMemFree_v2", U64(mapped(c)[0])),
        INVALID_VALUE,
    ),
    "half a granule": (lambda c: create(c, U64(), GRANULE // 2), INVALID_VALUE),
    "unmapped": (lambda c: c.fill(unmapped(c), 0, 8), INVALID_VALUE),
}


def test_wrong_calls_are_refused(on_gpu: Any) -> None:
    def work(_: Driver) -> dict[str, int]:
        return {name: call(Driver()) for name, (call, _) in REFUSED.items()}

    assert on_gpu(work) == {name: code for name, (_, code) in REFUSED.items()}


def test_new_memory_is_poisoned(on_gpu: Any) -> None:
    found = on_gpu(lambda cuda: cuda.read(cuda.alloc(4 * BYTES), 4 * BYTES, np.uint8))
    assert set(found) == {0xA5}


def touch(cuda: Driver) -> None:
    """The host reads device memory."""
    ctypes.cast(cuda.put(np.ones(512)), ctypes.POINTER(ctypes.c_char))[0]


def free_early(cuda: Driver) -> None:
    address, stream = cuda.alloc(BYTES), cuda.stream()
    with cuda.held(stream):
        fill(cuda, stream, address)
        cuda.free(address)


def run_behind(cuda: Driver) -> None:
    """A kernel reads behind the end of its memory."""
    stream, behind = cuda.stream(), cuda.alloc(1024) + 1024
    kernel = cuda.kernel(cuda.load(), "sim_wait")
    assert cuda.launch(kernel, WaitArgs(behind, 0), blocks=1, stream=stream) == 0
    cuda.sync(stream)


@pytest.mark.parametrize(
    ("work", "signal", "said"),
    [
        (touch, "SIGSEGV", "host code touched device memory"),
        (run_behind, "SIGSEGV", "memory that is not there or not accessible"),
        (free_early, "SIGABRT", "memory is freed that a stream has yet to use"),
    ],
)
def test_what_ends_a_strict_process(
    on_gpu: Any, capfd: Any, work: Any, signal: str, said: str
) -> None:
    with pytest.raises(RankErrors, match=signal):
        on_gpu(work, COLLOPS_SIM_STRICT="1")
    assert said in capfd.readouterr().err


def test_a_child_of_a_process_with_cuda_has_none(on_gpu: Any) -> None:
    def work(_: Driver) -> list[int]:
        inner = run_ranks(lambda _: ctypes.CDLL("libcuda.so.1").cuInit(U32(0)), 1)
        return list(inner)

    assert on_gpu(work) == [NOT_INITIALIZED]


def free_what_a_stream_fills(cuda: Driver) -> int:
    address, stream = cuda.alloc(BYTES), cuda.stream()
    with cuda.held(stream):
        assert fill(cuda, stream, address) == 0
        return cuda.code("cuMemFree_v2", U64(address))


def free_what_a_kernel_reads(cuda: Driver) -> int:
    signal, stream = cuda.put(np.zeros(1, np.uint32)), cuda.stream()
    kernel = cuda.kernel(cuda.load(), "sim_wait")
    with cuda.held(stream):
        assert cuda.launch(kernel, WaitArgs(signal, 0), blocks=1, stream=stream) == 0
        return cuda.code("cuMemFree_v2", U64(signal))


def use_another_device(cuda: Driver) -> int:
    signal = elsewhere(cuda, lambda there: there.put(np.zeros(1, np.uint32)))
    stream, kernel = cuda.stream(), cuda.kernel(cuda.load(), "sim_wait")
    assert cuda.launch(kernel, WaitArgs(signal, 0), blocks=1, stream=stream) == 0
    return cuda.code("cuStreamSynchronize", P(stream))


def replay_freed_memory(cuda: Driver) -> int:
    stream, x = cuda.stream(), cuda.alloc(BYTES)
    assert cuda.begin_capture(stream) == 0
    assert fill(cuda, stream, x) == 0
    replay = cuda.instantiate(cuda.end_capture(stream)[1])
    cuda.free(x)
    return cuda.code("cuGraphLaunch", P(replay), P(stream))


def call_in_a_callback(cuda: Driver) -> int:
    answers: list[int] = []

    @ctypes.CFUNCTYPE(None, P)
    def function(_: Any) -> None:
        answers.append(cuda.code("cuCtxGetCurrent", ctypes.byref(P())))

    stream = cuda.stream()
    cuda.call("cuLaunchHostFunc", P(stream), function, P())
    cuda.sync(stream)
    return answers[0]


MISTAKES: dict[str, tuple[Call, int]] = {
    "memory is freed that a stream fills": (free_what_a_stream_fills, INVALID_VALUE),
    "memory is freed that a kernel reads": (free_what_a_kernel_reads, INVALID_VALUE),
    "a peer's memory without access": (use_another_device, ILLEGAL_ADDRESS),
    "a replay uses freed memory": (replay_freed_memory, INVALID_VALUE),
    "a callback calls CUDA": (call_in_a_callback, NOT_PERMITTED),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_counted(on_gpu: Any, name: str) -> None:
    call, code = MISTAKES[name]
    assert on_gpu(lambda cuda: (call(cuda), cuda.mistakes())) == (code, 1)


def give_time(cuda: Driver, stream: int, waits: bool) -> None:
    """Time for a stream to do its work, if it waits for nothing."""
    if waits:
        time.sleep(0.05)
    else:
        cuda.sync(stream)


def order(cuda: Driver, first: int, second: int, waits: bool) -> bool:
    """Whether the second stream waits for the first one unasked; `waits`: what it ought to do."""
    source, result = cuda.put(np.zeros(BYTES, np.uint8)), cuda.alloc(BYTES)
    with cuda.held(first):
        assert fill(cuda, first, source) == 0
        assert cuda.copy(result, source, BYTES, second) == 0
        give_time(cuda, second, waits)
    cuda.sync(first)
    cuda.sync(second)
    return bool((cuda.read(result, BYTES, np.uint8) == 1).all())


STREAMS: dict[str, Call] = {
    "blocking": lambda cuda: cuda.stream(0),
    "non-blocking": lambda cuda: cuda.stream(NON_BLOCKING),
    "legacy": lambda _: LEGACY,
    "null": lambda _: 0,
    "own of the thread": lambda _: PER_THREAD,
}
# Whether the second one waits for the first one unasked.
ORDERS = {
    ("blocking", "legacy"): True,
    ("legacy", "blocking"): True,
    ("legacy", "own of the thread"): True,
    ("own of the thread", "null"): True,
    ("non-blocking", "legacy"): False,
    ("legacy", "non-blocking"): False,
    ("blocking", "blocking"): False,
}


def test_which_streams_wait_for_each_other_unasked(on_gpu: Any) -> None:
    def work(cuda: Driver) -> dict[tuple[str, str], bool]:
        return {
            pair: order(cuda, *(STREAMS[name](cuda) for name in pair), waits)
            for pair, waits in ORDERS.items()
        }

    assert on_gpu(work) == ORDERS


def beside(cuda: Driver, call: Call) -> int:
    """What a call answers in another thread."""
    answers: list[int] = []

    def other() -> None:
        cuda.choose(0)
        answers.append(call(cuda))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    return answers[0]


def test_a_thread_has_a_stream_of_its_own(on_gpu: Any) -> None:
    def query(cuda: Driver) -> int:
        return cuda.code("cuStreamQuery", P(PER_THREAD))

    def work(cuda: Driver) -> list[int]:
        with cuda.held(PER_THREAD):
            assert fill(cuda, PER_THREAD) == 0
            return [query(cuda), beside(cuda, query)]

    assert on_gpu(work) == [NOT_READY, 0]


def fork(cuda: Driver, stream: int) -> int:
    """A stream that has joined the capture of the given one."""
    joined, event = cuda.stream(), cuda.event()
    assert cuda.record(event, stream) == 0
    assert cuda.wait(joined, event) == 0
    return joined


def wait_outside(cuda: Driver, stream: int) -> int:
    other, event = cuda.stream(), cuda.event()
    assert cuda.record(event, other) == 0
    return cuda.wait(stream, event)


def merge(cuda: Driver, stream: int) -> int:
    other, event = cuda.stream(), cuda.event()
    assert cuda.begin_capture(other) == 0
    assert cuda.record(event, other) == 0
    return cuda.wait(stream, event)


def copy_pageable(cuda: Driver, stream: int, to: int) -> int:
    return cuda.code("cuMemcpyHtoDAsync_v2", U64(to), bytes(8), SIZE(8), P(stream))


def relaxed(cuda: Driver) -> int:
    """What another thread that has relaxed its mode may do."""
    cuda.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(ctypes.c_int(RELAXED)))
    return alloc(cuda)


UNSUPPORTED = (CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED)
# Called while a stream is captured by this thread: the mode, what the call answers, and what the
# end of the capture does.
CAPTURED: dict[str, tuple[Callable[[Driver, int, int], int], int, tuple[int, int]]] = {
    "cuMemAlloc": (lambda c, s, old: alloc(c), THREAD_LOCAL, UNSUPPORTED),
    "cuMemFree": (lambda c, s, old: c.code("cuMemFree_v2", U64(old)), THREAD_LOCAL, UNSUPPORTED),
    "cuStreamSynchronize": (
        lambda c, s, old: c.code("cuStreamSynchronize", P(s)),
        THREAD_LOCAL,
        UNSUPPORTED,
    ),
    "cuStreamQuery": (lambda c, s, old: c.code("cuStreamQuery", P(s)), THREAD_LOCAL, UNSUPPORTED),
    "cuCtxSynchronize": (lambda c, s, old: c.code("cuCtxSynchronize"), THREAD_LOCAL, UNSUPPORTED),
    "cuEventQuery": (
        lambda c, s, old: c.code("cuEventQuery", P(c.event())),
        THREAD_LOCAL,
        UNSUPPORTED,
    ),
    "pageable memory": (copy_pageable, THREAD_LOCAL, UNSUPPORTED),
    "another thread": (lambda c, s, old: beside(c, alloc), GLOBAL, UNSUPPORTED),
    "another thread, in thread-local mode": (
        lambda c, s, old: beside(c, alloc),
        THREAD_LOCAL,
        (0, 0),
    ),
    "another thread that is relaxed": (lambda c, s, old: beside(c, relaxed), GLOBAL, (0, 0)),
    "a wait for what is not captured": (
        lambda c, s, old: wait_outside(c, s),
        THREAD_LOCAL,
        (CAPTURE_ISOLATION, CAPTURE_INVALIDATED),
    ),
    "a wait that joins two captures": (
        lambda c, s, old: merge(c, s),
        THREAD_LOCAL,
        (CAPTURE_MERGE, CAPTURE_INVALIDATED),
    ),
    "a second begin": (lambda c, s, old: c.begin_capture(s), THREAD_LOCAL, (INVALID_VALUE, 0)),
    "a stream that is not joined": (
        lambda c, s, old: fill(c, fork(c, s), old),
        THREAD_LOCAL,
        (0, CAPTURE_UNJOINED),
    ),
    "the end on another stream": (
        lambda c, s, old: c.end_capture(fork(c, s))[0],
        THREAD_LOCAL,
        (CAPTURE_UNMATCHED, CAPTURE_INVALIDATED),
    ),
    "the end in another thread": (
        lambda c, s, old: beside(c, lambda there: there.end_capture(s)[0]),
        THREAD_LOCAL,
        (CAPTURE_WRONG_THREAD, 0),
    ),
    "the legacy stream": (lambda c, s, old: fill(c, LEGACY, old), THREAD_LOCAL, (0, 0)),
}


@pytest.mark.parametrize("name", CAPTURED)
def test_calls_during_a_capture(on_gpu: Any, name: str) -> None:
    call, mode, expected = CAPTURED[name]

    def work(cuda: Driver) -> tuple[int, int]:
        stream, old = cuda.stream(), cuda.alloc(BYTES)
        assert cuda.begin_capture(stream, mode) == 0
        return call(cuda, stream, old), cuda.end_capture(stream)[0]

    assert on_gpu(work) == expected


def test_the_legacy_stream_and_captures(on_gpu: Any) -> None:
    """It is not captured, and does not wait for a stream that is."""

    def work(cuda: Driver) -> Any:
        blocking, x = cuda.stream(0), cuda.alloc(BYTES)
        itself = cuda.begin_capture(LEGACY)
        assert cuda.begin_capture(blocking) == 0
        return itself, fill(cuda, LEGACY, x), cuda.end_capture(blocking)[0]

    assert on_gpu(work) == (CAPTURE_UNSUPPORTED, CAPTURE_IMPLICIT, CAPTURE_INVALIDATED)


def test_a_captured_event_cannot_be_asked(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, event = cuda.stream(), cuda.event()
        assert cuda.begin_capture(stream) == 0
        assert cuda.record(event, stream) == 0
        assert cuda.end_capture(stream)[0] == 0
        return cuda.code("cuEventQuery", P(event)), cuda.wait(cuda.stream(), event)

    assert on_gpu(work) == (CAPTURED_EVENT, CAPTURED_EVENT)


def test_what_a_graph_keeps_lives_as_long_as_its_last_replay(on_gpu: Any) -> None:
    """And may not call CUDA when it ends."""

    def work(cuda: Driver) -> Any:
        answers: list[int] = []

        @ctypes.CFUNCTYPE(None, P)
        def destroy(_: Any) -> None:
            answers.append(cuda.code("cuCtxGetCurrent", ctypes.byref(P())))

        stream, x, status, graph = cuda.stream(), cuda.alloc(BYTES), ctypes.c_int(), P()
        assert cuda.begin_capture(stream) == 0
        info = (P(stream), ctypes.byref(status), None, ctypes.byref(graph), None, None)
        cuda.call("cuStreamGetCaptureInfo_v2", *info)
        kept = cuda.new("cuUserObjectCreate", P(), destroy, U32(1), U32(1))
        cuda.call("cuGraphRetainUserObject", graph, P(kept), U32(1), U32(1))
        assert fill(cuda, stream, x) == 0
        whole = cuda.end_capture(stream)[1]
        replay = cuda.instantiate(whole)
        with cuda.held(stream):
            cuda.call("cuGraphLaunch", P(replay), P(stream))
            cuda.call("cuGraphDestroy", P(whole))
            cuda.call("cuGraphExecDestroy", P(replay))
            early = len(answers)
        cuda.sync(stream)
        return early, answers, cuda.mistakes()

    assert on_gpu(work) == (0, [NOT_PERMITTED], 1)


def test_what_two_processes_share_is_neither_freed_nor_closed_too_early(
    on_gpus: Any, tmp_path: Path
) -> None:
    """The second one has a fill on a stream, and closes before that has run."""

    def wait_for(name: str) -> bytes:
        while not (tmp_path / name).exists():
            time.sleep(0.002)
        return (tmp_path / name).read_bytes()

    def publish(name: str, content: bytes = b"") -> None:
        (tmp_path / "new").write_bytes(content)
        (tmp_path / "new").rename(tmp_path / name)

    def work(cuda: Driver, rank: int) -> tuple[int, int]:
        if rank == 0:
            handle, address = Handle(), cuda.alloc(64)
            cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), U64(address))
            publish("handle", bytes(handle))
            wait_for("opened")
            code = cuda.code("cuMemFree_v2", U64(address))
            publish("freed")
            return code, cuda.mistakes()
        stream = cuda.stream()
        address = open_handle(cuda, Handle.from_buffer_copy(wait_for("handle")))[1]
        publish("opened")
        with cuda.held(stream):
            assert cuda.fill(address, 0, 4, stream) == 0
            code = cuda.code("cuIpcCloseMemHandle", U64(address))
            wait_for("freed")
        cuda.sync(stream)
        return code, cuda.mistakes()

    assert on_gpus(work, 2) == [(INVALID_VALUE, 1)] * 2


# Whether a call may wait for a kernel that waits for its peers.
MAY_WAIT: dict[str, tuple[Callable[[Driver, int], int], int]] = {
    "cuMemAlloc": (lambda c, old: alloc(c), 1),
    "cuMemFree": (lambda c, old: c.code("cuMemFree_v2", U64(old)), 1),
    "cuMemHostAlloc": (lambda c, _: c.code("cuMemHostAlloc", ctypes.byref(P()), P(16), U32(0)), 1),
    "cuModuleLoadData": (lambda c, _: c.code("cuModuleLoadData", ctypes.byref(P()), FATBIN), 1),
    "cuEventCreate": (lambda c, _: c.code("cuEventCreate", ctypes.byref(P()), U32(0)), 0),
    "cuMemsetD8Async": (lambda c, old: c.fill(old, 0, 8, c.stream()), 0),
}


def test_what_may_wait_for_a_kernel_that_waits(on_gpu: Any) -> None:
    """Each is a mistake while there is one, and none before."""

    def work(cuda: Driver) -> dict[str, tuple[int, int]]:
        olds = {name: cuda.alloc(64) for name in MAY_WAIT}
        assert cuda.mistakes() == 0
        stream, signal = waiting(cuda)
        found = {
            name: (call(cuda, olds[name]), cuda.mistakes()) for name, (call, _) in MAY_WAIT.items()
        }
        release(cuda, stream, signal)
        return found

    assert on_gpu(work) == {name: (0, mistakes) for name, (_, mistakes) in MAY_WAIT.items()}


def test_synchronising_the_device_while_a_kernel_waits(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        waiting(cuda)
        os.environ["COLLOPS_SIM_TIMEOUT_S"] = "0.2"
        return cuda.code("cuCtxSynchronize"), cuda.mistakes() >= 2  # the call, and the wait

    assert on_gpu(work, COLLOPS_SIM_TIMEOUT_S="60") == (TIMEOUT, True)


@pytest.mark.parametrize("loads", [True, False])
def test_a_kernel_that_is_loaded_by_its_first_launch(on_gpu: Any, loads: bool) -> None:
    def work(cuda: Driver) -> Any:
        signal, later = cuda.put(np.zeros(1, np.uint32)), cuda.stream()
        other = cuda.kernel(cuda.load(), "sim_wait")
        if loads:
            cuda.call("cuFuncLoad", P(other))
        stream, waited = waiting(cuda)
        assert cuda.launch(other, WaitArgs(signal, 0), blocks=1, stream=later) == 0
        found = cuda.mistakes()
        release(cuda, stream, waited)
        return found

    assert on_gpu(work) == (0 if loads else 1)


def wait_for_ever(cuda: Driver) -> int:
    return cuda.code("cuStreamSynchronize", P(launched(cuda)[0]))


def wait_for_what_is_behind(cuda: Driver) -> int:
    """In the same hardware queue, where another stream's fill stands before the signal's."""
    stream, signal = launched(cuda)
    assert cuda.fill(cuda.alloc(4), 1, 4, stream) == 0  # waits for the kernel
    assert cuda.fill(signal, 1, 4, cuda.stream()) == 0  # the kernel waits for this one
    return cuda.code("cuStreamSynchronize", P(stream))


def meet(cuda: Driver) -> int:
    blocks = 8
    stream, kernel = cuda.stream(), cuda.kernel(cuda.load(), "sim_meet")
    for _ in range(12):
        args = MeetArgs(cuda.put(np.zeros(blocks, np.uint32)))
        assert cuda.launch(kernel, args, blocks=blocks, threads=32, stream=stream) == 0
        time.sleep(0.02)
        code = cuda.code("cuStreamSynchronize", P(stream))
        if code != 0:
            return code
    return 0


@pytest.mark.parametrize(
    ("work", "timeout_s", "queues", "expected"),
    [
        (wait_for_ever, "0.3", "8", TIMEOUT),
        (wait_for_what_is_behind, "1", "1", TIMEOUT),
        (wait_for_what_is_behind, "20", "8", 0),
        (meet, "0.3", "8", TIMEOUT),
    ],
    ids=["for ever", "one queue", "eight queues", "blocks that need all"],
)
def test_waits_without_an_end_are_found(
    on_gpu: Any, work: Call, timeout_s: str, queues: str, expected: int
) -> None:
    env = {"CUDA_DEVICE_MAX_CONNECTIONS": queues, "COLLOPS_SIM_TIMEOUT_S": timeout_s}
    assert on_gpu(work, **env) == expected
