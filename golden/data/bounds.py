"""Bounds of the difference from golden's result if the order of additions is not fixed.

A sum of n numbers, added in any order with n - 1 roundings to nearest of unit roundoff u, is off by
at most (n - 1) u sum|x| (Jeannerod and Rump, 2013: no higher-order term); n products with their sum
by at most n u sum|x y|. Golden's own result is off by no more, so two results differ by at most
twice that. u is half the distance from 1 to the next number: 2^-11 float16, 2^-8 bfloat16, 2^-24
float32, 2^-53 float64. Bounds are float64, enlarged by 1/1024 for the roundings in computing them.
Subnormals are taken to be kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .dtypes import Array, float_format, is_float
from .reduction import check_reduction

Bound = npt.NDArray[np.float64]
_ENLARGED = 1 + 2.0**-10


def bound(dtype: str, op: str, terms: int, magnitude: Array) -> Bound:
    """Return the largest difference of a reduction in another order from golden's, per element.

    max, min and all integers are exact: 0.  `sum: sum_bound`, `avg: sum_bound / P` and one more
    rounding of each, `prod: 2 ((1 + u)^P - 1) magnitude` while no partial product leaves the
    range of normal numbers.

    Args:
        dtype: dtype of the tensors and, at worst, of the partial results in the other order.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        terms: number of ranks P.
        magnitude: float64, sum over ranks of |x|; for prod the product of |x|.

    Returns:
        Absolute bounds of magnitude's shape; infinite where partial results may overflow.

    Raises:
        ValueError: an `op` that `dtype` does not have.

    Example:
        >>> bound("int8", "sum", 4, np.ones(2)).tolist()
        [0.0, 0.0]
        >>> bool(bound("float16", "avg", 4, np.ones(1))[0] < 0.01)
        True
    """
    check_reduction(op, dtype)
    magnitude = np.asarray(magnitude, np.float64)
    if not is_float(dtype) or op in ("max", "min"):
        return np.zeros(magnitude.shape)
    form = float_format(dtype)
    if op == "prod":
        growth = np.expm1(terms * np.log1p(form.unit_roundoff))
        return _limited(2 * growth * magnitude + form.smallest, magnitude, dtype)
    result = sum_bound(magnitude, terms, dtype)
    if op == "avg":
        result = (result + 2 * form.unit_roundoff * (magnitude + result)) / terms + form.smallest
    return result


def sum_bound(abs_sum: Array, terms: int, dtype: str) -> Bound:
    """Return the largest difference of two sums of the same numbers in any orders.

    `bound = 2 n u abs_sum + smallest subnormal`: n - 1 additions, and one rounding at the end for
    a sum kept in a wider accumulator.  A single term is exact: 0.

    Args:
        abs_sum: float64, sum of |x| per element.
        terms: number n of terms.
        dtype: the coarsest dtype in which either sum rounds.

    Returns:
        Absolute bounds of abs_sum's shape; infinite where partial sums may overflow.

    Raises:
        ValueError: `dtype` is not floating.

    Example:
        >>> float(sum_bound(np.float64(1024), 4, "float16")) <= 4.01
        True
    """
    form = float_format(dtype)
    abs_sum = np.asarray(abs_sum, np.float64)
    if terms <= 1:
        return np.zeros(abs_sum.shape)
    return _limited(2 * terms * form.unit_roundoff * abs_sum + form.smallest, abs_sum, dtype)


def matmul_bound(abs_product: Array, k: int, dtype: str) -> Bound:
    """Return the largest difference of two products A @ B, accumulated in float32 in any order.

    `bound = 2 (k u32 + u (1 + k u32)) |A| @ |B| + underflow`, u32 for the k products and their
    sum in float32 and u for the one rounding to `dtype` at the end (0 for float32 itself); a
    product may lose half a float32 subnormal, the last rounding half a subnormal of `dtype`.
    Where partial products of R ranks are summed in float32 before the rounding, k is R times as
    long and abs_product is the sum over those ranks: it is one longer chain.

    Args:
        abs_product: float64, |A| @ |B|.
        k: number of products in an element.
        dtype: float16, bfloat16 or float32, of the result.

    Returns:
        Absolute bounds of abs_product's shape; infinite where the result may overflow.

    Raises:
        ValueError: `dtype` is not floating, or is float64.

    Example:
        >>> float(matmul_bound(np.float64(1), 256, "float32")) < 2**-14
        True
    """
    if dtype == "float64":
        raise ValueError("matmul accumulates in float32: use float16, bfloat16 or float32")
    form, single = float_format(dtype), float_format("float32")
    abs_product = np.asarray(abs_product, np.float64)
    chain = k * single.unit_roundoff
    last = 0.0 if dtype == "float32" else form.unit_roundoff
    underflow = k * single.smallest + (form.smallest if last else 0.0)
    relative = 2 * (chain + last * (1 + chain))
    return _limited(relative * abs_product + underflow, abs_product, dtype)


def _limited(result: Bound, magnitude: Bound, dtype: str) -> Bound:
    """Enlarge a bound by 1/1024, and make it infinite where results may overflow."""
    fits = magnitude * 2 < float_format(dtype).largest
    return np.asarray(np.where(fits, result * _ENLARGED, np.inf))
