"""init(tuning=...) and COLLOPS_TUNING: two tables in one program, and ranks that disagree."""

from __future__ import annotations

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience


def both_ways(rank: int) -> list[bytes]:
    x = np.random.default_rng(rank).standard_normal(20_001).astype(np.float32)
    sizes = ("all_reduce_one_step=0", "all_reduce_one_step=1m", "")
    comms = [collops.init(comm_domain=f"t{i}", tuning=text) for i, text in enumerate(sizes)]
    return [comm.all_reduce(x, "sum").tobytes() for comm in comms]


def test_a_program_has_communicators_with_different_sizes() -> None:
    results = run_ranks(both_ways, 3, env={"COLLOPS_TUNING": "all_reduce_one_step=1k"})
    assert {result for rank in results for result in rank} == {results[0][0]}


def disagree(rank: int) -> None:
    collops.init(tuning="" if rank == 0 else "streamed_output=1m", timeout_s=patience(5))


def test_ranks_with_different_sizes_do_not_meet() -> None:
    with pytest.raises(RankErrors) as caught:
        run_ranks(disagree, 2)
    message = str(caught.value)
    assert "ERROR_RANK_MISMATCH" in message or "RankMismatchError" in message
    assert "COLLOPS_TUNING: streamed_output is 16777216 on rank 0 (pid " in message
    assert "and 1048576 on rank 1 (pid " in message
