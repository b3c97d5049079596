"""A job leaves nothing on its hosts: no process, no shared memory, no socket."""

from __future__ import annotations

import re

from patience import patience
from tests import programs
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job
from tests.multihost.lost import Lost

LOSS = str(RANKS / "loss.py")
GATHER = str(RANKS / "gather.py")
LIMIT_S = patience(60.0)
LISTENS = "0A"


def left_on(host: Host) -> list[str]:
    """Files of shared memory, sockets with a name, and listening ports of a host."""
    found = [f"/dev/shm/{name}" for name in host.run("ls", "-A", "/dev/shm").split()]
    sockets = host.run("cat", "/proc/net/unix").splitlines()[1:]
    found += [line.split()[7] for line in sockets if len(line.split()) > 7]
    for name in ("tcp", "tcp6"):
        rows = [line.split() for line in host.run("cat", f"/proc/net/{name}").splitlines()[1:]]
        found += [f"{name} {row[1]}" for row in rows if row[3] == LISTENS]
    return found


def test_a_job_that_ends_leaves_nothing(two_hosts: list[Host]) -> None:
    before = [left_on(host) for host in two_hosts]
    with Job(two_hosts, [0, 0, 1], GATHER, "100000", "3") as job:
        results = job.results(LIMIT_S)
    assert [status for status, _, _ in results] == [0, 0], results
    pids = [int(pid) for _, out, _ in results for pid in re.findall(r"pid (\d+)", out)]
    assert len(pids) == 3
    programs.await_gone(*pids)
    assert [left_on(host) for host in two_hosts] == before


def test_a_job_with_a_killed_host_leaves_nothing(two_hosts: list[Host]) -> None:
    before = [left_on(host) for host in two_hosts]
    with Lost(two_hosts, [0, 0, 1, 1], LOSS, "0", "1000") as lost:
        while_it_runs = left_on(two_hosts[0])
        lost.kill(2, 3)
        lost.results(LIMIT_S)
    programs.await_gone(*lost.pids.values())
    assert while_it_runs != before[0]  # this test sees what a job has
    assert [left_on(host) for host in two_hosts] == before


def test_a_job_whose_launchers_are_killed_leaves_nothing(two_hosts: list[Host]) -> None:
    before = [left_on(host) for host in two_hosts]
    with Lost(two_hosts, [0, 1], LOSS, "0", "1000") as lost:
        for host in two_hosts:
            host.kill()
    programs.await_gone(*lost.pids.values())
    assert [left_on(host) for host in two_hosts] == before
