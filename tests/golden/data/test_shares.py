"""Patterns of counts and displacements."""

from __future__ import annotations

import pytest
from golden.data.shares import shares


@pytest.mark.parametrize(
    ("name", "rank_size", "unit", "want"),
    [
        ("even", 3, 4, [4, 4, 4]),
        ("3:5", 2, 2, [6, 10]),
        ("3:5", 5, 1, [3, 5, 3, 5, 3]),
        ("1:2:3:4", 4, 3, [3, 6, 9, 12]),
        ("1:2:3:4", 2, 1, [1, 2]),
        ("one_owner", 4, 2, [0, 0, 0, 8]),
        ("zeros", 5, 3, [0, 3, 0, 9, 0]),
        ("primes", 4, 7, [11, 13, 17, 19]),
        ("primes", 3, 1, [2, 3, 5]),
        ("ones", 3, 64, [1, 1, 1]),
    ],
)
def test_patterns(name: str, rank_size: int, unit: int, want: list[int]) -> None:
    assert shares(name, rank_size, unit) == want


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shares '2:1' is unknown; use one of even, 3:5"):
        shares("2:1", 2, 1)
    with pytest.raises(ValueError, match="must be >= 1, got 0 and 4"):
        shares("even", 0, 4)
    with pytest.raises(ValueError, match="must be >= 1, got 2 and 0"):
        shares("even", 2, 0)
