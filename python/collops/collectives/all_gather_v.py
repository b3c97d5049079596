"""all_gatherv of the plain level: allocates the result and calls the core."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from collops.collectives.level import Method
from collops.collectives.plain_tensors import (
    as_tensor,
    as_tensors,
    both_as_bytes,
    contiguous,
    is_contiguous,
    normal_dim,
    resolve_out,
    staging_for,
)
from collops.collectives.plans import (
    Plan,
    bad_argument,
    plan_rows,
    sizes_as_tuple,
    unpack_blocks,
    whole_sizes,
)
from collops.core import core
from collops.errors import Error, raise_status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.collectives.level import Element

_NAME = "all_gatherv"
# Identify the call and the exchange of rows before it among the ranks.
_OPERATION = "AllGatherV"
_EXCHANGE = "AllGatherV without sizes"


# One call of the core: its plan, the input and the output (tensors or their bytes), the output's
# tensor, and the result, into which that tensor is unpacked unless it is the result itself.
_Step: TypeAlias = "tuple[Plan, Any, Any, Any, Any]"


class AllGatherV(Method):
    """all_gatherv of one communicator."""

    def __call__(self, x: Any, sizes: Sequence[int] | None, dim: int, out: Any) -> Any:
        """Gathers every rank's rows on every rank, in rank order.

        ``out = concatenate([x_0, x_1, ..., x_{P-1}], axis=dim)``

        Moves any element type of a fixed size, bit for bit. With dim 0 the call copies no array: x
        and out must be contiguous, and x may be this rank's own block of out. With another dim x
        and out may have any strides. If the blocks do not lie one after the other in the result
        (some dimension before dim is not 1), they arrive in other memory and are copied to their
        places; x is copied only if it is not contiguous. Where blocks are copied, x and out may
        overlap.

        Args:
            x: [..., rows, ...] this rank's rows along `dim`; any number of dims from 1, rows may
                be 0. A numpy array, a torch tensor, or an object with ``__dlpack__`` in the CPU's
                memory. Or a list of several tensors, which have the same rows and sizes; types and
                other dimensions may differ. All are checked before the first one moves.
            sizes: rows of each rank, the same list on every rank; None: the ranks exchange their
                numbers of rows first, once for a list too.
            dim: the dimension that is gathered; negative ones count from the end.
            out: [..., sum of sizes, ...] the result's memory; None: new memory of x's kind (numpy
                for ``__dlpack__``). A list of tensors where x is a list.

        Returns:
            `out`; for a list, the list of the results.

        Raises:
            ArgumentError: this rank's arguments are wrong; the other ranks get its message.
            RankMismatchError: the ranks disagree on sizes, dim, shape or dtype, or one refused.
            RankTimeoutError, PeerLostError, AbortedError: a rank timed out, died or aborted.

        Source of the semantics: MPI_Allgatherv; ncclAllGather for equal sizes.

        Example:
            >>> import collops, numpy as np
            >>> from collops.testing import run_ranks
            >>> def gather(rank):
            ...     with collops.init() as comm:
            ...         return comm.all_gatherv(np.full(rank + 1, rank)).tolist()
            >>> run_ranks(gather, 3)[0]
            [0, 1, 1, 2, 2, 2]
        """
        result = self._repeated.run(x, out, sizes, dim)
        if result is not None:
            return result
        if isinstance(x, (list, tuple)):
            return self._gather_list(x, sizes, dim, out)
        arguments = sizes, dim
        asks = sizes is None
        try:
            x = as_tensor(_NAME, "x", x)
            dim = normal_dim(_NAME, "x", x, dim)
            question = self._level.question(_EXCHANGE, [x], [dim]) if asks else None
        except Exception as error:
            self._level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            sizes = self._level.core.exchange_rows(question, [x.shape[dim]])
        try:
            step = self._prepare(x, sizes_as_tuple(_NAME, sizes), dim, out)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._run(step)
        plan, source, target, _, out = step
        if not asks and source is x and target is out:
            self._keep(plan.core, x, out, *arguments)
        return out

    def _gather_list(
        self, x: Sequence[Any], sizes: Sequence[int] | None, dim: int, out: Any
    ) -> list[Any]:
        asks = sizes is None
        try:
            tensors = as_tensors(_NAME, x)
            dims = _normal_dims(tensors, dim)
            outs = _as_outs(out, len(tensors))
            question = self._level.question(_EXCHANGE, tensors, dims) if asks else None
        except Exception as error:
            self._level.refuse(_EXCHANGE if asks else _OPERATION, error)
            raise
        if question is not None:
            sizes = self._level.core.exchange_rows(question, [tensors[0].shape[dims[0]]])
        try:
            sizes = sizes_as_tuple(_NAME, sizes)
            steps = [
                self._prepare(tensor, sizes, dim, out, len(tensors), f"out[{i}]")
                for i, (tensor, dim, out) in enumerate(zip(tensors, dims, outs, strict=True))
            ]
            self._check_all(steps)
        except Exception as error:
            self._level.refuse(_OPERATION, error)
            raise
        self._level.core.in_parts(len(steps))
        for step in steps:
            self._run(step)
        return [step[-1] for step in steps]

    def _prepare(
        self,
        x: Any,
        sizes: tuple[int, ...],
        dim: int,
        out: Any,
        count: int = 1,
        label: str = "out",
    ) -> _Step:
        element = self._level.element(x.dtype)
        key = x.shape, sizes, dim, element.unit, element.name, count
        plan = self._plans.get(key) or self._plans.add(
            key, self._plan(x.shape, sizes, dim, element, count)
        )
        received = out = resolve_out(_NAME, label, x, plan.out_shape, out)
        # With dim 0 nothing is copied. With another dim any strides are allowed, for one copy.
        if dim != 0 and not (plan.in_order and is_contiguous(x) and is_contiguous(out)):
            x, received = contiguous(_NAME, "x", x), staging_for(_NAME, label, out)
        if element.number is not None:
            return plan, x, received, received, out
        return plan, *both_as_bytes(_NAME, x, received), received, out

    def _run(self, step: _Step) -> None:
        plan, source, target, received, out = step
        self._level.core.run(plan.core, source, target)
        if received is not out:
            self._level.afterwards(partial(unpack_blocks, received, out, plan.rows, plan.dim))

    def _plan(
        self, shape: Sequence[int], sizes: tuple[int, ...], dim: int, element: Element, count: int
    ) -> Plan:
        level = self._level
        whole = list(shape), dim, element.unit, element.name
        rows = whole_sizes(_NAME, sizes)
        plan = core().plan_gather(_NAME, _OPERATION, level.rank, level.size, whole, rows, count)
        return plan_rows(plan, shape, dim, None)

    def _check_all(self, steps: list[_Step]) -> None:
        """Checks all tensors of a list before the first one moves."""
        for number, (plan, source, target, _, _) in enumerate(steps):
            try:
                self._level.core.check(plan.core, source, target)
            except Error as error:
                raise_status(error.code, f"{error.message} (tensor {number} of the list)")


def _normal_dims(tensors: list[Any], dim: int) -> list[int]:
    dims = [normal_dim(_NAME, f"x[{i}]", x, dim) for i, x in enumerate(tensors)]
    rows = [x.shape[d] for x, d in zip(tensors, dims, strict=True)]
    for i, count in enumerate(rows):
        if count != rows[0]:
            bad_argument(
                f"{_NAME}: x[{i}] has {count} rows along dim {dims[i]}, but x[0] has {rows[0]}: "
                "the tensors of a list share their sizes"
            )
    return dims


def _as_outs(out: Any, count: int) -> list[Any]:
    if out is None:
        return [None] * count
    if not isinstance(out, (list, tuple)) or len(out) != count:
        got = f"{len(out)}" if isinstance(out, (list, tuple)) else f"a {type(out).__name__}"
        bad_argument(f"{_NAME}: out must be a list of {count} tensors as x, got {got}")
    return list(out)
