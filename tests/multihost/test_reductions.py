"""ReduceScatterV of large slices between hosts: the same bits, and the bytes that were promised."""

from __future__ import annotations

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

LIMIT_S = patience(120.0)
PROGRAM = str(RANKS / "reductions.py")
# A slice is large from 64 KiB on; chunks hold 32768 to 262144 elements.
PLACEMENTS = {
    "one rank each": ([0, 1], [100000, 65537]),
    "two ranks each": ([0, 0, 1, 1], [300001, 70000, 0, 270000]),
    "round robin": ([0, 1, 0, 1], [70000, 70000, 70000, 70000]),
    "three and one": ([0, 0, 0, 1], [70000, 1, 140000, 90000]),
    "one and three": ([0, 1, 1, 1], [70000, 65000, 140000, 90000]),
    "small slices": ([0, 1, 1, 0], [10, 3000, 0, 7]),
    "in and out": ([0, 0, 1, 1, 0], [70000, 65000, 140000, 90000, 80000]),
}


def check(hosts: list[Host], placement: list[int], sizes: list[int]) -> None:
    with Job(hosts, placement, PROGRAM, *map(str, sizes)) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert "reduced 16" in out


@pytest.mark.parametrize(("placement", "sizes"), PLACEMENTS.values(), ids=PLACEMENTS)
def test_two_hosts(two_hosts: list[Host], placement: list[int], sizes: list[int]) -> None:
    check(two_hosts, placement, sizes)


def test_three_hosts(three_hosts: list[Host]) -> None:
    check(three_hosts, [0, 0, 1, 1, 2, 2], [70000, 80000, 65000, 100000, 90000, 70001])
    check(three_hosts, [2, 0, 1, 1, 2], [70000, 80000, 65000, 100000, 90000])


def bytes_of_a_call(hosts: list[Host], calls: int, sizes: list[int]) -> tuple[float, float]:
    """The bytes that a 2 x 2 call sends from host 0 to host 1, and back."""
    sent, received = hosts[0].sent_bytes(), hosts[0].received_bytes()
    arguments = map(str, [calls, *sizes])
    with Job(hosts, [0, 0, 1, 1], PROGRAM, "repeat", *arguments) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
    down, up = hosts[0].sent_bytes() - sent, hosts[0].received_bytes() - received
    return down / calls, up / calls


def test_a_running_sum_crosses_instead_of_slices(two_hosts: list[Host]) -> None:
    """2 x 2: both slices for each rank of host 0 come up, one sum for each of host 1 goes down."""
    size = 1 << 18
    down, up = bytes_of_a_call(two_hosts, 40, [size] * 4)
    assert 2 < down / (size * 4) < 2.02
    assert 4 < up / (size * 4) < 4.04


def test_small_slices_beside_large_ones_cross_once(two_hosts: list[Host]) -> None:
    """They are part of a running sum, so they do not travel with the heads as well."""
    small = 1000
    down, _ = bytes_of_a_call(two_hosts, 2000, [1 << 14, 1 << 14, small, small])
    assert 2 < down / (small * 4) < 3
