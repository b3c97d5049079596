"""A kernel that waits for a signal, as kernels wait for other ranks."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from tests.gpu.simulated.simulated_driver import Driver, P


class WaitArgs(ctypes.Structure):
    _fields_ = (("signal", P), ("value", ctypes.c_uint32))


def waiting(cuda: Driver) -> tuple[int, int]:
    """A stream with a kernel that waits, the only one of the device, and its signal."""
    stream, signal = launched(cuda)
    while cuda.waiting_kernels() == 0:
        time.sleep(0.002)
    return stream, signal


def launched(cuda: Driver) -> tuple[int, int]:
    """A stream with a kernel that will wait, and its signal."""
    signal = cuda.put(np.zeros(1, np.uint32))
    kernel, stream = cuda.kernel(cuda.load(), "sim_wait"), cuda.stream()
    assert cuda.launch(kernel, WaitArgs(signal, 1), blocks=1, stream=stream) == 0
    return stream, signal


def release(cuda: Driver, stream: int, signal: int) -> None:
    assert cuda.fill(signal, 1, 4, cuda.stream()) == 0
    cuda.sync(stream)
