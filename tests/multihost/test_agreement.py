"""How ranks of several hosts agree on their calls: refusals, and what a call costs on the wire."""

from __future__ import annotations

from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job

LIMIT_S = patience(120.0)
PROGRAM = str(RANKS / "agreement.py")
CALLS = 3000


def run(hosts: list[Host], placement: list[int], *arguments: str) -> None:
    with Job(hosts, placement, PROGRAM, *arguments) as job:
        for status, out, err in job.results(LIMIT_S):
            assert status == 0, out + err
            assert "done" in out


@pytest.mark.parametrize("placement", [[0, 0, 1, 1], [0, 1, 1], [0, 1, 0, 1, 0]])
def test_a_refusal_while_a_rank_of_another_host_has_not_arrived(
    two_hosts: list[Host], placement: list[int], tmp_path: Path
) -> None:
    run(two_hosts, placement, "refusals", str(tmp_path))


# A small call is one message each way, and what acknowledges it: its data goes with the head, and
# no watcher sends a word.
def test_a_small_call_is_one_message_each_way(two_hosts: list[Host]) -> None:
    before = [host.sent_frames() for host in two_hosts]
    run(two_hosts, [0, 1], "calls", str(CALLS))
    for host, was in zip(two_hosts, before, strict=True):
        assert CALLS <= host.sent_frames() - was < 2.5 * CALLS
