"""What a call on many hosts costs: the costs of a machine, the prediction, and the limits."""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from collops.core import core


@dataclass(frozen=True)
class Costs:
    """Times in microseconds, rates in bytes per microsecond (MB/s)."""

    latency_us: float  # from sent on one host to arrived on another
    message_us: float  # of a rank's CPU, for each message that it sends or receives
    network_rate: float  # of a host's network device, in each direction
    meeting_us: float  # for the ranks of a host to have heard each other
    copy_rate: float  # of one rank that copies
    memory_rate: float  # of all ranks of a host that copy together


# Not measured anywhere: round numbers of hosts on a 200 Gbit/s network with RDMA.
ASSUMED = Costs(
    latency_us=2.0,
    message_us=1.0,
    network_rate=25_000.0,
    meeting_us=2.0,
    copy_rate=10_000.0,
    memory_rate=100_000.0,
)


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
    """One thing that a call needs, and how much of it there is at most."""

    name: str
    need: float
    most: float
    source: str  # of the limit
    grows: bool = True  # whether the need grows with the number of hosts

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


GATHER, REDUCE = "all_gatherv", "reduce_scatterv"
# What can bound the time of a host, by the figure that says it.
BOUNDS = {
    "network_us": "network",
    "messages_us": "CPU for messages",
    "copies_us": "memory",
    "meetings_us": "meetings in the host",
}


@dataclass(frozen=True)
class Call:
    """One call, GATHER or REDUCE."""

    op: str
    host_of: tuple[int, ...]  # the host of each rank
    counts: tuple[int, ...]  # elements of each rank's block, or slice
    dtype: str = "float32"
    reduce: str = "sum"


@dataclass(frozen=True)
class Prediction:
    """What the schedule of a call needs, and how long that takes until the last rank is done."""

    time_us: float
    hosts: list[dict[str, Any]]  # the figures of each, which docs/multihost.md explains
    links: np.ndarray[Any, np.dtype[np.int64]]  # bytes [from host, to host]

    def bound(self, host: int) -> str:
        """What takes half of the host's time or more; else latency, which is all waiting."""
        figures = self.hosts[host]
        most = max(BOUNDS, key=lambda name: float(figures[name]))
        return BOUNDS[most] if 2 * figures[most] >= figures["time_us"] else "latency"

    def total(self, name: str) -> int:
        """The sum of a figure over all hosts."""
        return int(sum(host[name] for host in self.hosts))

    def most(self, name: str) -> int:
        """The index of the host with most of a figure."""
        return max(range(len(self.hosts)), key=lambda i: float(self.hosts[i][name]))


def blocks(hosts: int, ranks_per_host: int) -> tuple[int, ...]:
    """The host of each rank where ranks are numbered host by host."""
    return tuple(rank // ranks_per_host for rank in range(hosts * ranks_per_host))


def predict(call: Call, costs: Costs) -> Prediction:
    """What a call needs by its schedule, and how long that takes at these costs.

    Raises:
        ArgumentError: no group can make this call.

    Example:
        >>> from collops.plan.prediction import ASSUMED, GATHER, Call, blocks, predict
        >>> found = predict(Call(GATHER, blocks(2, 2), (1000, 0, 10, 1)), ASSUMED)
        >>> found.links.tolist()  # 24 bytes of each head, and the blocks
        [[0, 4048], [92, 0]]
    """
    trips, figures, links = core().predict_call(
        call.op == REDUCE, list(call.host_of), list(call.counts), call.dtype, call.reduce
    )
    size = len(figures)
    ranks = [call.host_of.count(host) for host in range(size)]
    hosts = [
        _with_times(host, here, trips, costs) for host, here in zip(figures, ranks, strict=True)
    ]
    time_us = max(host["time_us"] for host in hosts)
    return Prediction(time_us, hosts, np.frombuffer(links, np.int64).reshape(size, size))


def _with_times(host: dict[str, int], ranks: int, trips: int, costs: Costs) -> dict[str, Any]:
    """The figures of a host with the times that follow from them."""
    times = {
        "network_us": max(host["sent_bytes"], host["received_bytes"]) / costs.network_rate,
        "messages_us": host["most_messages"] * costs.message_us,
        "copies_us": host["copied_bytes"] / min(costs.copy_rate, costs.memory_rate / ranks),
        "meetings_us": host["meetings"] * costs.meeting_us,
    }
    # A rank works on one message while the device carries another one.
    moved = max(times["network_us"], times["messages_us"])
    time_us = trips * costs.latency_us + moved + times["copies_us"] + times["meetings_us"]
    return {**host, "time_us": time_us, **times}


def total_bytes(call: Call) -> int:
    """Bytes of the whole vector."""
    return sum(call.counts) * item_bytes(call.dtype)


def item_bytes(dtype: str) -> int:
    """Bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
