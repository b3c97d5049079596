"""LinearParallel over nccl: collectives of NCCL and products of cuBLASLt, both simulated."""

from __future__ import annotations

from typing import Any

import pytest
from product_ranks import Kind, Place, product, run_cases

import collops

PROCESSES = Place({"backend": "nccl", "comm_domain": "products"})
ON_ONE = Place(
    {
        "backend": "nccl",
        "comm_domain": "products",
        "comm_mode": collops.CommMode.COMM_MULTI_THREAD,
    },
    on_one=True,
)
SLOW = {"COLLOPS_SIM_DELAY_US": "2000"}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_sum_of_products(gpu: Any, dtype: str, ranks: int) -> None:
    cases = [
        product(
            Kind.LINEAR_ALL_REDUCE, [4] * ranks, dtype=dtype, trans_weight=trans,
            has_residual=residual,
        )
        for trans in (False, True)
        for residual in (False, True)
    ]  # fmt: skip
    run_cases(gpu, cases, PROCESSES, **SLOW)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_sum_of_products_is_scattered(gpu: Any, dtype: str) -> None:
    case = product(
        Kind.LINEAR_REDUCE_SCATTER, [7, 7], dtype=dtype, scatter=[[3, 4]] * 2, trans_weight=False
    )
    run_cases(gpu, [case], PROCESSES, **SLOW)


@pytest.mark.parametrize("rows", [[4, 4, 4], [1, 0, 6]])
def test_gathered_rows_are_multiplied(gpu: Any, rows: list[int]) -> None:
    case = product(Kind.ALL_GATHER_LINEAR, rows, dtype="float16", keep_intermediate=True)
    run_cases(gpu, [case], PROCESSES, **SLOW)


def test_a_grid_gathers_multiplies_and_scatters(gpu: Any) -> None:
    """Ranks 0, 1 and 2, 3 gather; 0, 2 and 1, 3 sum."""
    case = product(
        Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER, [2, 3, 2, 3], grid=(2, 2, True),
        scatter=[[4, 1]] * 4, trans_weight=False,
    )  # fmt: skip
    run_cases(gpu, [case], PROCESSES, **SLOW)


def test_own_rows_come_before_those_that_arrive(gpu: Any) -> None:
    """Long enough for two gathers, of 8 MiB of each rank, and for strips of 16 MiB."""
    chunks = product(Kind.ALL_GATHER_LINEAR, [1 << 21, 1 << 20], k=2, n=2)
    strips = product(
        Kind.LINEAR_ALL_REDUCE, [8300] * 2, k=3, n=600, dtype="float16", has_residual=True
    )
    run_cases(gpu, [chunks, strips], PROCESSES)


def test_threads_on_one_gpu_load_their_products_together(gpu: Any) -> None:
    cases = [
        product(Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16"),
        product(Kind.LINEAR_REDUCE_SCATTER, [8, 8], scatter=[[3, 5]] * 2),
        product(Kind.LINEAR_ALL_REDUCE, [8300] * 2, k=3, n=600, dtype="float16"),
    ]
    run_cases(gpu, cases, ON_ONE, NCCL_MULTI_RANK_GPU_ENABLE="1")
