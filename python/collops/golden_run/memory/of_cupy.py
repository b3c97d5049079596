"""Golden's arrays as CuPy arrays; bfloat16, which CuPy does not have, as arrays of collops."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.golden_run.memory.of_collops import OwnMemory

if TYPE_CHECKING:
    from collops.golden.data.dtypes import Array


class CupyMemory(OwnMemory):
    """Arrays of CuPy, on the streams of collops' own arrays."""

    def load(self) -> None:
        """Imports CuPy."""
        try:
            import_module("cupy")
        except (ImportError, OSError, RuntimeError) as problem:
            raise ValueError(f"CuPy, which is installed, cannot be used: {problem}") from None

    def choose_device(self, rank: int) -> None:
        """The same for CuPy, whose current device and stream are this thread's."""
        super().choose_device(rank)
        cuda = import_module("cupy").cuda
        cuda.Device(rank % cuda.runtime.getDeviceCount()).use()
        cuda.ExternalStream(self.stream()).use()

    def to_device(self, array: Array, dtype: str) -> Any:
        """A CuPy array with the values."""
        if dtype == "bfloat16":
            return super().to_device(array, dtype)
        return import_module("cupy").asarray(np.ascontiguousarray(array))

    def from_device(self, tensor: Any) -> Array:
        """An array's values."""
        cupy = import_module("cupy")
        if isinstance(tensor, cupy.ndarray):
            return np.asarray(cupy.asnumpy(tensor))
        return super().from_device(tensor)
