"""Which ranks of a benchmark run on which host, and whether all have one clock."""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collops.launch.rank_table import read_rank_table

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = "/proc/self/ns/net"
_SIOCGIFADDR = 0x8915


@dataclass(frozen=True)
class Hosts:
    """The host of each rank, by number in the order of the ranks."""

    of_rank: tuple[int, ...]
    one_clock: bool  # a time that one rank reads can be compared with another one's

    @staticmethod
    def of(comm: Any) -> Hosts:
        """Where the ranks of a communicator run; a call of all of them.

        A host is a network of one machine, as it is for collops.
        """
        machine = _BOOT.read_text().strip() if _BOOT.exists() else socket.gethostname()
        network = os.environ.get("COLLOPS_SERVER_ID") or os.readlink(_NETWORK)
        known = np.concatenate([_digest(machine), _digest(f"{machine} {network}")])[None]
        told = comm.all_gatherv(known, [1] * comm.size)
        names = [row[16:].tobytes() for row in told]
        order = list(dict.fromkeys(names))
        machines = {row[:16].tobytes() for row in told}
        return Hosts(tuple(map(order.index, names)), len(machines) == 1)

    @property
    def count(self) -> int:
        """The number of hosts."""
        return len(set(self.of_rank))

    def ranks(self, host: int) -> list[int]:
        """The ranks of a host."""
        return [rank for rank, other in enumerate(self.of_rank) if other == host]

    def text(self) -> str:
        """The number of ranks and hosts, such as "4 ranks on 2 hosts (2 + 2)"."""
        parts = " + ".join(str(len(self.ranks(host))) for host in range(self.count))
        if self.count == 1:
            return f"{len(self.of_rank)} ranks on 1 host"
        return f"{len(self.of_rank)} ranks on {self.count} hosts ({parts})"


def _digest(text: str) -> Any:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=16).digest(), np.uint8)


def own_device() -> str:
    """The network device with this host's address in the rank table; empty if that is not known."""
    path = os.environ.get("RANK_TABLE_FILE", "")
    if not path:
        return ""
    table = read_rank_table(path)
    if table.here < 0:
        return ""
    server = table.servers[table.here]
    try:
        wanted = socket.gethostbyname(server.address)
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            if _address(any_socket, name) == wanted:
                return name
    return ""


def _address(any_socket: socket.socket, device: str) -> str:
    """The IPv4 address of a device; empty if it has none."""
    try:
        answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", device.encode()[:15]))
    except OSError:
        return ""
    return socket.inet_ntoa(answer[20:24])
