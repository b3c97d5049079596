"""LinearParallel where ranks are threads on one GPU, over cuda and nccl: golden's cases, which
conformance has on GPUs of the ranks' own, eight ranks, and long products."""

from __future__ import annotations

from typing import Any

import pytest
from collops.golden.cases import all_cases

from tests.devices.product_ranks import CUDA, NCCL_ON_ONE, Kind, Product, product, run_cases
from tests.gpu.gpu_ranks import Gather

ON_ONE = CUDA["threads on one GPU"]
GRID = Kind.ALL_GATHER_LINEAR_REDUCE_SCATTER


@pytest.mark.parametrize("ranks", [2, 4])
def test_types_options_and_grids(gpu: Any, ranks: int) -> None:
    text = "exact" if ranks == 2 else "exact-groups"
    run_cases(gpu, all_cases("linear_parallel", rank_sizes=(ranks,), text=text), ON_ONE)


def test_leaves(gpu: Any) -> None:
    """Bit for bit: leaves of whole subtrees, of several roots, and of one row in many blocks."""
    cases = [
        *(case for case in all_cases("linear_parallel", rank_sizes=(4,), text="leaves")
          if case.linear is not None and not case.linear.is_quantised),
        product(Kind.LINEAR_ALL_REDUCE, [1] * 4, k=64, n=300, data="random", sum_leaves=64),
        product(GRID, [5, 2, 1, 4], k=30, grid=(2, 2, False), scatter=[[6, 0]] * 2 + [[1, 5]] * 2,
                data="random", dtype="bfloat16", sum_leaves=6, has_residual=True),
    ]  # fmt: skip
    run_cases(gpu, cases, ON_ONE)


def test_eight_ranks(gpu: Any) -> None:
    rows = [5, 0, 1, 40, 2, 7, 0, 3]
    cases = [
        product(Kind.ALL_GATHER_LINEAR, rows, dtype="float16", has_residual=True),
        product(Kind.LINEAR_ALL_REDUCE, [3] * 8, k=30, n=900),
        product(GRID, [5, 2, 1, 4] * 2, grid=(4, 2, True), scatter=[[11, 1]] * 8),
    ]
    run_cases(gpu, cases, ON_ONE)


def test_ranks_that_multiply_alone_load_a_product_together(gpu: Any) -> None:
    """Who comes second must not wait for the collective that the first one has begun since."""

    def work(rank: int) -> None:
        stream, fields = gpu.stream(), ON_ONE.fields
        gather = Gather(gpu, rank, [3] * 8, "float32", **fields)
        gather.execute(stream)  # connects
        for n in range(20, 28):
            lone = Product(gpu, product(Kind.PURE_LINEAR, [2] * 8, n=n), rank, **fields)
            gather.execute(stream)  # the ranks come at about the same time
            stream.synchronize()
            lone.execute(stream)
            gather.execute(stream)
        stream.synchronize()

    ON_ONE.run(gpu, 8, work, COLLOPS_TIMEOUT_S="8")


def test_nccl_loads_the_products_of_all_together(gpu: Any) -> None:
    cases = [
        product(Kind.ALL_GATHER_LINEAR, [1100, 1000], k=3, n=2048, dtype="float16"),
        product(Kind.LINEAR_REDUCE_SCATTER, [8, 8], scatter=[[3, 5]] * 2),
        product(Kind.LINEAR_ALL_REDUCE, [8300] * 2, k=3, n=600, dtype="float16"),
        product(Kind.LINEAR_REDUCE_SCATTER, [8] * 2, k=6, data="random", sum_leaves=4),
    ]
    run_cases(gpu, cases, NCCL_ON_ONE, NCCL_MULTI_RANK_GPU_ENABLE="1")
