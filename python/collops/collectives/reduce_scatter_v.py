"""reduce_scatterv of the plain level: allocates the result and calls the core."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import TYPE_CHECKING, Any

from collops.collectives.device_tensors import DeviceTensor, refuse_copy
from collops.collectives.level import Method
from collops.collectives.plain_tensors import (
    as_tensor,
    as_tensors,
    is_contiguous,
    normal_dim,
    resolve_out,
    staging_for,
)
from collops.collectives.plans import (
    Plan,
    bad_argument,
    block_slices,
    pack_blocks,
    plan_rows,
    sizes_as_tuple,
    whole_sizes,
)
from collops.core import core
from collops.cuda_memory import is_cupy
from collops.errors import ErrorCode, raise_status
from collops.tensors import empty_like_kind, is_torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.tensor_types import ReduceOp


_NAME = "reduce_scatterv"
_OPERATION = "ReduceScatterV"  # identifies the call among the ranks


class ReduceScatterV(Method):
    """reduce_scatterv of one communicator."""

    def __call__(
        self, x: Any, sizes: Sequence[int] | None, dim: int, op: ReduceOp, out: Any
    ) -> Any:
        """Reduces over the ranks and leaves each rank its rows of the result.

        ``out_r = (x_0 op x_1 op ... op x_{P-1})[rows of rank r along dim]``, in rank order

        With dim 0 the call copies no array, and x and out must be contiguous. With another dim they
        may have any strides; if the blocks do not lie one after the other in x (some dimension
        before dim is not 1), x is copied once into that order. Blocks of a list are copied once.

        Args:
            x: [..., rows, ...] of the same shape on every rank; any number of dims from 1. A numpy
                array, a torch tensor, or an object with ``__dlpack__`` in the CPU's memory. Or a
                list of one block per destination rank; the blocks may differ in `dim` only.
            sizes: rows that each rank receives, the same list on every rank; None: as
                numpy.array_split divides the rows, or the rows of the blocks of a list.
            dim: the dimension that is scattered; negative ones count from the end.
            op: ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, ``"avg"``; of integers also ``"band"``,
                ``"bor"``, ``"bxor"``; or such a member of torch.distributed.ReduceOp. Of truth
                values there are max, min and these three, of complex numbers sum and avg.
            out: [..., sizes[rank], ...] the result's memory, which may be this rank's own block of
                x; None: new memory of x's kind (numpy for ``__dlpack__``).

        Returns:
            `out`.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on shape, sizes, dim, dtype or op, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: MPI_Reduce_scatter; ncclReduceScatter for equal sizes;
        torch.distributed.reduce_scatter for a list.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def scatter(rank):
            ...     with collops.init() as comm:
            ...         return comm.reduce_scatterv(np.arange(5.0) + rank).tolist()
            >>> run_ranks(scatter, 2)
            [[1.0, 3.0, 5.0], [7.0, 9.0]]
        """
        result = self._repeated.run(x, out, sizes, dim, op)
        if result is not None:
            return result
        arguments = sizes, dim, op
        try:
            number = self._level.op_number(_NAME, op)
            if isinstance(x, (list, tuple)):
                parts = as_tensors(_NAME, x)
                dim = normal_dim(_NAME, "x[0]", parts[0], dim)
                shape, sizes = self._shape_of_blocks(parts, dim, sizes)
                like = parts[0]
            else:
                like = as_tensor(_NAME, "x", x)
                dim = normal_dim(_NAME, "x", like, dim)
                shape, parts = like.shape, None
            plan = self._plan(shape, sizes, dim, number)
            source = self._source(like, parts, shape, plan)
            out = resolve_out(_NAME, "out", like, plan.out_shape, out)
            target = out
            if dim != 0 and not is_contiguous(out):
                target = staging_for(_NAME, "out", out).reshape(plan.out_shape)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.run(plan.core, source, target)
        if target is not out:
            self._level.afterwards(partial(operator.setitem, out, ..., target))
        elif source is x:
            self._keep(plan.core, x, out, *arguments)
        return out

    def _shape_of_blocks(
        self, parts: list[Any], dim: int, sizes: Sequence[int] | None
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The shape of the concatenated blocks, and the rows of each block."""
        first, size = parts[0], self._level.size
        if len(parts) != size:
            bad_argument(
                f"{_NAME}: x must have length {size}, one block per rank, got {len(parts)}"
            )
        before, after = tuple(first.shape[:dim]), tuple(first.shape[dim + 1 :])
        for i, part in enumerate(parts):
            if _library(part) != _library(first) or part.dtype != first.dtype:
                raise_status(
                    ErrorCode.ERROR_INVALID_TENSOR_INI_MATCH,
                    f"{_NAME}: x[{i}] must be {_kind(first)} as x[0], got {_kind(part)}",
                )
            if (tuple(part.shape[:dim]), tuple(part.shape[dim + 1 :])) != (before, after):
                raise_status(
                    ErrorCode.ERROR_INVALID_TENSOR_DIM,
                    f"{_NAME}: x[{i}] has shape {list(part.shape)}, x[0] {list(first.shape)}: "
                    f"blocks may differ in dim {dim} alone",
                )
        rows = tuple(int(part.shape[dim]) for part in parts)
        if sizes is not None and sizes_as_tuple(_NAME, sizes) != rows:
            bad_argument(f"{_NAME}: sizes {list(sizes)} are not the blocks' {list(rows)}")
        return (*before, sum(rows), *after), rows

    def _plan(self, shape: Sequence[int], sizes: Sequence[int] | None, dim: int, op: int) -> Any:
        if sizes is not None:
            sizes = sizes_as_tuple(_NAME, sizes)
        key = shape, sizes, dim, op
        return self._plans.get(key) or self._plans.add(key, self._make_plan(*key))

    def _make_plan(
        self, shape: Sequence[int], sizes: Sequence[int] | None, dim: int, op: int
    ) -> Plan:
        level = self._level
        whole = list(shape), dim, 1, ""
        rows = None if sizes is None else whole_sizes(_NAME, sizes)
        plan = core().plan_scatter(_NAME, _OPERATION, level.size, whole, rows, op=op)
        return plan_rows(plan, shape, dim, plan.rows[level.rank])

    def _source(self, like: Any, parts: list[Any] | None, shape: Sequence[int], plan: Plan) -> Any:
        """The core's input: x itself, or one copy in which the blocks lie one after the other."""
        if parts is None:
            if plan.dim == 0 or (plan.in_order and is_contiguous(like)):
                return like
            if isinstance(like, DeviceTensor):
                refuse_copy(_NAME, "x", like)
            parts = [like[where] for where in block_slices(plan.rows, plan.dim)]
        packed = empty_like_kind(_NAME, like, (math.prod(shape),))
        pack_blocks(parts, packed)
        return packed.reshape(shape)


def _library(x: Any) -> str:
    """Of a tensor of a GPU that is neither torch's nor CuPy's: its device."""
    if isinstance(x, DeviceTensor):
        return x.device
    if is_torch(x):
        return "torch"
    return "CuPy" if is_cupy(x) else "numpy"


def _kind(x: Any) -> str:
    return str(x.dtype) if is_torch(x) else f"{_library(x)}'s {x.dtype}"
