"""Send, Recv and exchanges between ranks of several hosts, and of one host among several."""

from __future__ import annotations

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

LIMIT_S = patience(200.0)
PROGRAM = str(RANKS / "messages.py")
FIRST_CALL = str(RANKS / "first_call.py")
PLACEMENTS = {
    "one rank each": [0, 1],
    "two ranks each": [0, 0, 1, 1],
    "round robin": [0, 1, 0, 1],
    "two and one": [0, 0, 1],
}


def check(hosts: list[Host], placement: list[int], program: str, word: str) -> None:
    with Job(hosts, placement, program) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert word in out


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
def test_messages_on_two_hosts(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, PROGRAM, "messages")


@pytest.mark.parametrize("placement", [[0, 1, 2], [2, 0, 1, 2]], ids=str)
def test_messages_on_three_hosts(three_hosts: list[Host], placement: list[int]) -> None:
    check(three_hosts, placement, PROGRAM, "messages")


@pytest.mark.parametrize("placement", [[0, 1], [0, 0, 1]], ids=str)
def test_the_first_call_may_be_any(two_hosts: list[Host], placement: list[int]) -> None:
    check(two_hosts, placement, FIRST_CALL, "first call")
