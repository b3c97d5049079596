"""One rank of a group that loses no process: ``shrinking_ways.py WAY RANKS TIMEOUT_S``.

WAY says what RANKS, such as "1,3", are: "stopped", "late" in their calls of shrink, "excluded" by
the others, with another list of "lists", or without "descriptors"; or they close, while the others
have "started" calls. A rank prints the members that it knows at last, or its error.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

import collops
from tests.multihost.ranks.shrinking import check


def told(run: Callable[[], object]) -> str:
    """The error of a call."""
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return "no error"


def use_up_descriptors() -> None:
    """This process can open none any more."""
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (free, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )


def start_calls(comm: collops.Communicator) -> list[Any]:
    """Some that end only with the group, as a rank takes no part."""
    started = [comm.start("all_reduce", np.ones(4)) for _ in range(3)]
    return [*started, comm.start("recv", np.empty(4), from_=(comm.rank + 1) % comm.size)]


def main(way: str, ranks: list[int], timeout_s: float) -> None:
    comm = collops.init(backend="ucx")
    comm.barrier()
    mine = comm.rank in ranks
    started = start_calls(comm) if way == "started" and not mine else []
    print("ready", flush=True)
    if mine and way == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        sys.stdin.readline()  # all are ready
    if mine and way == "started":
        comm.close()
        return
    if mine and way in ("stopped", "excluded"):
        assert told(lambda: [comm.barrier() for _ in range(10**9)]) != "no error"
        print(told(comm.shrink), flush=True)
        return
    if mine and way == "late":
        sys.stdin.readline()
    if mine and way == "descriptors":
        use_up_descriptors()
        print(told(comm.shrink), flush=True)
        return
    if way == "lists":
        print(told(lambda: comm.shrink([3] if mine else None)), flush=True)
        return
    if way == "stopped":
        comm.abort("it waits no longer")
    exclude = ranks if way == "excluded" else None
    comm = comm.shrink(exclude, timeout_s=timeout_s)
    for call in started:
        assert call.done()
        assert told(call.wait).startswith(("ERROR_PEER_LOST", "ERROR_ABORTED"))
    members = list(comm.old_ranks)
    check(comm, members)
    print(*members, flush=True)
    sys.stdin.readline()  # the others have their error
    check(comm, members)
    comm.close()


if __name__ == "__main__":
    main(sys.argv[1], [int(rank) for rank in sys.argv[2].split(",")], float(sys.argv[3]))
