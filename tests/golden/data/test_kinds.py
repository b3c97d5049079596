"""Test data: differs per rank and position, covers the promised values, and never changes."""

from __future__ import annotations

import hashlib
import itertools

import numpy as np
import pytest
from golden.data import KINDS, fill, poison
from golden.data.bit_patterns import extremes
from golden.data.dtypes import DTYPES, FLOAT_DTYPES, bits_of, is_float, is_nan, storage, to_float32
from golden.data.reduction import reduce_ranks

NUMBERS = [dtype for dtype in DTYPES if dtype != "bool"]
# Distinct numbers of kind "index".
DISTINCT = {"int8": 251, "uint8": 251, "bfloat16": 509, "float16": 4093}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ranks_and_seeds_differ(dtype: str, kind: str) -> None:
    tensors = [[bits_of(fill((40, 5), dtype, r, s, kind), dtype) for r in range(7)] for s in (0, 1)]
    pairs = [*itertools.combinations(tensors[0], 2), *zip(*tensors, strict=True)]
    for a, b in pairs:
        assert np.mean(a != b) > (0.3 if dtype == "bool" else 0.8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_rows_differ(dtype: str, kind: str) -> None:
    flat = bits_of(fill((4001,), dtype, 1, kind=kind), dtype)
    for distance in (1, 2, 3, 4, 8, 16, 64, 257, 1024):
        assert np.mean(flat[distance:] != flat[:-distance]) > (0.4 if dtype == "bool" else 0.45)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_index_is_distinct_as_far_as_the_dtype_allows(dtype: str) -> None:
    run = DISTINCT.get(dtype, 20_000)
    flat = fill((2 * run,), dtype, 2)
    for part in (flat[:run], flat[run:]):
        assert len(np.unique(part)) == run
    # The second run is not the first again, so that being off by a whole run shows.
    assert (flat[:run] != flat[run:]).all()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_index_differs_between_ranks_at_every_position(dtype: str) -> None:
    tensors = [fill((3000,), dtype, rank) for rank in range(16)]
    for a, b in itertools.combinations(tensors, 2):
        assert (a != b).all()


@pytest.mark.parametrize("kind", ["index", "exact"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_index_is_whole_and_never_zero(dtype: str, kind: str) -> None:
    flat = fill((9001,), dtype, 3, kind=kind)
    values = (to_float32(flat) if dtype == "bfloat16" else flat).astype(np.float64)
    assert (values != 0).all()
    assert np.array_equal(values, np.rint(values))
    assert len(np.unique(values)) == (17 if kind == "exact" else DISTINCT.get(dtype, 9001))
    if len(np.unique(values)) < 5000 and dtype != "uint8":
        assert values.min() < 0 < values.max()


@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_index_fills_all_bytes_of_wide_types(dtype: str) -> None:
    words = fill((1000,), dtype, 1).view(np.uint32).reshape(-1, 2)
    assert all(len(np.unique(words[:, half])) > 500 for half in (0, 1))


def test_exact_sums_are_exact_in_any_order() -> None:
    for dtype in ("float16", "bfloat16"):
        parts = [fill((100,), dtype, rank, kind="exact") for rank in range(28)]
        want = reduce_ranks(parts, "sum", dtype)
        stepwise = parts[27]
        for part in parts[26::-1]:
            stepwise = reduce_ranks([stepwise, part], "sum", dtype)
        assert np.array_equal(stepwise, want)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_random_floats_are_mixed(dtype: str) -> None:
    flat = fill((4000,), dtype, 0, kind="random")
    values = (to_float32(flat) if dtype == "bfloat16" else flat).astype(np.float64)
    assert np.isfinite(values).all()
    assert 0.4 < np.mean(values < 0) < 0.6
    exponents = np.frexp(values)[1]
    assert (exponents.min(), exponents.max()) == (-9, 10)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_random_integers_use_the_whole_range(dtype: str) -> None:
    values = fill((4000,), dtype, 0, kind="random").astype(np.float64)
    info = np.iinfo(dtype)
    assert values.min() < info.min + 2.0**info.bits / 100
    assert values.max() > info.max - 2.0**info.bits / 100


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_special_floats_have_everything(dtype: str) -> None:
    flat = fill((600,), dtype, 1, kind="special")
    with np.errstate(invalid="ignore"):
        values = (to_float32(flat) if dtype == "bfloat16" else flat).astype(np.float64)
    zero = values == 0
    assert np.signbit(values[zero]).any() and not np.signbit(values[zero]).all()
    assert {np.inf, -np.inf} <= set(values.tolist())
    assert is_nan(flat, dtype).any()
    normal = {"float16": 2.0**-14, "float64": 2.0**-1022}.get(dtype, 2.0**-126)
    assert ((values != 0) & (np.abs(values) < normal)).any()


@pytest.mark.parametrize("dtype", NUMBERS)
def test_special_meets_in_all_pairs(dtype: str) -> None:
    table = bits_of(extremes(dtype), dtype).tolist()
    assert len(set(table)) == len(table) == (17 if is_float(dtype) else 11)
    size = 2 * len(table) ** 2
    parts = [
        bits_of(fill((size,), dtype, r, kind="special"), dtype)[::2].tolist() for r in range(4)
    ]
    for a, b in itertools.combinations(parts, 2):
        assert set(zip(a, b, strict=True)) == set(itertools.product(table, repeat=2))


def test_bools_of_two_neighbouring_ranks_are_opposites() -> None:
    a, b, c = (fill((500,), "bool", rank) for rank in (0, 1, 2))
    assert (a != b).all()
    assert 0.4 < np.mean(a) < 0.6
    assert 0.4 < np.mean(a == c) < 0.6


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
    digest = hashlib.sha256()
    for dtype, kind in itertools.product(DTYPES, KINDS):
        digest.update(fill((700,), dtype, 2, 5, kind).tobytes())
    assert digest.hexdigest()[:16] == "da5bcccb2ea893fe"


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
