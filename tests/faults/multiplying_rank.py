"""One rank of 2 x 2 that multiplies without end: ``multiplying_rank.py RANK``.

It says after the first call that it runs, and after an error which. Then it stays until its input
ends, so that the others cannot hear of its end instead.
"""

from __future__ import annotations

import sys

import numpy as np

import collops


def main() -> None:
    """Multiplies x in windows and in plain memory."""
    rank = int(sys.argv[1])
    comm = collops.init(rank, 4, timeout_s=60)
    window = comm.empty((200, 700), np.float32)
    window[:] = rank
    plain = window.copy()
    weight = np.full((700, 1500), 1, np.float32)
    done = 0
    try:
        while True:
            for x in (window, plain):
                comm.all_gather_matmul_reduce_scatter(x, weight, ag_dim=2, rs_dim=2)
            done += 1
            if done == 1:
                print("running", flush=True)
    except collops.Error as error:
        print(error.code, error.message, flush=True)
    sys.stdin.read()


main()
