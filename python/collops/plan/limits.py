"""What a call needs, compared with what is available: which limit is reached first."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collops.core import core
from collops.plan.prediction import REDUCE, Call, Prediction

THIS_VERSION = "this version"
# Of a communicator, about: its own and UCX's, without connections to ranks of other hosts.
DESCRIPTORS = 40
# Bits of the sender's rank in a message's tag.
_TAG_RANKS = 1 << 14
# Bits of a stream's number, of which 4 are the stage of a plan.
_PLANNED_RANKS = 1 << 12
_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class Limit:
    """One thing that a call needs.

    Attributes:
        name: what is limited.
        need: how much the call needs.
        most: how much is available.
        source: where the limit comes from.
        grows: whether the need grows with the number of hosts.
    """

    name: str
    need: float
    most: float
    source: str
    grows: bool = True

    @property
    def part(self) -> float:
        """The part of the limit that is needed; above 1: the limit is exceeded."""
        return self.need / self.most

    def reached_at(self, ranks: int) -> int | None:
        """About how many ranks reach the limit, if hosts are added to `ranks` ranks."""
        return int(ranks / self.part) if self.grows else None


def limits(call: Call, found: Prediction) -> list[Limit]:
    """All limits, the nearest first; this host's limits stand for those of all hosts."""
    ranks = len(call.host_of)
    per_host = [call.host_of.count(host) for host in range(len(found.hosts))]
    low, high = map(int, _PORTS.read_text().split())
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    planned = any(each["plan_bytes"] > 0 for each in found.hosts)
    memory = max(host_bytes(found, index, number) for index, number in enumerate(per_host))
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    every = [
        Limit("ranks of a group", ranks, core().MAX_RANKS, THIS_VERSION),
        Limit("ranks of a host", max(per_host), core().MAX_HOST_RANKS, THIS_VERSION, False),
        Limit("rank in a message's tag", ranks, _TAG_RANKS, "14 bits"),
        Limit("descriptors of a rank", descriptors(found), files, "ulimit -n"),
        Limit(
            "ports of a host",
            max(each["all_peers"] for each in found.hosts) / 2,
            high - low + 1,
            "ip_local_port_range, with one connection per port",
        ),
        Limit("memory of a host", memory, total, "this host's"),
    ]
    if planned:
        every.append(Limit("rank in a plan's stream", ranks, _PLANNED_RANKS, "12 bits"))
    return sorted(every, key=lambda limit: -limit.part)


def descriptors(found: Prediction) -> int:
    """Open files of the rank with most peers: one connection for each."""
    return DESCRIPTORS + max(int(each["most_peers"]) for each in found.hosts)


def host_bytes(found: Prediction, host: int, ranks: int) -> int:
    """Memory of a host without the tensors, at most."""
    figures = found.hosts[host]
    each = ("heads_bytes", "scratch_bytes", "shared_bytes", "plan_bytes")
    return int(figures["segment_bytes"] + ranks * sum(figures[name] for name in each))


def growth(call: Call) -> Sequence[tuple[str, str]]:
    """How each need grows: P ranks on H hosts, n on each, blocks or slices of b bytes."""
    board = ("board, on each host", "P: at most 30 KiB for each rank")
    heads = ("heads of a rank", "12.6 KiB * (H - 1), and H - 1 messages in every call")
    if call.op == REDUCE:
        return (
            ("bytes that a host sends", "n * (P - n) * b, if every slice crosses unreduced"),
            ("messages, connections of a rank", "P - n"),
            ("memory of a rank", "(P - n) * b, at most 1 MiB for each of the other ranks"),
            ("sums of a rank", "P * b are read"),
            heads,
            board,
        )
    return (
        ("bytes that a host sends", "(H - 1) * n * b: a block crosses once per host"),
        ("connections of a rank", "H - 1"),
        ("messages of a rank", "H - 1, and as many more where a block is not in the head"),
        ("meetings of a host's ranks", "P - n + 2: each block of other hosts is shared in its own"),
        heads,
        board,
    )
