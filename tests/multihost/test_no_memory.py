"""A rank that has no memory for a call refuses it: no data moves, and the group goes on."""

from __future__ import annotations

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

PROGRAM = str(RANKS / "no_memory.py")
LIMIT_S = patience(100.0)
PLACEMENT = [0, 0, 1, 1]
# Slices shared in a window, and whole slices copied into scratch memory.
FORMS = {"float32 sum": ["float32", "sum"], "float16 sum": ["float16", "sum"]}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_call_is_refused(two_hosts: list[Host], form: list[str]) -> None:
    with Job(two_hosts, PLACEMENT, PROGRAM, *form) as job:
        results = job.results(LIMIT_S)
    assert [status for status, _, _ in results] == [0, 0], results
    lines = [line for _, out, _ in results for line in out.splitlines()]
    last = len(PLACEMENT) - 1
    for rank in range(len(PLACEMENT)):
        own = [line.partition("] ")[2] for line in lines if line.startswith(f"[{rank}] ")]
        assert len(own) == 3, lines
        assert own[2] == "reduced"
        for line in own[:2]:
            if rank == last:
                assert line.startswith("refused ERROR_OUT_OF_HOST_MEMORY"), line
            else:
                assert line.startswith("refused ERROR_RANK_MISMATCH"), line
                assert f"rank {last}" in line, line
                assert "refused call" in line, line
            assert "memory" in line, line
