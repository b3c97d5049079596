"""What the hosts of these tests share, which is the wire alone, and what can be done to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patience import patience
from tests.multihost.hosts import Host, network, silent_hole

LISTENER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.bind(chr(0) + sys.argv[1]); s.listen(); print("listening", flush=True); sys.stdin.read()
"""
CALLER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(chr(0) + sys.argv[1]); print("connected")
"""
RECEIVER = """
import socket, sys
with socket.create_server((sys.argv[1], 5000)) as server:
    print("listening", flush=True)
    connection = server.accept()[0]
    total = 0
    while data := connection.recv(1 << 16):
        total += len(data)
    print(total, flush=True)
"""
SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000), timeout=float(sys.argv[3])) as s:
    s.sendall(bytes(int(sys.argv[2])))
"""


def send(one: Host, other: Host, count: int, limit_s: float = 10.0) -> float:
    """Sends so many bytes, and returns the seconds until they have arrived."""
    receiver = other.start([sys.executable, "-c", RECEIVER, other.address])
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "listening\n"
    begin = time.monotonic()
    one.run(sys.executable, "-c", SENDER, other.address, str(count), str(limit_s))
    assert receiver.stdout.readline() == f"{count}\n"
    return time.monotonic() - begin


def test_nothing_is_shared_but_the_wire(three_hosts: list[Host]) -> None:
    first, second, third = three_hosts
    name = f"collops-test-{os.getpid()}"
    listener = first.start([sys.executable, "-c", LISTENER, name])
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    assert first.run(sys.executable, "-c", CALLER, name) == "connected\n"
    for other in (second, third):
        with pytest.raises(RuntimeError, match="ConnectionRefusedError"):
            other.run(sys.executable, "-c", CALLER, name)
    first.run("touch", f"/dev/shm/{name}")
    assert [host.run("ls", "/dev/shm").split() for host in three_hosts] == [[name], [], []]
    assert not Path("/dev/shm", name).exists()
    assert [host.run("hostname").strip() for host in three_hosts] == ["node0", "node1", "node2"]
    assert [host.run("ls", "/sys/class/net").split() for host in three_hosts] == [
        ["lo", "wire0"] for _ in three_hosts
    ]


def test_counters_count_what_crosses(three_hosts: list[Host]) -> None:
    first, second, _ = three_hosts
    before = [host.sent_bytes() for host in three_hosts], second.received_bytes()
    send(first, second, 5_000_000)
    sent = [host.sent_bytes() - was for host, was in zip(three_hosts, before[0], strict=True)]
    assert 5_000_000 < sent[0] < 5_000_000 * 1.1  # TCP may send some of it again
    assert sent[1] < 200_000 and sent[2] < 10_000
    assert second.received_bytes() - before[1] >= 5_000_000


def test_a_cut_link_and_a_silent_hole_let_nothing_pass(two_hosts: list[Host]) -> None:
    first, second = two_hosts
    send(first, second, 1000)
    silent_hole(first, second)
    assert "LOWER_UP" in first.run("ip", "link", "show", "wire0")
    with pytest.raises(RuntimeError, match="timed out"):
        send(first, second, 1000, limit_s=0.5)
    second.kill()
    first.cut()
    assert "LOWER_UP" not in second.run("ip", "link", "show", "wire0")
    with pytest.raises(RuntimeError, match=r"unreachable|timed out"):
        send(first, second, 1000, limit_s=0.5)


def test_a_slow_link_is_slow(two_hosts: list[Host]) -> None:
    first, second = two_hosts
    first.slow_down("40mbit")
    assert send(first, second, 2_500_000) > 0.4


def test_a_killed_host_has_no_process_left(two_hosts: list[Host]) -> None:
    process = two_hosts[1].start(["sleep", "100"])
    two_hosts[1].kill()
    assert process.returncode == -9


def test_nothing_is_left_even_if_the_test_fails_or_is_killed() -> None:
    pids = []
    with pytest.raises(ZeroDivisionError), network(2) as hosts:
        pids += [host.keeper.pid for host in hosts]
        pids.append(hosts[0].start(["sleep", "100"]).pid)
        raise ZeroDivisionError
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    root = Path(__file__).resolve().parents[2]
    program = (
        f"import os, sys\nsys.path.append({str(root / 'tools')!r})\n"
        "from tests.multihost import hosts\n"
        "with hosts.network(2) as made:\n"
        "    print(*[host.keeper.pid for host in made], flush=True)\n    os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=patience(20),
    )
    assert done.returncode == -9
    deadline = time.monotonic() + patience(5)
    keepers = [Path(f"/proc/{pid}") for pid in done.stdout.split()]
    assert len(keepers) == 2
    while any(path.exists() for path in keepers) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [path for path in keepers if path.exists()] == []
