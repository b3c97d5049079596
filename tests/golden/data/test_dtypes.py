"""Names of dtypes, formats of floats, and comparison of tensors."""

from __future__ import annotations

import numpy as np
import pytest
from golden.data.deviation import ulp_distance
from golden.data.dtypes import (
    DTYPES,
    FLOAT_DTYPES,
    Array,
    bits_of,
    differs,
    float_format,
    from_float32,
    is_nan,
    name_of,
    same_bits,
    storage,
)

NUMPY_FLOATS = ["float16", "float32", "float64"]


def floats(values: list[float], dtype: str) -> Array:
    if dtype == "bfloat16":
        return from_float32(np.array(values, np.float32))
    return np.array(values, storage(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_storage_and_name_are_inverse(dtype: str) -> None:
    assert name_of(np.zeros(1, storage(dtype))) == dtype
    assert storage(dtype) == np.dtype(np.uint16 if dtype == "bfloat16" else dtype)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"dtype 'half' is unknown; use one of float16, bfloat16"):
        storage("half")
    with pytest.raises(ValueError, match=r"an array of complex64 is not one of"):
        name_of(np.zeros(1, np.complex64))
    with pytest.raises(ValueError, match=r"dtype 'int8' is not floating"):
        float_format("int8")


@pytest.mark.parametrize("dtype", NUMPY_FLOATS)
def test_formats_agree_with_numpy(dtype: str) -> None:
    form, info = float_format(dtype), np.finfo(np.dtype(dtype))
    assert form.largest == float(info.max)
    assert form.smallest == float(np.nextafter(info.dtype.type(0), info.dtype.type(1)))
    assert form.unit_roundoff == float(info.eps) / 2
    infinity = np.array([np.inf], dtype)
    assert bits_of(infinity, dtype).tolist() == [form.infinity]
    assert bits_of(-np.zeros(1, dtype), dtype).tolist() == [form.sign]


def test_the_format_of_bfloat16() -> None:
    form = float_format("bfloat16")
    assert (form.infinity, form.bias, form.smallest) == (0x7F80, 127, 2.0**-133)
    assert form.largest == (2 - 2**-7) * 2.0**127
    assert form.unit_roundoff == 2.0**-8


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_nan_is_found_and_infinity_is_not_nan(dtype: str) -> None:
    tensor = floats([np.nan, -np.nan, np.inf, -np.inf, 0.0, 1.0], dtype)
    assert is_nan(tensor, dtype).tolist() == [True, True, False, False, False, False]


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_differs_knows_signed_zeros_and_nan(dtype: str) -> None:
    a = floats([0.0, np.nan, 1.0, np.nan, np.inf], dtype)
    b = floats([-0.0, -np.nan, 1.0, np.inf, np.inf], dtype)
    assert differs(a, b, dtype).tolist() == [True, False, False, True, False]
    assert not same_bits(a, b, dtype)
    assert same_bits(a, a.copy(), dtype)


def test_shapes_must_agree() -> None:
    row, column = np.zeros((1, 2), np.int8), np.zeros((2, 1), np.int8)
    assert not same_bits(row, column, "int8")
    with pytest.raises(ValueError, match=r"shapes differ: \(1, 2\) and \(2, 1\)"):
        differs(row, column, "int8")


def test_a_tensor_of_another_type_is_refused() -> None:
    with pytest.raises(ValueError, match=r"int8 is carried as int8, got an array of float32"):
        same_bits(np.zeros(1, np.int8), np.zeros(1, np.float32), "int8")


@pytest.mark.parametrize("dtype", NUMPY_FLOATS)
def test_ulp_distance_counts_steps_of_nextafter(dtype: str) -> None:
    kind = np.dtype(dtype).type
    for start in (1.0, -2.0, 0.0, float(np.finfo(dtype).smallest_normal)):
        a = b = np.array([start], dtype)
        for steps in range(4):
            assert ulp_distance(a, b, dtype).tolist() == [steps]
            assert ulp_distance(b, a, dtype).tolist() == [steps]
            b = np.nextafter(b, kind(np.inf))


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_ulp_distance_at_the_ends(dtype: str) -> None:
    far = 2**64 - 1
    a = floats([0.0, np.nan, np.nan, np.inf], dtype)
    b = floats([-0.0, np.nan, 1.0, -np.inf], dtype)
    across = 2 * float_format(dtype).infinity
    assert ulp_distance(a, b, dtype).tolist() == [0, 0, far, across]
