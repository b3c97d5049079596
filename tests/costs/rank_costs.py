"""What one rank costs: measured by the rank itself, around its first calls."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import collops
from patience import patience

KIB = 1024


@dataclass(frozen=True)
class Costs:
    """What a rank holds once it has made its calls, beyond what it held before, and its time."""

    private_kib: float  # memory of its process alone
    shared_kib: float  # shared memory of its host that it has mapped
    descriptors: float
    connections: float  # TCP, established
    contact_cpu_ms: float  # first contact, and a barrier
    contact_ms: float
    first_call_cpu_ms: float  # the first AllGatherV
    first_call_ms: float


def private_kib() -> float:
    """Memory that belongs to this process alone."""
    rollup = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    return float(sum(int(kib) for kib in re.findall(r"^Private_\w+: +(\d+)", rollup, re.MULTILINE)))


def shared_kib() -> float:
    """The shared memory of communicators that this process has mapped."""
    total = 0
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "memfd:collops" in line:
            begin, end = (int(address, 16) for address in line.split(maxsplit=1)[0].split("-"))
            total += end - begin
    return total / KIB


def open_descriptors() -> list[str]:
    """What each open descriptor of this process is."""
    return list(targets_of_descriptors())


def targets_of_descriptors() -> Iterator[str]:
    """As open_descriptors(), one by one."""
    for name in os.listdir("/proc/self/fd"):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the listing's own
            continue


def connections() -> int:
    """The established TCP connections of this process."""
    established = "01"
    inodes = set()
    for table in ("tcp", "tcp6"):
        path = Path("/proc/self/net", table)
        for line in path.read_text(encoding="ascii").splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == established:
                inodes.add(f"socket:[{fields[9]}]")
    return sum(target in inodes for target in open_descriptors())


@dataclass
class Timer:
    """The time of a block, of the clock and of this thread."""

    wall_ms: float = 0.0
    cpu_ms: float = 0.0

    def __enter__(self) -> Timer:
        self._begin = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._begin
        self.wall_ms = (time.perf_counter() - wall) * 1e3
        self.cpu_ms = (time.thread_time() - cpu) * 1e3


def measure(backend: str) -> dict[str, Any]:
    """The costs of this rank, by their names."""
    before = private_kib(), shared_kib(), len(open_descriptors())
    with Timer() as contact:
        comm = collops.init(backend=backend, timeout_s=patience(120))
        comm.barrier()
    with comm:
        sizes = [1 + rank % 3 for rank in range(comm.size)]
        mine = np.full((sizes[comm.rank], 4), comm.rank, np.int32)
        with Timer() as first:
            gathered = comm.all_gatherv(mine, sizes)
        assert gathered[:, 0].tolist() == [r for r, n in enumerate(sizes) for _ in range(n)]
        comm.barrier()
        costs = Costs(
            private_kib() - before[0],
            shared_kib() - before[1],
            len(open_descriptors()) - before[2],
            connections(),
            contact.cpu_ms,
            contact.wall_ms,
            first.cpu_ms,
            first.wall_ms,
        )
        comm.barrier()
    return asdict(costs)
