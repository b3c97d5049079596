"""One rank of a ReduceScatterV for which the last rank has no memory, and then has.

Arguments: the dtype and the operator, which decide how the slices are reduced.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np

import collops

ROWS = 1 << 20
# Too little for a slice, enough for what Python and UCX need meanwhile.
SPARE_BYTES = 1 << 20


def address_space() -> int:
    """The bytes of address space that this process has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


def main(dtype: str, op: str) -> None:
    comm = collops.init(backend="ucx")
    last = comm.rank == comm.size - 1
    x = np.full(ROWS * comm.size, comm.rank + 1, dtype)
    out = np.empty(ROWS, dtype)
    sizes = [ROWS] * comm.size
    comm.reduce_scatterv(x[: comm.size], [1] * comm.size, out=out[:1])
    unlimited = resource.getrlimit(resource.RLIMIT_AS)
    if last:
        resource.setrlimit(resource.RLIMIT_AS, (address_space() + SPARE_BYTES, unlimited[1]))
    for _ in range(2):
        try:
            comm.reduce_scatterv(x, sizes, op=op, out=out)
            print("no error", flush=True)
        except collops.Error as error:
            print("refused", error.name, str(error).replace("\n", " "), flush=True)
    if last:
        resource.setrlimit(resource.RLIMIT_AS, unlimited)
    comm.reduce_scatterv(x, sizes, op=op, out=out)
    total = sum(range(1, comm.size + 1))
    assert (out == (total if op == "sum" else total / comm.size)).all(), out
    print("reduced", flush=True)
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
