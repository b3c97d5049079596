"""A call on hosts that need not be there, and what it would cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from collops.core import core
from collops.plan.costs import Costs

GATHER, REDUCE = "all_gatherv", "reduce_scatterv"
# What can bound the time of a host, by the figure of the simulation that says it.
BOUNDS = {
    "network_us": "network",
    "messages_us": "CPU for messages",
    "copies_us": "memory",
    "meetings_us": "meetings in the host",
}


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        op: "all_gatherv" or "reduce_scatterv".
        host_of: the host of each rank.
        counts: elements of each rank's block, or slice.
        dtype: numpy's name of the element type, or "bfloat16".
        reduce: of reduce_scatterv: "sum", "max" ...
    """

    op: str
    host_of: tuple[int, ...]
    counts: tuple[int, ...]
    dtype: str = "float32"
    reduce: str = "sum"


@dataclass(frozen=True)
class Prediction:
    """What the simulation found.

    Attributes:
        time_us: until the last rank is done.
        hosts: by host, a dict of its figures, which docs/multihost.md explains.
        links: [from host, to host] bytes.
    """

    time_us: float
    hosts: list[dict[str, Any]]
    links: np.ndarray[Any, np.dtype[np.int64]]

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


def predict(call: Call, costs: Costs, shared_cores: int = 0) -> Prediction:
    """Simulates a call.

    Args:
        call: the call.
        costs: what it is simulated with.
        shared_cores: cores that the ranks of all hosts share; 0: each rank has one.

    Raises:
        ArgumentError: no group can make this call.

    Example:
        >>> from collops.plan.costs import ASSUMED
        >>> from collops.plan.prediction import GATHER, Call, blocks, predict
        >>> found = predict(Call(GATHER, blocks(2, 2), (1000, 0, 10, 1)), ASSUMED)
        >>> found.links.tolist()  # 24 bytes of each head, and the blocks
        [[0, 4048], [92, 0]]
    """
    time_us, hosts, links = core().predict_call(
        call.op == REDUCE,
        list(call.host_of),
        list(call.counts),
        call.dtype,
        call.reduce,
        costs.on_cores(shared_cores),
    )
    size = len(hosts)
    return Prediction(time_us, hosts, np.frombuffer(links, np.int64).reshape(size, size))


def total_bytes(call: Call) -> int:
    """Bytes of the whole vector."""
    return sum(call.counts) * item_bytes(call.dtype)


def item_bytes(dtype: str) -> int:
    """Bytes of an element."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def shared_out(total: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Elements of each rank by its weight; the last one has the rest."""
    whole = sum(weights)
    parts = [total * weight // whole for weight in weights[:-1]]
    return (*parts, total - sum(parts))
