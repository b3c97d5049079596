"""Ranks that are killed while a group of several hosts splits, and while they close it."""

from __future__ import annotations

import re
import time

import pytest
from hosts import Host
from jobs import RANKS
from lost import RANK_S, Lost

PROGRAM = str(RANKS / "split_loss.py")
# A close that nobody hinders waits a second for messages that nobody takes.
CLOSE_S = 4.0


@pytest.mark.parametrize("after_s", [0.0, 0.013, 0.05])
@pytest.mark.parametrize("victim", [0, 3])
def test_a_rank_killed_in_split(two_hosts: list[Host], victim: int, after_s: float) -> None:
    with Lost(two_hosts, [0, 1, 0, 1], PROGRAM, "split") as lost:
        time.sleep(after_s)
        lost.kill(victim)
        # By its number in the group, or in a part.
        others = [rank for rank in range(4) if rank != victim]
        lost.check(others, RANK_S, f"(pid {lost.pids[victim]}", f"rank {victim}")


@pytest.mark.parametrize("after_s", [0.1, 0.15, 0.4])
def test_a_rank_killed_while_it_closes(two_hosts: list[Host], after_s: float) -> None:
    with Lost(two_hosts, [0, 0, 1, 1], PROGRAM, "close") as lost:
        time.sleep(after_s)
        lost.kill(3)
        # Rank 0 may have closed before rank 3 is lost: whichever is seen first.
        lost.check([1, 2], RANK_S, f"(pid {lost.pids[3]}", f"(pid {lost.pids[0]}")
        assert 0 not in lost.errors()
        [seconds] = re.findall(r"closed ([\d.]+)", lost.printed(0))
        assert float(seconds) < CLOSE_S
