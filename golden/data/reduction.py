"""The arithmetic of a reduction over ranks: order, accumulator and rounding fixed to the bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from .bit_patterns import plain_bits
from .dtypes import (
    REDUCE_DTYPES,
    Array,
    bits_of,
    float_format,
    is_float,
    is_nan,
    rounded,
    storage,
    to_float32,
)
from .leaves import tree_sum
from .words import unknown

BITWISE_OPS = ("band", "bor", "bxor")
REDUCE_OPS = ("sum", "max", "min", "prod", "avg", *BITWISE_OPS)
ATB_REDUCE_OPS = ("sum", "max", "min")


def reduce_ranks(values: Sequence[Array], op: str, dtype: str) -> Array:
    """Reduce one array per rank, element by element, in rank order.

    `sum = (..(x_0 + x_1) + ..) + x_{P-1}`, prod likewise, `avg = sum / P`.  It starts from rank
    0's value.  float16 and bfloat16 accumulate in float32 and are rounded once, to nearest even;
    float32 and float64 accumulate in their own type; integers wrap modulo 2^bits,
    and their avg is truncated towards zero.
    band, bor and bxor are those of the integers' bits.
    max and min are IEEE 754-2019 maximum and minimum: NaN wins, and -0 < +0.

    Args:
        values: P arrays of one shape that carry `dtype`, in rank order.
        op: sum, max, min, prod, avg, or of integers band, bor, bxor.
        dtype: one of REDUCE_DTYPES.

    Returns:
        An array of that shape that carries `dtype`.

    Raises:
        ValueError: no arrays, shapes that differ, or an `op` that `dtype` does not have.

    Example:
        >>> parts = [np.array([100, -7], np.int8), np.array([100, 3], np.int8)]
        >>> reduce_ranks(parts, "sum", "int8").tolist()
        [-56, -4]
        >>> reduce_ranks(parts, "max", "int8").tolist()
        [100, 3]
    """
    check_reduction(op, dtype)
    if not values:
        raise ValueError("a reduction needs at least one rank's values, got none")
    shape = values[0].shape
    for rank, value in enumerate(values):
        if value.shape != shape:
            raise ValueError(f"rank {rank} has shape {value.shape}, rank 0 has {shape}")
        if value.dtype != storage(dtype):
            raise ValueError(f"rank {rank} has {value.dtype}; {dtype} is {storage(dtype)}")
    # Arrays wrap silently where numpy's scalars warn: keep at least one dimension.
    flat = [value.reshape(-1) for value in values]
    with np.errstate(all="ignore"):
        result: Array = _reducer(op)(flat, op, dtype)
    # Every NaN gets the same bits: machines differ in sign and payload.
    return plain_bits(result, dtype).view(storage(dtype)).reshape(shape)


def add_leaves(leaves: Sequence[Array], dtype: str) -> Array:
    """Add one array per leaf by the tree, element by element.

    Widened, rounded and wrapped as in reduce_ranks(); the order is that of tree_sum().

    Args:
        leaves: arrays of one shape that carry `dtype`, in the order of the leaves.
        dtype: one of REDUCE_DTYPES.

    Returns:
        An array of that shape that carries `dtype`.

    Example:
        >>> big, one = np.float32([2**24]), np.float32([1])
        >>> add_leaves([big, one, one, one], "float32").tolist()
        [16777218.0]
        >>> reduce_ranks([big, one, one, one], "sum", "float32").tolist()
        [16777216.0]
    """
    check_reduction("sum", dtype)
    with np.errstate(all="ignore"):
        total = tree_sum([_widen(leaf.reshape(-1), dtype) for leaf in leaves])
        result = _narrow(total, dtype)
    return plain_bits(result, dtype).view(storage(dtype)).reshape(leaves[0].shape)


def check_reduction(op: str, dtype: str) -> None:
    """Raise ValueError unless `op` is a reduction and `dtype` has it.

    Example:
        >>> check_reduction("mean", "int32")
        Traceback (most recent call last):
        ...
        ValueError: op 'mean' is unknown; use one of sum, max, min, prod, avg, band, bor, bxor
    """
    if op not in REDUCE_OPS:
        raise unknown("op", op, REDUCE_OPS)
    if dtype not in REDUCE_DTYPES:
        raise ValueError(f"dtype {dtype!r} has no reduction; use one of {', '.join(REDUCE_DTYPES)}")
    if not has_reduction(op, dtype):
        raise ValueError(f"op {op!r} is for integers, got {dtype}")


def has_reduction(op: str, dtype: str) -> bool:
    """Return whether a dtype of REDUCE_DTYPES has one of REDUCE_OPS.

    Example:
        >>> has_reduction("band", "int8"), has_reduction("band", "float32")
        (True, False)
    """
    return op not in BITWISE_OPS or not is_float(dtype)


def _reducer(op: str) -> Callable[[Sequence[Array], str, str], Array]:
    if op in BITWISE_OPS:
        return _bitwise
    return _extreme if op in ("max", "min") else _accumulate


def _bitwise(values: Sequence[Array], op: str, dtype: str) -> Array:
    """Return band, bor or bxor of 1-D arrays of integers."""
    combine = {"band": np.bitwise_and, "bor": np.bitwise_or, "bxor": np.bitwise_xor}[op]
    return np.array(combine.reduce(values, axis=0), storage(dtype))


def _accumulate(values: Sequence[Array], op: str, dtype: str) -> Array:
    """Return sum, prod or avg of 1-D arrays."""
    total = _widen(values[0], dtype)
    for value in values[1:]:
        total = total * _widen(value, dtype) if op == "prod" else total + _widen(value, dtype)
    if op == "avg" and is_float(dtype):
        total = total / total.dtype.type(len(values))
    result = _narrow(total, dtype)
    return _truncated(result, len(values)) if op == "avg" and not is_float(dtype) else result


def _truncated(total: Array, divisor: int) -> Array:
    """Return integers divided by a whole number, truncated towards zero."""
    wide = total.astype(np.int64)
    return np.asarray(((wide - np.fmod(wide, divisor)) // divisor).astype(total.dtype))


def _widen(array: Array, dtype: str) -> Array:
    """Return an array in its accumulator's type: unsigned for integers, whose overflow wraps."""
    if dtype == "float16":
        return array.astype(np.float32)
    if dtype == "bfloat16":
        return to_float32(array)
    return array if is_float(dtype) else bits_of(array, dtype)


def _narrow(total: Array, dtype: str) -> Array:
    """Return an accumulator as `dtype`, rounded once to nearest even."""
    return rounded(total, dtype) if is_float(dtype) else np.array(total).view(storage(dtype))


def _extreme(values: Sequence[Array], op: str, dtype: str) -> Array:
    """Return max or min of 1-D arrays, decided on the bits because zeros have signs."""
    best = values[0]
    for value in values[1:]:
        left, right = _order(value, dtype), _order(best, dtype)
        better = left > right if op == "max" else left < right
        better = (better | is_nan(value, dtype)) & ~is_nan(best, dtype)
        best = np.where(better, value, best)
    return np.array(best)


def _order(array: Array, dtype: str) -> Array:
    """Map numbers to integers of the same order, in which -0 comes just before +0."""
    if not is_float(dtype):
        return array
    bits = bits_of(array, dtype)
    sign = bits.dtype.type(float_format(dtype).sign)
    return np.asarray(np.where(bits & sign != 0, ~bits, bits | sign))
