"""Functions that allocate and free GPU memory for programs without torch and CuPy."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from collops.collectives.calls import bad_argument, whole_number
from collops.collectives.windows import shape_and_type
from collops.core import core
from collops.errors import ErrorCode, raise_status
from collops.tensors import is_torch_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.cuda_array import CudaArray

_NAME = "cuda_empty"
_MOST_DIMS = 8


def cuda_empty(shape: int | Sequence[int], dtype: Any, device: int | None = None) -> CudaArray:
    """Allocates an uninitialised array in the memory of a GPU, without torch and CuPy.

    The memory is part of slabs of at least 64 MiB, which this process keeps. The first array of a
    size may request a new slab from the driver, which waits until no call of collops runs, at most
    2 s.

    Args:
        shape: sizes of the dimensions; at most 8.
        dtype: element type of numpy or ml_dtypes, or its name; ``"bfloat16"`` needs ml_dtypes.
        device: the GPU's index; None: that of the calling thread's current CUDA context, else 0.

    Returns:
        A CudaArray.

    Raises:
        ArgumentError: the shape, dtype or device is wrong.
        OutOfMemoryError: the GPU has not enough memory (ERROR_OUT_OF_DEVICE_MEMORY).
        UnsupportedError: there is no driver, or no GPU.

    Example:
        >>> import collops, numpy as np
        >>> def gathered(comm, rows):
        ...     x = collops.cuda_empty(rows.shape, rows.dtype)
        ...     x.write(rows)
        ...     return comm.all_gatherv(x).read()
    """
    return empty_on_gpu(_NAME, shape, dtype, device)


def empty_on_gpu(
    name: str, shape: int | Sequence[int], dtype: Any, device: int | None
) -> CudaArray:
    """A new CudaArray; `name` is the operation, for messages."""
    sizes, element = shape_and_type(name, shape, dtype)
    if is_torch_type(element):
        bad_argument(
            f"{name}: dtype must be a type of numpy or ml_dtypes, got {dtype}: for torch's types "
            "use torch.empty()"
        )
    if len(sizes) > _MOST_DIMS:
        bad_argument(f"{name}: shape must have at most {_MOST_DIMS} dims, got {len(sizes)}")
    if not element.isnative:
        bad_argument(f"{name}: dtype {element} must have the byte order of a GPU, little-endian")
    index = -1 if device is None else whole_number(name, "device", device)
    if device is not None and not 0 <= index < 2**31:
        bad_argument(f"{name}: device must be the index of a GPU, got {device}")
    core()
    from collops.cuda_array import CudaArray

    return CudaArray(sizes, element, index, name)


def empty_of_communicator(
    communicator: Any, shape: int | Sequence[int], dtype: Any, device: Any
) -> Any:
    """Memory on the GPU of a communicator of the core, as Communicator.empty() makes it."""
    if not isinstance(device, str) or not re.fullmatch("cuda(:[0-9]+)?", device):
        bad_argument(f'empty: device must be None, "cpu", "cuda" or "cuda:<index>", got {device!r}')
    kind, _, own = str(communicator.device).partition(":")
    if kind != "cuda":
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f"empty: device is {device!r}, but backend {communicator.backend} moves tensors of "
            f"{'the CPU' if kind == 'cpu' else kind}",
        )
    asked = device.partition(":")[2] or own
    index = int(asked) if asked.isdecimal() else None
    if is_torch_type(dtype):
        where = "cuda" if index is None else f"cuda:{index}"
        return sys.modules["torch"].empty(shape, dtype=dtype, device=where)
    return empty_on_gpu("empty", shape, dtype, index)


def cuda_empty_cache() -> int:
    """Frees the GPU memory that no CudaArray of this process holds and no stream will use.

    The driver waits for the work of the GPUs; call it when none of this process's calls waits for
    another rank.

    Returns:
        The bytes that were freed.

    Raises:
        UnsupportedError: there is no driver, or no GPU.

    Example:
        >>> import collops
        >>> def make_room(comm):
        ...     comm.barrier()
        ...     return collops.cuda_empty_cache()
    """
    return int(core().empty_cuda_cache())
