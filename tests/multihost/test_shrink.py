"""Ranks, hosts and leaders that are lost: those that are left shrink the group and go on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from collops.launch.environment import place_names
from patience import patience
from tests import programs
from tests.multihost.hosts import Host, silent_hole
from tests.multihost.jobs import RANKS, table_of
from tests.multihost.test_left_behind import left_on

PROGRAM = str(RANKS / "shrinking.py")
WAYS = str(RANKS / "shrinking_ways.py")
# From the last error of a rank to the end of the new group's first call.
AT_ONCE_S = patience(5.0)
LIMIT_S = patience(60.0)
# UCX 1.22 may abort a process whose peer ends while the two connect: one more rank is lost then.
UCX_ABORTS = "stubs.c"
DRAWS = 100 if os.environ.get("COLLOPS_ALL_FAULTS") else 4
MOMENTS = ("small", "small", "large", "split", "close")


class Ranks:
    """A program on every rank of a placement; no launcher ends ranks when others have ended."""

    def __init__(self, hosts: Sequence[Host], placement: Sequence[int], *program: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        table = Path(self._folder.name, "ranks.json")
        table.write_text(table_of(hosts, placement), encoding="utf-8")
        variables = {
            "COLLOPS_JOB_ID": self._folder.name,
            "COLLOPS_TIMEOUT_S": f"{patience(40):g}",
            "OMP_NUM_THREADS": "1",
            "RANK_TABLE_FILE": str(table),
            "UCX_TLS": "tcp",
        }
        self.processes: list[subprocess.Popen[str]] = [
            hosts[where].start(
                [sys.executable, *program],
                env=variables | place_names(rank, len(placement), 0, 1),
            )
            for rank, where in enumerate(placement)
        ]

    def __enter__(self) -> Ranks:
        for rank in range(len(self.processes)):
            self.await_line(rank, "ready")
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()
        self._folder.cleanup()

    def await_line(self, rank: int, line: str) -> None:
        """Until the rank prints it."""
        stdout = self.processes[rank].stdout
        assert stdout is not None
        assert stdout.readline() == line + "\n", self.processes[rank].communicate()

    def tell(self, *ranks: int) -> None:
        """That they may go on."""
        for rank in ranks:
            stdin = self.processes[rank].stdin
            assert stdin is not None
            stdin.write("\n")
            stdin.flush()

    def finish(self, rank: int) -> str:
        """What the rank printed at last, once it has ended well; or that UCX has aborted it."""
        process = self.processes[rank]
        process.wait(timeout=LIMIT_S)
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.read(), process.stderr.read()
        if process.returncode == -signal.SIGABRT and UCX_ABORTS in err:
            return UCX_ABORTS
        assert (process.returncode, programs.own(err)) == (0, ""), f"{rank}: {out} {err}"
        return out


def go_on(
    hosts: list[Host],
    placement: Sequence[int],
    killed: Sequence[int],
    *delays: float,
    moment: str = "small",
) -> None:
    """Kills ranks, one after the other where there are delays, and checks who goes on."""
    before = [left_on(host) for host in hosts]
    left = [rank for rank in range(len(placement)) if rank not in killed]
    ending = ",".join(map(str, killed))
    with Ranks(hosts, placement, PROGRAM, str(len(left)), moment, ending) as ranks:
        for rank, delay in zip_longest(killed, delays, fillvalue=0.0):
            time.sleep(delay)
            if moment != "close":
                ranks.processes[int(rank)].kill()
        ends = {rank: ranks.finish(rank) for rank in left}
    aborted = [rank for rank in left if ends[rank] == UCX_ABORTS]
    assert len(aborted) <= 1, f"{aborted} {killed}"
    left = [rank for rank in left if rank not in aborted]
    found = {rank: ends[rank].split() for rank in left}
    told = {rank: [int(member) for member in found[rank][1:]] for rank in left}
    assert told == dict.fromkeys(left, left), f"{told} {killed}"
    assert all(float(took_s) < AT_ONCE_S for took_s, *_ in found.values())
    assert [left_on(host) for host in hosts] == before


@pytest.mark.parametrize(
    "killed",
    [[3], [0], [1, 2], [2], [1, 3], [0, 2]],
    ids=["one", "rank 0", "two", "leader of a host", "host", "host of rank 0"],
)
def test_the_others_go_on(two_hosts: list[Host], killed: list[int]) -> None:
    placement = [0, 0, 1, 1] if killed in ([2], [3]) else [0, 1, 0, 1]
    go_on(two_hosts, placement, killed)


def test_of_three_hosts_two_are_left(three_hosts: list[Host]) -> None:
    go_on(three_hosts, [0, 0, 1, 1, 2], [0, 1])


@pytest.mark.parametrize("stopped", [0, 2, 3])
def test_a_stopped_rank_is_left_out_and_learns_it(two_hosts: list[Host], stopped: int) -> None:
    left = [rank for rank in range(4) if rank != stopped]
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "stopped", str(stopped), f"{patience(1):g}") as ranks:
        ranks.tell(*left)
        for rank in left:
            ranks.await_line(rank, " ".join(str(other) for other in left))
        ranks.processes[stopped].send_signal(signal.SIGCONT)
        late = f"ERROR_TIMEOUT shrink: the other ranks go on without rank {stopped}, which had not"
        assert ranks.finish(stopped).startswith(late)
        ranks.tell(*left)
        assert [ranks.finish(rank) for rank in left] == ["", "", ""]


def test_ranks_of_a_healthy_group_are_excluded(two_hosts: list[Host]) -> None:
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "excluded", "0,3", "60") as ranks:
        ranks.tell(0, 1, 2, 3)
        for rank in (1, 2):
            ranks.await_line(rank, "1 2")
        for rank in (0, 3):
            assert ranks.finish(rank).split()[0] in ("ERROR_ABORTED", "ERROR_TIMEOUT")
        ranks.tell(1, 2)
        assert [ranks.finish(rank) for rank in (1, 2)] == ["", ""]


def test_ranks_that_exclude_others(two_hosts: list[Host]) -> None:
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "lists", "0,1", "60") as ranks:
        ranks.tell(0, 1, 2, 3)
        for rank in (0, 1, 2):
            heard = ranks.finish(rank)
            assert heard.startswith("ERROR_RANK_MISMATCH shrink: exclude is ")
            assert " [3] on rank 0 (pid " in heard


def test_a_rank_in_no_call_comes_later(two_hosts: list[Host]) -> None:
    """The others wait for it."""
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "late", "0,3", "60") as ranks:
        ranks.tell(0, 1, 2, 3)
        time.sleep(0.5)
        ranks.tell(3)
        time.sleep(0.2)
        ranks.tell(0)
        for rank in range(4):
            ranks.await_line(rank, "0 1 2 3")
        ranks.tell(0, 1, 2, 3)
        assert [ranks.finish(rank) for rank in range(4)] == [""] * 4


def test_started_calls_end_before_it_returns(two_hosts: list[Host]) -> None:
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "started", "2", "60") as ranks:
        ranks.tell(2)
        assert ranks.finish(2) == ""
        ranks.tell(0, 1, 3)
        for rank in (0, 1, 3):
            ranks.await_line(rank, "0 1 3")
        ranks.tell(0, 1, 3)
        assert [ranks.finish(rank) for rank in (0, 1, 3)] == ["", "", ""]


@pytest.mark.parametrize("lacks", [0, 3])
def test_a_rank_without_descriptors(two_hosts: list[Host], lacks: int) -> None:
    """It says so, and the others go on once it has ended."""
    left = [rank for rank in range(4) if rank != lacks]
    with Ranks(two_hosts, [0, 0, 1, 1], WAYS, "descriptors", str(lacks), "60") as ranks:
        ranks.tell(0, 1, 2, 3)
        assert ranks.finish(lacks) == (
            "ERROR_RT_FAIL shrink: this process has too many open files: raise the limit "
            "(ulimit -n)\n"
        )
        for rank in left:
            ranks.await_line(rank, " ".join(str(other) for other in left))
        ranks.tell(*left)
        assert [ranks.finish(rank) for rank in left] == ["", "", ""]


@pytest.mark.parametrize("lose", [Host.cut, None], ids=["cut", "silent hole"])
def test_each_side_of_a_cut_network_goes_on(
    two_hosts: list[Host], lose: Callable[[Host], None] | None
) -> None:
    placement = [0, 1, 1, 0]
    with Ranks(two_hosts, placement, PROGRAM, "2") as ranks:
        if lose:
            lose(two_hosts[0])
        else:
            silent_hole(*two_hosts)
        ends = [ranks.finish(rank).split() for rank in range(4)]
    assert [end[1:] for end in ends] == [["0", "3"], ["1", "2"], ["1", "2"], ["0", "3"]]
    assert all(float(end[0]) < AT_ONCE_S for end in ends)


def draw(hosts: list[Host], seed: int) -> None:
    """Some of 2 to 7 ranks, or a host, in any call and while the others shrink the group."""
    chosen = random.Random(seed)
    size = chosen.randint(len(hosts), 7)
    placement = [rank % len(hosts) for rank in range(size)]
    if chosen.random() < 0.5:
        placement.sort()
    if chosen.random() < 0.2:
        host = chosen.choice(placement)
        killed = [rank for rank in range(size) if placement[rank] == host]
    else:
        killed = chosen.sample(range(size), chosen.randint(1, min(3, size - 1)))
    # Rank 0 leads, and then the next one.
    if chosen.random() < 0.3:
        killed.sort()
    delays = [chosen.random() * 0.1 if chosen.random() < 0.8 else 0.0 for _ in killed]
    moment = chosen.choice(MOMENTS)
    print(f"seed {seed}: {placement}, {killed} after {delays}, {moment}")
    go_on(hosts, placement, killed, *delays, moment=moment)


@pytest.mark.parametrize("seed", range(DRAWS))
def test_draws_of_two_hosts(two_hosts: list[Host], seed: int) -> None:
    draw(two_hosts, seed)


@pytest.mark.parametrize("seed", range(1000, 1000 + DRAWS // 2))
def test_draws_of_three_hosts(three_hosts: list[Host], seed: int) -> None:
    draw(three_hosts, seed)
