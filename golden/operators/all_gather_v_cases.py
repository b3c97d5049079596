"""The cases of AllGatherV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..data.dtypes import DTYPES
from ..data.shares import SHARES, gapped, packed, reversed_order, shares
from .case import Case, rows_of

# A prime number of elements that is longer than one chunk of a pipeline may be.
_HUGE = 131_101


def all_gather_v_cases(rank_sizes: Sequence[int] = (2, 3, 4), *, seed: int = 0) -> list[Case]:
    """Return the cases of AllGatherV: every dtype, share, kind of data, layout and shape once.

    Each axis is covered in full, not the product of the axes.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> {case.dtype for case in all_gather_v_cases((2,))} == set(DTYPES)
        True
    """
    return [replace(case, seed=seed) for size in rank_sizes for case in _cases(size)]


def _cases(size: int) -> Iterator[Case]:
    for dtype in DTYPES:
        yield _case(f"dtype-{dtype}", shares("1:2:3:4", size, 12), dtype=dtype)
    for pattern in SHARES:
        yield _case(f"shares-{pattern.replace(':', '-')}", shares(pattern, size, 8))
    for kind, dtype in (
        ("random", "float32"),
        ("random", "int32"),
        ("special", "float16"),
        ("special", "bfloat16"),
        ("special", "float64"),
    ):
        yield _case(f"data-{kind}-{dtype}", shares("3:5", size, 20), dtype=dtype, kind=kind)
    yield from _layouts(size)
    yield from _shapes(size)


def _layouts(size: int) -> Iterator[Case]:
    """Yield cases whose blocks lie in the output in unusual ways."""
    counts = shares("3:5", size, 4)
    cut = [5 + 2 * r for r in range(size)]
    yield _case("layout-gaps", cut, displs=gapped(cut, 3), dtype="int16")
    yield _case("layout-gaps-of-rows", counts, displs=gapped(counts, 8), dtype="float32")
    yield _case("layout-reversed", counts, displs=reversed_order(counts), dtype="bfloat16")
    yield _case("layout-reversed-cut-rows", cut, displs=reversed_order(cut), dtype="uint8")
    yield _case("layout-cut-rows", cut, dtype="float64")
    yield _case("layout-tail", counts, dtype="int64", tail=3)
    yield _case("layout-cut-rows-tail", cut, dtype="int8", tail=2)
    yield _case("layout-part-of-x", cut, dtype="int32", extra=2)
    yield _case("layout-zero-of-x", shares("zeros", size, 4), dtype="bool", extra=1)
    huge = [7 + r for r in range(size - 1)] + [_HUGE]
    yield _case("layout-huge", huge, dtype="int64")


def _shapes(size: int) -> Iterator[Case]:
    """Yield cases of 1 to 8 dimensions, and of ranks whose shapes differ."""
    counts = shares("1:2:3:4", size, 12)
    for row in ((), (6,), (2, 3), (2, 1, 2), (1, 2, 1, 2, 1, 2, 1)):
        yield _case(f"shape-{len(row) + 1}d", counts, row=row)
    end = sum(counts)
    longer = _case("shape-lengths-differ", counts, dtype="float32")
    yield replace(longer, rows=tuple(rows + r for r, rows in enumerate(longer.rows)))
    row_lengths = range(1, size + 1)
    yield replace(
        _case("shape-rows-differ", counts, dtype="int16"),
        x_shapes=tuple((rows_of(c, (n,)), n) for c, n in zip(counts, row_lengths, strict=True)),
        rows=tuple(rows_of(end, (n,)) for n in row_lengths),
    )


def _case(
    name: str,
    counts: Sequence[int],
    *,
    displs: Sequence[int] | None = None,
    dtype: str = "float16",
    row: tuple[int, ...] = (4,),
    kind: str = "index",
    extra: int = 0,
    tail: int = 0,
) -> Case:
    """Return a case with room for its counts, `extra` rows in x and `tail` rows in the output."""
    displs = packed(counts) if displs is None else displs
    end = max(start + count for start, count in zip(displs, counts, strict=True))
    return Case(
        operator="all_gather_v",
        name=name,
        rank_size=len(counts),
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=tuple((rows_of(count, row) + extra, *row) for count in counts),
        rows=(rows_of(end, row) + tail,) * len(counts),
        kind=kind,
    )
