"""Arrays in the memory of a GPU for programs without torch and CuPy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from collops.core import core
from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops._core import CudaMemory
else:
    CudaMemory = core().CudaMemory

_CUDA = 2  # DLPack's number of the kind of device


class CudaArray(CudaMemory):
    """A contiguous array in the memory of a GPU; made by cuda_empty() and Communicator.empty().

    Every call accepts it like a CUDA tensor of torch or CuPy; other libraries read it through
    ``__dlpack__`` and ``__cuda_array_interface__``. A call or a consumer on one stream waits for
    the work that earlier ones have queued on other streams. The memory is reused for later arrays
    when the array and its consumers are deleted and their work on the streams that they named is
    done; destroying such a stream earlier is an error. Work through `ptr` or
    ``__cuda_array_interface__`` must be done before the array is deleted, or be on a stream that
    the legacy default stream waits for.

    Attributes:
        shape: sizes of the dimensions.
        dtype: element type, numpy's or ml_dtypes'.
        device: the GPU's index, as cuDeviceGet counts.
        nbytes: bytes of the elements.
        ptr: the address of the first element; 0 if there is none.

    Example:
        >>> import collops
        >>> def doubled(x: collops.CudaArray) -> collops.CudaArray:
        ...     y = collops.cuda_empty(x.shape, x.dtype, x.device)
        ...     y.write(2 * x.read())
        ...     return y
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __init__(
        self, shape: Sequence[int], dtype: np.dtype[Any], device: int = -1, operation: str = "empty"
    ) -> None:
        super().__init__(list(shape), dtype.name, device, operation)
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * int(self.dtype.itemsize)

    @property
    def ptr(self) -> int:
        """The address of the first element; 0 if there is none."""
        return self.show()

    def __repr__(self) -> str:
        return f"<collops.CudaArray {list(self.shape)} of {self.dtype} on cuda:{self.device}>"

    def write(self, array: Any, stream: Any = None) -> None:
        """Copies a numpy array into this one, on a stream; done on return.

        Args:
            array: of this array's shape and dtype, with any strides.
            stream: as of Operation.execute(); None: the legacy default stream.

        Raises:
            ArgumentError: the shape or dtype differs, or the stream is being captured.
        """
        given = np.asarray(array)
        if given.shape != self.shape:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_DIM,
                f"CudaArray.write: array must have shape {list(self.shape)}, got "
                f"{list(given.shape)}",
            )
        if given.dtype != self.dtype:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
                f"CudaArray.write: array must be {self.dtype} as the array, got {given.dtype}",
            )
        self.copy_in(np.ascontiguousarray(given), stream)

    def read(self, stream: Any = None) -> Any:
        """The elements as a new numpy array, copied on a stream; done on return.

        Args:
            stream: as of Operation.execute(); None: the legacy default stream.

        Raises:
            ArgumentError: the stream is being captured.
            Error: the GPU reports an error of earlier work.
        """
        found = np.empty(self.shape, self.dtype)
        self.copy_out(found, stream)
        return found

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.device

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        if copy or (dl_device is not None and tuple(dl_device) != self.__dlpack_device__()):
            raise BufferError("a CudaArray exports its own memory only: use read() for a copy")
        return self.export(stream, max_version is not None and tuple(max_version) >= (1, 0))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.isbuiltin != 1:
            raise AttributeError(f"elements of type {self.dtype} have no type string")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": None,
            "stream": 1,
            "version": 3,
        }
