"""First contact that cannot be: a missing rank, a wrong key, no UCX; what the ranks say.

And strangers at the job's port, who change nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host
from tests.multihost.jobs import RANKS, RUN, table_of

SUM = str(RANKS / "sum.py")
LIMIT_S = patience(60.0)
PORT = "29577"
STRANGER = """
import socket, sys, time
host, port, what = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if what == "listen":
    server = socket.create_server((host, port))
    print("ready", flush=True)
    sys.stdin.read()
print("ready", flush=True)
kept = []
while True:
    try:
        s = socket.create_connection((host, port), timeout=1)
        words = [b"", b"GET / HTTP/1.1\\r\\n\\r\\n", bytes([len(kept) % 256]) * 3000, b"\\xff" * 8]
        s.sendall(words[len(kept) % 4])
        if not kept:
            print("sent", flush=True)
        kept = [*kept[-200:], s]
    except OSError:
        time.sleep(0.01)
"""


class Ranks:
    """A program on every rank of a placement, with variables that may differ per host."""

    def __init__(self, folder: Path, hosts: Sequence[Host], placement: Sequence[int]) -> None:
        self.hosts = hosts
        self.table = folder / "ranks.json"
        self.table.write_text(table_of(hosts, placement), encoding="utf-8")

    def run(
        self, program: str, *envs: dict[str, str], late: int | None = None
    ) -> list[tuple[int, str, str]]:
        """Of each host: status, output, errors. The last `envs` is for all further hosts.

        The host `late` begins a second after the others.
        """
        started = {}
        for number in sorted(range(len(self.hosts)), key=lambda number: number == late):
            if number == late:
                time.sleep(1)
            own = envs[min(number, len(envs) - 1)] if envs else {}
            common = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(30):g}"}
            words = [*RUN, str(self.table), program]
            started[number] = self.hosts[number].start(words, env=common | own)
        found = []
        for _, process in sorted(started.items()):
            out, err = process.communicate(timeout=LIMIT_S)
            found.append((process.returncode, out, err))
        return found


@contextmanager
def stranger(host: Host, address: str, what: str) -> Iterator[None]:
    """Someone of no job, who listens at the job's port, or connects to it."""
    process = host.start([sys.executable, "-c", STRANGER, address, PORT, what])
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    yield
    if what != "listen":
        assert process.stdout.readline() == "sent\n"
    process.kill()


# Longer than the ten seconds after which a waiting rank says so. All of it passes, on any machine.
WAIT = {"COLLOPS_TIMEOUT_S": f"{min(patience(20), 30):g}"}


def line_of(errors: str, rank: int, whom: str) -> str:
    """The one line that a rank logs after ten seconds."""
    begin = f"collops: rank {rank}: waiting for "
    [line] = [line for line in errors.splitlines() if begin in line]
    assert f"{begin}{whom} (" in line
    return line


def test_each_host_says_which_rank_is_missing(tmp_path: Path, two_hosts: list[Host]) -> None:
    ranks = Ranks(
        tmp_path, [*two_hosts, Host("node2", "10.77.0.3", two_hosts[0].keeper)], [0, 1, 2]
    )
    ranks.hosts = two_hosts  # the third is not there
    for rank, (status, _, errors) in enumerate(ranks.run(SUM, WAIT)):
        assert status != 0
        line = line_of(errors, rank, "rank 2 of 3")
        assert "from the rank table's content" in line
        where = "; the rank table places rank 2 on 10.77.0.3"
        assert line.endswith(where)
        assert "rank 2 of 3 did not connect within" in errors
        assert errors.count(where) > 1


@pytest.mark.parametrize(
    ("first_env", "second_env", "fact"),
    [
        ({"COLLOPS_JOB_KEY": "apple"}, {"COLLOPS_JOB_KEY": "pear"}, "has another key"),
        ({"COLLOPS_JOB_ID": "apple"}, {"COLLOPS_JOB_ID": "pear"}, "belongs to another job"),
    ],
    ids=["key", "job"],
)
def test_who_was_turned_away_is_named(
    tmp_path: Path,
    two_hosts: list[Host],
    first_env: dict[str, str],
    second_env: dict[str, str],
    fact: str,
) -> None:
    ranks = Ranks(tmp_path, two_hosts, [0, 1])
    first, second = ranks.run(SUM, WAIT | first_env, WAIT | second_env)
    assert first[0] != 0 and second[0] != 0
    known = f"turned away: 10.77.0.2, which says it is rank 1 on node1 and {fact}"
    assert known in line_of(first[2], 0, "rank 1 of 2")
    assert "rank 1 of 2 did not connect within" in first[2]
    assert first[2].count(known) > 1
    assert f"10.77.0.1:29577 refused this rank: it {fact}" in second[2]
    if "COLLOPS_JOB_KEY" in second_env:
        assert "ERROR_RANK_MISMATCH" in second[2]
        assert "set COLLOPS_JOB_KEY to the same text in all ranks" in second[2]
        assert "pear" not in first[2] and "apple" not in second[2] + first[2]
    else:
        line_of(second[2], 1, "rank 0 of 2 at 10.77.0.1")


def test_another_rank_table_is_named(tmp_path: Path, two_hosts: list[Host]) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    one = Ranks(tmp_path / "first", two_hosts, [0, 1])
    other = Ranks(tmp_path / "second", two_hosts, [0, 1])
    other.table.write_text(one.table.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    one.hosts, other.hosts = two_hosts[:1], two_hosts[1:]
    with ThreadPoolExecutor() as pool:
        found = [pool.submit(ranks.run, SUM, WAIT) for ranks in (one, other)]
        [first], [second] = (one_of.result() for one_of in found)
    fact = "10.77.0.2, which says it is rank 1 on node1 and has another rank table"
    assert fact in line_of(first[2], 0, "rank 1 of 2")
    assert "it has another rank table than the ranks that listen here" in line_of(
        second[2], 1, "rank 0 of 2 at 10.77.0.1"
    )


def test_a_rank_that_asked_and_did_not_come(tmp_path: Path, two_hosts: list[Host]) -> None:
    # As behind a firewall that has the job's port open, and no other one.
    closed = "31744-31759"
    two_hosts[1].run("ip", "rule", "add", "ipproto", "tcp", "dport", closed, "unreachable")
    ranks = Ranks(tmp_path, two_hosts, [0, 1])
    first, second = ranks.run(SUM, WAIT | {"COLLOPS_PORT_RANGE": closed}, WAIT)
    fact = "rank 1 (on node1, 10.77.0.2) asked at the job's port, and did not come"
    assert fact in line_of(first[2], 0, "rank 1 of 2")
    assert first[2].count(fact) > 1
    assert "collops: rank 1: waiting for rank 0 of 2, which listens at 10.77.0.1:317" in second[2]
    assert first[0] != 0 and second[0] != 0


@pytest.mark.parametrize(("lacking", "late"), [(1, 0), (1, 1), (0, 0)])
def test_a_host_without_ucx_tells_the_others(
    tmp_path: Path, two_hosts: list[Host], lacking: int, late: int
) -> None:
    ranks = Ranks(tmp_path, two_hosts, [0, 0, 1, 1])
    never = f"{patience(300):g}"  # longer than run() waits
    envs = [{"COLLOPS_TIMEOUT_S": never}, {"COLLOPS_TIMEOUT_S": never}]
    envs[lacking]["COLLOPS_UCX_LIBRARY"] = "/nowhere/libucp.so.0"
    found = ranks.run(SUM, *envs, late=late)
    assert all(status != 0 for status, _, _ in found)
    why = "backend ucx: "
    assert "ERROR_UNSUPPORTED" in found[lacking][2] and "/nowhere/libucp.so.0" in found[lacking][2]
    told = found[1 - lacking][2]
    place = f" on node{lacking}, 10.77.0.{lacking + 1}) left before first contact of comm_domain"
    assert place in told and why in told and "/nowhere/libucp.so.0" in told


DECLINING = """
import time
import collops

def seconds(*place, **words):
    begin = time.monotonic()
    try:
        collops.init(*place, backend="ucx", **words)
    except collops.Error as error:
        assert error.name == "ERROR_UNSUPPORTED"
        return time.monotonic() - begin

print(seconds(0, 1, comm_domain="alone"), seconds() and seconds())
"""


def test_without_ucx_it_waits_for_others_to_tell_once(
    tmp_path: Path, two_hosts: list[Host]
) -> None:
    """And for nobody where the rank is alone."""
    program = tmp_path / "declining.py"
    program.write_text(DECLINING, encoding="utf-8")
    ranks = Ranks(tmp_path, two_hosts, [0, 1])
    for status, out, errors in ranks.run(
        str(program), {"COLLOPS_UCX_LIBRARY": "/nowhere/libucp.so.0"}
    ):
        assert status == 0, errors
        assert max(map(float, out.split()[-2:])) < patience(2)


def test_a_port_that_a_stranger_has(tmp_path: Path, two_hosts: list[Host]) -> None:
    ranks = Ranks(tmp_path, two_hosts, [0, 1])
    with stranger(two_hosts[0], "10.77.0.1", "listen"):
        first, second = ranks.run(SUM, {"COLLOPS_TIMEOUT_S": "4"})
    assert first[0] != 0
    assert (
        "cannot listen at 10.77.0.1:29577: another process has port 29577: end it, or set "
        "COLLOPS_PORT to a free port, the same in all ranks. Its owner: 10.77.0.1:29577 accepted "
        "the connection, but has sent nothing" in first[2]
    )
    assert second[0] != 0
    assert "rank 0 did not connect within 4 s" in second[2]


@pytest.mark.parametrize("placement", [[0, 1], [0, 0, 1, 1]], ids=["1 each", "2 each"])
def test_garbage_at_the_port(tmp_path: Path, two_hosts: list[Host], placement: list[int]) -> None:
    ranks = Ranks(tmp_path, two_hosts, placement)
    with stranger(two_hosts[1], "10.77.0.1", "connect"):
        for _ in range(3):
            for status, out, err in ranks.run(SUM):
                assert status == 0, out + err
