"""One rank that reduces large slices over several hosts, against golden, bit for bit.

Arguments: the elements of the ranks' slices; or "repeat" and a number of calls before them: calls
of which only the bytes on the wire count.
"""

from __future__ import annotations

import sys

import numpy as np
from collops.golden.data.dtypes import bits_of, storage
from collops.golden.data.reduction import reduce_ranks

import collops

# Of each kind of plan: float32 sums in rank order, 16-bit sums, and those whose order is free.
CASES = (
    ("float32", "sum"),
    ("float32", "avg"),
    ("float32", "max"),
    ("float64", "sum"),
    ("float64", "avg"),
    ("float16", "sum"),
    ("float16", "avg"),
    ("float16", "prod"),
    ("float16", "min"),
    ("int32", "sum"),
    ("int8", "prod"),
    ("int8", "avg"),
    ("int64", "avg"),
    ("uint8", "band"),
    ("int16", "bor"),
    ("int64", "bxor"),
)


def values_of(rank: int, count: int, dtype: str) -> np.ndarray:
    """Data that differs per rank and position, in which the order of a sum matters."""
    random = np.random.default_rng([rank, count])
    if np.issubdtype(storage(dtype), np.integer):
        info = np.iinfo(storage(dtype))
        return random.integers(info.min, info.max, count, dtype=storage(dtype), endpoint=True)
    scales = 10.0 ** random.integers(-2, 3, count)
    return (random.standard_normal(count) * scales).astype(storage(dtype))


def repeat(calls: int, sizes: list[int]) -> None:
    comm = collops.init(backend="ucx")
    x = np.ones(sum(sizes), np.float32)
    for _ in range(calls):
        out = comm.reduce_scatterv(x, sizes)
    assert (out == comm.size).all()
    comm.barrier()
    comm.close()


def in_place(
    comm: collops.Communicator, x: np.ndarray, sizes: list[int], op: str, wanted: bytes
) -> None:
    """The same call, whose result is this rank's own block of x; changes that block of x alone."""
    begin = sum(sizes[: comm.rank]) * x.itemsize
    before = x.tobytes()
    out = x[begin // x.itemsize :][: sizes[comm.rank]]
    comm.reduce_scatterv(x, sizes, op=op, out=out)
    after = before[:begin] + wanted + before[begin + out.nbytes :]
    assert x.tobytes() == after, f"{x.dtype} {op} in place"


def main(sizes: list[int]) -> None:
    comm = collops.init(backend="ucx")
    begin = sum(sizes[: comm.rank])
    for dtype, op in CASES:
        slices = []
        for rank in range(comm.size):
            x = values_of(rank, sum(sizes), dtype)
            if rank == comm.rank:
                mine = x
            slices.append(x[begin : begin + sizes[comm.rank]])
        wanted = bits_of(reduce_ranks(slices, op, dtype), dtype)
        # The second call reuses the memory of the first.
        for call in range(2):
            out = np.full(sizes[comm.rank], 77, storage(dtype))
            comm.reduce_scatterv(mine, sizes, op=op, out=out)
            wrong = np.flatnonzero(bits_of(out, dtype) != wanted)
            assert wrong.size == 0, f"{dtype} {op} call {call}: {wrong.size} from {wrong[:4]} on"
        in_place(comm, mine, sizes, op, wanted.tobytes())
    comm.barrier()
    print("reduced", len(CASES), flush=True)
    comm.close()


if __name__ == "__main__":
    if sys.argv[1] == "repeat":
        repeat(int(sys.argv[2]), [int(size) for size in sys.argv[3:]])
    else:
        main([int(size) for size in sys.argv[1:]])
