"""One rank that gathers a few times, checks results, and prints the slowest call's seconds.

Arguments: elements per rank, calls. It prints its pid first.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import collops


def main(elements: int, calls: int) -> None:
    comm = collops.init()
    print("pid", os.getpid(), flush=True)
    slowest = 0.0
    for call in range(calls):
        blocks = [np.arange(elements) + 1000 * rank + call for rank in range(comm.size)]
        begin = time.monotonic()
        found = comm.all_gatherv(blocks[comm.rank], [elements] * comm.size)
        slowest = max(slowest, time.monotonic() - begin)
        assert np.array_equal(found, np.concatenate(blocks))
    print(f"slowest {slowest:.3f}", flush=True)
    comm.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
