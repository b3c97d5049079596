"""One rank: calls of one operator, as many as are asked for. OP CALLS BYTES_OF_EACH_RANK..."""

from __future__ import annotations

import sys

import numpy as np

import collops

op, calls, *sizes = sys.argv[1:]
counts = [int(size) // 4 for size in sizes]
with collops.init() as comm:
    for number in range(int(calls)):
        if op == "all_gatherv":
            own = np.full(counts[comm.rank], comm.rank + number, np.float32)
            result = comm.all_gatherv(own, counts)
            wanted = np.repeat(np.arange(len(counts), dtype=np.float32) + number, counts)
        else:
            x = np.full(sum(counts), comm.rank + number, np.float32)
            result = comm.reduce_scatterv(x, counts)
            total = sum(range(number, number + comm.size))
            wanted = np.full(counts[comm.rank], total, np.float32)
        assert np.array_equal(result, wanted)
print("made", calls)
