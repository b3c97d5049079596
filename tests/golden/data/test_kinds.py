"""Test data: differs per rank and position, covers the promised values, and never changes."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from golden.data import KINDS, fill, poison
from golden.data.dtypes import DTYPES, is_nan, storage


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_element_depends_on_its_flat_position_alone(dtype: str, kind: str) -> None:
    flat = fill((24,), dtype, 1, 2, kind)
    assert flat.dtype == storage(dtype)
    assert fill((2, 3, 4), dtype, 1, 2, kind).tobytes() == flat.tobytes()
    assert fill((7,), dtype, 1, 2, kind).tobytes() == flat[:7].tobytes()
    assert fill((0, 4), dtype, 1, 2, kind).shape == (0, 4)
    assert fill((), dtype, 1, 2, kind).shape == ()


def test_the_data_never_changes() -> None:
    """It was looked at once: ranks, seeds, rows and neighbours differ, and all extremes meet."""
    digest = hashlib.sha256()
    for dtype, kind, rank, seed in itertools.product(DTYPES, KINDS, range(4), (0, 5)):
        digest.update(fill((4001,), dtype, rank, seed, kind).tobytes())
    assert digest.hexdigest()[:16] == "210efdb434d6bfcf"


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"data kind 'ones' is unknown; use one of index, exact"):
        fill((1,), "int8", 0, kind="ones")
    with pytest.raises(ValueError, match=r"dtype 'half' is unknown"):
        fill((1,), "half", 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_is_recognised(dtype: str) -> None:
    tensor = poison((3, 2), dtype)
    assert tensor.shape == (3, 2)
    assert tensor.dtype == storage(dtype)
    assert set(tensor.tobytes()) == {0xA5}
    assert not is_nan(tensor, dtype).any()
    assert poison((0, 2), dtype).shape == (0, 2)
    tensor[0] = 0
