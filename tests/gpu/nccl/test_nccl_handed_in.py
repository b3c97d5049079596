"""Backend nccl on an ncclComm_t of the caller's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from tests.gpu.gpu_ranks import scatter, scattered
from tests.gpu.simulated.simulated_nccl import NcclRank

SIZES = [3, 5]


@pytest.mark.parametrize("blocking", [1, 0])
def test_an_nccl_comm_of_the_callers(gpu: Any, tmp_path: Path, blocking: int) -> None:
    """Also one that does not block, whose calls may be in progress when NCCL returns."""

    def of(rank: int) -> Any:
        gpu.choose(rank)
        caller = NcclRank(rank, 2, tmp_path)
        assert caller.init(blocking) == 0
        gpu.choose(5)  # the communicator's GPU counts
        assert gpu.cuda is not None
        op = collops.Operation(
            collops.ReduceScatterVParam(
                rank=-1, rank_size=0, backend="nccl", hccl_comm=caller.comm.value
            )
        )
        gpu.choose(rank)
        found = [scatter(op, gpu, rank, SIZES, "float32") for _ in range(3)]
        del op
        assert caller.nccl.ncclCommDestroy(caller.comm) == 0
        return found

    [ranks] = run_ranks(lambda _: run_ranks(of, 2, threads=True), 1)
    for rank, found in enumerate(ranks):
        for got in found:
            np.testing.assert_array_equal(got, scattered(rank, SIZES, "float32"))
