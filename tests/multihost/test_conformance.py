"""Golden's cases on ranks of several hosts: the same bits as on one."""

from __future__ import annotations

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

LIMIT_S = patience(300.0)
PROGRAM = str(RANKS / "conformance.py")
PLACEMENTS = {
    "one rank each": [0, 1],
    "two ranks each": [0, 0, 1, 1],
    "round robin": [0, 1, 0, 1],
    "two and one": [0, 0, 1],
}
ATB = ("all_gather_v", "reduce_scatter_v", "all_gather", "reduce_scatter", "all_reduce")
EXCHANGES = ("broadcast", "all_to_all", "all_to_all_v", "all_to_all_v_v2")
MESSAGES = ("send", "recv")
# On a grid it splits the ranks into groups that lie across hosts.
LINEAR = ("linear_parallel",)
PLAIN = ("all_gather_v", "reduce_scatter_v", "all_to_allv", "gatherv", "scatterv", "reduce")
PARTIALS = ("all_reduce, partials", "reduce_scatterv, partials")
EXPERTS = ("moe_dispatch", "moe_combine")


def check(hosts: list[Host], placement: list[int], level: str, *operators: str) -> None:
    with Job(hosts, placement, PROGRAM, level, *operators) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            for operator in operators:
                assert f" {operator} " in out


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_atb_level(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, "atb", *ATB, *EXCHANGES, *MESSAGES)


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_plain_level(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, "plain", *PLAIN, *PARTIALS, *EXPERTS, *MESSAGES)


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_linear_parallel(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, "atb", *LINEAR)


def test_three_hosts(three_hosts: list[Host]) -> None:
    check(three_hosts, [0, 1, 2], "atb", *ATB, *EXCHANGES, *MESSAGES)
    check(three_hosts, [2, 0, 1, 2], "atb", *LINEAR)
    check(three_hosts, [2, 0, 1, 2], "plain", *PLAIN, *MESSAGES)
