"""Tensors of a GPU that are known by __dlpack__ or __cuda_array_interface__ alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from collops.core import core
from collops.errors import ErrorCode, raise_status
from collops.tensors import Formatted, numpy_type

if TYPE_CHECKING:
    import numpy as np


class DeviceTensor(Formatted):
    """Such a tensor, with the shape and the element type that it has; the core reads it itself.

    It cannot be indexed, copied or reshaped: that is for torch and CuPy.
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(
        self, tensor: Any, shape: tuple[int, ...], dtype: np.dtype[Any], device: str
    ) -> None:
        super().__init__(tensor, "nd")
        self.shape = shape
        self.dtype = dtype
        self.device = device

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)


def device_tensor(name: str, label: str, value: Any) -> DeviceTensor | None:
    """`value` as a tensor of a GPU; None if it is not one, or one of torch or CuPy.

    Args:
        name: the operation's name, for messages.
        label: the argument's name in messages.
        value: any object.

    Raises:
        ArgumentError: it is such a tensor, and cannot be read.
    """
    if isinstance(value, DeviceTensor):
        return value
    said = core().cuda_tensor(value, name, label)
    if said is None:
        return None
    shape, dtype, device = said
    if dtype == "undefined":
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
            f"{name}: {label} on {device} has elements of a type that is not supported: pass a "
            "torch tensor",
        )
    return DeviceTensor(value, tuple(shape), numpy_type(dtype), device)


def refuse_copy(name: str, label: str, value: DeviceTensor) -> NoReturn:
    """Raises an error: `value` would have to be copied into another order, or be cut."""
    raise_status(
        ErrorCode.ERROR_INVALID_TENSOR_ADDR,
        f"{name}: {label}, a {type(value.tensor).__name__} on {value.device}, would have to be "
        "copied into another order, which works for tensors of torch and CuPy only: pass one of "
        "those",
    )
