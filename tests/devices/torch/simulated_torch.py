"""torch's CUDA tensors on the simulated GPUs.

build/simulated-gpu/libtorch_on_sim.so gives a torch that was built for CPUs devices, streams,
memory and operators of type CUDA; here are the classes and functions of torch.cuda that
collops.torch calls. A CUDA build of torch has its own of all these, but for the operators.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from tests.gpu.simulated.simulated_driver import LEGACY, Driver

_CUDA = 1  # the number of the device type


class Simulated:
    """The library, and what replaces the functions of torch.cuda."""

    def __init__(self, folder: Path) -> None:
        self.calls = ctypes.CDLL(str(folder / "libtorch_on_sim.so"))
        for name in ("TorchSimStream", "TorchSimNewStream"):
            getattr(self.calls, name).restype = ctypes.c_int64
        self.calls.TorchSimSetStream.argtypes = [ctypes.c_int, ctypes.c_int64]
        self.calls.TorchSimIsCaptured.argtypes = [ctypes.c_int, ctypes.c_int64]
        self.used = False

    def start(self) -> None:
        """torch.cuda's lazy start, at the first tensor or stream."""
        if not self.used:
            self.used = True
            self.calls.TorchSimChoose(0)

    def index(self, device: Any = None) -> int:
        """The number of a device; None: the current one's."""
        self.start()
        if isinstance(device, int):
            return device
        found = None if device is None else torch.device(device).index
        return int(self.calls.TorchSimDevice()) if found is None else found

    def choose(self, device: Any) -> None:
        """torch.cuda.set_device."""
        self.start()
        self.calls.TorchSimChoose(self.index(device))

    def current_stream(self, device: Any = None) -> Stream:
        """torch.cuda.current_stream."""
        index = self.index(device)
        return Stream.known(index, self.calls.TorchSimStream(index))

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        """torch.cuda.stream, which also chooses the stream's device."""
        if stream is None:
            yield
            return
        device, before = self.index(), self.current_stream(stream.device_index)
        self.choose(stream.device_index)
        self.calls.TorchSimSetStream(stream.device_index, stream.stream_id)
        try:
            yield
        finally:
            self.calls.TorchSimSetStream(stream.device_index, before.stream_id)
            self.choose(device)

    def synchronize(self, device: Any = None) -> None:
        """torch.cuda.synchronize."""
        with driver().on(self.index(device)):
            driver().call("cuCtxSynchronize")

    def is_capturing(self) -> bool:
        """torch.cuda.is_current_stream_capturing."""
        if not self.used:
            return False
        index = self.index()
        return bool(self.calls.TorchSimIsCaptured(index, self.calls.TorchSimStream(index)))


class Stream(torch.Stream):
    """torch.cuda.Stream: torch's generic one, with CUDA's handle. Its id is the handle."""

    def __new__(cls, device: Any = None, priority: int = 0) -> Any:
        """A new stream, which waits for no other one unasked."""
        index = simulated.index(device)
        return cls.known(index, simulated.calls.TorchSimNewStream(index))

    @classmethod
    def known(cls, index: int, handle: int) -> Stream:
        """The stream of a handle."""
        made: Stream = super().__new__(cls, stream_id=handle, device_index=index, device_type=_CUDA)
        return made

    @property
    def cuda_stream(self) -> int:
        """The handle; 0 is the legacy stream."""
        return int(self.stream_id)


def driver() -> Driver:
    """libcuda, with this thread's device of torch's current."""
    found = Driver.__new__(Driver)
    found.cuda = ctypes.CDLL("libcuda.so.1")
    found.cuda.SimLastText.restype = ctypes.c_char_p
    found.cuda.SimHoldStream.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    found.device = torch.cuda.current_device()
    return found


@contextlib.contextmanager
def held(stream: Stream) -> Iterator[None]:
    """A stream that begins nothing meanwhile."""
    with driver().on(stream.device_index), driver().held(stream.cuda_stream or LEGACY):
        yield


class Graph:
    """torch.cuda.CUDAGraph, and what torch.cuda.graph captures, on a stream of its own."""

    def __init__(self) -> None:
        self.executable = 0

    def capture_begin(self) -> None:
        """Calls on the current stream go into the graph from now on."""
        assert driver().begin_capture(simulated.current_stream().cuda_stream) == 0

    def capture_end(self) -> None:
        """The graph is complete."""
        code, graph = driver().end_capture(simulated.current_stream().cuda_stream)
        assert code == 0, driver().text()
        self.executable = driver().instantiate(graph)

    @contextlib.contextmanager
    def captured(self) -> Iterator[None]:
        """Calls within go into the graph."""
        with simulated.stream(Stream()):
            self.capture_begin()
            yield
            self.capture_end()

    def replay(self) -> None:
        """Puts the calls on the current stream."""
        handle = ctypes.c_void_p(simulated.current_stream().cuda_stream)
        driver().call("cuGraphLaunch", ctypes.c_void_p(self.executable), handle)


_resize = torch.UntypedStorage.resize_


def _resized(storage: Any, size: int) -> Any:
    """What FSDP calls to free memory and to have it again; here storages of GPUs keep theirs."""
    return _resize(storage, size) if storage.device.type == "cpu" else None


simulated: Simulated


def install(folder: Path) -> None:
    """Makes this process's torch have the simulated GPUs."""
    if torch.version.cuda is not None:
        return
    global simulated
    simulated = Simulated(folder)
    cuda: Any = torch.cuda
    cuda.Stream, cuda.Event, cuda.CUDAGraph = Stream, torch.Event, Graph
    cuda.graph = Graph.captured
    cuda._lazy_init = simulated.start
    cuda.is_available = lambda: True
    cuda.is_initialized = lambda: simulated.used
    cuda.current_device = simulated.index
    cuda.set_device = simulated.choose
    cuda.current_stream = simulated.current_stream
    cuda.stream = simulated.stream
    cuda.synchronize = simulated.synchronize
    cuda.is_current_stream_capturing = simulated.is_capturing
    cuda.device_count = lambda: 8
    cuda.get_device_capability = lambda device=None: (9, 0)
    torch.UntypedStorage.resize_ = _resized
