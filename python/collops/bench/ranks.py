"""The ranks of a benchmark: ``python -m collops.bench.ranks REQUEST STORE RECORDS``.

REQUEST is a file with the pickled request, STORE the path of gloo's file store, and RECORDS the
file to which rank 0 appends lines of JSON. The process is one rank; on GPUs its threads are all.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import collops
from collops.bench.gpu import GpuPlace
from collops.bench.hosts import Hosts, own_device
from collops.bench.measure import pin
from collops.bench.operator import Request, Row
from collops.bench.operators import load
from collops.bench.peers import Peers
from collops.bench.variants import HOST, MeasuredPoint, notes
from collops.launch.init import thread_rank
from collops.launch.processes import run_on_threads

_MOST_S, _GRACE_S = 3600.0, 20.0


def main() -> int:
    """Measures every point of the request; 1 if a rank that is a thread failed."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    with Path(sys.argv[3]).open("a", buffering=1) as records:

        def run(store: str) -> None:
            for line in measure(request, store):
                records.write(json.dumps(line) + "\n")

        if request.gpu is None:
            run(f"file://{sys.argv[2]}")
            return 0
        return _on_threads(request.points[0].ranks, run)


def _on_threads(ranks: int, run: Any) -> int:
    """Runs all ranks in this process."""

    def work(rank: int) -> str:
        thread_rank.begin(rank, ranks)
        try:
            run("")
        except Exception as error:
            thread_rank.leave(f"rank {rank} failed")  # the others need not wait
            traceback.print_exc()
            return f"rank {rank}: {type(error).__name__}: {error}"
        return ""

    reports, running = run_on_threads(range(ranks), work, _MOST_S, _GRACE_S, failed=bool)
    problems = [report for _, report in sorted(reports.items()) if report]
    problems += [f"rank {rank} did not end" for rank in sorted(running)]
    print("\n".join(problems), flush=True)
    return 1 if problems else 0


def measure(request: Request, store: str) -> Iterator[Row]:
    """Measures every point as the rank that this process or thread is; yields lines on rank 0.

    gloo's ranks meet at the URL `store` if all are on one host, else at MASTER_ADDR.

    Raises:
        ValueError: a rank has another request.
    """
    operator = load(request.operator)
    own_way = operator.measure(request, store)
    if own_way is not None:
        yield from own_way
        return
    backend = "shm" if request.gpu else None
    with (
        collops.init(backend=backend, comm_domain="bench") as work,
        collops.init(backend=backend, comm_domain="bench meeting") as meeting,
    ):
        place = HOST
        if request.gpu:
            peers = Peers(request, operator, "", work.rank, work.size)
            place = GpuPlace(request.gpu, work.rank, work.size)
        else:
            check_same(request, work)
            if not store or Hosts.of(work).count > 1:
                store = _masters_store()
            peers = Peers(request, operator, store, work.rank, work.size)
            pin(work.rank, request.threads)
        yield from notes(peers.notes) if work.rank == 0 else ()
        for point in request.points:
            given = request, work, meeting.barrier, peers, place
            lines = MeasuredPoint(operator, point, *given).run()
            yield from lines if work.rank == 0 else ()
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


if __name__ == "__main__":
    raise SystemExit(main())
