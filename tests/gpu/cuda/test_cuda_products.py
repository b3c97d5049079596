"""LinearParallel over cuda: kernels that meet through peers' memory, products of cuBLASLt."""

from __future__ import annotations

from typing import Any

import pytest
from product_ranks import CUDA, Kind, product, run_cases

DTYPES = ("float32", "float16", "bfloat16")
GRID = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER


def plain_cases(ranks: int) -> list[Any]:
    """Types 0 to 3 with every option, uneven rows, ranks without rows, and nothing at all."""
    uneven = [3 * (rank + 1) % 5 for rank in range(ranks)]
    lone = [0] * (ranks - 1) + [9]
    even, more = [4] * ranks, {"has_residual": True}
    cases = []
    for dtype in DTYPES:
        for trans in (False, True):
            plain = {"dtype": dtype, "trans_weight": trans, "has_residual": trans}
            cases += [
                product(Kind.LINEAR_ALL_REDUCE, even, **plain),
                product(Kind.LINEAR_REDUCE_SCATTER, [sum(uneven)] * ranks, scatter=[uneven] * ranks,
                        **plain),
                product(Kind.ALL_GATHER_LINEAR, uneven, keep_intermediate=not trans, **plain),
                product(Kind.PURE_LINEAR, uneven, **plain),
            ]  # fmt: skip
    for rows in (even, lone, [0] * ranks):
        cases.append(product(Kind.ALL_GATHER_LINEAR, rows, keep_intermediate=True, **more))
        cases.append(
            product(Kind.LINEAR_REDUCE_SCATTER, [sum(rows)] * ranks, scatter=[rows] * ranks)
        )
    for kind in (Kind.LINEAR_ALL_REDUCE, Kind.ALL_GATHER_LINEAR, Kind.PURE_LINEAR):
        cases.append(product(kind, even, k=70, n=300, data="random", dtype="float16"))
    return cases


@pytest.mark.parametrize("where", CUDA)
@pytest.mark.parametrize("ranks", [2, 3])
def test_types_and_options(gpu: Any, where: str, ranks: int) -> None:
    run_cases(gpu, plain_cases(ranks), CUDA[where])


def grid_cases() -> list[Any]:
    square, turned = (2, 2, True), (2, 2, False)
    # The first one moves nothing.
    return [
        product(GRID, [0] * 4, grid=square, scatter=[[0, 0]] * 4),
        product(GRID, [1, 4, 1, 4], grid=square, scatter=[[5, 0]] * 4, dtype="float16",
                has_residual=True),
        product(GRID, [1, 1, 4, 4], grid=turned, scatter=[[5, 0]] * 4, dtype="bfloat16"),
        product(GRID, [3, 0, 3, 6], grid=turned, scatter=[[1, 5]] * 2 + [[4, 2]] * 2),
        product(GRID, [2, 0, 1, 3], grid=(4, 1, True), trans_weight=False),
        product(GRID, [6] * 4, grid=(1, 4, True), scatter=[[3, 0, 1, 2]] * 4, has_residual=True),
        product(GRID, [40] * 4, grid=square, k=70, n=33, data="random", dtype="bfloat16"),
    ]  # fmt: skip


@pytest.mark.parametrize("where", CUDA)
def test_grids(gpu: Any, where: str) -> None:
    run_cases(gpu, grid_cases(), CUDA[where], COLLOPS_SIM_DELAY_US="1000")


def test_compared_on_the_host_too(gpu: Any) -> None:
    run_cases(gpu, grid_cases()[:3], CUDA["processes"], COLLOPS_CHECK="1")


def test_eight_ranks_on_one_gpu(gpu: Any) -> None:
    rows = [5, 0, 1, 40, 2, 7, 0, 3]
    cases = [
        product(Kind.ALL_GATHER_LINEAR, rows, dtype="float16", has_residual=True),
        product(Kind.LINEAR_ALL_REDUCE, [3] * 8, k=30, n=900),
        product(GRID, [5, 2, 1, 4] * 2, grid=(4, 2, True), scatter=[[11, 1]] * 8),
    ]
    run_cases(gpu, cases, CUDA["threads on one GPU"])


@pytest.mark.parametrize("where", CUDA)
def test_chunks_and_strips(gpu: Any, where: str) -> None:
    """Own rows first, two gathers of 8 MiB of a rank, strips of 16 MiB, and all of it on a grid."""
    cases = [
        product(Kind.ALL_GATHER_LINEAR, [1 << 21, 1 << 20], k=2, n=2, keep_intermediate=True),
        product(Kind.LINEAR_REDUCE_SCATTER, [8300] * 2, k=3, n=600, dtype="float16",
                scatter=[[8000, 300]] * 2, has_residual=True),
        product(GRID, [4200, 4100], k=3, n=600, dtype="bfloat16", grid=(2, 1, True)),
    ]  # fmt: skip
    run_cases(gpu, cases, CUDA[where])


def test_strips_of_a_grid(gpu: Any) -> None:
    """The first strip is wider, as its products wait for rows."""
    case = product(
        GRID, [4200, 4100] * 2, k=3, n=600, dtype="float16", grid=(2, 2, True),
        scatter=[[8000, 300]] * 4,
    )  # fmt: skip
    run_cases(gpu, [case], CUDA["threads on one GPU"])
