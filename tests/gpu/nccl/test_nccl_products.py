"""LinearParallel over nccl: collectives of NCCL and products of cuBLASLt, both simulated.

The numbers are small and whole, so that the float32 sums are exact: one rounding is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_ranks import run

import collops
from collops.testing import run_ranks

Kind = collops.ParallelType
K, N = 5, 7


def matrix(rows: int, columns: int, seed: int, dtype: str) -> Any:
    numbers = (np.arange(rows * columns) * 7 + seed * 11) % 5 - 1
    return numbers.reshape(rows, columns).astype(dtype)


def weight_of(rank: int, dtype: str) -> Any:
    return matrix(K, N, rank + 50, dtype)


def run_products(gpu: Any, ranks: int, rows: list[int], dtype: str, **fields: Any) -> list[Any]:
    """Each rank's output; rank r has rows[r] rows."""
    outputs = fields.pop("outputs")

    def work(rank: int) -> Any:
        gpu.choose(rank)
        param = collops.LinearParallelParam(
            rank=rank, rank_size=ranks, backend="nccl", comm_domain="products", **fields
        )
        op = collops.Operation(param)
        host = weight_of(rank, dtype)
        weight = gpu.tensor(host.T if fields.get("trans_weight") else host)
        inputs = [gpu.tensor(matrix(rows[rank], K, rank, dtype)), weight]
        if fields.get("has_residual"):
            inputs.append(gpu.tensor(matrix(1, N, 90, dtype)[0]))
        found = []
        for _ in range(2):
            out = gpu.poisoned((outputs[rank], N), inputs[0])
            found.append(run(op, gpu, inputs, out))
        np.testing.assert_array_equal(*found)
        return found[0]

    return run_ranks(work, ranks, env={"COLLOPS_SIM_DELAY_US": "2000"})


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("trans", [False, True])
def test_a_sum_of_products(gpu: Any, dtype: str, ranks: int, residual: bool, trans: bool) -> None:
    found = run_products(
        gpu, ranks, [4] * ranks, dtype, outputs=[4] * ranks, trans_weight=trans,
        has_residual=residual, type=Kind.LINEAR_ALL_REDUCE,
    )  # fmt: skip
    total = sum(
        matrix(4, K, r, "float64") @ weight_of(r, "float64") for r in range(ranks)
    ) + residual * matrix(1, N, 90, "float64")
    for got in found:
        np.testing.assert_array_equal(got, total.astype(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_sum_of_products_is_scattered(gpu: Any, dtype: str) -> None:
    found = run_products(
        gpu, 2, [7, 7], dtype, outputs=[3, 4], trans_weight=False,
        scatter_rows=[3, 4], type=Kind.LINEAR_REDUCE_SCATTER,
    )  # fmt: skip
    total = sum(matrix(7, K, r, "float64") @ weight_of(r, "float64") for r in range(2))
    np.testing.assert_array_equal(np.concatenate(found), total.astype(dtype))


@pytest.mark.parametrize("rows", [[4, 4, 4], [1, 0, 6]])
def test_gathered_rows_are_multiplied(gpu: Any, rows: list[int]) -> None:
    found = run_products(
        gpu, 3, rows, "float16", outputs=[sum(rows)] * 3, trans_weight=False,
        gather_rows=rows, type=Kind.ALL_GATHER_LINEAR,
    )  # fmt: skip
    gathered = np.concatenate([matrix(size, K, r, "float64") for r, size in enumerate(rows)])
    for rank, got in enumerate(found):
        np.testing.assert_array_equal(
            got, (gathered @ weight_of(rank, "float64")).astype("float16")
        )


def test_a_grid_gathers_multiplies_and_scatters(gpu: Any) -> None:
    """Ranks 0, 1 and 2, 3 gather; 0, 2 and 1, 3 sum."""
    rows, parts = [2, 3], [4, 1]
    found = run_products(
        gpu, 4, [rows[r % 2] for r in range(4)], "float32",
        outputs=[parts[r // 2] for r in range(4)],
        trans_weight=False, gather_rows=rows, scatter_rows=parts,
        two_dim_tp_info=collops.TwoDimTPInfo(ag_dim=2, rs_dim=2, inner_dim_is_ag=1),
        type=Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER,
    )  # fmt: skip
    for rank, got in enumerate(found):
        total = np.zeros((5, N))
        for row in range(2):  # of the grid: its ranks share x, and each has its weight
            gathered = np.concatenate(
                [matrix(rows[c], K, 2 * row + c, "float64") for c in range(2)]
            )
            total += gathered @ weight_of(2 * row + rank % 2, "float64")
        part = slice(0, 4) if rank < 2 else slice(4, 5)
        np.testing.assert_array_equal(got, total[part].astype("float32"))


def test_many_chunks_and_strips(gpu: Any) -> None:
    """Long enough for several gathers: 8 MiB of rows each."""
    rows, k = 3000, 1024

    def work(rank: int) -> bool:
        gpu.choose(rank)
        op = collops.Operation(
            collops.LinearParallelParam(
                rank=rank, rank_size=2, backend="nccl", comm_domain="chunks", trans_weight=False,
                type=Kind.ALL_GATHER_LINEAR,
            )
        )  # fmt: skip
        whole = (np.arange(2 * rows * k).reshape(2 * rows, k) % 7 - 3).astype(np.float32)
        weight = (np.arange(k * 2).reshape(k, 2) % 3 - 1).astype(np.float32)
        x = gpu.tensor(whole[rank * rows : (rank + 1) * rows])
        got = run(op, gpu, [x, gpu.tensor(weight)], gpu.poisoned((2 * rows, 2), x))
        return bool(np.array_equal(got, whole @ weight))

    assert run_ranks(work, 2) == [True, True]
