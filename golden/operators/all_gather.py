"""Reference of AllGather: every rank's x, one after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array


def all_gather(xs: Sequence[Array]) -> Array:
    """Return the output of AllGather, the same on every rank.

    `output[r] = xs[r]`, for every rank r

    Args:
        xs: x of every rank, [d0, ...] of one shape and dtype.

    Returns:
        [P, d0, ...] of x's dtype, a fresh array. Its rows one after the other, reshaped to
        [P * d0, ...], are what the plain level returns.

    Raises:
        ValueError: shapes or dtypes differ.

    Example:
        >>> all_gather([np.array([[1, 2]]), np.array([[3, 4]])]).tolist()
        [[[1, 2]], [[3, 4]]]
    """
    check_alike("all_gather", xs)
    return np.stack(xs)


def check_alike(operator: str, xs: Sequence[Array]) -> None:
    """Raise ValueError unless every rank's x has the same shape and dtype.

    Example:
        >>> check_alike("all_gather", [np.zeros(2), np.ones(2)])
    """
    for r, x in enumerate(xs):
        if x.shape != xs[0].shape or x.dtype != xs[0].dtype:
            raise ValueError(
                f"{operator}: xs[{r}] is {x.shape} {x.dtype}, xs[0] is {xs[0].shape} {xs[0].dtype}"
            )
