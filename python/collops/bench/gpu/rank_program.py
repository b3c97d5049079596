"""The ranks of a benchmark on GPUs, as threads: ``python -m collops.bench.gpu.rank_program ...``.

The arguments are those of ``collops.bench.rank_program``.
"""

from __future__ import annotations

import json
import pickle
import sys
import traceback
from pathlib import Path
from typing import TextIO

import collops
from collops.bench.gpu.place import GpuPlace
from collops.bench.measured_point import MeasuredPoint
from collops.bench.operators import load
from collops.bench.peers.installed import Peers
from collops.bench.request import Request
from collops.launch.init import thread_rank
from collops.launch.processes import run_on_threads

_MOST_S, _GRACE_S = 3600.0, 20.0


def main() -> int:
    """Measures every point of the request; 1 if a rank failed."""
    request: Request = pickle.loads(Path(sys.argv[1]).read_bytes())
    ranks = request.points[0].ranks
    with Path(sys.argv[3]).open("a", buffering=1) as records:

        def work(rank: int) -> str:
            thread_rank.rank, thread_rank.size = rank, ranks
            try:
                measure(request, records)
            except Exception as error:
                for communicator in thread_rank.communicators:  # the others need not wait
                    communicator._core.close(f"rank {rank} failed")
                traceback.print_exc()
                return f"rank {rank}: {type(error).__name__}: {error}"
            return ""

        reports, running = run_on_threads(range(ranks), work, _MOST_S, _GRACE_S, failed=bool)
    problems = [report for _, report in sorted(reports.items()) if report]
    problems += [f"rank {rank} did not end" for rank in sorted(running)]
    print("\n".join(problems), flush=True)
    return 1 if problems else 0


def measure(request: Request, records: TextIO) -> None:
    """Measures every point as the rank that this thread is; rank 0 writes the lines."""
    operator, given = load(request.operator), request.gpu
    assert given is not None
    with (
        collops.init(backend="shm", comm_domain="bench") as work,
        collops.init(backend="shm", comm_domain="bench meeting") as meeting,
    ):
        peers = Peers(request, operator, "", work.rank, work.size)
        place = GpuPlace(given, work.rank, work.size)
        for point in request.points:
            measured = MeasuredPoint(operator, point, request, work, meeting.barrier, peers, place)
            for line in measured.run():
                if work.rank == 0:
                    records.write(json.dumps(line) + "\n")
        meeting.barrier()


if __name__ == "__main__":
    raise SystemExit(main())
