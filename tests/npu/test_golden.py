"""Golden's cases on NPU tensors, through torch_npu and a simulated HCCL, with 2 to 4 processes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from collops.golden.cases import (
    ATB_REDUCE_OPS,
    Case,
    all_cases,
    expected,
    inputs,
)
from collops.golden.compare import compare
from collops.golden.data.bounds import bound
from collops.golden.data.dtypes import is_float, to_float32

import collops
from collops.testing import run_ranks

RANKS = (2, 3, 4)
REDUCED = {"int8", "int16", "int32", "float16", "float32", "bfloat16"}
NOT_REDUCED = {"uint8", "int64", "float64"}


@lru_cache
def gathers(ranks: int) -> tuple[Case, ...]:
    return tuple(all_cases("all_gather_v", rank_sizes=(ranks,)))


@lru_cache
def reductions(ranks: int) -> tuple[Case, ...]:
    cases = all_cases("reduce_scatter_v", rank_sizes=(ranks,))
    return tuple(case for case in cases if case.op in ATB_REDUCE_OPS)


def param_of(case: Case, rank: int) -> Any:
    if case.operator == "all_gather_v":
        return collops.AllGatherVParam(rank=rank, rank_size=case.rank_size)
    return collops.ReduceScatterVParam(rank=rank, rank_size=case.rank_size, reduce_type=case.op)


def run_case(npu: Any, case: Case, rank: int) -> Any:
    """This rank's output, or the refusal of a type that HCCL does not take."""
    op = collops.Operation(param_of(case, rank))
    x, *others = inputs(case)[rank].values()
    x = npu.tensor(x, case.dtype)
    out = npu.poisoned((case.rows[rank], *x.shape[1:]), x)
    ins = [x, *others]
    try:
        size = op.get_workspace_size(ins, [out])
    except collops.Error as error:
        return error
    assert size == 0
    op.execute(ins, [out])
    return npu.array(out)


def all_outputs(rank: int, npu: Any, cases: tuple[Case, ...]) -> list[Any]:
    npu.choose(rank)
    return [run_case(npu, case, rank) for case in cases]


def real(array: Any, dtype: str) -> Any:
    """A tensor's values in float64."""
    with np.errstate(invalid="ignore"):  # NaN stays NaN
        return (to_float32(array) if dtype == "bfloat16" else array).astype(np.float64)


def bounds_of(case: Case) -> list[Any]:
    """How far another order of additions may lead, for every rank's output."""
    with np.errstate(invalid="ignore"):
        total = sum(np.abs(real(own["x"], case.dtype)).reshape(-1) for own in inputs(case))
    bounds = []
    for count, start, want in zip(case.counts, case.displs, expected(case), strict=True):
        magnitude = np.zeros(want.size)
        magnitude[:count] = total[start : start + count]
        magnitude[~np.isfinite(magnitude)] = 0
        bounds.append(bound(case.dtype, case.op, case.rank_size, magnitude).reshape(want.shape))
    return bounds


def problem_of(case: Case, got: list[Any]) -> str:
    exact = case.operator == "all_gather_v" or not is_float(case.dtype) or case.op != "sum"
    exact = exact or case.kind == "exact"
    found = compare(got, expected(case), case.dtype, bounds=None if exact else bounds_of(case))
    return "" if found.accepted else f"{case.id}: {found.text()}"


def check(cases: tuple[Case, ...], outputs: list[list[Any]]) -> None:
    by_case = [[of_rank[number] for of_rank in outputs] for number in range(len(cases))]
    problems = [problem_of(case, got) for case, got in zip(cases, by_case, strict=True)]
    assert not any(problems), "\n".join(problem for problem in problems if problem)


@pytest.mark.parametrize("ranks", RANKS)
def test_every_gather(npu: Any, ranks: int) -> None:
    cases = gathers(ranks)
    assert {case.dtype for case in cases} >= REDUCED | NOT_REDUCED | {"bool"}
    check(cases, run_ranks(all_outputs, ranks, npu, cases, timeout=100))


@pytest.mark.parametrize("ranks", RANKS)
def test_every_reduction_that_hccl_takes(npu: Any, ranks: int) -> None:
    cases = tuple(case for case in reductions(ranks) if case.dtype in REDUCED)
    assert {case.dtype for case in cases} == REDUCED
    assert any(case.kind == "cancel" for case in cases)
    check(cases, run_ranks(all_outputs, ranks, npu, cases, timeout=100))


def test_other_reductions_are_refused(npu: Any) -> None:
    cases = tuple(case for case in reductions(2) if case.dtype in NOT_REDUCED)
    assert {case.dtype for case in cases} == NOT_REDUCED
    for outputs in run_ranks(all_outputs, 2, npu, cases):
        for case, error in zip(cases, outputs, strict=True):
            assert error.code == 103
            assert f"HCCL does not reduce {case.dtype}" in error.message


def test_a_wrong_element_is_found() -> None:
    case = next(case for case in reductions(2) if case.dtype == "float32" and case.kind == "index")
    wrong = [output.copy() for output in expected(case)]
    assert problem_of(case, wrong) == ""
    wrong[1].reshape(-1)[0] *= -1
    assert "different" in problem_of(case, wrong)
