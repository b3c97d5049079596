"""The words for dtypes on command lines: one vocabulary for all commands."""

from __future__ import annotations

import pytest
from golden.data.dtypes import DTYPES, dtype_named


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("float32", "f32 fp32 float FP32 float32"),
        ("float16", "f16 fp16 half float16"),
        ("bfloat16", "bf16 BF16 bfloat16"),
        ("float64", "f64 fp64 double float64"),
        ("int8", "i8 int8"),
        ("bool", "bool"),
    ],
)
def test_every_word_of_a_dtype_is_taken(name: str, words: str) -> None:
    assert {dtype_named(word) for word in words.split()} == {name}


def test_every_dtype_has_its_own_name() -> None:
    assert [dtype_named(name) for name in DTYPES] == list(DTYPES)


def test_an_unknown_word_is_answered_by_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"dtype 'f8' is unknown; .*float32/f32/fp32/float"):
        dtype_named("f8")
