"""Ranks and hosts that are lost while others send them messages, or wait for theirs."""

from __future__ import annotations

import os
import signal
import time

import pytest
from hosts import Host, silent_hole
from jobs import RANKS, Job
from test_losses import HOST_S, RANK_S, Lost

PROGRAM = str(RANKS / "message_loss.py")
SIZES = pytest.mark.parametrize("elements", [16, 1 << 20], ids=["small", "large"])


@SIZES
def test_a_killed_rank_is_named_by_all(two_hosts: list[Host], elements: int) -> None:
    placement = [0, 1, 0, 1]
    with Job(two_hosts, placement, PROGRAM, "0", str(elements), "all") as job:
        lost = Lost(job, placement)
        begin = time.time()
        os.kill(lost.pids[3], signal.SIGKILL)
        errors = lost.errors(begin)
    for rank in (0, 1, 2):
        seconds, error = errors[rank]
        assert seconds < RANK_S, f"rank {rank}: {seconds} s, {error}"
        assert error.startswith("ERROR_PEER_LOST")
        assert "rank 3" in error


@SIZES
@pytest.mark.parametrize("how", ["cut", "silent hole"])
def test_a_lost_link_is_reported_on_both_sides(
    two_hosts: list[Host], how: str, elements: int
) -> None:
    with Job(two_hosts, [0, 1], PROGRAM, "0", str(elements), "all") as job:
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
        assert f"rank {1 - rank}" in error


def test_a_subgroup_names_the_killed_rank_by_its_own_number(two_hosts: list[Host]) -> None:
    placement = [0, 1, 0, 1]
    with Job(two_hosts, placement, PROGRAM, "0", "1000", "part") as job:
        lost = Lost(job, placement)
        begin = time.time()
        os.kill(lost.pids[3], signal.SIGKILL)
        errors = lost.errors(begin)
    for rank in (0, 1, 2):
        seconds, error = errors[rank]
        assert seconds < RANK_S, f"rank {rank}: {seconds} s, {error}"
        assert error.startswith("ERROR_PEER_LOST")
        assert f"rank 0 (pid {lost.pids[3]})" in error
