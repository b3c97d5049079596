"""One rank that goes on without those that end: ``shrinking.py LEFT [MOMENT RANKS]``.

It prints "ready" once ten calls of each kind are through, and calls until so many ranks are left.
After some more calls it prints how many seconds after its last error the new group's first call was
through, and whom it knows. MOMENT says what the ranks do when some end: "small" or "large" calls,
"split", or "close", which ends RANKS, such as "1,3", by SIGKILL at about that moment.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time

import numpy as np

import collops

ELEMENTS = 2000
LARGE = 300_000  # of several fragments


def check(comm: collops.Communicator, members: list[int], elements: int = ELEMENTS) -> None:
    """One call of each kind, with numbers that differ per rank and place, in plain memory and in a
    window."""
    own = members[comm.rank]
    steps = np.arange(elements) * 3
    x = comm.empty(elements, np.int64)
    x[:] = steps + own
    total = sum(steps + member for member in members)
    assert np.array_equal(comm.all_reduce(x), total)
    sizes = [member + 1 for member in members]
    gathered = comm.all_gatherv(x[: own + 1].copy(), sizes)
    assert np.array_equal(gathered, np.concatenate([steps[: m + 1] + m for m in members]))
    sizes[0] = elements - sum(sizes[1:])
    first = sum(sizes[: comm.rank])
    part = comm.reduce_scatterv(x, sizes)
    assert np.array_equal(part, total[first : first + sizes[comm.rank]])
    sent = [own + 2 * member + 1 for member in members]
    received = comm.all_to_allv(x[: sum(sent)], sent, [m + 2 * own + 1 for m in members])
    begins = [sum(m + 2 * other + 1 for other in members[: comm.rank]) for m in members]
    blocks = [
        steps[begin : begin + m + 2 * own + 1] + m for m, begin in zip(members, begins, strict=True)
    ]
    assert np.array_equal(received, np.concatenate(blocks))
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    product = comm.matmul_all_reduce(rows + own, np.ones((4, 2), np.float32))
    want = sum((rows + member).sum(axis=1) for member in members)
    assert np.array_equal(product, np.stack([want, want], axis=1))


def check_parts(comm: collops.Communicator, members: list[int]) -> None:
    """Two subgroups, across hosts where there are several."""
    part = comm.split(comm.rank % 2)
    assert part is not None
    total = part.all_reduce(np.array([members[comm.rank]]))
    assert total[0] == sum(members[comm.rank % 2 :: 2])
    part.close()


def end_while_it_closes(comm: collops.Communicator) -> None:
    """It ends before, in or after close(), and does not return."""
    delay_s = random.random() * 0.004
    threading.Timer(delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    time.sleep(random.random() * 0.002)
    comm.close()
    time.sleep(60)


def main(left: int, moment: str = "small", ranks: str = "") -> None:
    comm = collops.init(backend="ucx")
    ends = moment == "close" and str(comm.rank) in ranks.split(",")
    members = list(range(comm.size))
    lost_at = took_s = 0.0
    calls, ready = 0, False
    while comm.size > left or calls < 10:
        try:
            check(comm, members, LARGE if moment == "large" else ELEMENTS)
            if moment == "split":
                check_parts(comm, members)
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
        if calls == 10 and not ready:
            ready = True  # also after a loss: others may have closed already
            print("ready", flush=True)
            if ends:
                end_while_it_closes(comm)
    comm.barrier()
    print(f"{took_s:.3f}", *members, flush=True)
    comm.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
