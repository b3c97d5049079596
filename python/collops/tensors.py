"""What a tensor is here: numpy arrays, torch tensors, and descriptions of either."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.errors import ErrorCode, raise_status

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


def torch_module() -> ModuleType | None:
    """torch, if the program uses it; a tensor cannot exist before torch was imported."""
    return sys.modules.get("torch")


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    torch = torch_module()
    if torch is None:
        return False
    # torch's own isinstance() costs more than the rest of the checks together.
    return type(value) is torch.Tensor or isinstance(value, torch.Tensor)


def dtype_name(dtype: Any) -> str:
    """numpy's name of an element type given as a name, a numpy, ml_dtypes or torch type."""
    if type(dtype).__module__ == "torch":
        return str(dtype).removeprefix("torch.")
    if isinstance(dtype, str) and dtype == "bfloat16":  # numpy itself does not know the name
        return "bfloat16"
    return str(np.dtype(dtype).name)


@dataclass(frozen=True)
class TensorDesc:
    """Stands for a tensor where only its description is needed.

    Args:
        shape: sizes of the dimensions.
        dtype: element type, as a name or as numpy's, ml_dtypes' or torch's object.
        format: memory layout in lower case, such as ``"nd"`` or ``"nhwc"``.

    Source of the semantics: ``atb::TensorDesc``.

    Example:
        >>> import collops
        >>> collops.TensorDesc((5, 4), "float16")
        TensorDesc(shape=(5, 4), dtype='float16', format='nd')
    """

    shape: tuple[int, ...]
    dtype: str
    format: str = "nd"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(int(size) for size in self.shape))
        object.__setattr__(self, "dtype", dtype_name(self.dtype))


class Formatted:
    """A tensor with a named memory layout; see with_format()."""

    __slots__ = ("format", "tensor")

    def __init__(self, tensor: Any, format: str) -> None:
        self.tensor = tensor
        self.format = format


def with_format(tensor: Any, format: str) -> Formatted:
    """Names a tensor's memory layout for the checks; numpy and torch tensors are ``"nd"``.

    Args:
        tensor: a numpy array, a torch tensor or a TensorDesc, of any shape.
        format: the layout's name in lower case, such as ``"nhwc"``.

    Returns:
        An object that an operation takes in the tensor's place. Its memory is the tensor's.

    Example:
        >>> import collops, numpy as np
        >>> collops.with_format(np.zeros((2, 3)), "nhwc").format
        'nhwc'
    """
    return Formatted(tensor, format)


def empty_like_kind(operation: str, like: Any, shape: Sequence[int], dtype: Any = None) -> Any:
    """New uninitialised memory of the kind of `like`: numpy for numpy, torch for torch.

    Args:
        operation: whose output it will be, for messages.
        like: the tensor whose kind, device and (without `dtype`) element type it gets.
        shape: sizes of the dimensions.
        dtype: element type by name; None: that of `like`.

    Raises:
        ArgumentError: `like` is no tensor (ERROR_INVALID_PARAM), or there is not so much memory
            (ERROR_OUT_OF_HOST_MEMORY).
    """
    if isinstance(like, Formatted):
        like = like.tensor
    try:
        if isinstance(like, np.ndarray):
            same = dtype is None or dtype == like.dtype.name
            return np.empty(shape, like.dtype if same else dtype)
        if is_torch(like):
            torch = sys.modules["torch"]
            element = like.dtype if dtype is None else getattr(torch, dtype)
            return torch.empty(tuple(shape), dtype=element, device=like.device)
    except (MemoryError, ValueError, RuntimeError) as problem:
        raise_status(
            ErrorCode.ERROR_OUT_OF_HOST_MEMORY,
            f"{operation}: there is no memory for an output of shape {list(shape)}: {problem}",
        )
    raise_status(
        ErrorCode.ERROR_INVALID_PARAM,
        f"{operation}: an output can be made for a numpy array or a torch tensor, not for a "
        f"{type(like).__name__}",
    )
