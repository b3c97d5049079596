"""The generators of case files: tensors from DataGenType, a range, a seed, a rank, a position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from .bit_patterns import mix
from .dtypes import Array, is_float, rounded, storage

# ATB's default range.
DEFAULT_RANGE = (-5.0, 5.0)


def generate(
    generator: str,
    shape: Sequence[int],
    dtype: str,
    *,
    value_range: tuple[float, float] = DEFAULT_RANGE,
    rank: int = 0,
    position: int = 0,
    seed: int = 0,
    same_data: bool = False,
) -> Array:
    """Return a tensor for a row's DataGenType; equal arguments give equal bits.

    - one, zero: all elements 1 or 0;
    - random, customize: integers of the range, both ends included, or floats uniform in it, other
      ones in every rank, every tensor and every element.

    For counts "customize" is `even_split`.

    Args:
        generator: one, zero, random or customize.
        shape: dimensions.
        dtype: name of a dtype that arrays can hold.
        value_range: lowest and highest value.
        rank: the rank of the tensor.
        position: the position of the input.
        seed: a seed; each gives different data.
        same_data: give every rank the data of rank 0, as ATB's own tool does.

    Returns:
        An array that carries `dtype` (bfloat16 as np.uint16).

    Raises:
        ValueError: an unknown generator or dtype, a negative dim, or a range that holds no number
            of an integer dtype.

    Example:
        >>> generate("one", (2,), "int8").tolist()
        [1, 1]
        >>> a, b = (generate("random", (50,), "float16", rank=r) for r in (0, 1))
        >>> bool((abs(a) <= 5).all()), bool((a == b).any())
        (True, False)
    """
    carrier = storage(dtype)
    if any(dim < 0 for dim in shape):
        raise ValueError(f"a tensor of shape {list(shape)} cannot be made: a dim is below 0")
    if generator == "zero":
        return np.zeros(tuple(shape), carrier)
    if generator == "one":
        return rounded(np.ones(tuple(shape)), dtype)
    if generator not in ("random", "customize"):
        raise ValueError(f"generator {generator!r} is unknown; use one, zero, random or customize")
    stream = 0 if same_data else rank
    words = mix(np.arange(math.prod(shape), dtype=np.uint64), seed * 1009 + position, stream)
    low, high = value_range
    if dtype == "bool":
        flat: Array = (words >> np.uint64(63)).astype(carrier)
    elif is_float(dtype):
        flat = _uniform(words, low, high, dtype)
    else:
        flat = _whole_numbers(words, low, high, dtype)
    return flat.reshape(tuple(shape))


def even_split(sizes: Sequence[int], *, divide: bool) -> tuple[list[int], list[int]]:
    """Return counts and packed displacements for a row that states none.

    Args:
        sizes: elements of x on every rank.
        divide: True: each rank gets an equal share of x (ReduceScatterV); False: each rank gives
            all of its x (AllGatherV).

    Returns:
        Counts and displacements, one per rank, in elements.

    Example:
        >>> even_split([500, 500], divide=False)
        ([500, 500], [0, 500])
        >>> even_split([500, 500], divide=True)
        ([250, 250], [0, 250])
    """
    counts = [size // len(sizes) if divide else size for size in sizes]
    return counts, list(accumulate(counts, initial=0))[:-1]


def _uniform(words: Array, low: float, high: float, dtype: str) -> Array:
    """Return floats in [low, high], from 53 random bits each."""
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return rounded(low + (high - low) * unit, dtype)


def _whole_numbers(words: Array, low: float, high: float, dtype: str) -> Array:
    """Return integers of the range, cut to the range of the dtype."""
    limits = np.iinfo(storage(dtype))
    first, last = max(math.ceil(low), limits.min), min(math.floor(high), limits.max)
    if first > last:
        raise ValueError(f"range {low:g},{high:g} holds no number of {dtype}")
    span = last - first + 1
    offsets = words if span == 2**64 else words % np.uint64(span)
    # Computed modulo 2^64, so that the sum needs no wider type.
    total = offsets + np.uint64(first % 2**64)
    return np.asarray(total).view(np.int64).astype(storage(dtype))
