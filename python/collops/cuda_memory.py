"""Memory of a GPU that CuPy or another library has made, and new memory of CuPy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any


def is_cupy(value: object) -> bool:
    """Whether `value` is a CuPy array."""
    cupy = sys.modules.get("cupy")  # if the program has not imported it, there is none
    return cupy is not None and isinstance(value, cupy.ndarray)


def is_cuda_array(value: object) -> bool:
    """Whether `value` is a collops.CudaArray."""
    module = sys.modules.get("collops.cuda_array")  # without it there is none
    return module is not None and isinstance(value, module.CudaArray)


def empty_of_cupy(index: int, shape: Sequence[int], dtype: Any) -> Any:
    """New uninitialised memory of CuPy on the GPU of that index."""
    cupy = sys.modules["cupy"]
    with cupy.cuda.Device(index):
        return cupy.empty(tuple(shape), dtype)


def maker_of_cupy(out: Any) -> Callable[[], Any]:
    """A function that makes memory like `out`, a CuPy array, and does not keep that."""
    return partial(empty_of_cupy, out.device.id, out.shape, out.dtype)


def contiguous_of_cupy(x: Any) -> Any:
    """`x`, a CuPy array, or a copy of it in row-major order."""
    return sys.modules["cupy"].ascontiguousarray(x)
