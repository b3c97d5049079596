"""LinearParallel large enough for all of its ways: several strips of columns, x through the slot,
through the stage in parts of rows and of columns, round the stage's ring, and in place.

Cases of golden's own kinds of data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from collops.golden.cases import Case
from collops.golden.operators.linear_parallel.groups import (
    ALL_GATHER,
    ALL_GATHER_REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    LinearParallel,
    place,
)
from collops.golden.operators.linear_parallel.reference import output_block
from runs import Run

SLOT, PART, STAGE = 16 << 10, 256 << 10, 2 << 20  # bytes of x: one place, one part, all parts
LONG_ROW = 12_000  # bytes; 24 such rows are more than a part, which then holds some columns of them
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def case_of(
    name: str, call: LinearParallel, heights: Sequence[int], k: int, columns: int, dtype: str
) -> Case:
    """A case; `heights` are the rows of every rank's x."""
    shapes = tuple((rows, k) for rows in heights)
    rows = tuple(output_block(call, r, shapes)[2][0] for r in range(call.rank_size))
    data, sizes = name.split("-")[0], (call.rank_size, dtype)
    return Case(
        "linear_parallel",
        f"{name}-{dtype}",
        *sizes,
        (),
        (),
        shapes,
        rows,
        kind=data,
        linear=call,
        columns=columns,
    )


def pair(dtype: str, trans_weight: bool) -> list[Case]:
    """Types 0, 1 and 2 on two ranks."""
    long = LONG_ROW // ITEM_BYTES[dtype]
    gathers = LinearParallel(
        ALL_GATHER, 2, trans_weight=trans_weight, has_residual=True, keep_intermediate=True
    )
    many, few, small = ((h,) * 2 for h in ((70, 29), (33, 30), (3, 5)))
    reduces = LinearParallel(ALL_REDUCE, 2, trans_weight=not trans_weight, has_residual=True)
    scatters = LinearParallel(
        REDUCE_SCATTER,
        2,
        trans_weight=trans_weight,
        has_residual=True,
        scatter_rows=((26, 45),) * 2,
    )
    return [
        case_of("exact-many_rows", with_rows(gathers, many), many[0], long, 770, dtype),
        case_of("exact-few_rows", with_rows(gathers, few), few[0], long, 770, dtype),
        case_of("exact-slot", with_rows(gathers, small), small[0], 500, 1200, dtype),
        case_of("random-sums", reduces, (67, 67), 900, 1200, dtype),
        case_of("exact-shares", scatters, (71, 71), 300, 800, dtype),
    ]


def with_rows(call: LinearParallel, gather: Any, scatter: Any = ()) -> LinearParallel:
    return replace(call, gather_rows=gather, scatter_rows=scatter)


def square(dtype: str, inner: bool) -> list[Case]:
    """Type 4 on two by two ranks; other rows in each group."""
    long = LONG_ROW // ITEM_BYTES[dtype]
    cases = []
    for name, gather, scatter, k, columns in (
        ("exact-many_rows", ((50, 40), (61, 29)), ((40, 50), (90, 0)), long, 770),
        ("random-few_rows", ((9, 20), (25, 4)), ((12, 17), (1, 28)), 1500, 1200),
        ("exact-slot", ((30, 1), (16, 15)), ((31, 0), (7, 24)), 100, 800),
    ):
        call = LinearParallel(ALL_GATHER_REDUCE_SCATTER, 4, 2, 2, inner, inner, has_residual=True)
        own = [place(call, rank) for rank in range(4)]
        call = with_rows(
            call,
            tuple(gather[p.rs_index] for p in own),
            tuple(scatter[p.ag_index] for p in own),
        )
        heights = [gather[p.rs_index][p.ag_index] for p in own]
        cases.append(case_of(name, call, heights, k, columns, dtype))
    return cases


@lru_cache
def cases_of(run: Run) -> tuple[Case, ...]:
    if run.ranks == 4:
        flags = zip(ITEM_BYTES, (True, False, True), strict=True)
        return tuple(case for dtype, inner in flags for case in square(dtype, inner))
    flags = zip(ITEM_BYTES, (False, True, False), strict=True)
    ring = LinearParallel(ALL_GATHER, 2, gather_rows=((400, 180),) * 2, keep_intermediate=True)
    around = case_of("exact-ring", ring, (400, 180), 1500, 400, "float32")
    return (*(case for dtype, trans in flags for case in pair(dtype, trans)), around)
