"""One rank that calls without end, or some calls only: ``calling_rank.py RANK RANKS CALLS``."""

from __future__ import annotations

import sys

import numpy as np

import collops


def main() -> None:
    """Gathers from windows and plain memory, and says after the first call that it runs."""
    rank, ranks, calls = (int(argument) for argument in sys.argv[1:])
    comm = collops.init(rank, ranks)
    window = comm.empty(300_000, np.float32)
    window[:] = rank
    plain = np.full(300_000, rank, np.float32)
    done = 0
    while calls == 0 or done < calls:
        for x in (window, plain):
            out = comm.all_gatherv(x, [x.size] * ranks)
            assert out[-1] == ranks - 1
        done += 1
        if done == 1:
            print("running", flush=True)


main()
