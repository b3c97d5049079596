"""The cases of ReduceScatterV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..data.dtypes import FLOAT_DTYPES, REDUCE_DTYPES, is_float
from ..data.reduction import REDUCE_OPS
from ..data.shares import SHARES, gapped, packed, reversed_order, shares
from .case import Case, rows_of

# A prime number of elements that is longer than one chunk of a pipeline may be.
_HUGE = 131_101
# Elements in which data of kind "special" shows every pair of extremes of two ranks.
_ALL_PAIRS = 2 * 17 * 17


def reduce_scatter_v_cases(
    rank_sizes: Sequence[int] = (2, 3, 4),
    *,
    ops: Sequence[str] = REDUCE_OPS,
    seed: int = 0,
) -> list[Case]:
    """Return the cases of ReduceScatterV: every dtype with every op, share, data and layout once.

    A kernel is chosen by dtype and op together, so these two come in all pairs; of the other axes
    each is covered in full, not their product.

    Args:
        rank_sizes: numbers of ranks, >= 1.
        ops: keep only cases of these ops; reduction.ATB_REDUCE_OPS are those of the ATB level.
        seed: seed of the cases' data.

    Returns:
        Cases with unique ids, the same list on every call.

    Example:
        >>> sorted({case.op for case in reduce_scatter_v_cases((2,), ops=("sum", "max"))})
        ['max', 'sum']
    """
    cases = (case for size in rank_sizes for case in _cases(size))
    return [replace(case, seed=seed) for case in cases if case.op in ops]


def _cases(size: int) -> Iterator[Case]:
    steps = size * (size + 1) // 2
    counts = shares("1:2:3:4", size, rows_of(_ALL_PAIRS, (steps,)))
    for dtype in REDUCE_DTYPES:
        for op in REDUCE_OPS:
            if op != "avg" or is_float(dtype):
                yield _case(f"{op}-{dtype}", counts, op=op, dtype=dtype, kind="special")
    for pattern in SHARES:
        yield _case(f"shares-{pattern.replace(':', '-')}", shares(pattern, size, 8))
    yield from _data(size)
    yield from _layouts(size)


def _data(size: int) -> Iterator[Case]:
    """Yield sums of every kind of data; `cancel` shows the order of a sum in every float."""
    counts = shares("3:5", size, 20)
    pairs = [("cancel", dtype) for dtype in FLOAT_DTYPES]
    pairs += [("index", "float32"), ("index", "int64"), ("exact", "bfloat16")]
    pairs += [("random", "float16"), ("random", "float32")]
    for kind, dtype in pairs:
        yield _case(f"data-{kind}-{dtype}", counts, dtype=dtype, kind=kind)
    yield _case("data-cancel-avg", counts, op="avg", kind="cancel")


def _layouts(size: int) -> Iterator[Case]:
    """Yield cases whose slices lie in x in unusual ways, and outputs longer than their slice."""
    counts = shares("3:5", size, 4)
    cut = [5 + 2 * r for r in range(size)]
    yield _case("layout-gaps", cut, displs=gapped(cut, 3), dtype="int16", op="max")
    yield _case("layout-gaps-of-rows", counts, displs=gapped(counts, 8), dtype="float32")
    yield _case("layout-reversed", counts, displs=reversed_order(counts), dtype="bfloat16")
    yield _case("layout-reversed-cut-rows", cut, displs=reversed_order(cut), dtype="uint8")
    yield _case("layout-cut-rows", cut, dtype="float64", op="min")
    yield _case("layout-overlap", counts, displs=[3 * r for r in range(size)], dtype="int32")
    yield _case("layout-same-slice", [21] * size, displs=[6] * size, dtype="float16")
    yield _case("layout-part-of-x", counts, dtype="int8", extra=3)
    yield _case("layout-tail", counts, dtype="int64", tail=3)
    yield _case("layout-cut-rows-tail", cut, dtype="bfloat16", op="max", tail=2)
    yield _case("layout-zeros-tail", shares("zeros", size, 4), dtype="float32", tail=1)
    yield _case("layout-narrow", cut, width=1)
    yield _case("layout-wide", [300 + r for r in range(size)], width=257, tail=1)
    huge = [7 + r for r in range(size - 1)] + [_HUGE]
    yield _case("layout-huge", huge, dtype="float64", kind="random")


def _case(
    name: str,
    counts: Sequence[int],
    *,
    displs: Sequence[int] | None = None,
    dtype: str = "float16",
    op: str = "sum",
    width: int = 4,
    kind: str = "index",
    extra: int = 0,
    tail: int = 0,
) -> Case:
    """Return a case with room for its counts, `extra` rows in x and `tail` rows in the outputs."""
    displs = packed(counts) if displs is None else displs
    end = max(start + count for start, count in zip(displs, counts, strict=True))
    return Case(
        operator="reduce_scatter_v",
        name=name,
        rank_size=len(counts),
        dtype=dtype,
        counts=tuple(counts),
        displs=tuple(displs),
        x_shapes=((rows_of(end, (width,)) + extra, width),) * len(counts),
        rows=tuple(rows_of(count, (width,)) + tail for count in counts),
        op=op,
        kind=kind,
    )
