"""Bounds of the difference of a result of LinearParallel from golden's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...data.bounds import Bound, matmul_bound
from ...data.dtypes import Array, widened
from .experts import Segment, Tokens, check_experts, expert_totals, rows_of_segment
from .groups import EXPERTS_ALL_TO_ALL, LinearParallel, place
from .quantised import Scales, dequantised_weight
from .reference import output_block

# The most that an instruction loses by reading subnormals as 0: float32's smallest normal number.
_FLUSHED = 2.0**-126


def linear_parallel_bounds(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array],
    dtype: str,
    scales: Sequence[Scales] = (),
) -> list[Bound]:
    """Return the largest absolute error of every element of every rank's output.

    The sum of R partial products of K terms and a residual is one chain of R K (+ 1) terms in
    float32, in any order, and is rounded once: `matmul_bound(sum of |x| @ |w| + |residual|)`. Where
    subnormals are taken as 0 (bfloat16 instructions do), every term may lose
    `2^-126 (|x| + |w| + 2)` more. With scales the weight is the one that they make, and scales per
    token are a term more.

    Args:
        call: the parameters.
        xs, weights, residuals: the tensors of every rank.
        dtype: name of the dtype of x, which is a float.
        scales: of a quantised weight; none without.

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
    magnitudes, flushed = _magnitudes(call, xs, weights, dtype, scales)
    k = xs[0].shape[-1]
    bounds = []
    for r in range(call.rank_size):
        group = place(call, r).reduced
        first, end, shape = output_block(call, r, [x.shape for x in xs])
        total = np.sum([magnitudes[q][first:end] for q in group], axis=0)
        lost = np.sum([flushed[q][first:end] for q in group], axis=0)
        terms = (k + bool(scales)) * len(group)
        if residuals:
            total = total + np.abs(widened(residuals[r], dtype)).reshape(1, -1)
            terms += 1
        limit = matmul_bound(total, terms, dtype) + lost
        bounds.append(limit.reshape(*shape, limit.shape[1]))
    return bounds


def expert_bounds(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    residuals: Sequence[Array],
    dtype: str,
    tokens: Tokens,
    rows: Sequence[int],
) -> list[Bound]:
    """Return the same for types 5 and 6: the products of an expert's tp ranks are one chain.

    Example:
        >>> x, w = np.ones((2, 3), np.float32), np.ones((1, 3, 4), np.float32)
        >>> call = LinearParallel(5, 1, trans_weight=False)
        >>> [limit] = expert_bounds(call, [x], [w], [], "float32", np.array([[2]]), [3])
        >>> limit.shape, bool(0 < limit[:2].max() < 2**-19), limit[2].tolist()
        ((3, 4), True, [0.0, 0.0, 0.0, 0.0])
    """

    def both(rank: int, one: Segment) -> Bound:
        holder, part = rows_of_segment(call, rank, one)
        factor = weights[rank][one.expert]
        right = _size(factor.T if call.trans_weight else factor, dtype)
        return np.stack(_product(_size(xs[holder][part], dtype), right), axis=2)

    check_experts(call, xs, weights, tokens, rows)
    ranks = call.tp_size if call.type == EXPERTS_ALL_TO_ALL else 1
    bounds = []
    for r, total in enumerate(expert_totals(call, tokens, both)):
        magnitude, lost = total[..., 0], total[..., 1]
        if residuals:
            magnitude = magnitude + np.abs(widened(residuals[r], dtype)).reshape(1, -1)
        limit = matmul_bound(magnitude, xs[0].shape[-1] * ranks + bool(residuals), dtype) + lost
        bounds.append(np.concatenate([limit, np.zeros((rows[r] - len(limit), limit.shape[1]))]))
    return bounds


def _magnitudes(
    call: LinearParallel,
    xs: Sequence[Array],
    weights: Sequence[Array],
    dtype: str,
    scales: Sequence[Scales],
) -> tuple[list[Bound], list[Bound]]:
    """Return |G| @ |W| of every rank, and the loss if subnormals are read as 0."""
    sizes = [_size(x, dtype).reshape(-1, x.shape[-1]) for x in xs]
    for r, own in enumerate(scales):
        if own.token_scale is not None:
            sizes[r] = sizes[r] * _size(own.token_scale, "float32").reshape(-1, 1)
    products, lost = [], []
    for r, weight in enumerate(weights):
        left = np.concatenate([sizes[q] for q in place(call, r).gathered])
        right = weight.reshape(weight.shape[-2:])
        right = right.T if call.trans_weight else right
        if scales:
            how = (dtype, call.quant_type, call.quant_group_size)
            right = dequantised_weight(right, scales[r], *how)
        total, loss = _product(left, _size(right, dtype))
        products.append(total)
        lost.append(loss)
    return products, lost


def _size(array: Array, dtype: str) -> Bound:
    return np.abs(widened(array, dtype)).astype(np.float64)


def _product(left: Bound, right: Bound) -> tuple[Bound, Bound]:
    """Return the product of two magnitudes, and what may be lost of it."""
    sums = left.sum(axis=1)[:, None] + right.sum(axis=0)[None, :]
    return left @ right, _FLUSHED * (sums + 2 * left.shape[1])
