"""Data that differs in every rank and position, and depends on nothing but its arguments.

Element i of rank r is computed from (i, r, seed) by integer arithmetic alone, so the same bits come
out of every numpy version and on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from .bit_patterns import assemble, extremes, mix, random_bits
from .dtypes import Array, bits_of, float_format, is_float, rounded, storage
from .words import unknown

# Number of distinct values of kind "index", a prime: all of them and their negatives are exact.
_PERIODS = {
    "float16": 4093,
    "bfloat16": 509,
    "float32": 2**24 - 3,
    "float64": 2**24 - 3,
    "int8": 251,
    "uint8": 251,
    "int16": 65521,
    "int32": 2**31 - 1,
    "int64": 2**31 - 1,
}
# Spreads the index over all bytes of the wide types, so that a lost half is found.
_SCALES = {"float64": 2**26 + 1, "int64": 2**32 + 1}
_EXACT_PERIOD = 17


def fill(shape: Sequence[int], dtype: str, rank: int, seed: int = 0, kind: str = "index") -> Array:
    """Return a tensor of test data that differs between ranks and between positions.

    - index: whole numbers, exact in `dtype` and never 0; distinct in every run of as many
      positions as `dtype` has them (int8 251, bfloat16 509, float16 4093, ...), and different
      between ranks at every position.
    - exact: the same with the numbers -8..9, whose sums over up to 28 ranks are exact in any
      order and in every dtype.
    - random: both signs, magnitudes over 20 powers of two; integers over their whole range.
    - cancel: of every three neighbouring ranks two have large floats that cancel each other, and
      the third a small one, so that from 3 ranks on a sum depends on its order. Integers as random.
    - special: every second element is NaN, an infinity, a signed zero, a subnormal or an extreme,
      in all pairs between two ranks; the others are random.

    bool has two values only: every kind is a random pattern, ranks 2k and 2k+1 its opposites.

    Args:
        shape: dimensions; () is one element.
        dtype: one of DTYPES.
        rank: the rank of the data, >= 0.
        seed: a seed; each gives different data of the same kind.
        kind: one of KINDS.

    Returns:
        An array of `shape` that carries `dtype` (bfloat16 as np.uint16).

    Raises:
        ValueError: `kind` or `dtype` is unknown.

    Example:
        >>> fill((2, 3), "int8", rank=0).tolist()
        [[-125, -124, -123], [-122, -121, -120]]
        >>> fill((2, 3), "int8", rank=1).tolist()
        [[32, 33, 34], [35, 36, 37]]
    """
    if kind not in KINDS:
        raise unknown("data kind", kind, KINDS)
    carrier = storage(dtype)
    positions: npt.NDArray[np.uint64] = np.arange(math.prod(shape), dtype=np.uint64)
    if dtype == "bool":
        pattern = mix(positions, seed, rank // 2) >> np.uint64(63)
        pattern = pattern ^ np.uint64(rank % 2)
        flat: Array = pattern.astype(carrier)
    else:
        flat = _KINDS[kind](positions, dtype, rank, seed)
    return flat.reshape(tuple(shape))


def poison(shape: Sequence[int], dtype: str) -> Array:
    """Return a tensor of bytes 0xA5 to prefill an output, so that unwritten elements are found.

    That is a small negative number in the floating types and -91 in int8; in bool it is a byte
    that is neither False nor True.

    Example:
        >>> hex(poison((2,), "bfloat16")[0]), poison((1,), "int8").tolist()
        ('0xa5a5', [-91])
    """
    carrier = storage(dtype)
    count = math.prod(shape) * carrier.itemsize
    pattern: Array = np.full(count, 0xA5, np.uint8)
    return pattern.view(carrier).reshape(tuple(shape))


def _index(positions: Array, dtype: str, rank: int, seed: int) -> Array:
    whole = _whole_numbers(positions, _PERIODS[dtype], rank, seed, signed=dtype != "uint8")
    return rounded(whole * _SCALES.get(dtype, 1), dtype)


def _exact(positions: Array, dtype: str, rank: int, seed: int) -> Array:
    whole = _whole_numbers(positions, _EXACT_PERIOD, rank, seed, signed=dtype != "uint8")
    return rounded(whole, dtype)


def _whole_numbers(
    positions: Array, period: int, rank: int, seed: int, *, signed: bool
) -> npt.NDArray[np.int64]:
    """Return numbers of a run of `period` distinct ones; each run starts elsewhere."""
    start = (rank * (period * 5 // 8) + seed * (period * 3 // 8)) % period
    i = positions.astype(np.int64)
    step = (i + 7 * (i // period) + start) % period
    if not signed:
        return np.asarray(step + 1)
    half = period // 2
    return np.asarray(np.where(step < half, step - half, step - half + 1))


def _random(positions: Array, dtype: str, rank: int, seed: int) -> Array:
    word = mix(positions, seed, rank)
    if not is_float(dtype):
        return random_bits(word, dtype)
    return assemble(word, dtype, -10, 20)


def _cancel(positions: Array, dtype: str, rank: int, seed: int) -> Array:
    if not is_float(dtype):
        return _random(positions, dtype, rank, seed)
    # Three neighbours have large, small and -large values, so that the sum depends on the order.
    part = (positions + np.uint64(rank)) % np.uint64(3)
    large = bits_of(assemble(mix(positions, seed, rank // 3), dtype, 12, 3), dtype)
    opposite = large ^ large.dtype.type(float_format(dtype).sign)
    accumulator = "float64" if dtype == "float64" else "float32"
    lowest = 14 - float_format(accumulator).mantissa
    small = assemble(mix(positions, seed + 1, rank), dtype, lowest, 4)
    bits = np.select([part == 0, part == 1], [large, bits_of(small, dtype)], opposite)
    return bits.view(storage(dtype))


def _special(positions: Array, dtype: str, rank: int, seed: int) -> Array:
    table = extremes(dtype)
    n = len(table)
    k = positions.astype(np.int64) // 2 + seed % n
    # n is prime, so two ranks that are not a multiple of n apart meet in all n * n pairs.
    choice = table[(k + (k // n + 1) * rank) % n]
    return np.where(positions % np.uint64(2) == 0, choice, _random(positions, dtype, rank, seed))


_KINDS: dict[str, Callable[[Array, str, int, int], Array]] = {
    "index": _index,
    "exact": _exact,
    "random": _random,
    "cancel": _cancel,
    "special": _special,
}
KINDS = tuple(_KINDS)
