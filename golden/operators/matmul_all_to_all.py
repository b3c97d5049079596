"""References of the plain level's all_to_all_matmul and matmul_all_to_all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..data.dtypes import Array, name_of, rounded, widened
from .linear_parallel.quantised import Single, float_product


def all_to_all_matmul(
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array] = (),
    *,
    trans_weight: bool = False,
) -> list[tuple[Array, Array]]:
    """Return y and the exchanged x of all_to_all_matmul on every rank.

    `X_r = row block r of every x, joined along the columns in rank order; y_r = X_r @ W_r +
    residual_r`, rounded once.

    Args:
        xs: x of every rank, [rows, h], of one shape; the ranks divide the rows.
        weights: weight of every rank, [P * h, n], or [n, P * h] if trans_weight.
        residuals: residual of every rank, [n] or [1, n]; none without.

    Returns:
        Per rank y [rows / P, n] and X [rows / P, P * h].

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> xs = [np.array([[1], [2]], np.float32), np.array([[3], [4]], np.float32)]
        >>> weight = np.array([[10], [1]], np.float32)
        >>> [(y.tolist(), x.tolist()) for y, x in all_to_all_matmul(xs, [weight] * 2)]
        [([[13.0]], [[1.0, 3.0]]), ([[24.0]], [[2.0, 4.0]])]
    """
    size = len(xs)
    if any(x.shape != xs[0].shape or len(x) % size for x in xs):
        shapes = [list(x.shape) for x in xs]
        raise ValueError(f"all_to_all_matmul: x are {shapes}, of one shape that {size} divides")
    rows = len(xs[0]) // size
    results = []
    for r in range(size):
        joined = np.concatenate([x[r * rows : (r + 1) * rows] for x in xs], axis=1)
        total = _product(joined, weights[r], trans_weight)
        results.append((_with_residual(total, residuals[r : r + 1], name_of(xs[0])), joined))
    return results


def matmul_all_to_all(
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array] = (),
    *,
    trans_weight: bool = False,
) -> list[Array]:
    """Return the result of matmul_all_to_all on every rank.

    `y_r = column block r of every x_q @ W_q, joined along the rows in rank order, + residual_r`,
    rounded once.

    Args:
        xs: x of every rank, [rows, k].
        weights: weight of every rank, [k, n], or [n, k] if trans_weight; the ranks divide n.
        residuals: residual of every rank, [n / P] or [1, n / P]; none without.

    Returns:
        Per rank [sum of rows, n / P].

    Raises:
        ValueError: shapes that do not fit.

    Example:
        >>> xs = [np.array([[1]], np.float32), np.array([[2]], np.float32)]
        >>> weights = [np.array([[1, 10]], np.float32), np.array([[3, 5]], np.float32)]
        >>> [y.tolist() for y in matmul_all_to_all(xs, weights)]
        [[[1.0], [6.0]], [[10.0], [10.0]]]
    """
    size = len(xs)
    products = [_product(x, weight, trans_weight) for x, weight in zip(xs, weights, strict=True)]
    columns = products[0].shape[1] // size
    if any(product.shape[1] != columns * size for product in products):
        widths = [product.shape[1] for product in products]
        raise ValueError(f"matmul_all_to_all: n are {widths}, of one number that {size} divides")
    return [
        _with_residual(
            np.concatenate([product[:, r * columns : (r + 1) * columns] for product in products]),
            residuals[r : r + 1],
            name_of(xs[0]),
        )
        for r in range(size)
    ]


def _product(x: Array, weight: Array, trans_weight: bool) -> Single:
    factor = weight.T if trans_weight else weight
    if x.ndim != 2 or factor.ndim != 2 or x.shape[1] != factor.shape[0]:
        raise ValueError(f"x {list(x.shape)} does not fit weight {list(weight.shape)}")
    dtype = name_of(x)
    return float_product(widened(x, dtype), widened(factor, dtype))


def _with_residual(total: Single, residual: Sequence[Array], dtype: str) -> Array:
    for own in residual:
        total = total + widened(own, dtype).reshape(1, -1)
    return rounded(total, dtype)
