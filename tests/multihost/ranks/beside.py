"""One of three ranks that exchanges messages while a group call of the queue's thread waits.

Arguments: "held" and the rank that waits for its messages, "limit" and a folder, or "late". Rank 0
is on one host, ranks 1 and 2 on another one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import collops
from collops import Communicator, StartedCall

# Of rank 0's block: each rank of the other host receives a half of it over the wire.
ELEMENTS = 3_000_000
COUNTS = [ELEMENTS, 1, 1]
LIMIT_S = float(os.environ["COLLOPS_TIMEOUT_S"]) / 3  # far less than the time-out
BYTES = 3_000_001  # of a message: in several chunks, each of which needs both ranks


def block(rank: int) -> NDArray[np.int64]:
    """What a rank gives to the group call; no element is negative."""
    return np.arange(COUNTS[rank]) * (rank + 3) + rank


def body(source: int, to: int) -> NDArray[np.uint8]:
    """What a rank sends to another one."""
    return (np.arange(BYTES) * 40503 + source * 77 + to >> 3).astype(np.uint8)


def await_element(out: NDArray[np.int64], index: int) -> None:
    """Until the group call has written the element."""
    deadline = time.monotonic() + LIMIT_S
    while out[index] < 0:
        assert time.monotonic() < deadline, f"element {index} has not come"
        time.sleep(0.001)


def hold(comm: Communicator) -> tuple[StartedCall, int]:
    """Starts a call in which rank 2 is stopped while its half is on its way; returns its pid, too.

    Rank 0 waits for rank 2 over the wire, rank 1, which has its half, over shared memory.
    """
    pids = comm.all_gatherv(np.array([os.getpid()]), [1, 1, 1])
    out = np.full(sum(COUNTS), -1)
    gathered = comm.start("all_gatherv", block(comm.rank), COUNTS, out=out)
    if comm.rank == 2:
        await_element(out, ELEMENTS // 2)
        os.kill(os.getpid(), signal.SIGSTOP)
    elif comm.rank == 1:
        await_element(out, ELEMENTS // 2 - 1)
    return gathered, int(pids[2])


def exchange(comm: Communicator, waiter: int) -> None:
    """Ranks 0 and 1 exchange messages, for which `waiter` waits, while the call is held."""
    gathered, held = hold(comm)
    if comm.rank != 2:
        peer = 1 - comm.rank
        sent = comm.start("send", body(comm.rank, peer), peer)
        arriving = comm.start("recv", np.empty(BYTES, np.uint8), peer)
        try:
            if comm.rank == waiter:
                sent.wait(timeout_s=LIMIT_S)
                arriving.wait(timeout_s=LIMIT_S)
                assert not gathered.done()
        finally:
            if comm.rank == waiter:
                os.kill(held, signal.SIGCONT)
        # The other rank waits for the group call alone: its thread does not look for messages.
        gathered.wait()
        sent.wait()
        assert np.array_equal(arriving.wait(), body(peer, comm.rank))
    assert np.array_equal(gathered.wait(), np.concatenate([block(rank) for rank in range(3)]))


def limit(comm: Communicator, told: Path) -> None:
    """The time-out of rank 1's wait() ends the call of both ranks that wait for rank 2.

    Rank 1 waits over shared memory, rank 0 over the wire.
    """
    gathered, held = hold(comm)
    begin = time.monotonic()
    try:
        gathered.wait(timeout_s=2.0 if comm.rank == 1 else None)
    except collops.Error as error:
        assert error.name == "ERROR_TIMEOUT", error
        assert f"after 2 s: rank 2 (pid {held})" in error.message, error
        assert time.monotonic() - begin < LIMIT_S
    else:
        raise AssertionError("no error")
    finally:
        if comm.rank == 0:
            told.touch()
        elif comm.rank == 1:
            while not told.exists() and time.monotonic() - begin < LIMIT_S:
                time.sleep(0.01)
            os.kill(held, signal.SIGCONT)


def come_late(comm: Communicator, started: bool) -> None:
    """Rank 1 enters the group call once it has the message of rank 0, which is in it."""
    sent = None
    if comm.rank == 0:
        sent = comm.start("send", body(0, 1), 1)
    elif comm.rank == 1:
        assert np.array_equal(comm.recv(np.empty(BYTES, np.uint8), 0), body(0, 1))
    mine = block(comm.rank)
    if started:
        found = comm.start("all_gatherv", mine, COUNTS).wait()
    else:
        found = comm.all_gatherv(mine, COUNTS)
    assert np.array_equal(found, np.concatenate([block(rank) for rank in range(3)]))
    if sent is not None:
        sent.wait()


def main() -> None:
    comm = collops.init(backend="ucx")
    if sys.argv[1] == "held":
        exchange(comm, int(sys.argv[2]))
    elif sys.argv[1] == "limit":
        limit(comm, Path(sys.argv[2], "told"))
    else:
        for started in (False, True):
            come_late(comm, started)
    print("beside", flush=True)
    comm.close()


if __name__ == "__main__":
    main()
