"""The conformance table covers all operators, memory, levels, dtypes, shapes and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from collops.golden.cases import OPERATORS, all_cases
from collops.golden.data.dtypes import DTYPES, REDUCE_DTYPES
from collops.golden.data.exchange import turned
from collops.golden.operators.linear_parallel.groups import place

import collops
from collops.testing import run_ranks
from tests.conformance.all_to_all_calls import is_stated
from tests.conformance.conformance_table import TABLE
from tests.conformance.large_linear_cases import ITEM_BYTES, PART, SLOT, STAGE
from tests.conformance.runs import HCCL_REDUCES, Run
from tests.conformance.v_calls import is_whole

PLAIN_OPS = {"prod", "avg", "band", "bor", "bxor"}  # that ReduceScatterV does not have


def cases_of(operator: str, ranks: int = 4, level: str = "plain") -> Any:
    return TABLE[operator].cases(Run(level, ranks))


def test_every_operator_has_a_row() -> None:
    assert set(OPERATORS) <= set(TABLE)


@pytest.mark.parametrize("operator", TABLE)
def test_every_row_walks_each_axis(operator: str) -> None:
    runs = TABLE[operator].runs
    assert len(set(runs)) == len(runs)
    memories = {run.memory for run in runs}
    if operator in ("send", "recv"):
        assert memories == {"plain", "npu", "cuda"}
    else:
        assert memories >= {"plain", "window"}
        assert "unaligned" in memories or operator.endswith("large")
    backends, without = {run.backend for run in runs}, set(TABLE[operator].without)
    assert backends | without == {"shm", "hccl", "cuda", "nccl"} and not backends & without
    devices = {"hccl": "npu", "cuda": "cuda", "nccl": "cuda"}
    assert all(run.memory == devices.get(run.backend, run.memory) for run in runs)
    assert all(run.on_device == (run.backend in devices) for run in runs)
    assert {run.threads for run in runs} == {False} if "large" in operator else {False, True}
    least = {"send": 1, "recv": 1, "linear_parallel, large": 3}.get(operator, 15)
    assert min(len(TABLE[operator].cases(run)) for run in runs) >= least


def test_the_v_operators() -> None:
    for level in ("atb", "plain"):
        gathers = cases_of("all_gather_v", level=level)
        reductions = cases_of("reduce_scatter_v", level=level)
        assert {case.dtype for case in gathers} == set(
            "float16 bfloat16 float32 float64 int8 uint8 int16 int32 int64 bool".split()
        )
        assert {case.dtype for case in reductions} == {case.dtype for case in gathers} - {"bool"}
        ops = {"sum", "max", "min"} | (PLAIN_OPS if level == "plain" else set())
        assert {case.op for case in reductions} == ops
        for share in ("even", "3-5", "1-2-3-4", "one_owner", "zeros", "primes"):
            assert any(case.name == f"shares-{share}" for case in gathers)
            assert any(case.name == f"shares-{share}" for case in reductions)
    assert sum(is_whole(case) for case in cases_of("all_gather_v")) > 10
    assert sum(is_whole(case) for case in cases_of("reduce_scatter_v")) > 10


def test_every_dtype_that_hccl_takes() -> None:
    run = Run("atb", 2, "npu", backend="hccl")
    gathers, reductions = (TABLE[name].cases(run) for name in ("all_gather_v", "reduce_scatter_v"))
    assert {case.dtype for case in gathers} == set(DTYPES)
    assert {case.dtype for case in reductions} == set(HCCL_REDUCES)
    assert any(case.kind == "cancel" for case in reductions)


@pytest.mark.parametrize("operator", ["all_gather", "reduce_scatter", "all_reduce", "broadcast"])
def test_the_even_collectives(operator: str) -> None:
    cases = cases_of(operator)
    reduces = operator in ("reduce_scatter", "all_reduce")
    assert {case.dtype for case in cases} == set(REDUCE_DTYPES if reduces else DTYPES)
    ops = {"sum", "max", "min"} | PLAIN_OPS if reduces else {""}
    assert {case.op for case in cases} == ops
    dims = {len(case.x_shapes[0]) for case in cases}
    assert dims == set(range(1, 8 if operator == "all_gather" else 9))
    assert any(np.prod(case.x_shapes[0]) > 100_000 for case in cases)
    assert {case.root for case in cases} == ({0, 1, 2, 3} if operator == "broadcast" else {0})


@pytest.mark.parametrize("operator", ["all_to_all", "all_to_all_v", "all_to_all_v_v2"])
def test_the_all_to_all_operators(operator: str) -> None:
    cases = cases_of(operator)
    assert {case.dtype for case in cases} == set(DTYPES)
    assert {len(case.x_shapes[0]) for case in cases} == set(range(1, 9))
    assert any(np.prod(case.x_shapes[0]) > 50_000 for case in cases)
    if operator == "all_to_all_v":
        all_of_golden = all_cases(operator, rank_sizes=(4,))
        assert any(0 in case.counts and is_stated(case) for case in all_of_golden)
        assert any(not is_stated(case) for case in all_of_golden)


def test_the_rooted_collectives() -> None:
    calls = cases_of("gatherv")
    assert {call.dtype for call in calls} == set(DTYPES)
    assert {call.root for call in calls} == {0, 1, 2, 3}
    assert any(not any(map(sum, call.table)) for call in calls)
    assert any(0 in map(sum, turned(call.table)) and any(map(sum, call.table)) for call in calls)


def test_large_linear_cases_take_every_way() -> None:
    """Bytes of x, rows and columns that the ways begin at."""
    sizes: dict[str, set[str]] = {}
    for case in (*cases_of("linear_parallel, large", 2), *cases_of("linear_parallel, large")):
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


def test_the_worked_example_of_the_contract() -> None:
    def work(rank: int) -> list[list[float]]:
        x0 = [[0, 1, 2, 3], [4, 5, 6, 7]]
        x1 = [[3, 2, 1, 0], [7, 6, 5, 4], [7, 6, 5, 4]]
        x = np.array(x1 if rank else x0, np.float16)
        counts = np.array([4, 2])
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        own = counts[rank : rank + 1]
        [out] = op.forward([x, own, counts, np.array([0, 4]), np.empty(5, np.float16)])
        return [list(row) for row in out]

    want = [[0, 1, 2, 3], [3, 2, 0, 0], [0] * 4, [0] * 4, [0] * 4]
    assert run_ranks(work, 2) == [want, want]
