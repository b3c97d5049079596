"""bfloat16 on uint16: every pattern, every tie, and NaNs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from golden.data.dtypes import from_float32, to_float32

ALL = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
NAN = (ALL & 0x7FFF) > 0x7F80


def float32_of(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    return bits.astype(np.uint32).view(np.float32)


def test_every_pattern_and_all_between_are_as_ml_dtypes_has_them() -> None:
    wide = ALL.view(ml_dtypes.bfloat16).astype(np.float32)
    assert to_float32(ALL).tobytes() == wide.tobytes()
    for beyond in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):  # a tie, and a bit off it
        between = float32_of(ALL[~NAN].astype(np.uint32) << 16 | beyond)
        between = between[~np.isnan(between)]
        want = between.astype(ml_dtypes.bfloat16).view(np.uint16)
        assert np.array_equal(from_float32(between), want)


def test_every_nan_stays_nan_becomes_quiet_and_keeps_its_sign() -> None:
    again = from_float32(to_float32(ALL[NAN]))
    assert np.array_equal(again, ALL[NAN] | 0x0040)


def test_nan_whose_payload_lies_only_in_the_lost_half_stays_nan() -> None:
    got = from_float32(float32_of(np.array([0x7F800001, 0xFF80FFFF, 0x7FFFFFFF], np.uint32)))
    assert got.tolist() == [0x7FC0, 0xFFC0, 0x7FFF]


def test_shapes_are_kept_and_nothing_warns() -> None:
    for shape in ((), (0, 3), (2, 1, 2)):
        nan = np.full(shape, -np.nan, np.float32)
        with np.errstate(all="raise"):
            assert from_float32(nan).shape == shape
            assert to_float32(from_float32(nan)).shape == shape
