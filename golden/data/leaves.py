"""Sums that do not depend on the number of ranks: leaves of products, added by one tree.

The inner dimension of a product over all ranks is cut into leaves of whole columns. The product of
a leaf is summed in ascending k by fused multiply-adds in float32, and the leaves are added by a
binary tree over their numbers, in float32. Whoever holds some leaves may add those that are a whole
subtree, and no bit changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from .dtypes import Array

# The most leaves that operators take.
MOST_LEAVES = 4096
_HALF = np.int64(1 << 28)  # the bits of a float64 behind a float32's, in the middle of two of these
_NORMAL = 2.0**-126


def cut_evenly(length: int, parts: int) -> list[int]:
    """Return the borders of parts of whole columns, of which the first are one longer.

    Example:
        >>> cut_evenly(7, 3)
        [0, 3, 5, 7]
    """
    sizes = [length // parts + (i < length % parts) for i in range(parts)]
    return list(accumulate(sizes, initial=0))


def left_part(leaves: int) -> int:
    """Return how many of two or more leaves the left half of their tree has.

    It is the largest power of two below their number.

    Example:
        >>> [left_part(leaves) for leaves in (2, 3, 4, 5)]
        [1, 2, 2, 4]
    """
    return 1 << (leaves - 1).bit_length() - 1


def subtrees(leaves: int, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the largest subtrees that hold the leaves [begin, end) and no others, in order.

    Example:
        >>> subtrees(8, 0, 3), subtrees(8, 3, 6), subtrees(8, 0, 8)
        ([(0, 2), (2, 3)], [(3, 4), (4, 6)], [(0, 8)])
    """

    def inside(first: int, last: int) -> list[tuple[int, int]]:
        if last <= begin or first >= end:
            return []
        if begin <= first and last <= end:
            return [(first, last)]
        middle = first + left_part(last - first)
        return inside(first, middle) + inside(middle, last)

    return inside(0, leaves)


def tree_sum(leaves: Sequence[Array]) -> Array:
    """Return the sum of arrays by the tree, in their own type.

    Example:
        >>> tree_sum([np.float32([2**24]), np.float32([1]), np.float32([1])]).tolist()
        [16777216.0]
        >>> tree_sum([np.float32([1]), np.float32([1]), np.float32([2**24])]).tolist()
        [16777218.0]
    """
    if len(leaves) == 1:
        return leaves[0]
    middle = left_part(len(leaves))
    with np.errstate(all="ignore"):
        return np.asarray(tree_sum(leaves[:middle]) + tree_sum(leaves[middle:]))


def fused_multiply_add(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c of float32 arrays, rounded once.

    A float64 holds the product exactly. Where their sum, rounded there, is in the middle between
    two float32 or is below their normal numbers, it is rounded to odd instead: an inexact one whose
    last bit is 0 becomes its neighbour on the side of the exact sum, so that rounding it to float32
    decides as the exact sum would.

    Example:
        >>> one = np.float32([1])
        >>> bool(fused_multiply_add(one + np.float32(2**-12), one - np.float32(2**-12), -one) < 0)
        True
    """
    with np.errstate(all="ignore"):
        product, addend = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)
        total = np.asarray(product + addend)
        result = np.asarray(total.astype(np.float32))
        close = (total.view(np.int64) & (2 * _HALF - 1) == _HALF) | (np.abs(total) < _NORMAL)
        if close.any():
            product = np.broadcast_to(product, total.shape)[close]
            addend = np.broadcast_to(addend, total.shape)[close]
            result[close] = _to_odd(product, addend).astype(np.float32)
        return result


def _to_odd(product: Array, addend: Array) -> Array:
    """Return the sum of finite float64 arrays, rounded to odd."""
    total = np.asarray(product + addend)
    # What the sum has lost, exactly (Knuth's TwoSum).
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    away = (lost > 0) == (total > 0)  # the exact sum is further from zero
    is_even = (lost != 0) & (bits & 1 == 0)
    return np.asarray((bits + np.where(is_even, np.where(away, 1, -1), 0)).view(np.float64))


def leaf_product(left: Array, right: Array) -> Array:
    """Return left @ right of float32 matrices, summed from zero in ascending k.

    Example:
        >>> leaf_product(np.ones((1, 2), np.float32), np.ones((2, 1), np.float32)).tolist()
        [[2.0]]
    """
    total = np.zeros((left.shape[0], right.shape[1]), np.float32)
    for i in range(left.shape[1]):
        total = fused_multiply_add(left[:, i : i + 1], right[i : i + 1], total)
    return total
