"""One rank of 2 x 2 that multiplies without end: ``multiplying_rank.py RANK [first]``.

It says after the first call that it runs, with ``first`` just before it, and after an error which.
Then it stays until its input ends, so that the others cannot hear of its end instead.
"""

from __future__ import annotations

import sys

import numpy as np

import collops


def main() -> None:
    """Multiplies x in windows and in plain memory."""
    rank = int(sys.argv[1])
    first = sys.argv[2:] == ["first"]
    comm = collops.init(rank, 4)
    # A first call that takes some tenths of a second, or short ones.
    window = comm.empty((4000 if first else 200, 700), np.float32)
    window[:] = rank
    plain = window.copy()
    weight = np.full((700, 1500), 1, np.float32)
    done = 0
    comm.barrier()
    if first:
        print("running", flush=True)
    try:
        while True:
            for x in (window, plain):
                comm.all_gather_matmul_reduce_scatter(x, weight, ag_dim=2, rs_dim=2)
            done += 1
            if done == 1 and not first:
                print("running", flush=True)
    except collops.Error as error:
        print(error.code, error.message, flush=True)
    sys.stdin.read()


main()
