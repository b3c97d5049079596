"""The generators of case files: ranges are kept, ranks and positions differ, bits are stable."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from golden.data.deviation import values_of
from golden.data.dtypes import DTYPES, Array, is_float
from golden.data.generators import even_split, generate

NUMBERS = [dtype for dtype in DTYPES if dtype != "bool"]


def random(dtype: str, low: float = -5, high: float = 5, **others: int) -> Array:
    return generate("random", (40, 25), dtype, value_range=(low, high), **others)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_and_zero(dtype: str) -> None:
    for word, number in (("one", 1), ("zero", 0)):
        array = generate(word, (2, 3), dtype, rank=3, position=1, seed=5)
        assert array.shape == (2, 3)
        assert (values_of(array, dtype) == number).all()


@pytest.mark.parametrize("word", ["random", "customize"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_the_range_is_kept_and_used(dtype: str, word: str) -> None:
    low = 0 if dtype == "uint8" else -100
    values = values_of(generate(word, (5000,), dtype, value_range=(low, 100)), dtype)
    assert values.min() >= low
    assert values.max() <= 100
    assert abs(values.mean() - (low + 100) / 2) < 5
    if is_float(dtype):
        assert len(np.unique(values)) > 400
    else:
        assert set(values) == set(range(low, 101))


@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_positions_seeds_and_elements_differ(dtype: str) -> None:
    one = random(dtype, -100, 100)
    others = [random(dtype, -100, 100, **{name: 1}) for name in ("rank", "position", "seed")]
    others += [random(dtype, -100, 100, rank=7), random(dtype, -100, 100, seed=1, position=1)]
    for a, b in itertools.combinations([one, *others], 2):
        assert np.mean(a != b) > (0.4 if dtype == "bool" else 0.9)
    assert np.mean(one[1:] != one[:-1]) > (0.4 if dtype == "bool" else 0.9)


def test_equal_data_on_request_is_that_of_rank_0() -> None:
    for word in ("random", "customize"):
        mine = generate(word, (9,), "float16", rank=3, same_data=True)
        assert mine.tobytes() == generate(word, (9,), "float16", rank=0).tobytes()


def test_the_bits_are_the_same_everywhere() -> None:
    content = b"".join(random(dtype, -90, 110, rank=2, seed=3).tobytes() for dtype in DTYPES)
    digest = hashlib.sha256(content).hexdigest()
    assert digest[:16] == "85d29fb58d120ae6"


@pytest.mark.parametrize(
    ("dtype", "low", "high", "first", "last"),
    [
        ("int8", -1000, 1000, -128, 127),
        ("uint8", -5, 5, 0, 5),
        ("int32", 0.5, 2.5, 1, 2),
        ("int64", -(2.0**80), 2.0**80, None, None),
        ("int16", 3, 3, 3, 3),
    ],
)
def test_ranges_are_cut_to_what_an_integer_has(
    dtype: str, low: float, high: float, first: int | None, last: int | None
) -> None:
    array = generate("random", (20_000,), dtype, value_range=(low, high))
    if first is None:
        assert (array < 0).any() and (array > 2**62).any()
    else:
        assert (array.min(), array.max()) == (first, last)


def test_tensors_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(ValueError, match=r"range 0.2,0.8 holds no number of int32"):
        random("int32", 0.2, 0.8)
    with pytest.raises(ValueError, match="generator 'ones' is unknown; use one, zero, random or"):
        generate("ones", (1,), "int8")
    with pytest.raises(ValueError, match=r"shape \[2, -1\] cannot be made: a dim is below 0"):
        generate("zero", (2, -1), "int8")
    with pytest.raises(ValueError, match="dtype 'uint32' is unknown"):
        generate("zero", (2,), "uint32")


def test_the_even_split() -> None:
    assert even_split([6, 6, 6], divide=False) == ([6, 6, 6], [0, 6, 12])
    assert even_split([6, 4], divide=False) == ([6, 4], [0, 6])
    assert even_split([12] * 3, divide=True) == ([4] * 3, [0, 4, 8])
    assert even_split([7] * 2, divide=True) == ([3] * 2, [0, 3])
