"""Calls of libcuda as its published signatures say, for tests on the simulated GPUs."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

P, I32, U32, U64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
SIZE = ctypes.c_size_t
LEGACY, PER_THREAD = 1, 2
NON_BLOCKING = 1
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
DISABLE_TIMING = 2
FATBIN = (0xBA55ED50).to_bytes(4, "little") + bytes(60)

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 1, 2, 3
INVALID_IMAGE, INVALID_CONTEXT, INVALID_HANDLE = 200, 201, 400
NOT_FOUND, NOT_READY, NOT_PERMITTED = 500, 600, 800
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_MERGE = 900, 901, 902
CAPTURE_UNMATCHED, CAPTURE_UNJOINED, CAPTURE_ISOLATION = 903, 904, 905
CAPTURE_IMPLICIT, CAPTURED_EVENT, CAPTURE_WRONG_THREAD = 906, 907, 908


class CudaError(Exception):
    """A call of libcuda did not answer 0."""

    def __init__(self, name: str, code: int, text: str) -> None:
        super().__init__(f"{name}: {code}: {text}")
        self.code = code


class Driver:
    """libcuda.so.1 with the primary context of one device current in this thread."""

    def __init__(self, device: int = 0) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.SimLastText.restype = ctypes.c_char_p
        self.cuda.SimHoldStream.argtypes = [P, I32]
        self.cuda.SimBlock.argtypes = [ctypes.c_char_p]
        self.call("cuInit", U32(0))
        self.choose(device)

    def code(self, name: str, *args: Any) -> int:
        """What the call answers."""
        return int(getattr(self.cuda, name)(*args))

    def call(self, name: str, *args: Any) -> None:
        code = self.code(name, *args)
        if code != 0:
            raise CudaError(name, code, self.text())

    def text(self) -> str:
        """Why the last refused call of this thread was refused."""
        return (self.cuda.SimLastText() or b"").decode()

    def mistakes(self) -> int:
        """How many mistakes without an answer were found since the last time."""
        found = int(self.cuda.SimMistakes())
        self.cuda.SimForgetMistakes()
        return found

    def waiting_kernels(self) -> int:
        """How many kernels of this thread's device run and have waited for a signal."""
        return int(self.cuda.SimWaitingKernels())

    def waiting_threads(self) -> int:
        """How many threads they have."""
        return int(self.cuda.SimWaitingThreads())

    def new(self, name: str, *args: Any) -> int:
        """The handle that the call makes in its first argument."""
        handle = P()
        self.call(name, ctypes.byref(handle), *args)
        return int(handle.value or 0)

    def context(self, device: int) -> int:
        return self.new("cuDevicePrimaryCtxRetain", I32(device))

    def choose(self, device: int) -> None:
        """Makes the device's primary context this thread's."""
        self.device = device
        self.call("cuCtxSetCurrent", P(self.context(device)))

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        self.call("cuCtxPushCurrent_v2", P(self.context(device)))
        try:
            yield
        finally:
            self.call("cuCtxPopCurrent_v2", P())

    def alloc(self, size: int) -> int:
        return self.new("cuMemAlloc_v2", SIZE(max(size, 1)))

    def free(self, address: int) -> None:
        self.call("cuMemFree_v2", U64(address))

    def write(self, address: int, array: Any) -> None:
        """Copies a numpy array to the device, and waits."""
        host = np.ascontiguousarray(array)
        size = SIZE(host.nbytes)
        if host.nbytes:
            self.call("cuMemcpyHtoD_v2", U64(address), P(host.ctypes.data), size)

    def read(self, address: int, shape: Any, dtype: Any) -> Any:
        """A numpy array with what is on the device, once its blocking streams are done."""
        host = np.empty(shape, dtype)
        size = SIZE(host.nbytes)
        if host.nbytes:
            self.call("cuMemcpyDtoH_v2", P(host.ctypes.data), U64(address), size)
        return host

    def put(self, array: Any) -> int:
        """New device memory with the array's values."""
        address = self.alloc(array.nbytes)
        self.write(address, array)
        return address

    def copy(self, to: int, source: int, size: int, stream: int = LEGACY) -> int:
        """The answer of a copy that a stream makes."""
        args = (U64(to), U64(source), SIZE(size), P(stream))
        return self.code("cuMemcpyAsync", *args)

    def fill(self, to: int, value: int, size: int, stream: int = LEGACY) -> int:
        """The answer of a fill that a stream makes."""
        args = (U64(to), ctypes.c_ubyte(value), SIZE(size), P(stream))
        return self.code("cuMemsetD8Async", *args)

    def stream(self, flags: int = NON_BLOCKING) -> int:
        return self.new("cuStreamCreate", U32(flags))

    def sync(self, stream: int = LEGACY) -> None:
        self.call("cuStreamSynchronize", P(stream))

    def event(self, flags: int = DISABLE_TIMING) -> int:
        return self.new("cuEventCreate", U32(flags))

    def record(self, event: int, stream: int) -> int:
        return self.code("cuEventRecord", P(event), P(stream))

    def wait(self, stream: int, event: int) -> int:
        return self.code("cuStreamWaitEvent", P(stream), P(event), U32(0))

    @contextlib.contextmanager
    def held(self, *streams: int) -> Iterator[None]:
        """Streams that begin nothing meanwhile."""
        for stream in streams:
            self.call("SimHoldStream", P(stream), I32(1))
        try:
            yield
        finally:
            for stream in streams:
                self.call("SimHoldStream", P(stream), I32(0))

    def block(self, function: str) -> None:
        """From now on that function waits until its GPU has nothing left to do, as every one does
        while another thread loads a module."""
        self.cuda.SimBlock(function.encode())

    def begin_capture(self, stream: int, mode: int = THREAD_LOCAL) -> int:
        return self.code("cuStreamBeginCapture_v2", P(stream), I32(mode))

    def end_capture(self, stream: int) -> tuple[int, int]:
        """The answer, and the graph."""
        graph = P()
        code = self.code("cuStreamEndCapture", P(stream), ctypes.byref(graph))
        return code, int(graph.value or 0)

    def is_capturing(self, stream: int) -> bool:
        status = I32()
        self.call("cuStreamIsCapturing", P(stream), ctypes.byref(status))
        return status.value != 0

    def instantiate(self, graph: int) -> int:
        return self.new("cuGraphInstantiateWithFlags", P(graph), U64(0))

    def load(self, image: bytes = FATBIN) -> int:
        return self.new("cuModuleLoadData", image)

    def kernel(self, module: int, name: str) -> int:
        return self.new("cuModuleGetFunction", P(module), name.encode())

    def launch(
        self, kernel: int, args: Any, blocks: int = 3, threads: int = 64, stream: int = LEGACY
    ) -> int:
        """The answer of a launch; `args` is a ctypes structure."""
        params = (P * 1)(ctypes.addressof(args))
        sizes = [U32(n) for n in (blocks, 1, 1, threads, 1, 1, 0)]
        return self.code("cuLaunchKernel", P(kernel), *sizes, P(stream), params, None)
