"""LinearParallel large enough for all of its ways: several strips of columns, x through the slot,
through the stage in parts of rows and of columns, round the stage's ring, and in place.

A slot takes 16 KiB of x, a part of the stage 256 KiB, the stage 2 MiB.
Cases of golden's own kinds of data. A way depends on bytes, so each has one dtype; the smaller
cases have every dtype.
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

from tests.conformance.runs import Run

LONG_ROW = 12_000  # bytes; 24 such rows are more than a part, which then holds some columns of them


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


def pair() -> list[Case]:
    """Types 0, 1 and 2 on two ranks."""
    gathers = LinearParallel(ALL_GATHER, 2, has_residual=True, keep_intermediate=True)
    turned = replace(gathers, trans_weight=True)
    many, few, small, ring = ((h,) * 2 for h in ((70, 29), (33, 30), (3, 5), (400, 180)))
    reduces = LinearParallel(ALL_REDUCE, 2, has_residual=True)
    scatters = LinearParallel(
        REDUCE_SCATTER, 2, trans_weight=True, has_residual=True, scatter_rows=((26, 45),) * 2
    )
    around = LinearParallel(ALL_GATHER, 2, gather_rows=ring, keep_intermediate=True)
    return [
        case_of(
            "exact-many_rows", with_rows(gathers, many), many[0], LONG_ROW // 4, 770, "float32"
        ),
        case_of("exact-few_rows", with_rows(turned, few), few[0], LONG_ROW // 2, 770, "bfloat16"),
        case_of("exact-slot", with_rows(gathers, small), small[0], 500, 1200, "float16"),
        case_of("random-sums", reduces, (67, 67), 900, 1200, "bfloat16"),
        case_of("exact-shares", scatters, (71, 71), 300, 800, "float16"),
        case_of("exact-ring", around, ring[0], 1500, 400, "float32"),
    ]


def with_rows(call: LinearParallel, gather: Any, scatter: Any = ()) -> LinearParallel:
    return replace(call, gather_rows=gather, scatter_rows=scatter)


def square() -> list[Case]:
    """Type 4 on two by two ranks; other rows in each group."""
    cases = []
    for name, gather, scatter, k, columns, dtype, inner in (
        ("exact-many_rows", ((50, 40), (61, 29)), ((40, 50), (90, 0)), 3000, 770, "float32", True),
        ("random-few_rows", ((9, 20), (25, 4)), ((12, 17), (1, 28)), 1500, 1200, "bfloat16", False),
        ("exact-slot", ((30, 1), (16, 15)), ((31, 0), (7, 24)), 100, 800, "float16", True),
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
    return tuple(square() if run.ranks == 4 else pair())
