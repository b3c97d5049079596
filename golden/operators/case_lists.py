"""Lists of cases for several operators, each of which passes a function that makes its cases.

`make(name, what, dtype, **more)` makes one: `what` is x's shape where all ranks have the same, and
otherwise a count per rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..data.dtypes import DTYPES, FLOAT_DTYPES, REDUCE_DTYPES
from ..data.reduction import REDUCE_OPS, has_reduction
from ..data.shares import gapped, packed, reversed_order, shares
from .case import Case, rows_of
from .operator import Numbers

Make = Callable[..., Case]

# A prime number of elements that is longer than a chunk of a pipeline.
HUGE = 131_101
# The number of elements in which data of kind "special" has all pairs of extremes of two ranks.
ALL_PAIRS = 2 * 17 * 17


def every_dtype(make: Make, what: Any) -> Iterator[Case]:
    """Yield a case of every dtype.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> [case.dtype for case in every_dtype(make, [1])][:2]
        ['float16', 'bfloat16']
    """
    for dtype in DTYPES:
        yield make(f"dtype-{dtype}", what, dtype)


def special_data(make: Make, what: Any) -> Iterator[Case]:
    """Yield NaNs, infinities, zeros and subnormals.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> [case.name for case in special_data(make, [1])][0]
        'data-special-float16'
    """
    for dtype in ("float16", "bfloat16", "float64"):
        yield make(f"data-special-{dtype}", what, dtype, kind="special")


def moved_data(make: Make, what: Any) -> Iterator[Case]:
    """Yield the data beside kind "index" that an operator which adds nothing up has.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> len(list(moved_data(make, [1])))
        5
    """
    for dtype in ("float32", "int32"):
        yield make(f"data-random-{dtype}", what, dtype, kind="random")
    yield from special_data(make, what)


def every_reduction(make: Make, what: Any) -> Iterator[Case]:
    """Yield every dtype with every op: a kernel is chosen by both together.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> sorted({case.op for case in every_reduction(make, [1])})
        ['avg', 'band', 'bor', 'bxor', 'max', 'min', 'prod', 'sum']
    """
    for dtype in REDUCE_DTYPES:
        for op in REDUCE_OPS:
            if has_reduction(op, dtype):
                yield make(f"{op}-{dtype}", what, dtype, op=op, kind="special")


def reduced_data(make: Make, what: Any) -> Iterator[Case]:
    """Yield sums of every kind of data; `cancel` shows the order of a sum in every float.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> sorted({case.kind for case in reduced_data(make, [1])})
        ['cancel', 'exact', 'index', 'random']
    """
    pairs = [("cancel", dtype) for dtype in FLOAT_DTYPES]
    pairs += [("index", "float32"), ("index", "int64"), ("exact", "bfloat16")]
    pairs += [("random", "float16"), ("random", "float32")]
    for kind, dtype in pairs:
        yield make(f"data-{kind}-{dtype}", what, dtype, op="sum", kind=kind)


def every_dim(make: Make, first: int, most: int = 8, **more: Any) -> Iterator[Case]:
    """Yield shapes of 1 to `most` dims whose dim 0 is `first`.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> [case.counts for case in every_dim(make, 5, 2)]
        [(5,), (5, 2)]
    """
    for dims in range(1, most + 1):
        yield make(f"shape-{dims}d", (first, 2, 1, 2, 1, 2, 2, 1)[:dims], "int16", **more)


def every_share(make: Make, size: int, patterns: Sequence[str]) -> Iterator[Case]:
    """Yield every pattern of counts.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> [case.counts for case in every_share(make, 2, ["3:5"])]
        [(24, 40)]
    """
    for pattern in patterns:
        yield make(f"shares-{pattern.replace(':', '-')}", shares(pattern, size, 8))


def unusual_places(make: Make, size: int, *, gaps_op: str = "", cut_op: str = "") -> Iterator[Case]:
    """Yield blocks with gaps between them, in reversed order, and that cut rows.

    Example:
        >>> make = lambda *a, **more: blocks_case("tiny", *a, gathers=True, **more)
        >>> [case.displs for case in unusual_places(make, 2)][0]
        (3, 11)
    """
    counts, cut = shares("3:5", size, 4), [5 + 2 * r for r in range(size)]
    gaps = {"op": gaps_op} if gaps_op else {}
    yield make("layout-gaps", cut, "int16", displs=gapped(cut, 3), **gaps)
    yield make("layout-gaps-of-rows", counts, "float32", displs=gapped(counts, 8))
    yield make("layout-reversed", counts, "bfloat16", displs=reversed_order(counts))
    yield make("layout-reversed-cut-rows", cut, "uint8", displs=reversed_order(cut))
    yield make("layout-cut-rows", cut, "float64", **({"op": cut_op} if cut_op else {}))


def blocks_case(
    operator: str,
    name: str,
    counts: Sequence[int],
    dtype: str = "float16",
    *,
    gathers: bool,
    displs: Sequence[int] | None = None,
    row: tuple[int, ...] = (4,),
    op: str = "",
    kind: str = "index",
    extra: int = 0,
    tail: int = 0,
) -> Case:
    """Return a case of blocks that are gathered (each rank's x is one) or cut out of every x.

    There is room for the counts, `extra` rows in x and `tail` rows in the outputs.

    Example:
        >>> blocks_case("all_gather_v", "tiny", [4, 8], gathers=True, tail=1).rows
        (4, 4)
    """
    displs = packed(counts) if displs is None else displs
    end = max(start + count for start, count in zip(displs, counts, strict=True))
    whole, parts = [rows_of(end, row)] * len(counts), [rows_of(count, row) for count in counts]
    x_rows, out_rows = (parts, whole) if gathers else (whole, parts)
    return Case(
        operator=operator,
        name=name,
        rank_size=len(counts),
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=tuple((rows + extra, *row) for rows in x_rows),
        rows=tuple(rows + tail for rows in out_rows),
        op=op,
        kind=kind,
    )


def block_numbers(counts: Sequence[int], displs: Sequence[int], rank: int) -> Numbers:
    """Return what the count inputs of a rank hold, by the words of Input.holds.

    Example:
        >>> block_numbers([4, 8], [0, 4], 1)["own count"]
        [8]
    """
    return {"own count": [counts[rank]], "counts": counts, "displacements": displs}
