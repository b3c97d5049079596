"""Reference of AllGatherV: blocks of every rank, placed by element counts and displacements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from ..data.dtypes import Array


def all_gather_v(
    xs: Sequence[Array],
    recv_counts: Sequence[int],
    rdispls: Sequence[int],
    rows: int,
    *,
    rank: int = 0,
) -> Array:
    """Return the output of AllGatherV, equal on all ranks; what no block covers is zero.

    `output.flat[rdispls[r] : rdispls[r] + recv_counts[r]] = xs[r].flat[:recv_counts[r]]`

    Args:
        xs: x of every rank, [d0, d1, ...]; d0 may differ. Any dtype, bfloat16 as uint16 bits.
        recv_counts: elements taken from each rank.
        rdispls: element offset of each rank's block in the output; any order, gaps are legal.
        rows: rows n of the output, the length of y.
        rank: whose d1, ... the output has; matters only where they differ between ranks.

    Returns:
        [rows, d1, ...] of x's dtype, a fresh array.

    Raises:
        ValueError: lists of other lengths than xs, dtypes that differ, a count above its x, and
            a block that is negative, past the output's end or over another block.

    Example:
        >>> x0 = np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.int8)
        >>> x1 = np.array([[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]], np.int8)
        >>> all_gather_v([x0, x1], [4, 2], [0, 4], 5).tolist()
        [[0, 1, 2, 3], [3, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    """
    shape = (rows, *xs[rank].shape[1:])
    _check(xs, recv_counts, rdispls, math.prod(shape))
    output = np.zeros(shape, xs[0].dtype)
    flat = output.reshape(-1)
    for x, count, start in zip(xs, recv_counts, rdispls, strict=True):
        flat[start : start + count] = x.reshape(-1)[:count]
    return output


def _check(
    xs: Sequence[Array], recv_counts: Sequence[int], rdispls: Sequence[int], size: int
) -> None:
    """Raise ValueError where slices of numpy would quietly do something else."""
    for name, values in (("recv_counts", recv_counts), ("rdispls", rdispls)):
        if len(values) != len(xs):
            raise ValueError(f"all_gather_v: {name} has {len(values)} entries for {len(xs)} ranks")
    for r, (x, count, start) in enumerate(zip(xs, recv_counts, rdispls, strict=True)):
        if x.dtype != xs[0].dtype:
            raise ValueError(f"all_gather_v: xs[{r}] is {x.dtype}, xs[0] is {xs[0].dtype}")
        if not 0 <= count <= x.size:
            raise ValueError(
                f"all_gather_v: recv_counts[{r}] is {count}, xs[{r}] has {x.size} elements"
            )
        if start < 0 or count > size - start:
            raise ValueError(
                f"all_gather_v: block {r} (rdispls {start} + recv_counts {count}) "
                f"exceeds the output's {size} elements"
            )
    places = enumerate(zip(rdispls, recv_counts, strict=True))
    blocks = sorted((start, start + count, r) for r, (start, count) in places if count)
    for (_, end, r), (start, _, q) in pairwise(blocks):
        if start < end:
            raise ValueError(f"all_gather_v: blocks {r} and {q} overlap at element {start}")
