"""Golden's arrays as arrays of collops' own, on GPUs where there is neither torch nor CuPy."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

import collops
from collops.core import core
from collops.golden_run.memory.device_memory import DeviceMemory
from collops.tensors import numpy_type

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


class OwnMemory(DeviceMemory):
    """Arrays of collops.cuda_empty(), filled and read on a stream of each rank's own."""

    def __init__(self) -> None:
        self._streams: dict[int, int] = {}
        self._of_thread = threading.local()

    def load(self) -> None:
        """There is nothing to import."""

    def choose_device(self, rank: int) -> None:
        """Makes the GPU current, with the rank's stream: threads may share a GPU."""
        core().choose_cuda_device(rank % core().count_cuda_devices())
        if rank not in self._streams:
            self._streams[rank] = core().make_cuda_stream()
        self._of_thread.stream = self._streams[rank]

    def stream(self) -> Any:
        """The rank's stream."""
        return self._of_thread.stream

    def to_device(self, array: Array, dtype: str) -> Any:
        """An array with the values."""
        host = np.asarray(array)
        tensor = collops.cuda_empty(host.shape, dtype)
        tensor.write(host.view(numpy_type(dtype)), stream=self.stream())
        return tensor

    def from_device(self, tensor: Any) -> Array:
        """An array's values."""
        host = np.asarray(tensor.read(stream=self.stream()))
        return host.view(np.uint16) if host.dtype.name == "bfloat16" else host
