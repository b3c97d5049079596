"""One rank of a job whose calls are refused, or many.

Arguments: "refusals" and a folder, or "calls" and their number. In the first case rank 0 refuses
every second call, and the last rank comes to it only once another rank has its error.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import collops

LIMIT_S = float(os.environ["COLLOPS_TIMEOUT_S"])


def wait_for(path: Path) -> None:
    """Until the file is there."""
    deadline = time.monotonic() + LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.001)


def gather(comm: collops.Communicator, call: int) -> None:
    """A call that goes well, with data of this call, rank and position."""
    sizes = [3 + rank for rank in range(comm.size)]
    blocks = [np.arange(size) + 1000 * rank + call for rank, size in enumerate(sizes)]
    np.testing.assert_array_equal(
        comm.all_gatherv(blocks[comm.rank], sizes), np.concatenate(blocks)
    )


def refused(comm: collops.Communicator, call: int, folder: Path) -> None:
    """Rank 0 passes what is wrong."""
    last = comm.size - 1
    if comm.rank == last:
        wait_for(folder / str(call))
    x = np.zeros(4)
    out = np.full(4 * comm.size, 7.0)
    try:
        comm.all_gatherv(x, [4] * comm.size, out=out if comm.rank > 0 else out[1:])
    except collops.Error as error:
        if comm.rank > 0:
            assert error.name == "ERROR_RANK_MISMATCH", error.message
            assert "rank 0 (pid " in error.message and "refused call" in error.message
    else:
        raise AssertionError("no error")
    assert (out == 7.0).all()
    if comm.rank == last - 1:
        (folder / str(call)).touch()


def main(what: str, argument: str) -> None:
    comm = collops.init(backend="ucx")
    if what == "refusals":
        for call in range(20):
            refused(comm, call, Path(argument))
            gather(comm, call)
    else:
        x, sizes = np.full(64, comm.rank, np.float32), [64] * comm.size
        out = np.empty(64 * comm.size, np.float32)
        for _ in range(int(argument)):
            comm.all_gatherv(x, sizes, out=out)
    print("done", flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
