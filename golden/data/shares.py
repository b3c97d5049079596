"""Named patterns of counts for any number of ranks, and displacements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, count, islice, pairwise

from .words import unknown


def shares(name: str, rank_size: int, unit: int) -> list[int]:
    """Return one count per rank, in multiples of `unit` (elements or rows).

    - even: everyone 1 unit
    - 3:5: 3 and 5 units in turn
    - 1:2:3:4: rank r has r + 1 units
    - one_owner: the last rank has rank_size units, the others nothing
    - zeros: even ranks nothing, odd ranks r units
    - primes: the primes above `unit`, so that no count divides by anything
    - ones: one element each, whatever the unit

    Args:
        name: one of SHARES.
        rank_size: number of ranks, >= 1.
        unit: size of one unit, >= 1.

    Returns:
        rank_size counts.

    Raises:
        ValueError: `name` is unknown, or rank_size or unit is below 1.

    Example:
        >>> shares("3:5", 2, 10), shares("zeros", 4, 2), shares("primes", 3, 8)
        ([30, 50], [0, 2, 0, 6], [11, 13, 17])
    """
    if name not in _SHARES:
        raise unknown("shares", name, SHARES)
    if rank_size < 1 or unit < 1:
        raise ValueError(f"rank_size and unit must be >= 1, got {rank_size} and {unit}")
    return _SHARES[name](rank_size, unit)


def packed(counts: Sequence[int]) -> list[int]:
    """Return displacements of blocks one after the other: `d_r = counts[0] + .. + counts[r-1]`.

    Example:
        >>> packed([3, 0, 5])
        [0, 3, 3]
    """
    return list(accumulate(counts, initial=0))[:-1]


def gapped(counts: Sequence[int], gap: int) -> list[int]:
    """Return displacements with `gap` elements before the first block and between the blocks.

    Example:
        >>> gapped([3, 0, 5], 2)
        [2, 7, 9]
    """
    return [start + gap * (r + 1) for r, start in enumerate(packed(counts))]


def reversed_order(counts: Sequence[int]) -> list[int]:
    """Return displacements of packed blocks with the last rank's block first.

    Example:
        >>> reversed_order([3, 0, 5])
        [5, 5, 0]
    """
    return packed(list(reversed(counts)))[::-1]


def first_overlap(starts: Sequence[int], counts: Sequence[int]) -> tuple[int, int, int] | None:
    """Return the first two blocks that share an element, and the element; None if none do.

    Example:
        >>> first_overlap([0, 5, 2], [3, 1, 4]), first_overlap([3, 0], [1, 3])
        ((0, 2, 2), None)
    """
    places = enumerate(zip(starts, counts, strict=True))
    blocks = sorted((start, start + count, q) for q, (start, count) in places if count)
    for (_, end, p), (start, _, q) in pairwise(blocks):
        if start < end:
            return p, q, start
    return None


def _primes(rank_size: int, unit: int) -> list[int]:
    primes = (n for n in count(max(unit + 1, 2)) if all(n % d for d in range(2, int(n**0.5) + 1)))
    return list(islice(primes, rank_size))


_SHARES: dict[str, Callable[[int, int], list[int]]] = {
    "even": lambda size, unit: [unit] * size,
    "3:5": lambda size, unit: [unit * (5 if r % 2 else 3) for r in range(size)],
    "1:2:3:4": lambda size, unit: [unit * (r + 1) for r in range(size)],
    "one_owner": lambda size, unit: [0] * (size - 1) + [unit * size],
    "zeros": lambda size, unit: [unit * r if r % 2 else 0 for r in range(size)],
    "primes": _primes,
    "ones": lambda size, _: [1] * size,
}
SHARES = tuple(_SHARES)
