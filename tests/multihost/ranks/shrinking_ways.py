"""One rank of a group that loses no process: ``shrinking_ways.py WAY RANKS TIMEOUT_S``.

WAY says what RANKS, such as "1,3", are: "stopped", "excluded" by the others, or with another list
of "lists". It prints the members that it knows at last, or its error.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import numpy as np

import collops


def told(run: Callable[[], object]) -> str:
    """The error of a call."""
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return "no error"


def check(comm: collops.Communicator) -> list[int]:
    """The old ranks of all, and a sum."""
    own = comm.old_ranks[comm.rank]
    assert comm.all_reduce(np.array([own]))[0] == sum(comm.old_ranks)
    numbers: list[int] = comm.all_gatherv(np.array([own])).tolist()
    return numbers


def main(way: str, ranks: list[int], timeout_s: float) -> None:
    comm = collops.init(backend="ucx")
    comm.barrier()
    mine = comm.rank in ranks
    print("ready", flush=True)
    if mine and way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        sys.stdin.readline()  # all are ready
    if mine and way in ("stopped", "excluded"):
        assert told(lambda: [comm.barrier() for _ in range(10**9)]) != "no error"
        print(told(comm.shrink), flush=True)
        return
    if way == "lists":
        print(told(lambda: comm.shrink([3] if mine else None)), flush=True)
        return
    if way == "stopped":
        comm.abort("it waits no longer")
    exclude = ranks if way == "excluded" else None
    comm = comm.shrink(exclude, timeout_s=timeout_s)
    print(*check(comm), flush=True)
    sys.stdin.readline()  # the others have their error
    check(comm)
    comm.close()


if __name__ == "__main__":
    main(sys.argv[1], [int(rank) for rank in sys.argv[2].split(",")], float(sys.argv[3]))
