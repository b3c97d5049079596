"""Leaves of a sum, and the tree that adds them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from golden.data.leaves import fused_multiply_add, subtrees, tree_sum


def once_rounded(exact: Fraction) -> float:
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
    a[1000:2000] = 1 + 2.0**-23
    b[1000:2000] = (1 - 2.0**-23) * rng.choice([2.0**-24, -(2.0**-24)], 1000)
    c[1000:2000] = 1 + 2.0**-23 * rng.integers(0, 9, 1000)
    # Sums around the smallest normal number, and below it.
    a[2000:2500], b[2000:2500] = (np.ldexp(values[2000:2500], -60) for values in (a, b))
    a[2000:2200] *= 2.0**-20
    c[2000:2500] = np.ldexp(rng.standard_normal(500), rng.integers(-150, -120, 500))
    # Of subnormal numbers, too: a float64 rounds these sums to the middle between two.
    a[2500:2600], b[2500:2600] = (1 + 2.0**-23) * 2.0**-75, (1 - 2.0**-23) * 2.0**-75
    c[2500:2600] = np.ldexp(rng.integers(2**22, 2**23, 100), -149)
    x, y, z = (values.astype(np.float32) for values in (a, b, c))
    wanted = [
        once_rounded(Fraction(float(p)) * Fraction(float(q)) + Fraction(float(s)))
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
