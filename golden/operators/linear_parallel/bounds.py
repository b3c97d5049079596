"""Bounds of the difference of a result of LinearParallel from golden's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...data.bounds import Bound, matmul_bound
from ...data.dtypes import Array, widened
from .groups import LinearParallel, place
from .reference import output_block

# The most that an instruction loses by reading subnormals as 0: float32's smallest normal number.
_FLUSHED = 2.0**-126


def linear_parallel_bounds(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array],
    dtype: str,
) -> list[Bound]:
    """Return the largest absolute error of every element of every rank's output.

    The sum of R partial products of K terms and a residual is one chain of R K (+ 1) terms in
    float32, in any order, and is rounded once: `matmul_bound(sum of |x| @ |w| + |residual|)`. Where
    subnormals are taken as 0 (bfloat16 instructions do), every term may lose
    `2^-126 (|x| + |w| + 2)` more.

    Args:
        call: the parameters.
        xs, weights, residuals: the tensors of every rank.
        dtype: name of their dtype.

    Returns:
        One array of the output's shape per rank; infinite where the result may overflow.

    Raises:
        ValueError: the rows do not fit together.

    Example:
        >>> x, w = np.ones((2, 3), np.float32), np.ones((4, 3), np.float32)
        >>> [limit] = linear_parallel_bounds(LinearParallel(3, 1), [x], [w], [], "float32")
        >>> limit.shape, bool(0 < limit.max() < 2**-19)
        ((2, 4), True)
    """
    magnitudes, flushed = _magnitudes(call, xs, weights, dtype)
    k = xs[0].shape[-1]
    bounds = []
    for r in range(call.rank_size):
        group = place(call, r).reduced
        first, end, shape = output_block(call, r, [x.shape for x in xs])
        total = np.sum([magnitudes[q][first:end] for q in group], axis=0)
        lost = np.sum([flushed[q][first:end] for q in group], axis=0)
        terms = k * len(group)
        if residuals:
            total = total + np.abs(widened(residuals[r], dtype)).reshape(1, -1)
            terms += 1
        limit = matmul_bound(total, terms, dtype) + lost
        bounds.append(limit.reshape(*shape, limit.shape[1]))
    return bounds


def _magnitudes(
    call: LinearParallel, xs: Sequence[Array], weights: Sequence[Array], dtype: str
) -> tuple[list[Bound], list[Bound]]:
    """Return |G| @ |W| of every rank, and the loss if subnormals are read as 0."""
    sizes = [np.abs(widened(x, dtype)).astype(np.float64).reshape(-1, x.shape[-1]) for x in xs]
    products, lost = [], []
    for r, weight in enumerate(weights):
        left = np.concatenate([sizes[q] for q in place(call, r).gathered])
        right = np.abs(widened(weight.reshape(weight.shape[-2:]), dtype)).astype(np.float64)
        right = right.T if call.trans_weight else right
        products.append(left @ right)
        sums = left.sum(axis=1)[:, None] + right.sum(axis=0)[None, :]
        lost.append(_FLUSHED * (sums + 2 * left.shape[1]))
    return products, lost
