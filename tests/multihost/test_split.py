"""Subgroups whose ranks are on several hosts."""

from __future__ import annotations

import pytest
from hosts import Host
from jobs import RANKS, Job

LIMIT_S = 200.0
PROGRAM = str(RANKS / "split.py")
PLACEMENTS = {
    "one rank each": [0, 1],
    "two ranks each": [0, 0, 1, 1],
    "round robin": [0, 1, 0, 1],
    "two and one": [0, 0, 1],
}


def check(hosts: list[Host], placement: list[int]) -> None:
    with Job(hosts, placement, PROGRAM, ",".join(map(str, placement))) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert "split" in out


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_splits_on_two_hosts(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement)


@pytest.mark.parametrize("placement", [[0, 1, 2], [2, 0, 1, 2, 0]], ids=str)
def test_splits_on_three_hosts(three_hosts: list[Host], placement: list[int]) -> None:
    check(three_hosts, placement)
