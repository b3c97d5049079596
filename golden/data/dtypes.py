"""bfloat16 on top of plain numpy, and how two tensors of any dtype are compared.

bfloat16 arrays are np.uint16 bit patterns (see `formats`); equal means bit for bit, with any NaN
equal to any NaN.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .formats import (
    DTYPES,
    FLOAT_DTYPES,
    REDUCE_DTYPES,
    Array,
    FloatFormat,
    bits_of,
    float_format,
    is_float,
    is_nan,
    name_of,
    storage,
)

__all__ = [
    "DTYPES",
    "FLOAT_DTYPES",
    "REDUCE_DTYPES",
    "Array",
    "FloatFormat",
    "bits_of",
    "differs",
    "float_format",
    "from_float32",
    "is_float",
    "is_nan",
    "name_of",
    "same_bits",
    "storage",
    "to_float32",
    "ulp_distance",
]


def to_float32(bits: Array) -> npt.NDArray[np.float32]:
    """Return the values of bfloat16 bit patterns; every one is exact in float32.

    `value = float32 with bits (pattern << 16)`

    Args:
        bits: bit patterns, np.uint16, any shape.

    Returns:
        float32 values of the same shape.

    Raises:
        ValueError: `bits` is not np.uint16.

    Example:
        >>> to_float32(np.array([0x3F80, 0xC000, 0x0001], np.uint16)).tolist()
        [1.0, -2.0, 9.183549615799121e-41]
    """
    wide = bits_of(bits, "bfloat16").astype(np.uint32) << np.uint32(16)
    return np.asarray(wide).view(np.float32)


def from_float32(values: Array) -> npt.NDArray[np.uint16]:
    """Return float32 values as bfloat16 bit patterns, rounded to nearest even.

    `pattern = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16`; subnormals are kept, what is at least
    half a step beyond the largest number becomes infinity, NaN becomes quiet and keeps its sign.

    Args:
        values: np.float32, any shape.

    Returns:
        np.uint16 bit patterns of the same shape.

    Raises:
        ValueError: `values` is not np.float32.

    Example:
        >>> from_float32(np.array([1.0, 1.00390625, 1.01171875], np.float32)).tolist()
        [16256, 16256, 16258]
    """
    bits = bits_of(values, "float32")
    top = bits >> np.uint32(16)
    nan = is_nan(values, "float32")
    finite = np.where(nan, np.uint32(0), bits)
    rounded = (finite + np.uint32(0x7FFF) + (top & np.uint32(1))) >> np.uint32(16)
    return np.asarray(np.where(nan, top | np.uint32(0x40), rounded)).astype(np.uint16)


def differs(a: Array, b: Array, dtype: str) -> npt.NDArray[np.bool_]:
    """Return where two tensors of one shape differ.

    `differs = bits(a) != bits(b) and not (isnan(a) and isnan(b))`; so -0 differs from +0.

    Args:
        a, b: arrays that carry `dtype`, of one shape.
        dtype: name of their dtype.

    Returns:
        Booleans of that shape.

    Raises:
        ValueError: the shapes differ, or an array does not carry `dtype`.

    Example:
        >>> nan = float("nan")
        >>> x = np.array([0.0, nan, 1.0], np.float32)
        >>> y = np.array([-0.0, -nan, 1.0], np.float32)
        >>> differs(x, y, "float32").tolist()
        [True, False, False]
    """
    if a.shape != b.shape:
        raise ValueError(f"shapes differ: {a.shape} and {b.shape}")
    both_nan = is_nan(a, dtype) & is_nan(b, dtype)
    return np.asarray((bits_of(a, dtype) != bits_of(b, dtype)) & ~both_nan)


def same_bits(a: Array, b: Array, dtype: str) -> bool:
    """Return whether two tensors have one shape and are equal bit for bit (any NaN is equal).

    Example:
        >>> zero = np.zeros(2, np.float16)
        >>> same_bits(zero, zero.copy(), "float16"), same_bits(zero, -zero, "float16")
        (True, False)
    """
    return a.shape == b.shape and not bool(differs(a, b, dtype).any())


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
