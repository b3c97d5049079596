"""The backends on which cases can run, and the memory in which their tensors are made."""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.core import core
from collops.launch.processes import RankProcess, end_all, post, start, watch
from collops.tensors import numpy_type
from collops.terminal.installation import is_installed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from collops.golden.data.dtypes import Array

_END_S = 3.0  # for a process that has sent its report


class DeviceMemory(ABC):
    """Tensors of one kind of device; a rank is a process or a thread."""

    @abstractmethod
    def load(self) -> None:
        """Imports the library, once, before ranks are forked. Uses no device.

        Raises:
            ValueError: it cannot be imported.
        """

    @abstractmethod
    def choose_device(self, rank: int) -> None:
        """Makes the device of a rank, by the rank's number, that of this thread."""

    def stream(self) -> Any:
        """What this thread's calls get as stream=; None: the current stream, as by default."""
        return None

    @abstractmethod
    def to_device(self, array: Array, dtype: str) -> Any:
        """A tensor with the array's values, on this thread's device."""

    @abstractmethod
    def from_device(self, tensor: Any) -> Array:
        """A tensor's values, after its stream has completed."""


class TorchMemory(DeviceMemory):
    """Tensors of torch, which is imported on first use."""

    def __init__(self, device: str, package: str, backend: str) -> None:
        """`device`: torch's name of the kind of device; `package`: what has to be imported."""
        self._device = device
        self._package = package
        self._backend = backend
        self._streams: dict[int, Any] = {}

    def load(self) -> None:
        try:
            self._torch()
        except (ImportError, OSError, RuntimeError) as problem:
            raise ValueError(
                f"backend {self._backend} needs tensors of {self._package}: {problem}"
            ) from None

    def choose_device(self, rank: int) -> None:
        """Selects the device, and on a GPU a stream of the rank's own: threads may share a GPU."""
        devices = getattr(self._torch(), self._device)
        devices.set_device(rank % devices.device_count())
        if self._device != "cuda":
            return
        if rank not in self._streams:
            self._streams[rank] = devices.Stream()
        devices.set_stream(self._streams[rank])

    def to_device(self, array: Array, dtype: str) -> Any:
        torch, host = self._torch(), np.array(array)
        if dtype != "bfloat16":
            return torch.from_numpy(host).to(self._device)
        return torch.from_numpy(host.view(np.int16)).view(torch.bfloat16).to(self._device)

    def from_device(self, tensor: Any) -> Array:
        torch, host = self._torch(), tensor.cpu()
        if host.dtype == torch.bfloat16:
            return np.asarray(host.view(torch.int16).numpy().view(np.uint16))
        return np.asarray(host.numpy())

    def _torch(self) -> Any:
        import_module(self._package)
        return import_module("torch")


class OwnMemory(DeviceMemory):
    """Arrays of collops.cuda_empty(), filled and read on a stream of each rank's own."""

    def __init__(self) -> None:
        self._streams: dict[int, Any] = {}
        self._of_thread = threading.local()

    def load(self) -> None:
        """There is nothing to import."""

    def choose_device(self, rank: int) -> None:
        """Makes the GPU current, with the rank's stream: threads may share a GPU."""
        device = rank % len(core().cuda_devices())
        core().use_cuda_device(device)
        if rank not in self._streams:
            self._streams[rank] = core().CudaStream(device)
        self._of_thread.stream = self._streams[rank]

    def stream(self) -> Any:
        return self._of_thread.stream

    def to_device(self, array: Array, dtype: str) -> Any:
        host = np.asarray(array)
        tensor = collops.cuda_empty(host.shape, dtype)
        tensor.write(host.view(numpy_type(dtype)), stream=self.stream())
        return tensor

    def from_device(self, tensor: Any) -> Array:
        host = np.asarray(tensor.read(stream=self.stream()))
        return host.view(np.uint16) if host.dtype.name == "bfloat16" else host


class CupyMemory(OwnMemory):
    """Arrays of CuPy, on the streams of collops' own arrays."""

    def load(self) -> None:
        try:
            import_module("cupy")
        except (ImportError, OSError, RuntimeError) as problem:
            raise ValueError(f"CuPy, which is installed, cannot be used: {problem}") from None

    def choose_device(self, rank: int) -> None:
        """The same for CuPy, whose current device and stream are this thread's."""
        super().choose_device(rank)
        cuda = import_module("cupy").cuda
        cuda.Device(rank % cuda.runtime.getDeviceCount()).use()
        cuda.ExternalStream(self.stream().__cuda_stream__()[1]).use()

    def to_device(self, array: Array, dtype: str) -> Any:
        if dtype == "bfloat16":
            return super().to_device(array, dtype)
        return import_module("cupy").asarray(np.ascontiguousarray(array))

    def from_device(self, tensor: Any) -> Array:
        cupy = import_module("cupy")
        if isinstance(tensor, cupy.ndarray):
            return np.asarray(cupy.asnumpy(tensor))
        return super().from_device(tensor)


@cache
def memory_of(backend: str) -> DeviceMemory | None:
    """The device memory of the backend's tensors; None if they lie in that of the CPU.

    On GPUs it is torch's if torch was built with CUDA, else CuPy's, else that of collops' arrays.
    """
    place = next((where for name, where, _ in core().backend_kinds() if name == backend), "cpu")
    if place == "npu":
        return TorchMemory("npu", "torch_npu", backend)
    return _memory_of_gpus() if place == "cuda" else None


@cache
def _memory_of_gpus() -> DeviceMemory:
    if _torch_has_cuda():
        return TorchMemory("cuda", "torch", "cuda")
    return CupyMemory() if is_installed("cupy") else OwnMemory()


def _torch_has_cuda() -> bool:
    """Whether torch was built with CUDA. No GPU is asked for: ranks will be forked."""
    try:
        return import_module("torch").version.cuda is not None
    except (ImportError, OSError, RuntimeError):
        return False


@cache
def keeps_order(backend: str) -> bool:
    """Whether the backend adds as golden does, bit for bit."""
    return not any(name == backend and sums for name, _, sums in core().backend_kinds())


def is_on_device(backend: str) -> bool:
    """Whether the backend's tensors lie in the memory of a device."""
    return memory_of(backend) is not None


def check_replacement(text: str) -> None:
    """Raises ValueError unless every backend that is named as a replacement can run here."""
    names = tuple(name for name, _, _ in core().backend_kinds())
    engines = [text]
    if "=" in text:
        pairs = [pair.partition("=") for pair in text.split(",")]
        for name, equals, _ in pairs:
            if not equals:
                raise ValueError(f"backend {text!r}: {name!r} is not a pair such as hccl=shm")
            _check_known(name, tuple(dict.fromkeys((*names, *core().backend_names()))))
        engines = [engine for _, _, engine in pairs]
    for engine in engines:
        _check_known(engine, names)
    states = _states()
    for engine in engines:
        if states[engine]:
            raise ValueError(states[engine])
        memory = memory_of(engine)
        if memory is not None:
            memory.load()


def _check_known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"backend {name!r} is unknown; use one of {', '.join(known)}")


def _states() -> dict[str, str]:
    """Why each backend cannot run here; empty where it can.

    They are asked in another process: a driver of GPUs that has been initialised in this one cannot
    be used by the ranks that are forked from it.
    """
    asked: list[RankProcess] = []
    start(asked, [0], _tell_states, (), daemon=True)
    watch(asked, math.inf)
    states: dict[str, str] | None = asked[0].report
    end_all(asked, _END_S)
    if states is None:
        raise ValueError("the process that asks which backends can run here has died")
    return states


def _tell_states(end: Connection) -> None:
    post(end.fileno(), {name: reason for name, reason, _, _ in core().backends()})
