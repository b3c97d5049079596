"""ReduceScatterV of large slices between hosts: the same bits, and the bytes that were promised."""

from __future__ import annotations

import pytest
from hosts import Host
from jobs import RANKS, Job

LIMIT_S = 120.0
PROGRAM = str(RANKS / "reductions.py")
# A slice is large from 64 KiB on; chunks hold 32768 to 262144 elements.
PLACEMENTS = {
    "one rank each": ([0, 1], [100000, 65537]),
    "two ranks each": ([0, 0, 1, 1], [300001, 70000, 0, 270000]),
    "round robin": ([0, 1, 0, 1], [70000, 70000, 70000, 70000]),
    "three and one": ([0, 0, 0, 1], [70000, 1, 140000, 90000]),
    "one and three": ([0, 1, 1, 1], [70000, 65000, 140000, 90000]),
    "in and out": ([0, 0, 1, 1, 0], [70000, 65000, 140000, 90000, 80000]),
}


def check(hosts: list[Host], placement: list[int], sizes: list[int]) -> None:
    with Job(hosts, placement, PROGRAM, *map(str, sizes)) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert "reduced 11" in out


@pytest.mark.parametrize(("placement", "sizes"), PLACEMENTS.values(), ids=PLACEMENTS)
def test_two_hosts(two_hosts: list[Host], placement: list[int], sizes: list[int]) -> None:
    check(two_hosts, placement, sizes)


def test_three_hosts(three_hosts: list[Host]) -> None:
    check(three_hosts, [0, 0, 1, 1, 2, 2], [70000, 80000, 65000, 100000, 90000, 70001])
    check(three_hosts, [2, 0, 1, 1, 2], [70000, 80000, 65000, 100000, 90000])


def test_a_running_sum_crosses_instead_of_slices(two_hosts: list[Host]) -> None:
    """2 x 2: both slices for each rank of host 0 come up, one sum for each of host 1 goes down."""
    calls, size = 40, 1 << 18
    before = [(host.sent_bytes(), host.received_bytes()) for host in two_hosts]
    with Job(two_hosts, [0, 0, 1, 1], PROGRAM, "repeat", str(calls), str(size)) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
    (sent, received), _ = before
    down = (two_hosts[0].sent_bytes() - sent) / (calls * size * 4)
    up = (two_hosts[0].received_bytes() - received) / (calls * size * 4)
    assert 2 < down < 2.02
    assert 4 < up < 4.04
