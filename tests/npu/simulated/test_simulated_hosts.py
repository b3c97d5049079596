"""The simulated libhccl over TCP, as between hosts: each rank has a loopback address of its own."""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

from collops.testing import run_ranks
from tests.npu.simulated.simulated_rank import Rank
from tests.npu.simulated.simulated_tables import config, init_table, split, table, total, write

E_TCP_CONNECT = 11


def free_port() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def tcp_addresses() -> list[str]:
    """The local address of each of this process's TCP connections."""
    inodes = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            inodes.add(os.readlink(f"/proc/self/fd/{name}").removeprefix("socket:[").rstrip("]"))
        except OSError:
            continue
    found = {}  # by inode: a table that changes while it is read may show a connection twice
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            found[fields[9]] = socket.inet_ntoa(bytes.fromhex(fields[1].split(":")[0])[::-1])
    return list(found.values())


def test_root_info_carries_an_address(tmp_path: Path) -> None:
    def work(rank: int) -> tuple[str, int, list[str]]:
        os.environ["COLLOPS_SIM_HOST_IP"] = f"127.0.0.{rank + 2}"
        one = Rank(rank, 3)
        info = one.root_info(tmp_path)
        comm = ctypes.byref(one.comm)
        assert one.hccl.HcclCommInitRootInfo(3, info, rank, comm) == 0, one.text()
        code, sub = split(one, [0, 1, 2], 1, rank, config())
        assert code == 0
        return info.value.decode().split(":")[0], total(one) + total(one, sub), tcp_addresses()

    for rank, (address, found, own) in enumerate(run_ranks(work, 3)):
        assert (address, found) == ("127.0.0.2", 6)
        # A connection that was made from here has the source that the kernel chose.
        assert own and (rank == 2 or f"127.0.0.{rank + 2}" in own)


def test_servers_of_a_table_have_addresses(tmp_path: Path) -> None:
    path = write(tmp_path, table(2, 2, ("127.0.0.2", "127.0.0.3")))

    def work(rank: int) -> tuple[int, int, int]:
        one = Rank(rank % 2, 4)
        assert init_table(one, path, rank) == 0, one.text()
        before = len(tcp_addresses())
        first = total(one)  # all ranks have counted: a faster one's split connects to this one
        code, sub = split(one, range(4), 1, rank, config())
        assert code == 0, one.text()
        return first + total(one, sub), before, len(tcp_addresses())

    env = {"HCCL_IF_BASE_PORT": free_port()}
    assert run_ranks(work, 4, env=env) == [(8, 6, 12)] * 4


def test_an_address_of_another_host_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, table(2, 1, ("192.0.2.1", "192.0.2.2")))

    def work(rank: int) -> tuple[int, str]:
        one = Rank(rank, 1)
        return init_table(one, path), one.text()

    [(code, text)] = run_ranks(work, 1)
    assert (code, "no address of this host" in text) == (E_TCP_CONNECT, True)
