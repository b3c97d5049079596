"""Device memory of the simulated GPUs, and the mistakes that are found in its use."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collops.testing import RankErrors, run_ranks
from tests.gpu.simulated.simulated_driver import (
    I32,
    INVALID_CONTEXT,
    INVALID_HANDLE,
    INVALID_VALUE,
    NOT_INITIALIZED,
    OUT_OF_MEMORY,
    PEER_UNSUPPORTED,
    U32,
    U64,
    Driver,
    P,
)

COUNT = 1000


def test_bytes_come_back_and_new_memory_is_poisoned(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        address = cuda.alloc(4 * COUNT)
        before = cuda.read(address, 4 * COUNT, np.uint8)
        cuda.write(address, np.arange(COUNT, dtype=np.int32))
        after = cuda.read(address, COUNT, np.int32)
        cuda.free(address)
        return address % 256, set(before), (after == np.arange(COUNT)).all(), cuda.mistakes()

    assert on_gpu(work) == (0, {0xA5}, True, 0)


def touch(address: int) -> None:
    ctypes.cast(address, ctypes.POINTER(ctypes.c_char))[0]


def overrun(cuda: Driver) -> None:
    address = cuda.alloc(512)
    cuda.call("cuMemcpyHtoD_v2", U64(address), bytes(512), ctypes.c_size_t(512))
    touch(address)


def test_host_code_cannot_touch_device_memory(capfd: Any) -> None:
    with pytest.raises(RankErrors, match="SIGSEGV"):
        run_ranks(lambda _: overrun(Driver()), 1)
    assert "simulated CUDA: host code touched device memory" in capfd.readouterr().err


REFUSED: dict[str, tuple[Callable[[Driver], int], int]] = {
    "a copy behind the end": (lambda c: c.copy(c.alloc(8), c.alloc(16), 9), INVALID_VALUE),
    "a fill behind the end": (lambda c: c.fill(c.alloc(8), 0, 9), INVALID_VALUE),
    "a copy from freed memory": (lambda c: copy_of_freed(c), INVALID_VALUE),
    "freed twice": (lambda c: c.code("cuMemFree_v2", U64(freed(c))), INVALID_VALUE),
    "freed inside": (lambda c: c.code("cuMemFree_v2", U64(c.alloc(512) + 256)), INVALID_VALUE),
    "no bytes": (lambda c: c.code("cuMemAlloc_v2", P(), ctypes.c_size_t(0)), INVALID_VALUE),
    "too much": (lambda c: alloc(c, 5 << 30), OUT_OF_MEMORY),
    "no such context": (lambda c: c.code("cuCtxPushCurrent_v2", P(7)), INVALID_CONTEXT),
    "no context": (lambda c: without_context(c), INVALID_CONTEXT),
    "a stream of another device": (lambda c: on_other_stream(c), INVALID_HANDLE),
    "no such stream": (lambda c: c.fill(c.alloc(8), 0, 8, 4096), INVALID_HANDLE),
}


def alloc(cuda: Driver, size: int) -> int:
    return cuda.code("cuMemAlloc_v2", ctypes.byref(U64()), ctypes.c_size_t(size))


def freed(cuda: Driver) -> int:
    address = cuda.alloc(16)
    cuda.free(address)
    return address


def copy_of_freed(cuda: Driver) -> int:
    address = freed(cuda)
    return cuda.copy(cuda.alloc(16), address, 16)


def without_context(cuda: Driver) -> int:
    cuda.call("cuCtxSetCurrent", P())
    return alloc(cuda, 16)


def on_other_stream(cuda: Driver) -> int:
    with cuda.on(3):
        stream = cuda.stream()
    return cuda.fill(cuda.alloc(8), 0, 8, stream)


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_calls_are_refused(on_gpu: Any, name: str) -> None:
    call, code = REFUSED[name]
    assert on_gpu(call) == code


def test_a_child_of_a_process_with_cuda_has_none() -> None:
    def work(_: int) -> list[int]:
        Driver()
        inner = run_ranks(lambda _: ctypes.CDLL("libcuda.so.1").cuInit(U32(0)), 1)
        return list(inner)

    assert run_ranks(work, 1) == [[NOT_INITIALIZED]]


def test_memory_that_is_freed_while_a_stream_will_use_it_is_a_mistake(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        address, stream = cuda.alloc(64), cuda.stream()
        with cuda.held(stream):
            assert cuda.fill(address, 1, 64, stream) == 0
            early = cuda.code("cuMemFree_v2", U64(address))
        cuda.sync(stream)
        return early, cuda.mistakes(), cuda.code("cuMemFree_v2", U64(address)), cuda.mistakes()

    assert on_gpu(work) == (INVALID_VALUE, 1, 0, 0)


def test_a_mistake_ends_a_strict_process(capfd: Any) -> None:
    def work(_: int) -> None:
        cuda = Driver()
        address, stream = cuda.alloc(64), cuda.stream()
        with cuda.held(stream):
            cuda.fill(address, 1, 64, stream)
            cuda.free(address)

    with pytest.raises(RankErrors, match="SIGABRT"):
        run_ranks(work, 1, env={"COLLOPS_SIM_STRICT": "1"})
    assert "memory is freed that a stream has yet to use" in capfd.readouterr().err


def test_pinned_memory_is_for_both(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        host, device = cuda.new("cuMemHostAlloc", ctypes.c_size_t(64), U32(3)), cuda.alloc(64)
        seen = U64()
        cuda.call("cuMemHostGetDevicePointer_v2", ctypes.byref(seen), P(host), U32(0))
        ctypes.memmove(host, bytes(range(64)), 64)
        assert cuda.copy(device, seen.value, 64) == 0
        found = cuda.read(device, 64, np.uint8)
        cuda.call("cuMemFreeHost", P(host))
        return (found == np.arange(64)).all()

    assert on_gpu(work)


def test_what_an_address_is(on_gpu: Any) -> None:
    def attributes(cuda: Driver, address: int) -> tuple[int, int]:
        kind, device = I32(-1), I32(-1)
        names = (I32 * 2)(2, 9)
        places = (P * 2)(ctypes.addressof(kind), ctypes.addressof(device))
        cuda.call("cuPointerGetAttributes", U32(2), names, places, U64(address))
        return kind.value, device.value

    def work(cuda: Driver) -> Any:
        mine = ctypes.create_string_buffer(8)
        host = cuda.new("cuMemHostAlloc", ctypes.c_size_t(64), U32(3))
        place = ctypes.byref(I32())
        unknown = cuda.code("cuPointerGetAttribute", place, I32(9), U64(ctypes.addressof(mine)))
        return (
            attributes(cuda, cuda.alloc(64) + 5),
            attributes(cuda, host)[0],
            attributes(cuda, ctypes.addressof(mine)),
            unknown,
        )

    assert on_gpu(work, device=3) == ((2, 3), 1, (0, -2), INVALID_VALUE)


def test_planned_failures(on_gpu: Any) -> None:
    def work(cuda: Driver) -> list[int]:
        return [alloc(cuda, 16) for _ in range(3)]

    assert on_gpu(work, COLLOPS_SIM_FAIL="cuMemAlloc_v2:2:2") == [0, OUT_OF_MEMORY, 0]


def test_peers(on_gpu: Any) -> None:
    def work(cuda: Driver) -> list[int]:
        peer, can = P(cuda.context(1)), I32()
        cuda.call("cuDeviceCanAccessPeer", ctypes.byref(can), I32(0), I32(1))
        enable = [cuda.code("cuCtxEnablePeerAccess", peer, U32(0)) for _ in range(2)]
        return [can.value, *enable]

    assert on_gpu(work) == [1, 0, 704]
    assert on_gpu(work, COLLOPS_SIM_NO_PEERS="1") == [0, PEER_UNSUPPORTED, PEER_UNSUPPORTED]
