"""Messages move, and time-outs hold, while the queue's thread is inside a group call."""

from __future__ import annotations

from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

PROGRAM = str(RANKS / "beside.py")
PLACEMENT = [0, 1, 1]
LIMIT_S = patience(100.0)


def check(hosts: list[Host], *arguments: str) -> None:
    with Job(hosts, PLACEMENT, PROGRAM, *arguments) as job:
        results = job.results(LIMIT_S)
    for status, out, err in results:
        assert status == 0, out + err
        assert "beside" in out


def slow_down(host: Host) -> None:
    try:
        # A rank is stopped in the middle of a call's data: 24 MB, 2.4 s.
        host.slow_down("80mbit")
    except RuntimeError as error:
        pytest.skip(f"this kernel cannot slow a link down: {error}")


@pytest.mark.parametrize("waiter", [0, 1])
def test_messages_move_while_the_data_of_a_call_is_held_up(
    two_hosts: list[Host], waiter: int
) -> None:
    slow_down(two_hosts[0])
    check(two_hosts, "held", str(waiter))


def test_a_time_out_ends_the_waits_of_all_for_a_rank_that_is_stopped(
    two_hosts: list[Host], tmp_path: Path
) -> None:
    slow_down(two_hosts[0])
    check(two_hosts, "limit", str(tmp_path))


def test_a_rank_may_enter_a_call_once_it_has_a_message(two_hosts: list[Host]) -> None:
    check(two_hosts, "late")
