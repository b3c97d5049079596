"""Reference of Broadcast: the root's x on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array
from .all_gather import check_alike


def broadcast(xs: Sequence[Array], root: int = 0) -> Array:
    """Return what x holds after a Broadcast, the same on every rank.

    `x_r = xs[root]`, for every rank r

    Args:
        xs: x of every rank, of one shape and dtype.
        root: the rank whose x it is.

    Returns:
        A fresh array of x's shape and dtype.

    Raises:
        ValueError: shapes or dtypes differ, or no rank is called `root`.

    Example:
        >>> broadcast([np.array([1, 2]), np.array([3, 4])], root=1).tolist()
        [3, 4]
    """
    check_alike("broadcast", xs)
    if not 0 <= root < len(xs):
        raise ValueError(f"broadcast: root must be in [0, {len(xs)}), got {root}")
    return np.array(xs[root])
