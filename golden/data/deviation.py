"""The error of a tensor, element by element: absolute, relative, and in units in the last place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .dtypes import Array, bits_of, float_format, is_float, is_nan, to_float32


def values_of(array: Array, dtype: str) -> npt.NDArray[np.float64]:
    """Return the values of a tensor as float64; integers beyond 2^53 are rounded.

    Example:
        >>> values_of(np.array([0x3F80, 0xC000], np.uint16), "bfloat16").tolist()
        [1.0, -2.0]
    """
    if dtype == "bool":
        # The byte of a poisoned bool is neither 0 nor 1.
        return bits_of(array, dtype).astype(np.float64)
    # numpy would warn of signalling NaNs.
    with np.errstate(invalid="ignore"):
        return (to_float32(array) if dtype == "bfloat16" else array).astype(np.float64)


def absolute_error(got: Array, expected: Array, dtype: str) -> npt.NDArray[np.float64]:
    """Return |got - expected|; 0 where both are NaN or the same infinity, inf where one is NaN.

    Example:
        >>> nan, inf = float("nan"), float("inf")
        >>> a, b = (np.array(v, np.float32) for v in ([1, nan, inf, nan], [3, nan, inf, 0]))
        >>> absolute_error(a, b, "float32").tolist()
        [2.0, 0.0, 0.0, inf]
        >>> absolute_error(np.array([2**63 - 1]), np.array([2**63 - 2]), "int64").tolist()
        [1.0]
    """
    if not is_float(dtype):
        left, right = (bits_of(a, dtype).astype(np.uint64) for a in (got, expected))
        if np.issubdtype(got.dtype, np.signedinteger):
            left, right = (a.astype(np.int64).view(np.uint64) for a in (got, expected))
            larger = got > expected
        else:
            larger = left > right
        return np.where(larger, left - right, right - left).astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(values_of(got, dtype) - values_of(expected, dtype))
    alike = bits_of(got, dtype) == bits_of(expected, dtype)
    nan_got, nan_expected = is_nan(got, dtype), is_nan(expected, dtype)
    error = np.where(alike | (nan_got & nan_expected), 0.0, error)
    return np.where(nan_got ^ nan_expected, np.inf, error)


def relative_error(got: Array, expected: Array, dtype: str) -> npt.NDArray[np.float64]:
    """Return |got - expected| / |expected|; inf where only expected is 0 or is not finite.

    Example:
        >>> a, b = np.array([3, 1, 0], np.int8), np.array([2, 0, 0], np.int8)
        >>> relative_error(a, b, "int8").tolist()
        [0.5, inf, 0.0]
    """
    error = absolute_error(got, expected, dtype)
    with np.errstate(all="ignore"):
        relative = error / np.abs(values_of(expected, dtype))
    return np.where(error == 0, 0.0, np.where(np.isnan(relative), np.inf, relative))


def ulp_error(got: Array, expected: Array, dtype: str) -> npt.NDArray[np.float64] | None:
    """Return how many representable numbers lie between; inf at a NaN, None without floats.

    Example:
        >>> ulp_error(np.array([1.0], np.float16), np.array([1.001], np.float16), "float16")
        array([1.])
        >>> ulp_error(np.zeros(1, np.int8), np.zeros(1, np.int8), "int8") is None
        True
    """
    if not is_float(dtype):
        return None
    distance = ulp_distance(got, expected, dtype)
    return np.where(distance == np.uint64(2**64 - 1), np.inf, distance.astype(np.float64))


def ulp_distance(a: Array, b: Array, dtype: str) -> npt.NDArray[np.uint64]:
    """Return how many representable numbers lie between two floating tensors, element by element.

    `distance = |order(a) - order(b)|`, where order counts upwards from -infinity and both zeros
    count the same; 0 where both are NaN, 2^64 - 1 where one is.

    Args:
        a, b: arrays that carry `dtype`, of one shape.
        dtype: name of a floating dtype.

    Returns:
        np.uint64 of that shape.

    Raises:
        ValueError: the shapes differ, or `dtype` is not floating.

    Example:
        >>> a = np.array([1.0, 0.0, 2.0], np.float32)
        >>> b = np.array([np.nextafter(np.float32(1), np.float32(2)), -0.0, 2.0], np.float32)
        >>> ulp_distance(a, b, "float32").tolist()
        [1, 0, 0]
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    left, right = _order(a, dtype), _order(b, dtype)
    distance = np.maximum(left, right) - np.minimum(left, right)
    nan_a, nan_b = is_nan(a, dtype), is_nan(b, dtype)
    distance = np.where(nan_a ^ nan_b, np.uint64(2**64 - 1), distance)
    return np.where(nan_a & nan_b, np.uint64(0), distance)


def _order(array: Array, dtype: str) -> npt.NDArray[np.uint64]:
    """Map floats to integers of the same order, with both zeros at 2^63."""
    sign = np.uint64(float_format(dtype).sign)
    bits = bits_of(array, dtype).astype(np.uint64)
    magnitude = bits & (sign - np.uint64(1))
    zero = np.uint64(2**63)
    return np.asarray(np.where(bits & sign != 0, zero - magnitude, zero + magnitude))
