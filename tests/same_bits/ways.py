"""Ways to compute one product with leaves: who holds what of it, and what computes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import accumulate, combinations, product
from typing import NamedTuple

from tests.conformance.runs import ISAS


class Way(NamedTuple):
    """One way.

    kind: ATB's type: who gathers and who adds up.
    columns: whether the ranks' leaves are shared out evenly, or the last has most, and the leaves
    are not equally long.
    rows: of the ranks that gather, or to which the sums are scattered.
    route: how shm's ranks exchange: over windows, or one collective after the other; or ucx.
    """

    ranks: int
    isa: str
    num_threads: int
    kind: int
    dtype: str
    quant: str
    columns: str
    rows: str
    route: str
    trans_weight: bool


AXES = (
    (1, 2, 3, 4, 6, 8),
    ISAS,
    (1, 2),
    (0, 1, 2, 3, 4),
    ("float32", "bfloat16", "float16"),
    ("float", "W8A16", "W8A8"),
    ("even", "uneven"),
    ("even", "uneven", "one row"),
    ("windows", "in turn", "ucx"),
    (False, True),
)


def all_ways() -> Iterator[Way]:
    """Every combination."""
    return (Way(*values) for values in product(*AXES))


def pairwise_ways() -> list[Way]:
    """So many that every value of an axis meets every value of every other.

    Each takes, axis by axis, the value that adds most new pairs to those before.
    """
    missing = {
        (a, x, b, y) for a, b in combinations(range(len(AXES)), 2) for x in AXES[a] for y in AXES[b]
    }
    ways = []
    while missing:
        first = min(missing, key=repr)
        values = {first[0]: first[1], first[2]: first[3]}
        for axis in range(len(AXES)):
            if axis not in values:
                values[axis] = max(AXES[axis], key=lambda v: _new(missing, values, axis, v))
        way = Way(*(values[axis] for axis in range(len(AXES))))
        missing -= {(a, way[a], b, way[b]) for a, b in combinations(range(len(AXES)), 2)}
        ways.append(way)
    return ways


def _new(missing: set[object], values: dict[int, object], axis: int, value: object) -> int:
    """How many missing pairs the value of an axis makes with those that are chosen."""
    pairs = ((min(axis, a), max(axis, a), a, x) for a, x in values.items())
    return sum(
        (low, x if a == low else value, high, value if a == low else x) in missing
        for low, high, a, x in pairs
    )


def chosen_ways() -> list[Way]:
    """All of them where COLLOPS_ALL_BITS is set (`make test-same-bits`), else every pair."""
    return list(all_ways()) if os.environ.get("COLLOPS_ALL_BITS") else pairwise_ways()


def cut(total: int, parts: int, evenly: bool) -> list[int]:
    """Where parts of a whole begin, and the end; unevenly: the last has most, none is empty."""
    if evenly:
        sizes = [total // parts + (i < total % parts) for i in range(parts)]
        return list(accumulate(sizes, initial=0))
    return [*(max(i, total * i**2 // parts**2) for i in range(parts)), total]
