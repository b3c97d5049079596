"""Ranks and hosts that are lost: every rank in a call gets an error that names them, in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import pytest
from hosts import Host, silent_hole
from jobs import RANKS, Job

PROGRAM = str(RANKS / "loss.py")
LIMIT_S = 60.0
# A host's silence is noticed after about four seconds.
HOST_S = 8.0
RANK_S = 5.0


class Lost:
    """A job of ranks/loss.py: its ranks' pids, and what each prints at the end."""

    def __init__(self, job: Job, placement: Sequence[int]) -> None:
        self.job = job
        self.pids: dict[int, int] = {}
        self._ready: set[int] = set()
        for host, launcher in enumerate(job.launchers):
            wanted = {rank for rank, where in enumerate(placement) if where == host}
            assert launcher.stdout is not None
            while not wanted <= self._ready:
                prefix, what, *rest = launcher.stdout.readline().split()
                rank = int(prefix.strip("[]"))
                if what == "pid":
                    self.pids[rank] = int(rest[0])
                else:
                    assert what == "ready"
                    self._ready.add(rank)

    def errors(self, begin: float) -> dict[int, tuple[float, str]]:
        """Of each rank that got an error: seconds since `begin`, and the error."""
        found = {}
        for _, out, _ in self.job.results(LIMIT_S):
            for line in out.splitlines():
                rank, what, *rest = line.split(" ", 3)
                if what == "error":
                    found[int(rank.strip("[]"))] = float(rest[0]) - begin, rest[1]
        return found


@pytest.mark.parametrize("elements", [16, 1 << 20], ids=["small", "large"])
def test_a_killed_rank_is_named_by_all(two_hosts: list[Host], elements: int) -> None:
    placement = [0, 0, 1, 1]
    with Job(two_hosts, placement, PROGRAM, "0", str(elements)) as job:
        lost = Lost(job, placement)
        begin = time.time()
        os.kill(lost.pids[3], signal.SIGKILL)
        errors = lost.errors(begin)
    for rank in (0, 1, 2):
        seconds, error = errors[rank]
        assert seconds < RANK_S, f"rank {rank}: {seconds} s, {error}"
        assert error.startswith("ERROR_PEER_LOST")
        assert "rank 3" in error


def test_a_killed_host_is_named_by_the_ranks_of_the_other(two_hosts: list[Host]) -> None:
    placement = [0, 1, 0, 1]
    with Job(two_hosts, placement, PROGRAM, "0", "100000") as job:
        lost = Lost(job, placement)
        begin = time.time()
        for rank in (1, 3):
            os.kill(lost.pids[rank], signal.SIGKILL)
        errors = lost.errors(begin)
    for rank in (0, 2):
        seconds, error = errors[rank]
        assert seconds < RANK_S, f"rank {rank}: {seconds} s, {error}"
        assert error.startswith("ERROR_PEER_LOST")
        assert "rank 1" in error or "rank 3" in error


@pytest.mark.parametrize("how", ["cut", "silent hole"])
def test_a_lost_link_is_reported_on_both_sides(two_hosts: list[Host], how: str) -> None:
    with Job(two_hosts, [0, 1], PROGRAM, "0", "1000000") as job:
        lost = Lost(job, [0, 1])
        begin = time.time()
        if how == "cut":
            two_hosts[0].cut()
        else:
            silent_hole(*two_hosts)
        errors = lost.errors(begin)
    for rank in (0, 1):
        seconds, error = errors[rank]
        assert seconds < HOST_S, f"rank {rank}: {seconds} s, {error}"
        assert error.startswith("ERROR_PEER_LOST")
        assert f"rank {1 - rank}" in error or f"peer {1 - rank}" in error
