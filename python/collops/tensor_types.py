"""Types of tensors for type checkers: importing this module imports neither torch nor numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt
    import torch
    import torch.distributed

    from collops.cuda_array import CudaArray

    Array: TypeAlias = npt.NDArray[Any]
    DType: TypeAlias = npt.DTypeLike
    # A word such as "sum", or a member of torch's class.
    ReduceOp: TypeAlias = str | torch.distributed.ReduceOp | torch.distributed.ReduceOp.RedOpType


class SupportsDLPack(Protocol):
    """A tensor of another library, such as JAX."""

    def __dlpack__(self, *, stream: Any = ...) -> Any:
        """A capsule of DLPack."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """The kind and the number of its device."""


# A result is of its input's kind.
TensorT = TypeVar("TensorT", bound="np.ndarray[Any, Any] | torch.Tensor | CudaArray")
