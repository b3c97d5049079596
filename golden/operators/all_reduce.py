"""Reference of AllReduce: the reduction of every rank's x, on every rank."""

from __future__ import annotations

from collections.abc import Sequence

from ..data.dtypes import Array, name_of
from ..data.reduction import reduce_ranks
from .all_gather import check_alike


def all_reduce(xs: Sequence[Array], op: str = "sum", dtype: str | None = None) -> Array:
    """Return the output of AllReduce, the same on every rank.

    `output = xs[0] op xs[1] op ... op xs[P-1]`, in rank order

    The arithmetic is that of `reduction.reduce_ranks`, exact to the bit.

    Args:
        xs: x of every rank, of one shape and dtype; bfloat16 as uint16 bits.
        op: sum, max, min, prod or avg (floating dtypes only).
        dtype: name of x's dtype; None reads it from the arrays.

    Returns:
        A fresh array of x's shape and dtype.

    Raises:
        ValueError: shapes or dtypes differ, or the dtype has no such `op`.

    Example:
        >>> import numpy as np
        >>> all_reduce([np.array([1, 5], np.int8), np.array([3, 2], np.int8)], "max").tolist()
        [3, 5]
    """
    check_alike("all_reduce", xs)
    return reduce_ranks(xs, op, dtype or name_of(xs[0]))
