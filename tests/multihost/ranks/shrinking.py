"""One rank that goes on without those that end: ``shrinking.py LEFT``.

It prints "ready" once ten calls are through, and calls until so many ranks are left. After some
more calls it prints how many seconds after its last error the new group's first call was through,
and whom it knows.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import collops


def check(comm: collops.Communicator, members: list[int]) -> None:
    """Gathers and adds numbers that differ per rank and place, of plain memory and of a window."""
    own = members[comm.rank]
    x = comm.empty(2000, np.int64)
    x[:] = np.arange(2000) * 3 + own
    total = comm.all_reduce(x)
    assert np.array_equal(total, sum(np.arange(2000) * 3 + member for member in members))
    sizes = [member + 1 for member in members]
    assert comm.all_gatherv(x[: own + 1].copy(), sizes).size == sum(sizes)


def main(left: int) -> None:
    comm = collops.init(backend="ucx")
    members = list(range(comm.size))
    lost_at = took_s = 0.0
    calls = 0
    while comm.size > left or calls < 10:
        try:
            check(comm, members)
            calls += 1
        except collops.Error as error:
            lost_at = time.monotonic()
            assert error.code in (101, 104), error
            comm = comm.shrink()
            members = [members[old] for old in comm.old_ranks]
            calls = 0
            continue
        if calls == 1 and lost_at:
            took_s = time.monotonic() - lost_at
        if calls == 10 and not lost_at:
            print("ready", flush=True)
    comm.barrier()
    print(f"{took_s:.3f}", *members, flush=True)
    comm.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
