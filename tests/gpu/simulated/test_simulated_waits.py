"""Kernels that wait for signals, and what may not happen meanwhile."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.gpu.simulated.simulated_driver import FATBIN, NOT_READY, U32, U64, Driver, P
from tests.gpu.simulated.waiting_kernel import WaitArgs, launched, release, waiting

TIMEOUT = 702


class MeetArgs(ctypes.Structure):
    _fields_ = (("came", P),)


CALLS: dict[str, tuple[Callable[[Driver, int], int], int]] = {
    "cuMemAlloc": (lambda c, old: c.code("cuMemAlloc_v2", ctypes.byref(U64()), P(16)), 1),
    "cuMemFree": (lambda c, old: c.code("cuMemFree_v2", U64(old)), 1),
    "cuMemHostAlloc": (lambda c, _: c.code("cuMemHostAlloc", ctypes.byref(P()), P(16), U32(0)), 1),
    "cuModuleLoadData": (lambda c, _: c.code("cuModuleLoadData", ctypes.byref(P()), FATBIN), 1),
    "cuEventCreate": (lambda c, _: c.code("cuEventCreate", ctypes.byref(P()), U32(0)), 0),
    "cuMemsetD8Async": (lambda c, old: c.fill(old, 0, 8, c.stream()), 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_may_wait_for_a_kernel_that_waits(on_gpu: Any, name: str) -> None:
    call, mistakes = CALLS[name]

    def work(cuda: Driver) -> Any:
        old = cuda.alloc(64)
        before = cuda.mistakes()
        stream, signal = waiting(cuda)
        code = call(cuda, old)
        found = cuda.mistakes()
        release(cuda, stream, signal)
        return before, code, found, call(cuda, cuda.alloc(64)), cuda.mistakes()

    assert on_gpu(work) == (0, 0, mistakes, 0, 0)


def test_synchronising_the_device_while_a_kernel_waits(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        waiting(cuda)
        os.environ["COLLOPS_SIM_TIMEOUT_S"] = "0.2"
        return cuda.code("cuCtxSynchronize"), cuda.mistakes()

    code, mistakes = on_gpu(work, COLLOPS_SIM_TIMEOUT_S="60")
    assert code == TIMEOUT
    assert mistakes >= 2  # the call, and a wait without an end


def test_a_kernel_that_waits_for_ever(on_gpu: Any) -> None:
    def work(cuda: Driver) -> Any:
        stream, _ = launched(cuda)
        while cuda.code("cuStreamQuery", P(stream)) == NOT_READY:
            time.sleep(0.01)
        return cuda.code("cuStreamSynchronize", P(stream)), cuda.mistakes()

    assert on_gpu(work, COLLOPS_SIM_TIMEOUT_S="0.2") == (TIMEOUT, 1)


def meet(cuda: Driver, together: bool) -> int:
    blocks = 8
    stream, kernel = cuda.stream(), cuda.kernel(cuda.load(), "sim_meet")
    for _ in range(12):
        args = MeetArgs(cuda.put(np.zeros(blocks, np.uint32)))
        if together:
            assert cuda.launch_together(kernel, args, blocks, stream) == 0
        else:
            assert cuda.launch(kernel, args, blocks=blocks, threads=32, stream=stream) == 0
        time.sleep(0.02)
        code = cuda.code("cuStreamSynchronize", P(stream))
        if code != 0:
            return code
    return 0


def test_blocks_that_need_all_others_at_once_are_found(on_gpu: Any) -> None:
    env = {"COLLOPS_SIM_TIMEOUT_S": "0.3"}
    assert on_gpu(lambda cuda: meet(cuda, False), **env) == TIMEOUT
    assert on_gpu(lambda cuda: meet(cuda, True), COLLOPS_SIM_TIMEOUT_S="20") == 0


def test_a_cooperative_grid_that_does_not_fit(on_gpu: Any) -> None:
    def work(cuda: Driver) -> int:
        kernel, args = cuda.kernel(cuda.load(), "sim_meet"), MeetArgs(cuda.alloc(64))
        return cuda.launch_together(kernel, args, 9, cuda.stream())

    assert on_gpu(work) == 720


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


@pytest.mark.parametrize("queues", ["1", "8"])
def test_what_waits_at_the_head_of_a_hardware_queue_holds_up_what_is_behind(
    on_gpu: Any, queues: str
) -> None:
    """Also what another stream has put there."""

    def work(cuda: Driver) -> Any:
        stream, signal = launched(cuda)
        assert cuda.fill(cuda.alloc(4), 1, 4, stream) == 0  # waits for the kernel
        assert cuda.fill(signal, 1, 4, cuda.stream()) == 0  # the kernel waits for this one
        return cuda.code("cuStreamSynchronize", P(stream))

    env = {"CUDA_DEVICE_MAX_CONNECTIONS": queues, "COLLOPS_SIM_TIMEOUT_S": "1"}
    assert on_gpu(work, **env) == (TIMEOUT if queues == "1" else 0)
