"""scatterv of the plain level: allocates the result and calls the core."""

from __future__ import annotations

import ast
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from collops.collectives.device_tensors import DeviceTensor
from collops.collectives.level import Method
from collops.collectives.plain_tensors import as_tensor, normal_dim
from collops.collectives.plans import bad_argument, sizes_as_tuple, whole_int64, whole_sizes
from collops.core import core
from collops.cuda_memory import empty_of_cupy, is_cuda_array, is_cupy
from collops.errors import ErrorCode, raise_status
from collops.tensors import empty_like_kind, is_torch, numpy_type

if TYPE_CHECKING:
    from collections.abc import Sequence


_NAME = "scatterv"
# Identify the call, and the exchange of the root's row type before it, among the ranks.
_OPERATION = "ScatterV"
_TELLING = "ScatterV's rows"


class ScatterV(Method):
    """scatterv of one communicator."""

    def __call__(self, x: Any, sizes: Sequence[int], root: int) -> Any:
        """Sends every rank its rows of the root's x.

        ``out_r = x_root[s_r : s_r + sizes[r]]``, ``s_r = sizes[0] + ... + sizes[r - 1]``

        Moves any element type of a fixed size, bit for bit. The root first sends the type and the
        shape of its rows to the other ranks.

        Args:
            x: [rows, ...] on the root, contiguous: a numpy array, a torch tensor, or an object with
                ``__dlpack__`` in the CPU's memory. Not read on the other ranks, which pass None.
            sizes: rows for each rank, 0 included, the same list on every rank; their sum is the
                rows of x.
            root: the rank whose rows are scattered, the same on every rank.

        Returns:
            [sizes[rank], ...] in new memory of the kind of the root's x (for ``__dlpack__`` numpy,
            on a GPU a CudaArray), on the root too.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on root or sizes, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: MPI_Scatterv.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         x = np.arange(4) if rank == 0 else None
            ...         return comm.scatterv(x, [1, 0, 3]).tolist()
            >>> run_ranks(scatter, 3)
            [[0], [], [1, 2, 3]]
        """
        level = self._level
        try:
            root = whole_int64(_NAME, "root", root)
            core().check_root(_NAME, root, level.size)
            rows = whole_sizes(_NAME, sizes_as_tuple(_NAME, sizes))
            core().check_sizes(_NAME, "sizes", rows, level.size)
            text = ""
            if level.rank == root:
                x = _whole(x, rows)
                text = _describe(x)
        except Exception as error:
            level.refuse(_TELLING, error)
            raise
        told = level.core.share_from_root(_TELLING, root, rows, text)
        try:
            out = _empty(told, rows[level.rank], level.core.device)
            if level.rank != root:
                x = _empty(told, 0, level.core.device) if is_cuda_array(out) else out[:0]
            element = level.element(out.dtype)
            whole = list(x.shape), 0, element.unit, element.name
            plan = core().plan_exchange(
                _NAME,
                _OPERATION,
                level.rank,
                level.size,
                whole,
                sizes=rows,
                share="from root",
                root=root,
            )
            source, target = level.as_moved(_NAME, x, out)
        except Exception as error:
            level.refuse(_OPERATION, error)
            raise
        level.core.run(plan, source, target)
        return out


def _whole(x: Any, rows: Sequence[int]) -> Any:
    """The root's x, which has all rows."""
    x = as_tensor(_NAME, "x", x)
    normal_dim(_NAME, "x", x, 0)
    if sum(rows) != x.shape[0]:
        bad_argument(f"{_NAME}: sizes sum to {sum(rows)} rows, but x has {x.shape[0]}")
    return x


def _describe(x: Any) -> str:
    """Library, element type and row shape of the root's x, as a text that _empty() reads."""
    if isinstance(x, DeviceTensor):
        said: tuple[Any, ...] = "CudaArray", x.dtype.name
    elif is_torch(x):
        said = "torch", str(x.dtype).removeprefix("torch.")
    elif is_cupy(x):
        said = "cupy", x.dtype.name
    elif x.dtype.type.__module__ in ("numpy", "builtins"):
        if x.dtype.hasobject:
            raise_status(
                ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
                f"{_NAME}: x: elements of type {x.dtype} are references and cannot be sent",
            )
        said = "numpy", np.lib.format.dtype_to_descr(x.dtype)
    else:
        said = x.dtype.type.__module__, x.dtype.name  # ml_dtypes
    return repr((*said, tuple(int(size) for size in x.shape[1:])))


def _empty(text: str, rows: int, device: str) -> Any:
    """New memory on the device for rows of the type and shape that _describe() has written."""
    kind, name, row = ast.literal_eval(text)
    if kind == "torch":
        torch = importlib.import_module("torch")
        return empty_like_kind(_NAME, torch.empty(0, device=device), (rows, *row), name)
    index = int(device.partition(":")[2] or 0)
    if kind == "CudaArray":
        made = importlib.import_module("collops.cuda_array").CudaArray
        return made((rows, *row), numpy_type(name), index, _NAME)
    if kind == "cupy":
        importlib.import_module(kind)
        return empty_of_cupy(index, (rows, *row), numpy_type(name))
    if kind == "numpy":
        dtype = np.lib.format.descr_to_dtype(name)
    else:
        dtype = np.dtype(getattr(importlib.import_module(kind), name))
    return empty_like_kind(_NAME, np.empty(0, dtype), (rows, *row))
