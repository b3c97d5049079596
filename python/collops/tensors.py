"""Kinds of tensors: numpy arrays, torch tensors, objects with __dlpack__, and descriptions."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np

from collops.core import core
from collops.cuda_memory import empty_of_cupy, is_cuda_array, is_cupy, maker_of_cupy
from collops.errors import ErrorCode, nearest, raise_status

# Up to this size torch.empty_like() of a tensor that is kept pays: it takes half the time of
# torch.empty().
_SMALL_BYTES = 64 << 10


def torch_module() -> ModuleType | None:
    """The module torch if the program has imported it; else no torch tensor exists."""
    return sys.modules.get("torch")


def is_torch(value: object) -> bool:
    """Whether `value` is a torch tensor."""
    torch = torch_module()
    if torch is None:
        return False
    # isinstance(value, torch.Tensor) takes longer than all other checks together.
    return type(value) is torch.Tensor or isinstance(value, torch.Tensor)


def torch_mode() -> Callable[[], AbstractContextManager[Any]]:
    """A context manager that sets this thread's gradient mode of torch in another thread."""
    torch = torch_module()
    if torch is None or torch.is_grad_enabled():
        return nullcontext
    mode = torch.inference_mode if torch.is_inference_mode_enabled() else torch.no_grad
    return mode  # type: ignore[no-any-return]


def is_torch_type(dtype: object) -> bool:
    """Whether `dtype` is one of torch's element types."""
    return type(dtype).__module__ == "torch"


def has_dlpack(value: object) -> bool:
    """Whether `value` is a tensor of another library, such as JAX or CuPy."""
    return hasattr(value, "__dlpack__") and not isinstance(value, type)


def from_dlpack(operation: str, label: str, value: Any) -> Any:
    """A read-only numpy array on the memory of a tensor of another library; no copy.

    Args:
        operation: the operation's name, for messages.
        label: the argument's name in messages.
        value: an object with ``__dlpack__``.

    Raises:
        ArgumentError: its memory is not the CPU's (ERROR_INVALID_TENSOR_ADDR), or its element type
            is not known.
    """
    array, name = core().from_dlpack(value, operation, label)
    return array if array.dtype.name == name else array.view(numpy_type(name))


def numpy_type(name: str) -> np.dtype[Any]:
    """The element type of that name in numpy, or in ml_dtypes if numpy has none.

    Raises:
        UnsupportedError: ml_dtypes is needed, and not installed.
    """
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        raise_status(
            ErrorCode.ERROR_UNSUPPORTED, f"numpy has no type {name}: install the package ml_dtypes"
        )
    found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return found


def named_type(operation: str, word: str) -> np.dtype[Any]:
    """The element type that a word names: numpy's words, those of the commands, "bfloat16".

    Args:
        operation: the operation's name, for messages.
        word: such as ``"float32"``, ``"f32"``, ``"bf16"`` or ``">i4"``.

    Raises:
        ArgumentError: no type has that name, or numpy and the commands mean different ones by it.
    """
    from collops.golden.data.dtypes import DTYPES, NAME_OF_WORD

    names = {**NAME_OF_WORD, **{name: name for name in DTYPES}}
    meant = names.get(word.lower())
    try:
        own = np.dtype(word)
    except TypeError:
        own = None
    if own is None and meant is not None:
        return numpy_type(meant)
    if own is None or meant not in (None, own.name):
        near = nearest(word.lower(), DTYPES) or nearest(word.lower(), names)
        hint = f"did you mean {near!r}?" if near else f"pass one of {', '.join(core().DTYPES)}"
        wrong = "is unknown"
        if own is not None:
            wrong = "has two meanings"
            hint = f"pass {meant!r} as the commands mean it, or {own.name!r} as numpy does"
        raise_status(ErrorCode.ERROR_INVALID_PARAM, f"{operation}: dtype {word!r} {wrong}; {hint}")
    return own


def dtype_name(dtype: Any) -> str:
    """numpy's name of an element type given as a name, a numpy, ml_dtypes or torch type."""
    if is_torch_type(dtype):
        return str(dtype).removeprefix("torch.")
    if isinstance(dtype, str):
        return "bfloat16" if dtype == "bfloat16" else str(named_type("TensorDesc", dtype).name)
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"TensorDesc: dtype must be a numpy, ml_dtypes or torch type or one of "
            f"{', '.join(core().DTYPES)}; got {dtype!r}",
        )


def _sizes(shape: Any) -> tuple[int, ...]:
    try:
        return tuple(operator.index(size) for size in shape)
    except TypeError:
        raise_status(
            ErrorCode.ERROR_INVALID_PARAM,
            f"TensorDesc: shape must be a list of whole numbers, one per dim, got {shape!r}",
        )


@dataclass(frozen=True, init=False)
class TensorDesc:
    """The shape, dtype and format of a tensor, for functions that need no data.

    Args:
        shape: sizes of the dimensions.
        dtype: element type, as a name (``"float16"``, ``"f16"``, ``"bf16"``) or as numpy's,
            ml_dtypes' or torch's object.
        format: memory layout in lower case, such as ``"nd"`` or ``"nhwc"``.

    Raises:
        ArgumentError: shape is not a list of whole numbers, or dtype is not an element type.

    Source of the semantics: ``atb::TensorDesc``.

    Example:
        >>> import collops
        >>> collops.TensorDesc((5, 4), "float16")
        TensorDesc(shape=(5, 4), dtype='float16', format='nd')
    """

    shape: tuple[int, ...]
    dtype: str
    format: str

    def __init__(self, shape: Sequence[int], dtype: Any, format: str = "nd") -> None:
        object.__setattr__(self, "shape", _sizes(shape))
        object.__setattr__(self, "dtype", dtype_name(dtype))
        object.__setattr__(self, "format", format)


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
    """New uninitialised memory of the kind of `like`: torch for torch, CuPy for CuPy.

    Of others it is a CudaArray for what is on a GPU, and a numpy array for what is on the CPU.

    Args:
        operation: the operation's name, for messages.
        like: the tensor whose kind, device and (without `dtype`) element type it gets.
        shape: sizes of the dimensions.
        dtype: element type by name; None: that of `like`.

    Raises:
        ArgumentError: `like` is no tensor (ERROR_INVALID_PARAM).
        OutOfMemoryError: there is not enough memory (ERROR_OUT_OF_HOST_MEMORY, on a GPU
            ERROR_OUT_OF_DEVICE_MEMORY).
        UnsupportedError: `like` is on a GPU that cannot be used here.
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
        if is_cupy(like):
            element = like.dtype if dtype is None else numpy_type(dtype)
            return empty_of_cupy(like.device.id, shape, element)
        on_gpu = core().cuda_tensor(like, operation, "x")
        if on_gpu is None and has_dlpack(like):
            return np.empty(shape, numpy_type(dtype or from_dlpack(operation, "x", like).dtype))
    except (MemoryError, ValueError, RuntimeError) as problem:
        raise_status(
            _out_of_memory(like),
            f"{operation}: there is no memory for an output of shape {list(shape)}: {problem}",
        )
    if on_gpu is not None:
        return _empty_on_gpu(operation, on_gpu, shape, dtype)
    raise_status(
        ErrorCode.ERROR_INVALID_PARAM,
        f"{operation}: an output can be made for a numpy array, a torch tensor or an object with "
        f"__dlpack__, not for {type(like).__name__}",
    )


def _empty_on_gpu(
    operation: str, like: tuple[tuple[int, ...], str, str], shape: Sequence[int], dtype: Any
) -> Any:
    from collops.cuda_array import CudaArray

    _, name, device = like
    index = int(device.partition(":")[2])
    return CudaArray(tuple(shape), numpy_type(dtype or name), index, operation)


def _out_of_memory(like: Any) -> ErrorCode:
    on_gpu = is_cupy(like) or (is_torch(like) and like.device.type == "cuda")
    return ErrorCode.ERROR_OUT_OF_DEVICE_MEMORY if on_gpu else ErrorCode.ERROR_OUT_OF_HOST_MEMORY


def maker(out: Any) -> Callable[[], Any] | None:
    """A function that makes memory like `out`, of numpy, torch, CuPy or a CudaArray; else None."""
    if isinstance(out, np.ndarray):
        return partial(np.empty, out.shape, out.dtype)
    if is_cupy(out):
        return maker_of_cupy(out)
    if is_cuda_array(out):
        from collops.cuda_array import CudaArray

        return partial(CudaArray, out.shape, out.dtype, out.device)
    if not is_torch(out):
        return None
    torch = sys.modules["torch"]
    if out.nbytes <= _SMALL_BYTES:
        return partial(torch.empty_like, torch.empty_like(out))
    return partial(torch.empty, out.shape, dtype=out.dtype, device=out.device)
