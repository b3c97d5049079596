"""Arrays on windows: memory that the other ranks read in place."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.collectives.calls import bad_argument
from collops.errors import ErrorCode, raise_status
from collops.tensors import named_type, torch_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _is_of_torch(dtype: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(dtype, torch.dtype)


def shape_and_type(
    name: str, shape: int | Sequence[int], dtype: Any
) -> tuple[tuple[int, ...], Any]:
    """Sizes and element type (torch's or numpy's) of memory that `name` is asked for."""
    wants_torch = _is_of_torch(dtype)
    try:
        sizes = tuple(map(operator.index, np.atleast_1d(shape).tolist()))
    except (TypeError, ValueError):
        bad_argument(f"{name}: shape must be a list of whole numbers, got {shape!r}")
    element = dtype if wants_torch else _numpy_dtype(name, dtype)
    if any(size < 0 for size in sizes):
        bad_argument(f"{name}: sizes must be >= 0, got {list(sizes)}")
    if wants_torch and str(dtype).startswith("torch.q"):
        bad_argument(f"{name}: elements of type {dtype} are quantised, and cannot be shared")
    if not wants_torch and (element.hasobject or element.itemsize == 0):
        bad_argument(f"{name}: elements of type {element} cannot be shared")
    num_bytes = math.prod(sizes) * int(element.itemsize)
    if num_bytes >= 2**63:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_SIZE,
            f"{name}: {num_bytes} bytes are too many for memory",
        )
    return sizes, element


def _numpy_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    if isinstance(dtype, str):
        return named_type(name, dtype)
    try:
        if dtype is None:  # which numpy takes for float64
            raise TypeError
        element: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError):
        bad_argument(
            f"{name}: dtype must be an element type of numpy, ml_dtypes or torch, or its name such "
            f'as "float32", got {dtype!r}'
        )
    return element


def window_array(allocate: Callable[[int], Any], shape: int | Sequence[int], dtype: Any) -> Any:
    """An array in memory that `allocate` makes of a number of bytes; see Communicator.empty()."""
    sizes, element = shape_and_type("empty", shape, dtype)
    torch = torch_module()
    wants_torch = _is_of_torch(element)
    num_bytes = math.prod(sizes) * int(element.itemsize)
    if num_bytes == 0:  # nothing to share
        return (torch if torch is not None and wants_torch else np).empty(sizes, dtype=element)
    memory = allocate(num_bytes)
    if torch is not None and wants_torch:
        memory = torch.from_numpy(memory)
    return memory.view(element).reshape(sizes)
