"""Tensors, streams and graphs of the simulated GPUs, on which nothing but collops runs."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.gpu.simulated.simulated_driver import NON_BLOCKING, THREAD_LOCAL, Driver, P
from tests.gpu.simulated.simulated_tensor import SimTensor

POISON = 0xFF  # NaN in every type


class SimStream:
    """A stream as CUDA Python's protocol shows one, and as CuPy does."""

    def __init__(self, cuda: Driver, handle: int, device: int) -> None:
        self.cuda, self.ptr, self.device = cuda, handle, device

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.ptr

    def synchronize(self) -> None:
        with self.cuda.on(self.device):
            self.cuda.sync(self.ptr)


class SimGraph:
    """Captured calls, instantiated."""

    def __init__(self, cuda: Driver) -> None:
        self.cuda, self.graph, self.executable = cuda, 0, 0

    def replay(self, stream: SimStream) -> None:
        """Puts the calls on a stream."""
        with self.cuda.on(stream.device):
            self.cuda.call("cuGraphLaunch", P(self.executable), P(stream.ptr))

    def destroy(self) -> None:
        """Ends it, when its replays are done."""
        self.cuda.call("cuGraphExecDestroy", P(self.executable))
        self.cuda.call("cuGraphDestroy", P(self.graph))


class Gpu:
    """Tensors of a simulated GPU, for golden's arrays: bfloat16 is np.uint16 there.

    A process that has used it cannot fork ranks any more: it is for ranks that were forked before.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()

    @property
    def cuda(self) -> Driver:
        """libcuda, with the chosen device, or 0, current in this thread."""
        if not hasattr(self._of_thread, "cuda"):
            self._of_thread.cuda = Driver()
        driver: Driver = self._of_thread.cuda
        return driver

    def choose(self, device: int) -> None:
        """Makes this thread's GPU the one of that number."""
        self.cuda.choose(device)

    def tensor(
        self, array: Any, dtype: str = "", read_only: bool = False, shift: int = 0
    ) -> SimTensor:
        """The array's values in device memory, `shift` elements behind where memory begins."""
        host = np.asarray(array)
        dtype = dtype or host.dtype.name
        tensor = self._empty(host.shape, dtype, read_only, shift)
        tensor.write(host)
        return tensor

    def poisoned(self, shape: tuple[int, ...], like: SimTensor, shift: int = 0) -> SimTensor:
        """Device memory of a shape, with nothing in it that could be right by accident."""
        return self._empty(shape, like.dtype, False, shift)

    def _empty(self, shape: Any, dtype: str, read_only: bool, shift: int) -> SimTensor:
        if shift == 0:
            return SimTensor(self.cuda, shape, dtype, self.cuda.device, read_only)
        count = int(np.prod(shape, dtype=np.int64))
        whole = SimTensor(self.cuda, (shift + count,), dtype, self.cuda.device, read_only)
        return whole.behind(shift, shape)

    def write(self, tensor: SimTensor, array: Any) -> None:
        """Other values into a tensor; waits."""
        tensor.write(array)

    def poison(self, tensor: SimTensor) -> None:
        """Nothing that could be right by accident into a tensor; waits."""
        bits = np.full(tensor.nbytes, POISON, np.uint8).view(tensor.numpy_dtype)
        tensor.write(bits.reshape(tensor.shape))

    def array(self, tensor: SimTensor) -> Any:
        """A tensor's values, once its device has finished."""
        return tensor.read()

    def array_on(self, stream: SimStream, tensor: SimTensor) -> Any:
        """A tensor's values, once that stream has finished; no other one is waited for."""
        stream.synchronize()
        return tensor.read_now()

    def stream(self, flags: int | None = None) -> SimStream:
        """A new stream of this thread's device; it waits for no other unless flags are 0."""
        made = self.cuda.stream(NON_BLOCKING if flags is None else flags)
        return SimStream(self.cuda, made, self.cuda.device)

    @contextlib.contextmanager
    def held(self, stream: SimStream) -> Iterator[None]:
        """A stream that begins nothing meanwhile."""
        with self.cuda.held(stream.ptr):
            yield

    @contextlib.contextmanager
    def captured(self, stream: SimStream) -> Iterator[SimGraph]:
        """A stream whose calls go into the graph meanwhile; whoever asked destroys it."""
        made = SimGraph(self.cuda)
        assert self.cuda.begin_capture(stream.ptr, THREAD_LOCAL) == 0
        yield made
        code, made.graph = self.cuda.end_capture(stream.ptr)
        assert code == 0, self.cuda.text()
        made.executable = self.cuda.instantiate(made.graph)

    def mistakes(self) -> int:
        """How many mistakes without an answer the process made since the last time."""
        return self.cuda.mistakes()
