"""One rank that goes on without those that end: ``shrinking_rank.py RANK RANKS LEFT``.

It calls until so many ranks are left, says whom it knows then and how long it took, and ends.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import collops


def main() -> None:
    """Gathers and adds, from windows and plain memory, and shrinks after each loss."""
    rank, ranks, left = (int(argument) for argument in sys.argv[1:])
    comm = collops.init(rank, ranks)
    members = tuple(range(ranks))
    took_s = 0.0
    lost_at = 0.0
    done = 0
    while comm.size > left or done == 0:
        try:
            window = comm.empty(200_000, np.float32)
            window[:] = rank
            for x in (window, np.full(200_000, rank, np.float32)):
                out = comm.all_gatherv(x, [x.size] * comm.size)
                assert out[:: x.size].tolist() == list(members)
                assert comm.all_reduce(x)[-1] == sum(members)
            done += 1
            if done == 1:
                took_s = time.monotonic() - lost_at
        except collops.Error as error:
            assert error.code in (101, 104), error
            lost_at = time.monotonic()
            comm = comm.shrink()
            members = tuple(members[old] for old in comm.old_ranks)
            done = 0
            continue
        if done == 1 and comm.size == ranks:
            print("running", flush=True)
    print(f"{took_s:.3f}", *members, flush=True)
    comm.close()


main()
