"""Golden's arrays as torch tensors, on NPUs by torch_npu and on GPUs."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.golden_run.memory.device_memory import DeviceMemory

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


class TorchMemory(DeviceMemory):
    """Tensors of torch, which is imported on first use."""

    def __init__(self, device: str, package: str, backend: str) -> None:
        """`device`: torch's name of the kind of device; `package`: what has to be imported."""
        self._device = device
        self._package = package
        self._backend = backend
        self._streams: dict[int, Any] = {}

    def load(self) -> None:
        """Imports the package."""
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
        """A torch tensor with the array's values."""
        torch, host = self._torch(), np.array(array)
        if dtype != "bfloat16":
            return torch.from_numpy(host).to(self._device)
        return torch.from_numpy(host.view(np.int16)).view(torch.bfloat16).to(self._device)

    def from_device(self, tensor: Any) -> Array:
        """A tensor's values."""
        torch, host = self._torch(), tensor.cpu()
        if host.dtype == torch.bfloat16:
            return np.asarray(host.view(torch.int16).numpy().view(np.uint16))
        return np.asarray(host.numpy())

    def _torch(self) -> Any:
        import_module(self._package)
        return import_module("torch")
