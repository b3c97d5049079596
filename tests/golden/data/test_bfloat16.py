"""bfloat16 on uint16: every pattern, every tie, and rounding against distances in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from golden.data.dtypes import from_float32, to_float32

ALL = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
NAN = (ALL & 0x7FFF) > 0x7F80
# Positive finite patterns; each has the next one above it, the last one infinity.
FINITE: npt.NDArray[Any] = np.arange(0x7F80, dtype=np.uint32)


def float32_of(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return bits.astype(np.uint32).view(np.float32)


def value(bits: int) -> float:
    """A bfloat16 from its fields, without numpy's floats; infinity counts as 2^128."""
    sign = -1.0 if bits & 0x8000 else 1.0
    exponent, mantissa = bits >> 7 & 0xFF, bits & 0x7F
    if exponent == 0:
        return sign * mantissa * 2.0**-133
    return sign * (128 + mantissa) * 2.0 ** (exponent - 134)


def test_every_pattern_has_the_value_of_its_fields() -> None:
    got = to_float32(ALL[~NAN]).astype(np.float64)
    want = np.array([value(int(bits)) for bits in ALL[~NAN]])
    finite = np.abs(want) < 2.0**128
    assert np.array_equal(got[finite], want[finite])
    assert np.array_equal(np.signbit(got), (ALL[~NAN] & 0x8000) != 0)
    assert np.isinf(got[~finite]).all()


def test_every_pattern_comes_back() -> None:
    again = from_float32(to_float32(ALL))
    assert again.dtype == np.uint16
    assert np.array_equal(again[~NAN], ALL[~NAN])


def test_every_nan_stays_nan_becomes_quiet_and_keeps_its_sign() -> None:
    again = from_float32(to_float32(ALL[NAN]))
    assert np.array_equal(again, ALL[NAN] | 0x0040)


def test_nan_whose_payload_lies_only_in_the_lost_half_stays_nan() -> None:
    got = from_float32(float32_of(np.array([0x7F800001, 0xFF80FFFF, 0x7FFFFFFF], np.uint32)))
    assert got.tolist() == [0x7FC0, 0xFFC0, 0x7FFF]


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_every_tie_goes_to_the_even_neighbour(sign: int) -> None:
    middle = float32_of((FINITE | sign) << 16 | 0x8000)
    even = FINITE + (FINITE & 1)
    assert np.array_equal(from_float32(middle), (even | sign).astype(np.uint16))


@pytest.mark.parametrize("sign", [0, 0x8000])
def test_a_bit_off_a_tie_goes_to_the_nearer_neighbour(sign: int) -> None:
    below = from_float32(float32_of((FINITE | sign) << 16 | 0x7FFF))
    above = from_float32(float32_of((FINITE | sign) << 16 | 0x8001))
    assert np.array_equal(below, (FINITE | sign).astype(np.uint16))
    assert np.array_equal(above, (FINITE + 1 | sign).astype(np.uint16))


def test_rounding_is_to_the_nearest_by_distance() -> None:
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    bits = bits[(bits & 0x7FFFFFFF) < 0x7F800000]
    lower, upper = bits >> 16, (bits >> 16) + 1
    x = np.abs(float32_of(bits).astype(np.float64))
    to_lower = x - np.array([abs(value(int(b))) for b in lower])
    to_upper = np.array([abs(value(int(b))) for b in upper]) - x
    tie = np.where(lower % 2 == 0, lower, upper)
    want = np.where(to_lower < to_upper, lower, np.where(to_upper < to_lower, upper, tie))
    assert np.array_equal(from_float32(float32_of(bits)), want.astype(np.uint16))


def test_subnormals_are_kept() -> None:
    steps = np.array([1, -3, 0.5, 0.51], np.float32)
    got = from_float32(steps * np.float32(2.0**-133))
    assert got.tolist() == [0x0001, 0x8003, 0x0000, 0x0001]


def test_shapes_are_kept_and_nothing_warns() -> None:
    for shape in ((), (0, 3), (2, 1, 2)):
        nan = np.full(shape, -np.nan, np.float32)
        with np.errstate(all="raise"):
            assert from_float32(nan).shape == shape
            assert to_float32(from_float32(nan)).shape == shape


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"float32 is carried as float32, got an array of float64"):
        from_float32(np.zeros(1))
    with pytest.raises(ValueError, match=r"bfloat16 is carried as uint16, got an array of float32"):
        to_float32(np.zeros(1, np.float32))
