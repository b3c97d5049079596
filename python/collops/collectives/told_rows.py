"""What the root of scatterv tells the other ranks of its rows, for which they make memory."""

from __future__ import annotations

import ast
import importlib
from typing import Any

import numpy as np

from collops.cuda_memory import empty_of_cupy, is_cupy
from collops.tensors import is_torch, numpy_type


def describe(x: Any, dtype: str, row: tuple[int, ...]) -> str:
    """Library, element type and row shape of the root's x, as a text that no_rows() reads.

    Args:
        x: a tensor of numpy, torch or CuPy, or one of a GPU that only the core reads.
        dtype: the core's name of its element type.
        row: the shape of a row.
    """
    if is_torch(x):
        said: tuple[Any, ...] = "torch", str(x.dtype).removeprefix("torch.")
    elif is_cupy(x):
        said = "cupy", x.dtype.name
    elif not isinstance(x, np.ndarray):
        said = "CudaArray", dtype
    elif x.dtype.type.__module__ in ("numpy", "builtins"):
        said = "numpy", np.lib.format.dtype_to_descr(x.dtype)
    else:
        said = x.dtype.type.__module__, x.dtype.name  # ml_dtypes
    return repr((*said, row))


def no_rows(method: str, text: str, device: str) -> Any:
    """A tensor without rows on the device, of the type and shape that describe() has written."""
    kind, name, row = ast.literal_eval(text)
    index = int(device.partition(":")[2] or 0)
    if kind == "torch":
        torch = importlib.import_module("torch")
        return torch.empty((0, *row), dtype=getattr(torch, name), device=device)
    if kind == "CudaArray":
        made = importlib.import_module("collops.cuda_array").CudaArray
        return made((0, *row), numpy_type(name), index, method)
    if kind == "cupy":
        importlib.import_module(kind)
        return empty_of_cupy(index, (0, *row), numpy_type(name))
    if kind == "numpy":
        return np.empty((0, *row), np.lib.format.descr_to_dtype(name))
    return np.empty((0, *row), np.dtype(getattr(importlib.import_module(kind), name)))
