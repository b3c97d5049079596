"""What hosts and the network between them cost: the numbers that the simulation takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Costs:
    """Times in microseconds, rates in bytes per microsecond (MB/s).

    A message of m bytes from one rank to another, both with a core of their own, takes
    ``2 * (message_us + stream(m)) + latency_us``, or with a slow network
    ``m / network_rate + latency_us + message_us + stream(m)``.

    Attributes:
        message_us: CPU at either end of a message or stream.
        latency_us: from sent to arrived.
        network_rate: of a host's network device, in each direction.
        stream_us: (bytes from a rank to another, CPU at either end beside message_us): linear
            between the points, and in proportion beyond the last.
        meeting_us: for the ranks of a host to have heard each other.
        copy_rate: of one rank that copies.
        memory_rate: of all ranks of a host that copy together.
        turn_us: how long a rank that waits keeps a core that it shares.
    """

    message_us: float
    latency_us: float
    network_rate: float
    stream_us: tuple[tuple[int, float], ...]
    meeting_us: float
    copy_rate: float
    memory_rate: float
    turn_us: float

    def on_cores(self, shared: int) -> dict[str, Any]:
        """As the core takes them; `shared`: cores of all ranks, 0: each rank has its own."""
        return {**asdict(self), "shared_cores": shared}


# Not measured anywhere: round numbers of hosts on a 200 Gbit/s network with RDMA.
ASSUMED = Costs(
    message_us=1.0,
    latency_us=2.0,
    network_rate=25_000.0,
    stream_us=(),
    meeting_us=2.0,
    copy_rate=10_000.0,
    memory_rate=100_000.0,
    turn_us=5.0,
)
