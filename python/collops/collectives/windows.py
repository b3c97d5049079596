"""Arrays on windows: memory that the other ranks read in place."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.collectives.plans import bad_argument
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
    """Allocates memory that the other ranks read in place, so a call copies each byte once.

    A forked child process shares this memory: this rank and its peers see what the child writes,
    so the child must copy the array before it changes elements.

    With ranks on several hosts (backend ucx) it is memory of this rank alone, like any array.

    Args:
        shape: sizes of the dimensions.
        dtype: element type, or its name (``"float32"``, ``"f32"``, ``"bf16"``); a torch dtype
            makes a torch tensor, any other a numpy array.
        device: ``"cuda"`` makes a CudaArray (for a torch dtype a CUDA tensor) on the GPU of the
            communicator, or, before its first call, on the thread's current GPU; None: the CPU.

    Returns:
        An uninitialised array, valid while something refers to it, also after close().

    Raises:
        Error: there is not enough memory, or the backend has no windows.

    Example:
        >>> import collops, numpy as np
        >>> from collops.testing import run_ranks
        >>> def gather(rank):
        ...     comm = collops.init()
        ...     x = comm.empty((2, 3), np.float32)
        ...     x[:] = rank
        ...     return comm.all_gatherv(x).sum()
        >>> float(run_ranks(gather, 2)[0])
        6.0
    """
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
