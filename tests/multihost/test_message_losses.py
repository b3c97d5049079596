"""Ranks and hosts that are lost while others send them messages, or wait for theirs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS
from tests.multihost.lost import HOST_S, RANK_S, Lost

PROGRAM = str(RANKS / "message_loss.py")
SIZES = pytest.mark.parametrize("elements", [16, 1 << 20], ids=["small", "large"])


@SIZES
def test_a_killed_rank_is_named_by_all(two_hosts: list[Host], elements: int) -> None:
    with Lost(two_hosts, [0, 1, 0, 1], PROGRAM, "0", str(elements), "all") as lost:
        lost.kill(3)
        lost.check([0, 1, 2], RANK_S, "rank 3")


@SIZES
@pytest.mark.parametrize("lose", [Lost.cut, Lost.make_hole], ids=["cut", "silent hole"])
def test_a_lost_link_is_reported_on_both_sides(
    two_hosts: list[Host], lose: Callable[[Lost], None], elements: int
) -> None:
    with Lost(two_hosts, [0, 1], PROGRAM, "0", str(elements), "all") as lost:
        lose(lost)
        lost.check([0], HOST_S, "rank 1")
        lost.check([1], HOST_S, "rank 0")


def test_a_subgroup_names_the_killed_rank_by_its_own_number(two_hosts: list[Host]) -> None:
    with Lost(two_hosts, [0, 1, 0, 1], PROGRAM, "0", "1000", "part") as lost:
        lost.kill(3)
        lost.check([0, 1, 2], RANK_S, f"rank 0 (pid {lost.pids[3]})")
