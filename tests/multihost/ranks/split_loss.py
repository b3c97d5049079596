"""One rank that splits its communicator and closes the part until it gets an error, and prints it.

It prints its pid first, and "ready" once ten splits have been made. Argument: "split", or "close":
then the ranks call while the highest one closes the communicator. It takes it a moment, as nobody
takes its messages; rank 0 closes at the same time, prints how long that took, and ends.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

import collops

SPLITS = 10


def make_parts(comm: collops.Communicator) -> None:
    """Parts of all ranks, numbered backwards, and of every other one, in turn; for ever."""
    for number in range(10**9):
        if number == SPLITS:
            print("ready", flush=True)
        part = comm.split(comm.rank % 2 if number % 2 else 0, -comm.rank)
        assert part is not None
        assert len(part.all_gatherv(np.ones(1))) == part.size
        part.close()


def close_beside(comm: collops.Communicator) -> None:
    """The first and the last rank close, the others call."""
    x = np.ones(100_000)
    comm.barrier()
    if comm.rank == comm.size - 1:
        for to in range(1, comm.rank):
            comm.start("send", x, to)
    print("ready", flush=True)
    if comm.rank in (0, comm.size - 1):
        time.sleep(0.1)
        begin = time.monotonic()
        comm.close()
        print(f"closed {time.monotonic() - begin:.3f}", flush=True)
        return
    while True:
        comm.barrier()


def main(how: str) -> None:
    comm = collops.init(backend="ucx")
    comm.barrier()
    print("pid", os.getpid(), flush=True)
    # Half a second after the end of a rank its launcher ends the others of its host.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        close_beside(comm) if how == "close" else make_parts(comm)
    except collops.Error as error:
        print(f"error {time.time():.3f} {error.name} {error.message}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
