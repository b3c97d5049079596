"""Many ranks at once, far more than cores: they start, make a few calls, and close."""

from __future__ import annotations

import time

import numpy as np

import collops
from collops.testing import run_ranks


def work(rank: int) -> int:
    """A collective of each way in which ranks wait for each other, and a message."""
    with collops.init(timeout_s=120) as comm:
        sizes = [1 + number % 3 for number in range(comm.size)]
        gathered = comm.all_gatherv(np.full(sizes[rank], rank), sizes)
        assert gathered.tolist() == [r for r, n in enumerate(sizes) for _ in range(n)]
        long = np.full(30_000, rank, np.int64)
        assert (comm.all_reduce(long) == comm.size * (comm.size - 1) // 2).all()
        right, left = (rank + 1) % comm.size, (rank - 1) % comm.size
        arrived = np.empty(1, np.int64)
        listed = [
            collops.SendTo(np.array([rank]), right),
            collops.RecvFrom(arrived, left),
        ]
        comm.exchange(listed)
        assert arrived[0] == left
        comm.barrier()
        return comm.size


def start_run_close(ranks: int, limit_s: float) -> float:
    """Seconds from the first fork until the last process has ended.

    Raises:
        RankErrors: a rank failed, or had not ended in time.
    """
    begin = time.monotonic()
    assert run_ranks(work, ranks, timeout=limit_s) == [ranks] * ranks
    return time.monotonic() - begin
