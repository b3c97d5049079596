"""One rank of a benchmark: ``python -m collops.bench.rank_program REQUEST STORE RECORDS``.

REQUEST is a file with the pickled request, STORE the path of gloo's file store, and RECORDS the
file to which rank 0 appends lines of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import collops
from collops.bench.measured_point import MeasuredPoint, notes
from collops.bench.operator import Row
from collops.bench.operators import load
from collops.bench.peers.installed import Peers
from collops.bench.request import Request


def main() -> None:
    """Measures every point of the request."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    operator = load(request.operator)
    with (
        collops.init(comm_domain="bench") as work,
        collops.init(comm_domain="bench meeting") as meeting,
        Path(sys.argv[3] if work.rank == 0 else os.devnull).open("a", buffering=1) as records,
    ):
        peers = Peers(request, operator, sys.argv[2], work.rank, work.size)
        pin(work.rank, request.threads)
        write(records, notes(peers.notes))
        for point in request.points:
            measured = MeasuredPoint(operator, point, request, work, meeting.barrier, peers)
            write(records, measured.run())
        peers.close()
        meeting.barrier()


def pin(rank: int, threads: int) -> None:
    """Pins rank r to core r % cores, and with several threads to the next cores."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})


def write(records: Any, lines: list[Row]) -> None:
    """Appends lines of JSON, and flushes each."""
    records.writelines(json.dumps(line) + "\n" for line in lines)


if __name__ == "__main__":
    main()
