"""First contact that cannot be: a wrong key, a taken port, a rank that left; what the ranks say.

And strangers at the job's port, who change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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

    def run(self, program: str, *envs: dict[str, str]) -> list[tuple[int, str, str]]:
        """Of each host: status, output, errors. The last `envs` is for all further hosts."""
        started = []
        for number, host in enumerate(self.hosts):
            own = envs[min(number, len(envs) - 1)] if envs else {}
            common = {"UCX_TLS": "tcp", "COLLOPS_TIMEOUT_S": f"{patience(30):g}"}
            started.append(host.start([*RUN, str(self.table), program], env=common | own))
        found = []
        for process in started:
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


def test_a_wrong_key_is_named(tmp_path: Path, two_hosts: list[Host]) -> None:
    ranks = Ranks(tmp_path, two_hosts, [0, 1])
    first, second = ranks.run(
        SUM,
        {"COLLOPS_JOB_KEY": "one", "COLLOPS_TIMEOUT_S": f"{patience(10):g}"},
        {"COLLOPS_JOB_KEY": "another"},
    )
    assert second[0] != 0
    assert "ERROR_RANK_MISMATCH" in second[2]
    assert (
        "10.77.0.1:29577 refused this rank: it has another key: set COLLOPS_JOB_KEY to the same "
        "text in all ranks" in second[2]
    )
    assert first[0] != 0
    assert f"rank 1 of 2 did not connect within {patience(10):g} s" in first[2]
    assert "one" not in second[2].split() and "another" not in first[2].split()


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
