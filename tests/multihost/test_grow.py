"""New processes join a group on several hosts, also after ranks were killed, rank 0 among them."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from patience import patience
from tests.faults import growing_rank, replaced_rank
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, Job, table_of

PROGRAM = growing_rank.__file__
WAYS = str(RANKS / "growing_ways.py")
LIMIT_S = patience(60.0)
DRAWS = 50 if os.environ.get("COLLOPS_ALL_FAULTS") else 4


class Group:
    """Processes that are to be one group; of a dead one's place another takes over."""

    def __init__(self, hosts: list[Host], size: int, job: str) -> None:
        self.hosts, self.size = hosts, size
        self.job = {"COLLOPS_BACKEND": "ucx", "COLLOPS_JOB_ID": job}
        self.meet_at = hosts[0].address
        self.place = "MASTER_ADDR"  # the variable that says where; "": none does
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, where: int, *place: int, key: str = "secret", program: Sequence[str] = ()
    ) -> subprocess.Popen[str]:
        return self.hosts[where].start(
            [sys.executable, *(program or [PROGRAM, str(self.size)]), *map(str, place)],
            env=self.job
            | {
                "COLLOPS_JOB_KEY": key,
                "COLLOPS_TIMEOUT_S": f"{patience(40):g}",
                "OMP_NUM_THREADS": "1",
                "UCX_TLS": "tcp",
            }
            | ({self.place: self.meet_at} if self.place else {})
            | ({"RANK_ID": str(place[0])} if place else {}),
        )

    def replace(self, *who: int, where: int) -> None:
        """Kills processes, each a host's last one; others come to a host that says where it is."""
        for i in who:
            self.processes[i].kill()
            self.processes[i].communicate()
        for i in who:
            self.processes[i] = self.start(where)

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


def test_a_table_says_where_the_group_may_be(three_hosts: list[Host], tmp_path: Path) -> None:
    """Also once the host of the table's rank 0 is lost; a host that it does not list is told."""
    table = tmp_path / "ranks.json"
    table.write_text(table_of(three_hosts[:2], [0, 1, 1]), encoding="utf-8")
    with group(three_hosts, 3, "") as made:
        made.job = {"RANK_TABLE_FILE": str(table)}
        made.place = ""
        made.processes = [made.start(0, 0, 3), made.start(1, 1, 3), made.start(1, 2, 3)]
        made.await_all()
        made.replace(0, where=0)
        made.await_all()
        made.replace(1, 2, where=2)
        made.await_all()
        made.place, made.meet_at = "MASTER_ADDR", made.hosts[2].address
        made.replace(0, where=1)
        made.await_all()


def test_a_new_process_has_the_name_that_torchrun_gave(two_hosts: list[Host]) -> None:
    """The name has the address of the host of torchrun's rank 0, which is lost."""
    with group(two_hosts, 2, "") as made:
        torchrun = {"TORCHELASTIC_RUN_ID": "run", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
        for rank in (0, 1):
            made.job = torchrun | {"LOCAL_WORLD_SIZE": "1", "RANK": str(rank)}
            made.processes.append(made.start(rank, rank, 2))
        made.await_all()
        job = f"torchrun/{two_hosts[0].address}/29500/hosts/run"
        made.job = {"COLLOPS_BACKEND": "ucx", "COLLOPS_JOB_ID": job}
        made.meet_at = two_hosts[1].address
        made.replace(0, where=1)
        made.await_all()


def test_an_agreed_port_is_kept(two_hosts: list[Host]) -> None:
    """On whichever host the group's rank 0 is."""
    with group(two_hosts, 3, "") as made:
        made.job = {}
        made.place, made.meet_at = "COLLOPS_TEST_MEET_AT", f"{two_hosts[0].address}:29600"
        made.processes = [made.start(0, 0, 3), made.start(1, 1, 3), made.start(1, 2, 3)]
        made.await_all()
        made.meet_at = f"{two_hosts[1].address}:29600"
        made.replace(0, where=0)
        made.await_all()
        made.meet_at = f"{two_hosts[0].address}:29600"
        made.replace(1, 2, where=1)
        made.await_all()


def test_collops_run_starts_lost_ranks_anew(two_hosts: list[Host]) -> None:
    """The first one killed is the only rank of the table's first host."""
    program = ["--restart", "1", replaced_rank.__file__]
    with Job(two_hosts, [0, 1, 1], *program, COLLOPS_JOB_KEY="secret") as job:
        found = job.results(LIMIT_S)
    lines = [line for _, out, _ in found for line in out.splitlines()]
    assert sorted(lines) == ["[0] 1 3", "[1] 0 3", "[2] 2 3"], found


def said(process: subprocess.Popen[str]) -> str:
    """Its next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return line


def go_on(made: Group, new: int, *further: int) -> None:
    """The members grow then, with those that are there already and further processes on these
    hosts."""
    for member in made.processes[:2]:
        assert member.stdin is not None
        member.stdin.write("\n")
        member.stdin.flush()
    made.processes += [made.start(where, program=[WAYS, str(new), "0"]) for where in further]
    made.await_all()


def test_nobody_comes_and_then_one_does(two_hosts: list[Host]) -> None:
    with group(two_hosts, 3, "grown-late") as made:
        ways = [WAYS, "1", str(patience(0.5))]
        made.processes = [made.start(i, i, 2, program=ways) for i in (0, 1)]
        for member in made.processes:
            assert said(member).startswith("ERROR_TIMEOUT grow: 0 of 1 new process came within ")
        go_on(made, 1, 1)


def test_a_stopped_new_process_leaves_the_group_as_it_was(two_hosts: list[Host]) -> None:
    with group(two_hosts, 4, "grown-stopped") as made:
        ways = [WAYS, "2", str(patience(2))]
        made.processes = [made.start(i, i, 2, program=ways) for i in (0, 1)]
        stopped = made.start(1, program=ways)
        time.sleep(patience(0.8))  # it is at the entrance
        stopped.send_signal(signal.SIGSTOP)
        made.processes += [stopped, made.start(0, program=ways)]
        for member in made.processes[:2]:
            error = r"ERROR_TIMEOUT grow: (1 of 2|2 of 2 new processes came within .*, but they) "
            assert re.match(error, said(member))
        stopped.send_signal(signal.SIGCONT)
        go_on(made, 2)


@pytest.mark.parametrize(("lacks", "error"), [(0, "ERROR_TIMEOUT"), (1, "ERROR_RT_FAIL")])
def test_a_member_without_descriptors(two_hosts: list[Host], lacks: int, error: str) -> None:
    with group(two_hosts, 3, f"grown-few-{lacks}") as made:
        ways = [WAYS, "1", str(patience(0.5 if lacks == 0 else 30))]
        made.processes = [made.start(i, i, 2, lacks, program=ways) for i in (0, 1)]
        made.processes += [made.start(1, program=ways)]
        for member in made.processes[:2]:
            heard = said(member)
            assert heard.startswith(f"{error} grow: ")
            assert "too many open files" in heard.lower()
        go_on(made, 1)


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
