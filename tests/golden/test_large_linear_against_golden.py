"""LinearParallel large enough for all of its ways: several strips of columns, x through the slot,
through the stage in parts of rows and of columns, round the stage's ring, and in place.

Cases of golden's own kinds of data, compared as in test_linear_against_golden.py. What is expected
is computed once, before the ranks are forked.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from collops.golden.cases import Case, inputs
from collops.golden.data.dtypes import differs
from collops.golden.operators.linear_parallel.bounds import linear_parallel_bounds
from collops.golden.operators.linear_parallel.groups import (
    ALL_GATHER,
    ALL_GATHER_REDUCE_SCATTER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    LinearParallel,
    place,
)
from collops.golden.operators.linear_parallel.reference import (
    linear_parallel,
    output_block,
    widened,
)

import collops
from collops.core import core
from collops.testing import run_ranks

POISON = 0xA5
SLOT, PART, STAGE = 16 << 10, 256 << 10, 2 << 20  # bytes of x: one place, one part, all parts
LONG_ROW = 12_000  # bytes; 24 such rows are more than a part, which then holds some columns of them
ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class Run(NamedTuple):
    """What one run of all cases varies."""

    ranks: int
    memory: str
    isa: str = ""  # "": the best here
    num_threads: int = 1


RUNS = [
    Run(2, "plain"),
    Run(2, "window"),
    Run(2, "plain", isa="avx2"),
    Run(4, "plain", num_threads=2),
    Run(4, "window"),
]


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
def cases_of(ranks: int) -> tuple[Case, ...]:
    if ranks == 4:
        flags = zip(ITEM_BYTES, (True, False, True), strict=True)
        return tuple(case for dtype, inner in flags for case in square(dtype, inner))
    flags = zip(ITEM_BYTES, (False, True, False), strict=True)
    ring = LinearParallel(ALL_GATHER, 2, gather_rows=((400, 180),) * 2, keep_intermediate=True)
    around = case_of("exact-ring", ring, (400, 180), 1500, 400, "float32")
    return (*(case for dtype, trans in flags for case in pair(dtype, trans)), around)


@lru_cache
def wanted(case: Case) -> tuple[list[dict[str, Any]], list[list[Any]], list[Any] | None]:
    """The inputs and outputs of every rank, and how far random ones may be off."""
    tensors = inputs(case)
    xs, weights, residuals = (
        [own[name] for own in tensors if name in own] for name in ("x", "weight", "residual")
    )
    call = case.linear
    assert call is not None
    outputs = linear_parallel(call, xs, weights, residuals, case.dtype)
    if case.kind == "exact":
        return tensors, outputs, None
    return tensors, outputs, linear_parallel_bounds(call, xs, weights, residuals, case.dtype)


def test_the_cases_take_every_way() -> None:
    """Bytes of x, rows and columns that the ways begin at."""
    sizes: dict[str, set[str]] = {}
    for case in (*cases_of(2), *cases_of(4)):
        call = case.linear
        assert call is not None
        strips = -(-case.columns // 384)
        assert strips >= 2
        for rank, (rows, k) in enumerate(case.x_shapes):
            if len(place(call, rank).gathered) == 1:
                continue
            row_bytes = k * ITEM_BYTES[case.dtype]
            x_bytes = rows * row_bytes
            gathered = sum(call.gather_rows[rank])
            sizes.setdefault("way", set()).add(
                "slot" if x_bytes <= SLOT else "stage" if x_bytes <= STAGE else "ring"
            )
            sizes.setdefault("joined", set()).add(f"{gathered <= 64} {strips >= 3}")
            if x_bytes > 2 * PART:
                sizes.setdefault("parts", set()).add("columns" if 24 * row_bytes > PART else "rows")
    assert sizes["way"] == {"slot", "stage", "ring"}
    assert sizes["joined"] >= {"True True", "False True"}
    assert sizes["parts"] == {"columns", "rows"}


def array_of(comm: collops.Communicator, memory: str, shape: Any, dtype: Any) -> Any:
    """Poisoned memory of the run's kind."""
    array = comm.empty(shape, dtype) if memory == "window" else np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = POISON
    return array


def run_engine(comm: collops.Communicator, case: Case, memory: str, fused: bool) -> list[Any]:
    """The outputs of one call."""
    call = case.linear
    assert call is not None
    dtype = ml_dtypes.bfloat16 if case.dtype == "bfloat16" else np.dtype(case.dtype)
    ins = []
    for tensor in wanted(case)[0][comm.rank].values():
        ins.append(array_of(comm, memory, tensor.shape, dtype))
        ins[-1][...] = tensor.view(dtype)
    os.environ["COLLOPS_FUSED"] = str(int(fused))
    operation = collops.Operation(
        collops.LinearParallelParam(
            rank=comm.rank,
            rank_size=comm.size,
            backend="shm",
            type=call.type,
            trans_weight=call.trans_weight,
            has_residual=call.has_residual,
            keep_intermediate=call.keep_intermediate,
            two_dim_tp_info=collops.TwoDimTPInfo(
                ag_dim=call.ag_dim, rs_dim=call.rs_dim, inner_dim_is_ag=int(call.inner_dim_is_ag)
            ),
            gather_rows=list(call.gather_rows[comm.rank]) if call.gather_rows else [],
            scatter_rows=list(call.scatter_rows[comm.rank]) if call.scatter_rows else [],
        )
    )
    outs = [array_of(comm, memory, desc.shape, dtype) for desc in operation.infer_shape(ins)]
    scratch = np.full(operation.get_workspace_size(ins, outs), POISON, np.uint8)
    operation.execute(ins, outs, scratch)
    return outs


def check(case: Case, rank: int, outs: list[Any], where: str) -> None:
    _, outputs, bounds = wanted(case)
    for number, (out, want) in enumerate(zip(outs, outputs[rank], strict=True)):
        got = out.view(np.uint16) if case.dtype == "bfloat16" else out
        assert got.shape == want.shape
        if bounds is None or number > 0:
            wrong = differs(got, want, case.dtype)
        else:
            off = np.abs(widened(got, case.dtype).astype(np.float64) - widened(want, case.dtype))
            wrong = ~(off <= bounds[rank])
        assert not wrong.any(), f"{case.id} {where}: {np.argwhere(wrong)[:3].tolist()}"


def run_all(rank: int, run: Run) -> int:
    with collops.init() as comm:
        for case in cases_of(run.ranks):
            fused = run_engine(comm, case, run.memory, fused=True)
            check(case, rank, fused, "fused")
            pipeline = run_engine(comm, case, run.memory, fused=False)
            same = [a.tobytes() == b.tobytes() for a, b in zip(fused, pipeline, strict=True)]
            assert all(same), f"{case.id}: the engines' bits differ"
    return len(cases_of(run.ranks))


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_golden(run: Run) -> None:
    if run.isa and run.isa not in core().kernels()[1]:
        pytest.skip(f"this CPU has no {run.isa}")
    env = {"COLLOPS_NUM_THREADS": str(run.num_threads)}
    if run.isa:
        env["COLLOPS_ISA"] = run.isa
    for case in cases_of(run.ranks):
        wanted(case)
    done = run_ranks(run_all, run.ranks, run, timeout=100, env=env)
    assert done == [len(cases_of(run.ranks))] * run.ranks
