"""The tensors of the plain level: what may be passed, and where a result goes."""

from __future__ import annotations

import math
import operator
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.errors import ErrorCode, raise_status
from collops.plans import bad_argument
from collops.tensors import empty_like_kind, is_torch, torch_module

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def check_x(name: str, x: Any, dim: int) -> None:
    """Refuses what is no tensor, has no rows, or is to be cut along another dimension."""
    _check_kind(name, "x", x)
    if dim != 0:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED,
            f"{name}: dim must be 0, got {dim!r}: move that dimension to the front",
        )
    if x.ndim == 0:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_DIM_NUM,
            f"{name}: x has 0 dims, it needs at least 1: pass x.reshape(1)",
        )


def resolve_out(name: str, x: Any, shape: tuple[int, ...], out: Any) -> Any:
    """The memory of a result of that shape: `out`, or new memory of x's kind."""
    if out is None:
        return empty_like_kind(name, x, shape)
    _check_kind(name, "out", out)
    if out.shape != shape:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_DIM,
            f"{name}: out must have shape {list(shape)}, got {list(out.shape)}",
        )
    return out


def both_as_bytes(name: str, x: Any, out: Any) -> tuple[Any, Any]:
    """The bytes of two tensors of one element type that the core has no name for; no copies."""
    if x.dtype != out.dtype:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
            f"{name}: out must be {x.dtype} as x, got {out.dtype}",
        )
    return _as_bytes(f"{name}: x", x), _as_bytes(f"{name}: out", out)


def window_array(allocate: Callable[[int], Any], shape: int | Sequence[int], dtype: Any) -> Any:
    """An array on a window, which `allocate` makes from a number of bytes."""
    torch = torch_module()
    wants_torch = torch is not None and isinstance(dtype, torch.dtype)
    try:
        sizes = tuple(map(operator.index, np.atleast_1d(shape).tolist()))
        element = dtype if wants_torch else np.dtype(dtype)
    except (TypeError, ValueError) as problem:
        bad_argument(
            f"empty: a shape and a dtype are needed, got {shape!r} and {dtype!r}: {problem}"
        )
    if any(size < 0 for size in sizes):
        bad_argument(f"empty: sizes must be >= 0, got {list(sizes)}")
    if not wants_torch and (element.hasobject or element.itemsize == 0):
        bad_argument(f"empty: elements of type {element} cannot be shared")
    num_bytes = math.prod(sizes) * int(element.itemsize)
    if num_bytes >= 2**63:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_SIZE, f"empty: {num_bytes} bytes are too many for memory"
        )
    memory = allocate(num_bytes) if num_bytes else np.empty(0, np.uint8)
    if torch is not None and wants_torch:
        memory = torch.from_numpy(memory)
    return memory.view(element).reshape(sizes)


def _check_kind(name: str, label: str, value: Any) -> None:
    if not isinstance(value, np.ndarray) and not is_torch(value):
        bad_argument(
            f"{name}: {label} must be a numpy array or a torch tensor, got a {type(value).__name__}"
        )


def _as_bytes(label: str, x: Any) -> Any:
    is_numpy = isinstance(x, np.ndarray)
    if is_numpy and x.dtype.hasobject:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
            f"{label}: elements of type {x.dtype} are references and cannot travel",
        )
    if not (x.flags.c_contiguous if is_numpy else x.is_contiguous()):
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_ADDR,
            f"{label} is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)",
        )
    return x.reshape(-1).view(np.uint8 if is_numpy else sys.modules["torch"].uint8)
