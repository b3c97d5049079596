"""The arithmetic over ranks, against exact fractions that are rounded here, and by hand."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import pytest
from golden.data import fill
from golden.data.dtypes import FLOAT_DTYPES, Array, from_float32, same_bits, storage, to_float32
from golden.data.reduction import (
    BITWISE_OPS,
    REDUCE_OPS,
    check_reduction,
    has_reduction,
    reduce_ranks,
)

FLOAT_OPS = [op for op in REDUCE_OPS if op not in BITWISE_OPS]
INTEGERS = ["int8", "uint8", "int16", "int32", "int64"]
# Bits of the significand and exponent of the smallest subnormal.
PRECISION = {
    "float16": (11, -24),
    "bfloat16": (8, -133),
    "float32": (24, -149),
    "float64": (53, -1074),
}
ACCUMULATOR = {"float16": "float32", "bfloat16": "float32"}


def floats(values: list[float], dtype: str) -> Array:
    if dtype == "bfloat16":
        return from_float32(np.array(values, np.float32))
    return np.array(values, storage(dtype))


def value(array: Array, i: int, dtype: str) -> float:
    return float(to_float32(array)[i]) if dtype == "bfloat16" else float(array[i])


def rounded(exact: Fraction, dtype: str) -> Fraction:
    """The nearest number of a format, ties to even; written without floats."""
    bits, lowest = PRECISION[dtype]
    if exact == 0:
        return exact
    exponent = 0
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(exact) < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** max(exponent - bits + 1, lowest)
    # Python rounds a fraction to the nearest whole number, ties to even.
    return round(exact / step) * step


def by_fractions(parts: list[Array], op: str, dtype: str, i: int) -> float:
    wide = ACCUMULATOR.get(dtype, dtype)
    terms = [Fraction(value(part, i, dtype)) for part in parts]
    total = terms[0]
    for term in terms[1:]:
        total = rounded(total * term if op == "prod" else total + term, wide)
    if op == "avg":
        total = rounded(total / len(terms), wide)
    return float(rounded(total, dtype))


@pytest.mark.parametrize(
    ("op", "kind"),
    [*itertools.product(("sum", "avg"), ("random", "cancel")), ("prod", "random")],
)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
@pytest.mark.parametrize("rank_size", [2, 3, 5])
def test_floats_agree_with_fractions(rank_size: int, dtype: str, op: str, kind: str) -> None:
    parts = [fill((60,), dtype, rank, seed=3, kind=kind) for rank in range(rank_size)]
    got = reduce_ranks(parts, op, dtype)
    largest = 65504 if dtype == "float16" else 2.0**127
    compared = 0
    for i in range(60):
        want = by_fractions(parts, op, dtype, i)
        if abs(want) <= largest:
            assert value(got, i, dtype) == want, (i, want)
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_sum_starts_from_the_value_and_not_from_zero(dtype: str) -> None:
    zero = floats([-0.0], dtype)
    assert same_bits(reduce_ranks([zero], "sum", dtype), zero, dtype)
    assert same_bits(reduce_ranks([zero, zero], "sum", dtype), zero, dtype)


def test_subnormals_of_bfloat16_are_kept() -> None:
    parts = [np.array([1, 0x007F, 0x8001], np.uint16), np.array([1, 1, 1], np.uint16)]
    assert reduce_ranks(parts, "sum", "bfloat16").tolist() == [2, 0x0080, 0]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "avg"])
@pytest.mark.parametrize("kind", ["random", "special"])
def test_integers_wrap(dtype: str, op: str, kind: str) -> None:
    parts = [fill((150,), dtype, rank, kind=kind) for rank in range(4)]
    info = np.iinfo(dtype)
    span, low = 2**info.bits, int(info.min)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = reduce_ranks(parts, op, dtype)
    exact: dict[str, Callable[[Iterable[int]], int]]
    exact = {"sum": sum, "prod": math.prod, "max": max, "min": min, "avg": sum}
    columns = zip(*(part.tolist() for part in parts), strict=True)
    want = [(exact[op](column) - low) % span + low for column in columns]
    if op == "avg":
        want = [math.trunc(Fraction(total, len(parts))) for total in want]
    assert got.dtype == np.dtype(dtype)
    assert got.tolist() == want


def test_one_element_wraps_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for shape in ((), (1,)):
            parts = [np.full(shape, 2**63 - 1, np.int64)] * 2
            assert reduce_ranks(parts, "sum", "int64").reshape(-1).tolist() == [-2]


def test_averages_of_integers_by_hand() -> None:
    parts = [np.array(row, np.int8) for row in ([-3, 5, 100, -128], [-4, 2, 100, -128])]
    assert reduce_ranks(parts, "avg", "int8").tolist() == [-3, 3, -28, 0]
    many = [np.array([1, -1], np.int8)] * 200  # more ranks than int8 has numbers
    assert reduce_ranks(many, "avg", "int8").tolist() == [0, 0]
    lowest = np.array([-(2**63)], np.int64)
    assert reduce_ranks([lowest], "avg", "int64").tolist() == [-(2**63)]


@pytest.mark.parametrize("op", FLOAT_OPS)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_every_nan_has_the_same_bits_on_every_machine(dtype: str, op: str) -> None:
    parts = [fill((600,), dtype, rank, kind="special") for rank in range(2)]
    got = reduce_ranks(parts, op, dtype)
    bits = got.view(f"u{got.itemsize}")
    nan = np.isnan(to_float32(got) if dtype == "bfloat16" else got)
    assert nan.any()
    assert len(np.unique(bits[nan])) == 1


@pytest.mark.parametrize("op", REDUCE_OPS)
def test_the_result_is_not_the_input(op: str) -> None:
    for dtype in ("float32", "int32"):
        if has_reduction(op, dtype):
            x = np.array([1, 2], dtype)
            got = reduce_ranks([x], op, dtype)
            assert got.tolist() == [1, 2]
            assert not np.shares_memory(got, x)


def test_no_elements() -> None:
    empty = np.zeros((0, 3), np.uint16)
    for op in FLOAT_OPS:
        assert reduce_ranks([empty, empty], op, "bfloat16").shape == (0, 3)


@pytest.mark.parametrize(
    ("op", "dtype", "message"),
    [
        (
            "mean",
            "float32",
            r"op 'mean' is unknown; use one of sum, max, min, prod, avg, band, bor, bxor",
        ),
        ("sum", "bool", r"dtype 'bool' has no reduction"),
        ("bxor", "float16", r"op 'bxor' is for integers, got float16"),
    ],
)
def test_reductions_that_a_dtype_lacks_are_refused(op: str, dtype: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_reduction(op, dtype)


def test_arrays_that_do_not_fit_together() -> None:
    with pytest.raises(ValueError, match="at least one rank"):
        reduce_ranks([], "sum", "int8")
    with pytest.raises(ValueError, match=r"rank 1 has shape \(3,\), rank 0 has \(2,\)"):
        reduce_ranks([np.zeros(2, np.int8), np.zeros(3, np.int8)], "sum", "int8")
    with pytest.raises(ValueError, match=r"rank 0 has float32; bfloat16 is uint16"):
        reduce_ranks([np.zeros(2, np.float32)], "sum", "bfloat16")
