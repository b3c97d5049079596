"""Draws docs/pictures/tracing.png: a real run of 3 ranks in which rank 1 comes late to one call.

Run it with the Python in which collops is installed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

import collops
from collops.testing import run_ranks
from collops.trace.merge import merge
from collops.trace.plot import save_timeline

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "tracing.png"
COUNTS = [1 << 20, 1 << 19, 1 << 19]


def steps(rank: int, path: str) -> None:
    """Three collectives, before the second of which rank 1 computes for longer."""
    comm = collops.init(comm_domain="tp0")
    x = comm.empty(COUNTS[rank], np.float32)
    whole = comm.empty(sum(COUNTS), np.float32)
    x[:], whole[:] = rank, rank
    for _ in range(3):
        comm.all_gatherv(x, COUNTS)
        comm.barrier()
    with collops.trace.record(path):
        comm.all_gatherv(x, COUNTS)
        time.sleep(0.012 if rank == 1 else 0.003)
        comm.reduce_scatterv(whole, COUNTS)
        comm.all_reduce(whole[: COUNTS[1]])


def main() -> None:
    """Runs the ranks, joins what they have recorded, and draws it."""
    with tempfile.TemporaryDirectory() as folder:
        run_ranks(steps, 3, f"{folder}/steps.json")
        save_timeline(merge(sorted(Path(folder).iterdir())), PICTURE)


if __name__ == "__main__":
    main()
