"""An operation's first call is first contact, also where a rank refuses it."""

from __future__ import annotations

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

PROGRAM = str(RANKS / "refused_first.py")
LIMIT_S = patience(100.0)


@pytest.mark.parametrize("placement", [[0, 1], [0, 0, 1]], ids=str)
def test_nobody_has_called_init(two_hosts: list[Host], placement: list[int]) -> None:
    with Job(two_hosts, placement, PROGRAM) as job:
        results = job.results(LIMIT_S)
    assert [status for status, _, _ in results] == [0, 0], results
    lines = sorted(line for _, out, _ in results for line in out.splitlines())
    last = len(placement) - 1
    wanted = []
    for rank in range(len(placement)):
        error = "ERROR_INVALID_TENSOR_DIM" if rank == last else "ERROR_RANK_MISMATCH"
        wanted += [f"[{rank}] gathered", f"[{rank}] refused {error}"]
    assert lines == wanted
