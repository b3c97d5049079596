"""The tensors of a call of the plain level: what they may be, and the memory of the result."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.collectives.device_tensors import DeviceTensor, device_tensor, refuse_copy
from collops.collectives.plans import bad_argument, is_masked, whole_number
from collops.core import core
from collops.cuda_memory import contiguous_of_cupy, is_cupy
from collops.errors import ErrorCode, raise_status
from collops.tensors import empty_like_kind, from_dlpack, is_torch

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_tensor(name: str, label: str, value: Any) -> Any:
    """`value` itself, a numpy array, torch tensor or CuPy array, or a view of another tensor.

    What has __dlpack__ becomes a numpy array on its memory, or on a GPU a DeviceTensor. Refuses
    here what a copy or a view of its bytes would hide from the core.
    """
    if type(value) is np.ndarray:
        return value
    if not isinstance(value, np.ndarray) and not is_torch(value):
        if is_cupy(value):
            return value
        return device_tensor(name, label, value) or from_dlpack(name, label, value)
    if is_masked(value) or getattr(value, "is_quantized", False):
        core().describe(value, name, label)  # says what is wrong with it
    return value


def as_tensors(name: str, values: Sequence[Any]) -> list[Any]:
    """The tensors of a list; an empty list is an error."""
    if not values:
        bad_argument(f"{name}: x is an empty list: for no rows pass np.empty((0, ...), dtype)")
    if isinstance(values[0], (bool, int, float, complex, list, tuple)):
        bad_argument(
            f"{name}: x is a list of numbers: pass np.array(x, dtype) (a list means several "
            "tensors)"
        )
    return [as_tensor(name, f"x[{i}]", value) for i, value in enumerate(values)]


def normal_dim(name: str, label: str, x: Any, dim: int) -> int:
    """`dim` as a number from 0; negative ones count from the end."""
    if dim == 0 and x.ndim > 0:
        return 0
    if x.ndim == 0:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_DIM_NUM,
            f"{name}: {label} has 0 dims, it needs at least 1: pass {label}.reshape(1)",
        )
    number = whole_number(name, "dim", dim)
    if not -x.ndim <= number < x.ndim:
        bad_argument(
            f"{name}: dim must be from {-x.ndim} to {x.ndim - 1} for the {x.ndim} dims of "
            f"{label}, got {dim}"
        )
    return number % int(x.ndim)


def is_kind(value: Any) -> bool:
    """Whether `value` is a tensor of numpy, torch or CuPy."""
    return isinstance(value, np.ndarray) or is_torch(value) or is_cupy(value)


def resolve_out(name: str, label: str, x: Any, shape: tuple[int, ...], out: Any) -> Any:
    """The memory of a result of that shape: `out`, or new memory of x's kind."""
    if out is None:
        return empty_like_kind(name, x, shape)
    seen = out if is_kind(out) else device_tensor(name, label, out)
    if seen is None:
        bad_argument(
            f"{name}: {label} must be a numpy array or a torch tensor, got {type(out).__name__}"
        )
    if seen.shape != shape:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_DIM,
            f"{name}: {label} must have shape {list(shape)}, got {list(seen.shape)}",
        )
    return out


def staging_for(name: str, label: str, out: Any) -> Any:
    """New memory of out's kind, type and number of elements, flat; `out` can take its values."""
    seen = core().describe(out, name, label)  # says what keeps torch from writing there
    if seen["read_only"]:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_ADDR,
            f"{name}: {label} is read-only: pass a writable one",
        )
    if not is_kind(out) and (on_gpu := device_tensor(name, label, out)) is not None:
        refuse_copy(name, label, on_gpu)
    return empty_like_kind(name, out, (seen["numel"],))


def is_contiguous(x: Any) -> bool:
    """Whether the elements lie one after the other in row-major order."""
    if isinstance(x, np.ndarray) or is_cupy(x):
        return bool(x.flags.c_contiguous)
    return bool(x.is_contiguous() if is_torch(x) else core().describe(x)["contiguous"])


def contiguous(name: str, label: str, x: Any) -> Any:
    """`x`, or a copy of it in row-major order."""
    if isinstance(x, np.ndarray):
        return np.ascontiguousarray(x)
    if isinstance(x, DeviceTensor):
        return x if is_contiguous(x) else refuse_copy(name, label, x)
    return contiguous_of_cupy(x) if is_cupy(x) else x.contiguous()


def both_as_bytes(name: str, x: Any, out: Any) -> tuple[Any, Any]:
    """The bytes of two tensors of one element type that the core has no name for; no copies."""
    if x.dtype != out.dtype:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
            f"{name}: out must be {x.dtype} as x, got {out.dtype}",
        )
    return as_bytes(f"{name}: x", x), as_bytes(f"{name}: out", out)


def as_bytes(label: str, x: Any) -> Any:
    """The bytes of a tensor whose element type the core has no name for; no copy."""
    is_numpy = isinstance(x, np.ndarray) or is_cupy(x)
    if not is_numpy and x.requires_grad and sys.modules["torch"].is_grad_enabled():
        bad_argument(
            f"{label} requires grad, but this call has no gradient: pass .detach(), or call under "
            "torch.no_grad()"
        )
    if is_numpy and x.dtype.hasobject:
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
            f"{label}: elements of type {x.dtype} are references and cannot be sent",
        )
    if not is_contiguous(x):
        raise_status(
            ErrorCode.ERROR_INVALID_TENSOR_ADDR,
            f"{label} is not contiguous: pass .contiguous() (numpy: np.ascontiguousarray)",
        )
    return x.reshape(-1).view(np.uint8 if is_numpy else sys.modules["torch"].uint8)
