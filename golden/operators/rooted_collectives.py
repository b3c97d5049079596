"""References of the plain level's collectives that have a root: reduce, gatherv, scatterv.

Their cases are those of all_reduce, all_gather_v and reduce_scatter_v: the inputs are the same, and
only the root gets, or has, the whole tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array, name_of
from ..data.reduction import reduce_ranks
from .even import check_alike


def reduce(xs: Sequence[Array], op: str = "sum", dtype: str | None = None) -> Array:
    """Return the root's result of a reduce, the same for every root; other ranks have none.

    `output = reduce over q, in rank order, of xs[q]`

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: name of x's dtype; None reads it from the arrays.

    Raises:
        ValueError: shapes or dtypes differ, or an `op` that the dtype does not have.

    Example:
        >>> reduce([np.array([1, 5]), np.array([3, 4])], "max").tolist()
        [3, 5]
    """
    check_alike("reduce", xs)
    return reduce_ranks(xs, op, dtype or name_of(xs[0]))


def gatherv(xs: Sequence[Array]) -> Array:
    """Return the root's result of a gatherv, the same for every root; other ranks have none.

    `output = rows of xs[0], then of xs[1], ...`

    Args:
        xs: x of every rank, [rows, d1, ...]; rows may differ and be 0, the other dims not.

    Returns:
        [sum of rows, d1, ...], a new array.

    Raises:
        ValueError: x without dims, or rows or dtypes that differ.

    Example:
        >>> gatherv([np.array([[1, 2]]), np.array([[3, 4], [5, 6]])]).tolist()
        [[1, 2], [3, 4], [5, 6]]
    """
    for r, x in enumerate(xs):
        if x.ndim < 1 or x.shape[1:] != xs[0].shape[1:] or x.dtype != xs[0].dtype:
            raise ValueError(
                f"gatherv: xs[{r}] is {x.shape} {x.dtype}, xs[0] is {xs[0].shape} {xs[0].dtype}"
            )
    return np.concatenate(list(xs))


def scatterv(x: Array, sizes: Sequence[int]) -> list[Array]:
    """Return each rank's result of a scatterv of the root's x.

    `output_r = x[start_r : start_r + sizes[r]]`, `start_r = sizes[0] + .. + sizes[r-1]`

    Args:
        x: the root's x, [rows, d1, ...].
        sizes: rows that each rank gets, 0 included; their sum is the rows of x.

    Returns:
        One new array [sizes[r], d1, ...] per rank.

    Raises:
        ValueError: a size below 0, or sizes that are not the rows of x.

    Example:
        >>> [part.tolist() for part in scatterv(np.array([[1], [2], [3]]), [1, 0, 2])]
        [[[1]], [], [[2], [3]]]
    """
    if x.ndim < 1 or min(sizes) < 0 or sum(sizes) != len(x):
        raise ValueError(f"scatterv: sizes are {list(sizes)}, x is {x.shape}")
    return [part.copy() for part in np.split(x, np.cumsum(sizes)[:-1])]
