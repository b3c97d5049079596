"""Reference of ReduceScatterV: each rank gets the reduction of its own slice of every x."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array, name_of, storage
from ..data.reduction import check_reduction, reduce_ranks


def reduce_scatter_v(
    xs: Sequence[Array],
    send_counts: Sequence[int],
    sdispls: Sequence[int],
    rows: Sequence[int],
    op: str = "sum",
    dtype: str | None = None,
) -> list[Array]:
    """Return the outputs of ReduceScatterV, one per rank; a tail beyond the count is zero.

    `output_r.flat[:send_counts[r]] =
    reduce over q, in rank order, of xs[q].flat[sdispls[r] : sdispls[r] + send_counts[r]]`

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, [d0, d1], of one shape and dtype; bfloat16 as uint16 bits.
        send_counts: elements each rank receives.
        sdispls: element offset of each rank's slice in x; slices may overlap.
        rows: rows of each rank's output, the length of its y.
        op: sum, max, min, prod or avg (floating dtypes only).
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        One fresh array [rows[r], d1] per rank, of x's dtype.

    Raises:
        ValueError: lists of other lengths than xs, shapes or dtypes that differ, a slice outside
            x, a count above its output, or an `op` that the dtype does not have.

    Example:
        >>> xs = [np.array([[1, 2], [3, 4], [5, 6]], np.int32) * s for s in (1, 10)]
        >>> [y.tolist() for y in reduce_scatter_v(xs, [4, 2], [0, 4], [2, 1])]
        [[[11, 22], [33, 44]], [[55, 66]]]
    """
    dtype = dtype or name_of(xs[0])
    check_reduction(op, dtype)
    _check(xs, send_counts, sdispls, rows, dtype)
    outputs = []
    for count, start, height in zip(send_counts, sdispls, rows, strict=True):
        output = np.zeros((height, *xs[0].shape[1:]), storage(dtype))
        slices = [x.reshape(-1)[start : start + count] for x in xs]
        output.reshape(-1)[:count] = reduce_ranks(slices, op, dtype)
        outputs.append(output)
    return outputs


def _check(
    xs: Sequence[Array],
    send_counts: Sequence[int],
    sdispls: Sequence[int],
    rows: Sequence[int],
    dtype: str,
) -> None:
    """Raise ValueError where slices of numpy would quietly do something else."""
    for name, values in (("send_counts", send_counts), ("sdispls", sdispls), ("rows", rows)):
        if len(values) != len(xs):
            raise ValueError(
                f"reduce_scatter_v: {name} has {len(values)} entries for {len(xs)} ranks"
            )
    for q, x in enumerate(xs):
        if x.shape != xs[0].shape or x.dtype != storage(dtype):
            raise ValueError(
                f"reduce_scatter_v: xs[{q}] is {x.shape} {x.dtype}, "
                f"expected {xs[0].shape} {storage(dtype)}"
            )
    size, width = xs[0].size, math.prod(xs[0].shape[1:])
    for r, (count, start, height) in enumerate(zip(send_counts, sdispls, rows, strict=True)):
        if count < 0 or start < 0 or count > size - start:
            raise ValueError(
                f"reduce_scatter_v: slice {r} (sdispls {start} + send_counts {count}) "
                f"is outside x's {size} elements"
            )
        if count > height * width:
            raise ValueError(
                f"reduce_scatter_v: send_counts[{r}] is {count}, "
                f"output {r} has {height * width} elements"
            )
