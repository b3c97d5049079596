"""Bounds: 0 where bits are promised, never exceeded elsewhere, and not so wide that all passes."""

from __future__ import annotations

import numpy as np
import pytest
from golden.data import fill
from golden.data.bounds import bound, matmul_bound, sum_bound
from golden.data.dtypes import FLOAT_DTYPES, Array, from_float32, to_float32
from golden.data.reduction import reduce_ranks


def values(tensor: Array, dtype: str) -> Array:
    return (to_float32(tensor) if dtype == "bfloat16" else tensor).astype(np.float64)


def stepwise(parts: list[Array], op: str, dtype: str) -> Array:
    """A reduction that rounds to `dtype` after every step, as a device may."""
    total = parts[0]
    for part in parts[1:]:
        total = reduce_ranks([total, part], op, dtype)
    return total


@pytest.mark.parametrize(
    ("rank_size", "kind"),
    [(2, "random"), (3, "random"), (8, "random"), (50, "random"), (3, "cancel"), (4, "cancel")],
)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_sums_in_any_order_are_within_the_bound(rank_size: int, dtype: str, kind: str) -> None:
    parts = [fill((400,), dtype, rank, kind=kind) for rank in range(rank_size)]
    golden = values(reduce_ranks(parts, "sum", dtype), dtype)
    magnitude = np.sum([np.abs(values(part, dtype)) for part in parts], axis=0)
    limit = bound(dtype, "sum", rank_size, magnitude)
    assert np.isfinite(limit).any()
    shuffles = [np.random.default_rng(seed).permutation(rank_size) for seed in range(5)]
    worst = 0.0
    with np.errstate(invalid="ignore"):
        for order in shuffles:
            other = values(stepwise([parts[r] for r in order], "sum", dtype), dtype)
            error = np.where(np.isfinite(limit), np.abs(other - golden), 0)
            assert (error <= limit).all()
            worst = max(worst, float(np.max(error / limit)))
    assert worst > 0 or rank_size == 2


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_a_lost_term_is_outside_the_bound(dtype: str) -> None:
    parts = [fill((400,), dtype, rank, kind="random") for rank in range(4)]
    golden = values(reduce_ranks(parts, "sum", dtype), dtype)
    magnitude = np.sum([np.abs(values(part, dtype)) for part in parts], axis=0)
    error = np.abs(values(reduce_ranks(parts[:3], "sum", dtype), dtype) - golden)
    assert np.mean(error > bound(dtype, "sum", 4, magnitude)) > 0.25


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_average_and_product_are_within_the_bound(dtype: str) -> None:
    parts = [fill((400,), dtype, rank, kind="random") for rank in range(5)]
    numbers = [np.abs(values(part, dtype)) for part in parts]
    average = values(reduce_ranks(parts, "avg", dtype), dtype)
    total = values(stepwise(parts[::-1], "sum", dtype), dtype)
    error = np.abs(total / 5 - average)
    assert (error <= bound(dtype, "avg", 5, np.sum(numbers, axis=0))).all()

    close = [fill((400,), dtype, rank, kind="exact") for rank in range(3)]
    magnitude = np.prod([np.abs(values(part, dtype)) for part in close], axis=0)
    golden = values(reduce_ranks(close, "prod", dtype), dtype)
    other = values(stepwise(close[::-1], "prod", dtype), dtype)
    assert (np.abs(other - golden) <= bound(dtype, "prod", 3, magnitude)).all()


@pytest.mark.parametrize(
    ("dtype", "op"), [("int8", "sum"), ("int64", "prod"), ("float16", "max"), ("bfloat16", "min")]
)
def test_exact_results_have_no_tolerance(dtype: str, op: str) -> None:
    assert bound(dtype, op, 8, np.full((2, 3), 1e3)).tolist() == [[0.0] * 3] * 2


def test_a_single_term_is_exact() -> None:
    assert sum_bound(np.ones(3), 1, "float16").tolist() == [0.0, 0.0, 0.0]


def test_no_promise_where_sums_may_overflow() -> None:
    assert np.isinf(sum_bound(np.array([40000.0, np.nan]), 2, "float16")).all()
    assert np.isfinite(sum_bound(np.array([30000.0]), 2, "float16")).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("k", [1, 64, 700])
def test_products_in_any_order_are_within_the_bound(dtype: str, k: int) -> None:
    tensors = [fill((6, k), dtype, rank, kind="random") for rank in (0, 1)]
    if dtype == "float16":
        tensors = [x * np.float16(2.0**-6) for x in tensors]
    wide = [values(x, dtype).astype(np.float32) for x in tensors]
    exact_size = np.abs(wide[0]).astype(np.float64) @ np.abs(wide[1]).astype(np.float64).T
    limit = matmul_bound(exact_size, k, dtype)
    assert np.isfinite(limit).any()
    products = wide[0][:, None, :] * wide[1][None, :, :]
    results = []
    for order in (slice(None), slice(None, None, -1)):
        chain = np.zeros((6, 6), np.float32)
        for term in np.moveaxis(products, 2, 0)[order]:
            chain = chain + term
        with np.errstate(over="ignore"):
            out = from_float32(chain) if dtype == "bfloat16" else chain.astype(dtype)
        results.append(values(out, dtype))
    fits = np.isfinite(limit)
    assert (np.abs(results[0] - results[1])[fits] <= limit[fits]).all()
    exact = wide[0].astype(np.float64) @ wide[1].astype(np.float64).T
    assert (np.abs(results[0] - exact)[fits] <= limit[fits]).all()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="matmul accumulates in float32"):
        matmul_bound(np.ones(1), 2, "float64")
    with pytest.raises(ValueError, match="'int8' is not floating"):
        sum_bound(np.ones(1), 2, "int8")
    with pytest.raises(ValueError, match="op 'mean' is unknown"):
        bound("int8", "mean", 2, np.ones(1))
