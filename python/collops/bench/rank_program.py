"""One rank of a benchmark: ``python -m collops.bench.rank_program REQUEST STORE RECORDS``.

REQUEST is a file with the pickled request, STORE the path of gloo's file store, and RECORDS the
file to which rank 0 appends lines of JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import collops
from collops.bench.hosts import Hosts, own_device
from collops.bench.measured_point import MeasuredPoint, notes
from collops.bench.operator import Row
from collops.bench.operators import load
from collops.bench.peers.installed import Peers
from collops.bench.request import Request


def main() -> None:
    """Measures every point of the request."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    with Path(sys.argv[3]).open("a", buffering=1) as records:
        for line in measure(request, f"file://{sys.argv[2]}"):
            records.write(json.dumps(line) + "\n")


def measure(request: Request, store: str) -> Iterator[Row]:
    """Measures every point as the rank that this process is; yields the lines on rank 0.

    Args:
        request: what to measure, the same on every rank.
        store: URL at which gloo's ranks meet if all are on one host; empty: at MASTER_ADDR.

    Raises:
        ValueError: a rank has another request.
    """
    operator = load(request.operator)
    with (
        collops.init(comm_domain="bench") as work,
        collops.init(comm_domain="bench meeting") as meeting,
    ):
        check_same(request, work)
        if not store or Hosts.of(work).count > 1:
            store = _masters_store()
        peers = Peers(request, operator, store, work.rank, work.size)
        pin(work.rank, request.threads)
        yield from _shown(work, notes(peers.notes))
        for point in request.points:
            measured = MeasuredPoint(operator, point, request, work, meeting.barrier, peers)
            yield from _shown(work, measured.run())
        peers.close()
        meeting.barrier()


def check_same(request: Request, work: Any) -> None:
    """Raises ValueError on all ranks unless all have the same request."""
    own = np.frombuffer(hashlib.sha256(repr(request).encode()).digest(), np.uint8)
    told = work.all_gatherv(own[None], [1] * work.size)
    others = [rank for rank in range(work.size) if (told[rank] != told[0]).any()]
    if others:
        raise ValueError(
            f"rank {others[0]} was given other arguments than rank 0: start the same command, with "
            "the same COLLOPS_NUM_THREADS, on every host"
        )


def _masters_store() -> str:
    """The URL where the launcher wants gloo's ranks to meet; sets the device that gloo uses."""
    device = own_device()
    if device:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", device)
    host = os.environ.get("MASTER_ADDR", "")
    host = f"[{host}]" if ":" in host else host
    return f"tcp://{host}:{os.environ.get('MASTER_PORT', '29500')}"


def _shown(work: Any, lines: list[Row]) -> list[Row]:
    return lines if work.rank == 0 else []


def pin(rank: int, threads: int) -> None:
    """Pins rank r to core r % cores, and with several threads to the next cores."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})


if __name__ == "__main__":
    main()
