"""New processes join a group on several hosts, also after ranks were killed, rank 0 among them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from patience import patience
from tests.faults import growing_rank
from tests.multihost.hosts import Host

PROGRAM = growing_rank.__file__
LIMIT_S = patience(60.0)
DRAWS = 50 if os.environ.get("COLLOPS_ALL_FAULTS") else 4


class Group:
    """Processes that are to be one group; of a dead one's place another takes over."""

    def __init__(self, hosts: list[Host], size: int, job: str) -> None:
        self.hosts, self.size, self.job = hosts, size, job
        self.meet_at = hosts[0].address
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, where: int, *place: int, key: str = "secret") -> subprocess.Popen[str]:
        return self.hosts[where].start(
            [sys.executable, PROGRAM, str(self.size), *map(str, place)],
            env={
                "COLLOPS_BACKEND": "ucx",
                "COLLOPS_JOB_ID": self.job,
                "COLLOPS_JOB_KEY": key,
                "COLLOPS_TIMEOUT_S": f"{patience(40):g}",
                "MASTER_ADDR": self.meet_at,
                "OMP_NUM_THREADS": "1",
                "UCX_TLS": "tcp",
            },
        )

    def await_all(self, count: int | None = None) -> None:
        """Until each of the first ones has said that the group has the processes of them."""
        want = {process.pid for process in self.processes[:count]}
        for process in self.processes[:count]:
            assert process.stdout is not None
            while {int(pid) for pid in process.stdout.readline().split()} != want:
                assert process.poll() is None, process.communicate()


@contextmanager
def group(hosts: list[Host], size: int, job: str) -> Iterator[Group]:
    made = Group(hosts, size, job)
    late = threading.Timer(LIMIT_S, lambda: [process.kill() for process in made.processes])
    late.start()
    try:
        yield made
    finally:
        late.cancel()
        for process in made.processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("where", [0, 1], ids=["of rank 0", "other"])
def test_one_more_on_a_host(two_hosts: list[Host], where: int) -> None:
    with group(two_hosts, 3, f"grown-{where}") as made:
        made.processes = [made.start(0, 0, 2), made.start(1, 1, 2), made.start(where)]
        made.await_all()


def test_a_host_joins(three_hosts: list[Host]) -> None:
    with group(three_hosts, 5, "grown") as made:
        made.processes = [made.start(0, 0, 2), made.start(1, 1, 2)]
        made.processes += [made.start(2), made.start(2), made.start(1)]
        made.await_all()


def test_of_another_key_nobody_joins(two_hosts: list[Host]) -> None:
    with group(two_hosts, 3, "grown") as made:
        stranger = made.start(1, key="another")
        made.processes = [made.start(0, 0, 2), made.start(1, 1, 2), made.start(0)]
        made.await_all()
        error = stranger.communicate(timeout=LIMIT_S)[1]
        assert "refused this rank: it has another key: set COLLOPS_JOB_KEY" in error


@pytest.mark.parametrize("killed", [0, 1], ids=["rank 0", "rank 1"])
def test_others_take_the_place_of_the_killed(two_hosts: list[Host], killed: int) -> None:
    with group(two_hosts, 3, "grown") as made:
        made.processes = [made.start(0, 0, 3), made.start(1, 1, 3), made.start(0, 2, 3)]
        made.await_all()
        for _ in range(2):
            made.processes[killed].kill()
            made.processes[killed].communicate()
            # The group's rank 0 is on the other host from now on, and has the port there.
            if killed == 0:
                made.meet_at = made.hosts[1].address
            made.processes[killed] = made.start(1 - killed)
            made.await_all()


@pytest.mark.parametrize("seed", range(DRAWS))
def test_killed_while_it_grows(two_hosts: list[Host], seed: int) -> None:
    """All but one of the first ranks, which is on the host where new processes look for it then."""
    chosen = random.Random(seed)
    stays = seed % 2
    with group(two_hosts, 4, f"grown-{seed}") as made:
        made.processes = [made.start(0, 0, 2), made.start(1, 1, 2)]
        made.await_all(2)
        made.processes += [made.start(0), made.start(1)]
        for _ in range(2):
            time.sleep(chosen.random() * 1.2)
            made.meet_at = two_hosts[stays].address
            # Those that have not joined look for another rank 0, if that is killed.
            others = [i for i in range(4) if i != stays]
            killed = others if stays == 1 else chosen.sample(others, chosen.randint(1, 2))
            for i in killed:
                made.processes[i].kill()
                made.processes[i].communicate()
                made.processes[i] = made.start(chosen.randint(0, 1))
        made.await_all()
