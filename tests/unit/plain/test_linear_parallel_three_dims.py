"""The plain products of several matrices at once, and their average."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import collops
from collops.testing import run_ranks

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def whole(rank: int, *shape: int) -> Any:
    """Small whole numbers that differ in every rank and position."""
    return np.random.default_rng([rank, *shape]).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("engine", ["windows", "pipeline"])
def test_several_matrices(engine: str) -> None:
    matrices = [2, 0, 3]  # of each rank, where they are gathered

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x, same, weight = whole(rank, matrices[rank], 4, 5), whole(rank, 4, 3, 5), whole(rank, 5, 6)
        one = whole(rank, 1, 7, 5)
        into = np.empty((4, 3, 6), np.float32)
        results = [
            comm.all_gather_matmul(x, weight, matrices),
            comm.matmul_all_reduce(same, weight, out=into),
            comm.matmul_reduce_scatter(same, weight),
            comm.matmul_reduce_scatter(same, weight, [0, 1, 3]),
            comm.matmul_reduce_scatter(one, weight),
            comm.all_gather_matmul_reduce_scatter(same, weight, ag_dim=3, rs_dim=1),
            comm.all_gather_matmul_reduce_scatter(same, weight, ag_dim=1, rs_dim=3),
        ]
        assert results[1] is into
        return results

    env = {"COLLOPS_FUSED": "0"} if engine == "pipeline" else {}
    weights = [whole(r, 5, 6) for r in range(3)]
    products = sum(whole(r, 4, 3, 5) @ weights[r] for r in range(3))
    ones = sum(whole(r, 1, 7, 5) @ weights[r] for r in range(3))
    for rank, got in enumerate(run_ranks(work, 3, env=env)):
        gathered = np.concatenate([whole(r, matrices[r], 4, 5) for r in range(3)])
        every = np.concatenate([whole(r, 4, 3, 5) for r in range(3)])
        want = [
            gathered @ weights[rank],
            products,
            np.array_split(products, 3)[rank],
            np.split(products, [0, 1])[rank],
            np.array_split(ones, 3, axis=1)[rank],
            every @ weights[rank],
            np.array_split(products, 3)[rank],
        ]
        for i, (result, right) in enumerate(zip(got, want, strict=True)):
            assert np.array_equal(result, right), i


def test_rows_of_one_matrix_in_three_dims_are_told_of_dim_0() -> None:
    def work(rank: int) -> str:
        with pytest.raises(collops.Error) as caught:
            x = whole(rank, 1, 3 - 2 * rank, 8)
            collops.init().all_gather_matmul(x, whole(rank, 8, 5), [3, 1])
        return str(caught.value)

    said = run_ranks(work, 2)[0]
    assert "sizes[0] is 3, but dim 0 of x [1, 3, 8] is 1 on rank 0" in said
    assert "reshape x to [rows, k]" in said


@pytest.mark.parametrize("engine", ["windows", "pipeline"])
@pytest.mark.parametrize("name", DTYPES)
def test_the_average(name: str, engine: str) -> None:
    ranks, rows = 3, [3, 0, 2]

    def tensors(rank: int) -> tuple[Any, Any, Any]:
        parts = whole(rank, 5, 4), whole(rank, 4, 6), whole(9, 6)
        return tuple(part.astype(DTYPES[name]) for part in parts)  # type: ignore[return-value]

    def work(rank: int) -> list[Any]:
        comm = collops.init()
        x, weight, residual = tensors(rank)
        results = [
            comm.matmul_reduce_scatter(x, weight, op="avg"),
            comm.matmul_reduce_scatter(x, weight, op="sum"),
            comm.matmul_reduce_scatter(x, weight, sizes=rows, op="avg", residual=residual),
            comm.start("matmul_reduce_scatter", x, weight, op="avg").wait(),
        ]
        return [result.astype(np.float32) for result in results]

    env = {"COLLOPS_FUSED": "0"} if engine == "pipeline" else {}
    total = np.zeros((5, 6), np.float32)
    for rank in range(ranks):
        x, weight, residual = (part.astype(np.float32) for part in tensors(rank))
        total += x @ weight

    def rounded(value: Any) -> Any:
        return value.astype(DTYPES[name]).astype(np.float32)

    average = total / np.float32(ranks)
    for rank, got in enumerate(run_ranks(work, ranks, env=env)):
        share = np.array_split(rounded(average), ranks)[rank]
        want = [share, np.array_split(rounded(total), ranks)[rank]]
        want += [np.split(rounded(average + residual), [3, 3])[rank], share]
        for i, (result, right) in enumerate(zip(got, want, strict=True)):
            assert np.array_equal(result, right), i


def test_averages_are_for_products_alone() -> None:
    struct = collops.AllGatherVParam(rank=0, rank_size=2, backend="shm")
    with pytest.raises(collops.Error, match="averages is for LinearParallel alone"):
        collops.Operation(struct, averages=True)
