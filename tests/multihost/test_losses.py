"""Ranks and hosts that are lost: every rank in a call gets an error that names them, in time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS
from tests.multihost.lost import HOST_S, RANK_S, Lost
from tests.multihost.test_shrink import Ranks

PROGRAM = str(RANKS / "loss.py")


@pytest.mark.parametrize("elements", [16, 1 << 20], ids=["small", "large"])
def test_a_killed_rank_is_named_by_all(two_hosts: list[Host], elements: int) -> None:
    with Lost(two_hosts, [0, 0, 1, 1], PROGRAM, "0", str(elements)) as lost:
        lost.kill(3)
        lost.check([0, 1, 2], RANK_S, "rank 3")


def test_a_killed_host_is_named_by_the_ranks_of_the_other(two_hosts: list[Host]) -> None:
    with Lost(two_hosts, [0, 1, 0, 1], PROGRAM, "0", "100000") as lost:
        lost.kill(1, 3)
        lost.check([0, 2], RANK_S, "rank 1", "rank 3")


@pytest.mark.parametrize("lose", [Lost.cut, Lost.make_hole], ids=["cut", "silent hole"])
def test_a_lost_link_is_reported_on_both_sides(
    two_hosts: list[Host], lose: Callable[[Lost], None]
) -> None:
    with Lost(two_hosts, [0, 1], PROGRAM, "0", "1000000") as lost:
        lose(lost)
        lost.check([0], HOST_S, "rank 1", "peer 1")
        lost.check([1], HOST_S, "rank 0", "peer 0")


def test_a_call_that_fails_leaves_its_inputs_as_they_were(two_hosts: list[Host]) -> None:
    with Ranks(two_hosts, [0, 0, 1], str(RANKS / "inputs.py")) as ranks:
        assert [ranks.finish(rank) for rank in range(3)] == ["\n"] * 3
