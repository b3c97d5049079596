"""Tensors, streams and graphs of a simulated NPU, with the real torch_npu."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

# Once, for all ranks that are forked: it takes seconds. No device is touched here.
import torch
import torch_npu  # noqa: F401

import collops

POISON = 0xA5


class Graph:
    """Captured calls of one stream."""

    def __init__(self, acl: ctypes.CDLL) -> None:
        self.acl = acl
        self.handle = ctypes.c_void_p()

    def replay(self, stream: Any) -> None:
        """Puts the calls on a torch stream."""
        assert self.acl.aclmdlRIExecuteAsync(self.handle, ctypes.c_void_p(stream.npu_stream)) == 0

    def destroy(self) -> None:
        """Ends it; its replays are done."""
        assert self.acl.aclmdlRIDestroy(self.handle) == 0


class Npu:
    """Tensors of a simulated NPU, for golden's arrays: bfloat16 is np.uint16 there."""

    def choose(self, device: int) -> None:
        """Makes this thread's NPU the one of that number."""
        torch.npu.set_device(device)

    def tensor(self, array: Any, dtype: str = "") -> Any:
        """The array's values in device memory."""
        bits = array.view(np.int16) if dtype == "bfloat16" else array
        host = torch.from_numpy(np.ascontiguousarray(bits))
        if dtype == "bfloat16":
            host = host.view(torch.bfloat16)
        return host.npu()

    def poisoned(self, shape: tuple[int, ...], like: Any) -> Any:
        """Device memory of a shape, with nothing in it that could be right by accident."""
        count = int(np.prod(shape)) * like.element_size()
        raw = torch.full((count,), POISON, dtype=torch.uint8)
        if like.dtype == torch.bool:
            return raw.ne(0).reshape(shape).npu()
        return raw.view(like.dtype).reshape(shape).npu()

    def write(self, tensor: Any, array: Any) -> None:
        """Other values into a tensor; waits."""
        tensor.copy_(self.tensor(array, str(tensor.dtype).removeprefix("torch.")))
        torch.npu.synchronize()

    def poison(self, tensor: Any) -> None:
        """Nothing that could be right by accident into a tensor; waits."""
        tensor.copy_(self.poisoned(tuple(tensor.shape), tensor))
        torch.npu.synchronize()

    def stream(self) -> Any:
        """A new stream of torch's, which waits for no other."""
        return torch.npu.Stream()

    def array_on(self, stream: Any, tensor: Any) -> Any:
        """A tensor's values, once that stream has finished."""
        stream.synchronize()
        return self.array(tensor)

    def array(self, tensor: Any) -> Any:
        """A tensor's values, once its device has finished."""
        host = tensor.cpu()
        return (
            host.view(torch.int16).numpy().view(np.uint16)
            if host.dtype == torch.bfloat16
            else (host.numpy())
        )

    def gather(self, op: collops.Operation, rank: int, ranks: int, value: int = 0) -> list[int]:
        """One AllGatherV in which rank r sends r + 1 numbers that begin with 100 r + `value`."""
        counts = np.arange(1, ranks + 1)
        displs = np.concatenate([[0], np.cumsum(counts)[:-1]])
        x = self.tensor(np.arange(rank + 1, dtype=np.int32) + 100 * rank + value)
        y = np.empty(int(counts.sum()), np.float16)
        [out] = op.forward([x, counts[rank : rank + 1], counts, displs, y])
        return [int(number) for number in self.array(out)]

    def gathered(self, ranks: int, value: int = 0) -> list[int]:
        """The result of gather()."""
        return [100 * r + value + i for r in range(ranks) for i in range(r + 1)]

    def open_library(self, name: str) -> ctypes.CDLL:
        """One of the simulated libraries, for calls that collops does not make."""
        return ctypes.CDLL(name)

    @contextlib.contextmanager
    def held(self, stream: Any) -> Iterator[None]:
        """A torch stream that begins nothing meanwhile."""
        acl, handle = self.open_library("libascendcl.so"), ctypes.c_void_p(stream.npu_stream)
        assert acl.SimHoldStream(handle) == 0
        try:
            yield
        finally:
            assert acl.SimReleaseStream(handle) == 0

    @contextlib.contextmanager
    def captured(self, stream: Any) -> Iterator[Graph]:
        """A torch stream whose calls go into the graph meanwhile; whoever asked destroys it."""
        graph, handle = Graph(self.open_library("libascendcl.so")), stream.npu_stream
        assert graph.acl.aclmdlRICaptureBegin(ctypes.c_void_p(handle), 0) == 0
        try:
            yield graph
        finally:
            end = graph.acl.aclmdlRICaptureEnd
            assert end(ctypes.c_void_p(handle), ctypes.byref(graph.handle)) == 0

    def live_communicators(self) -> int:
        """How many HCCL communicators this process has."""
        return int(self.open_library("libhccl.so").SimLiveCommunicators())
