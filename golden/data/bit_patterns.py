"""Numbers made from bits: a hash of (position, seed, rank), random floats, extreme values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .dtypes import Array, bits_of, float_format, is_float, is_nan, storage

_MASK = 2**64 - 1


def mix(positions: npt.NDArray[np.uint64], seed: int, rank: int) -> npt.NDArray[np.uint64]:
    """Return 64 random-looking bits for every position (the finaliser of splitmix64).

    Example:
        >>> here = np.arange(2, dtype=np.uint64)
        >>> bool((mix(here, 0, 0) != mix(here, 0, 1)).all())
        True
    """
    start = _scramble(np.array([seed & _MASK], np.uint64))
    start = _scramble(start ^ np.array([rank & _MASK], np.uint64))
    return _scramble(positions ^ start)


def _scramble(word: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    word = word + np.uint64(0x9E3779B97F4A7C15)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(word ^ (word >> np.uint64(31)))


def random_bits(word: npt.NDArray[np.uint64], dtype: str) -> Array:
    """Return random words cut to the width of an integer dtype.

    Example:
        >>> random_bits(np.array([0x1FF, 0x180], np.uint64), "int8").tolist()
        [-1, -128]
    """
    carrier = storage(dtype)
    return word.astype(f"u{carrier.itemsize}").view(carrier)


def assemble(word: npt.NDArray[np.uint64], dtype: str, lowest: int, span: int) -> Array:
    """Return floats +-1.m * 2^e with e in [lowest, lowest + span), all from random words.

    Example:
        >>> assemble(np.array([0, 1 << 63, 1 << 52], np.uint64), "float16", 0, 2).tolist()
        [1.0, -1.0, 2.0]
    """
    form = float_format(dtype)
    mantissa = word & np.uint64(2**form.mantissa - 1)
    power = (word >> np.uint64(52) & np.uint64(0x7FF)) % np.uint64(span)
    exponent = power + np.uint64(lowest + form.bias) << np.uint64(form.mantissa)
    sign = word >> np.uint64(63) << np.uint64(form.width - 1)
    bits: Array = (sign | exponent | mantissa).astype(f"u{form.width // 8}")
    return bits.view(storage(dtype))


def extremes(dtype: str) -> npt.NDArray[Any]:
    """Return extreme values for reductions; their number is prime (17 floats, 11 integers).

    Floats: both zeros, infinities, +-1, smallest and largest subnormals, smallest normals and
    largest numbers, 1 + eps, and two NaNs (one signalling). Integers: the ends of the signed and
    the unsigned range and their neighbours, 2, 3 and two stripes of bits.

    Example:
        >>> extremes("int8").tolist()
        [0, 1, 2, 3, 127, -128, -127, -2, -1, 85, -86]
    """
    carrier = storage(dtype)
    unsigned = np.dtype(f"u{carrier.itemsize}")
    if not is_float(dtype):
        top, full = 1 << (carrier.itemsize * 8 - 1), (1 << carrier.itemsize * 8) - 1
        stripes = full // 3
        whole = [0, 1, 2, 3, top - 1, top, top + 1, full - 1, full, stripes, 2 * stripes]
        return np.array(whole, unsigned).view(carrier)
    form = float_format(dtype)
    one, normal = form.bias << form.mantissa, 1 << form.mantissa
    magnitudes = [0, one, 1, normal - 1, normal, form.infinity - 1, form.infinity]
    nans = [form.infinity | normal >> 1, form.infinity | form.sign | 1]
    bits = [b | s for b in magnitudes for s in (0, form.sign)] + nans + [one + 1]
    return np.array(bits, unsigned).view(carrier)


def plain_bits(array: Array, dtype: str) -> Array:
    """Return an array's bit patterns, flat, with one pattern for every NaN.

    Example:
        >>> nans = np.array([np.nan, -np.nan], np.float16)
        >>> np.unique(plain_bits(nans, "float16")).size
        1
    """
    bits = bits_of(array, dtype).reshape(-1)
    if not is_float(dtype):
        return bits
    form = float_format(dtype)
    quiet_nan = bits.dtype.type(form.infinity | 1 << (form.mantissa - 1))
    return np.where(is_nan(array, dtype).reshape(-1), quiet_nan, bits)
