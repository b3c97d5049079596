"""LinearParallel on a grid of a communicator of the caller's, without a host connection."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from tests.npu.npu_ranks import hccl_group

RANKS = 4


def inputs(rank: int) -> tuple[Any, Any]:
    """x [2, 3] and weight [3, 2] of a rank, in numbers whose sums are exact."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3) + rank
    return x, np.arange(6, dtype=np.float32).reshape(3, 2) - rank


def expected(rank: int) -> list[list[float]]:
    """Ranks 2 i and 2 i + 1 gather; ranks of one parity scatter."""
    parity, group = rank % 2, rank // 2
    whole = sum(
        np.concatenate([inputs(2 * i)[0], inputs(2 * i + 1)[0]]) @ inputs(2 * i + parity)[1]
        for i in range(2)
    )
    return [[float(value) for value in row] for row in whole[2 * group : 2 * group + 2]]


@pytest.mark.parametrize("check", ["0", "1"])
def test_its_groups_are_split_off_each_time_and_it_is_never_destroyed(
    npu: Any, torch_module: ModuleType, tmp_path: Any, check: str
) -> None:
    def work(rank: int) -> tuple[list[Any], int, int]:
        npu.choose(rank)
        comm, grid = (
            hccl_group(torch_module, rank, RANKS, tmp_path),
            collops.TwoDimTPInfo(ag_dim=2, rs_dim=2),
        )
        given, outs = [npu.tensor(array) for array in inputs(rank)], []
        for _ in range(2):
            operation = collops.Operation(
                collops.LinearParallelParam(
                    hccl_comm=comm, type=4, trans_weight=False, two_dim_tp_info=grid
                )
            )
            outs += [npu.array(operation.forward(given)[0]).tolist() for _ in range(2)]
            live = npu.live_communicators()
            del operation
        collops.core.core().close_all("test")
        return outs, live, npu.live_communicators()

    results = run_ranks(work, RANKS, env={"COLLOPS_CHECK": check})
    assert results == [([expected(rank)] * 4, 3, 1) for rank in range(RANKS)]


def test_grids_that_cut_the_ranks_alike_share_their_groups(npu: Any) -> None:
    """Whichever of the two cuts gathers: each communicator takes memory of the NPU."""

    def turned(rank: int) -> list[list[float]]:
        """Ranks of one parity gather; ranks 2 i and 2 i + 1 scatter."""
        parity, first = rank % 2, rank - rank % 2
        whole = sum(
            np.concatenate([inputs(p)[0], inputs(p + 2)[0]]) @ inputs(first + p)[1]
            for p in range(2)
        )
        return [[float(value) for value in row] for row in whole[2 * parity : 2 * parity + 2]]

    def work(rank: int) -> tuple[list[Any], int]:
        npu.choose(rank)
        given, outs = [npu.tensor(array) for array in inputs(rank)], []
        for inner in (True, False):
            grid = collops.TwoDimTPInfo(ag_dim=2, rs_dim=2, inner_dim_is_ag=inner)
            param = collops.LinearParallelParam(
                rank=rank, rank_size=RANKS, type=4, trans_weight=False, two_dim_tp_info=grid
            )
            [out] = collops.Operation(param).forward(given)
            outs.append(npu.array(out).tolist())
        return outs, npu.live_communicators()

    results = run_ranks(work, RANKS)
    assert results == [([expected(rank), turned(rank)], 3) for rank in range(RANKS)]
