"""One rank of a benchmark: ``python -m collops.bench.rank_program REQUEST STORE RECORDS``.

REQUEST is a file with the request, STORE the path at which gloo's ranks meet, and RECORDS the file
that rank 0 appends lines of JSON to.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import collops
from collops.bench.measured_point import LinearPoint
from collops.bench.peers.installed import Peers
from collops.bench.request import Request
from collops.core import core


def main() -> None:
    """Measures every point of the request."""
    request = Request.from_json(Path(sys.argv[1]).read_text())
    with (
        collops.init(comm_domain="bench") as work,
        collops.init(comm_domain="bench meeting") as meeting,
        Path(sys.argv[3]).open("a") as records,
    ):
        peers = Peers(request, sys.argv[2], work.rank, work.size)
        pin(work.rank, request.threads)
        if work.rank == 0:
            write_notes(records, peers.notes)
        for point in request.points:
            measured = LinearPoint(point, request, work, meeting.barrier, peers)
            record = measured.run()
            if work.rank == 0:
                write_notes(records, measured.notes)
                write(records, {**record, "isa": core().kernels()[0]})
        peers.close()
        meeting.barrier()


def pin(rank: int, threads: int) -> None:
    """Gives rank r core r % cores; with several threads, the next ones in the same way."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})


def write(records: Any, record: dict[str, Any]) -> None:
    """Appends one line, at once."""
    records.write(json.dumps(record) + "\n")
    records.flush()


def write_notes(records: Any, notes: list[str]) -> None:
    """Appends what somebody who reads the tables must know."""
    for text in notes:
        write(records, {"record": "note", "text": text})


if __name__ == "__main__":
    main()
