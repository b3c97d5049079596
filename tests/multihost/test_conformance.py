"""Golden's cases on ranks of several hosts: the same bits as on one."""

from __future__ import annotations

import pytest
from hosts import Host
from jobs import FOLDER, Job

LIMIT_S = 300.0
PROGRAM = str(FOLDER / "rank_conformance.py")
PLACEMENTS = {
    "one rank each": [0, 1],
    "two ranks each": [0, 0, 1, 1],
    "round robin": [0, 1, 0, 1],
    "two and one": [0, 0, 1],
}
ATB = ("all_gather_v", "reduce_scatter_v", "all_gather", "reduce_scatter", "all_reduce")
EXCHANGES = ("broadcast", "all_to_all", "all_to_all_v", "all_to_all_v_v2")
PLAIN = ("all_gather_v", "reduce_scatter_v", "all_to_allv", "gatherv", "scatterv", "reduce")


def check(hosts: list[Host], placement: list[int], level: str, *operators: str) -> None:
    with Job(hosts, placement, PROGRAM, level, *operators) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            for operator in operators:
                assert f" {operator} " in out


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_atb_level(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, "atb", *ATB, *EXCHANGES)


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_plain_level(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, "plain", *PLAIN)


def test_three_hosts(three_hosts: list[Host]) -> None:
    check(three_hosts, [0, 1, 2], "atb", *ATB, *EXCHANGES)
    check(three_hosts, [2, 0, 1, 2], "plain", *PLAIN)
