"""The generators of case files: ranges are kept, ranks and positions differ, bits are stable."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from golden.data.dtypes import DTYPES, Array
from golden.data.generators import even_split, generate


def random(
    dtype: str, low: float = -5, high: float = 5, word: str = "random", **others: int
) -> Array:
    return generate(word, (40, 25), dtype, value_range=(low, high), **others)


def test_equal_data_on_request_is_that_of_rank_0() -> None:
    for word in ("random", "customize"):
        mine = generate(word, (9,), "float16", rank=3, same_data=True)
        assert mine.tobytes() == generate(word, (9,), "float16", rank=0).tobytes()


def test_the_bits_are_the_same_everywhere() -> None:
    """They were looked at once: ranks, positions, seeds and elements differ, in all the range."""
    digest = hashlib.sha256()
    given = itertools.product(("random", "customize"), DTYPES, (0, 1, 7), (0, 1), (0, 3))
    for word, dtype, rank, position, seed in given:
        words = random(dtype, -90, 110, word, rank=rank, position=position, seed=seed)
        digest.update(words.tobytes())
    assert digest.hexdigest()[:16] == "9fc3bb0b08034d06"


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
