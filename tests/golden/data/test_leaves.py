"""Leaves of a sum, and the tree that adds them."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from golden.data.leaves import fused_multiply_add, subtrees, tree_sum
from golden.operators.linear_parallel.groups import (
    ALL_GATHER,
    ALL_GATHER_REDUCE_SCATTER,
    ALL_REDUCE,
    PURE,
    REDUCE_SCATTER,
    LinearParallel,
    leaves_of,
)
from golden.operators.linear_parallel.reference import linear_parallel


def _once_rounded(exact: Fraction) -> float:
    """The float32 that is nearest, ties to even."""
    if not exact:
        return 0.0
    exponent = -149
    while abs(exact) >= Fraction(2) ** (exponent + 24):
        exponent += 1
    return float(round(exact / Fraction(2) ** exponent) * Fraction(2) ** exponent)


def test_a_multiply_add_is_rounded_once() -> None:
    rng = np.random.default_rng(7)
    a, b, c = (np.ldexp(rng.standard_normal(3000), rng.integers(-30, 30, 3000)) for _ in range(3))
    # Sums that cancel, and sums that a float64 rounds to the middle between two float32.
    c[:1000] = -a[:1000] * b[:1000]
    a[1000:2000], b[1000:2000] = 1 + 2.0**-23, rng.choice([2.0**-24, -(2.0**-24)], 1000)
    c[1000:2000] = 1 + 2.0**-23 * rng.integers(0, 9, 1000)
    x, y, z = (values.astype(np.float32) for values in (a, b, c))
    wanted = [
        _once_rounded(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(s)))
        for p, q, s in zip(x, y, z, strict=True)
    ]
    np.testing.assert_array_equal(fused_multiply_add(x, y, z), np.float32(wanted))


@pytest.mark.parametrize("leaves", [1, 2, 3, 7, 8, 13])
def test_whole_subtrees_may_be_added_anywhere(leaves: int) -> None:
    parts = list(np.random.default_rng(leaves).standard_normal((leaves, 50)).astype(np.float32))
    whole = tree_sum(parts)
    for begin in range(leaves + 1):
        for end in range(begin, leaves + 1):
            held = [
                *((i, i + 1) for i in range(begin)),
                *subtrees(leaves, begin, end),
                *((i, i + 1) for i in range(end, leaves)),
            ]
            sums = {root: tree_sum(parts[root[0] : root[1]]) for root in held}

            def join(first: int, last: int, sums: dict[tuple[int, int], np.ndarray] = sums):
                if (first, last) in sums:
                    return sums[first, last]
                [*_, middle] = [first + 2**i for i in range(4) if 2**i < last - first]
                return join(first, middle) + join(middle, last)

            np.testing.assert_array_equal(join(0, leaves), whole)
            assert len(held) <= leaves and sum(b - a for a, b in held) == leaves


def _outputs(call: LinearParallel, x: np.ndarray, weight: np.ndarray, cut: list[int]) -> np.ndarray:
    """The whole product, whose k is cut at these columns."""
    xs = [x[:, a:b] for a, b in pairwise(cut)]
    weights = [weight[a:b] for a, b in pairwise(cut)]
    outputs = [output for [output] in linear_parallel(call, xs, weights)]
    scatters = call.type in (REDUCE_SCATTER, ALL_GATHER_REDUCE_SCATTER)
    return np.concatenate(outputs) if scatters else outputs[-1]


@pytest.mark.parametrize("kind", [ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER_REDUCE_SCATTER])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_same_bits_at_every_number_of_ranks(kind: int, dtype: type) -> None:
    rng, k, leaves = np.random.default_rng(kind), 37, 13
    x = rng.standard_normal((24, k)).astype(dtype)
    weight = rng.standard_normal((k, 5)).astype(dtype)
    alone = LinearParallel(PURE, 1, trans_weight=False, sum_leaves=leaves)
    [[whole]] = linear_parallel(alone, [x], [weight])
    borders = [0, *np.cumsum([3] * 11 + [2] * 2).tolist()]
    for ranks, begins in [
        *((ranks, ()) for ranks in (2, 3, 4, 6, 8)),
        (3, (0, 0, 12)),
        (4, (0, 1, 7, 13)),
    ]:
        call = LinearParallel(
            *(kind, ranks, 1, ranks, True, False), sum_leaves=leaves, leaf_begins=begins
        )
        held = [leaves_of(call, rank) for rank in range(ranks)]
        cut = [borders[first] for first, _ in held] + [k]
        np.testing.assert_array_equal(_outputs(call, x, weight, cut), whole)
    gathers = LinearParallel(ALL_GATHER, 2, trans_weight=False, sum_leaves=leaves)
    outputs = linear_parallel(gathers, [x[:9], x[9:]], [weight, weight])
    np.testing.assert_array_equal(outputs[1][0], whole)


def test_columns_that_are_not_those_of_the_leaves() -> None:
    call = LinearParallel(ALL_REDUCE, 2, trans_weight=False, sum_leaves=3)
    x, weight = np.ones((1, 3), np.float32), np.ones((3, 1), np.float32)
    with pytest.raises(ValueError, match=r"rank 0 has 3 columns, its leaves 0 to 2 of 3 have 4"):
        linear_parallel(call, [x, x], [weight, weight])
