"""AllGatherV and ReduceScatterV of uneven blocks, compared with numpy, on every rank of a table.

Each host runs ``collops run --rank-table ranks.json gather_and_reduce.py``; two_hosts.sh does so on
two hosts that it makes on this machine.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import collops

COLUMNS = 8


def block_of(rank: int, rows: int) -> npt.NDArray[np.float32]:
    """A rank's rows: numbers that differ in every rank and position."""
    return np.arange(rows * COLUMNS, dtype=np.float32).reshape(rows, COLUMNS) + 1000 * rank


def main() -> None:
    """Gathers, reduces, and compares both with numpy."""
    with collops.init() as comm:
        ranks = range(comm.size)
        rows = [3 * rank + 1 for rank in ranks]  # 1, 4, 7 ... rows

        gathered = comm.all_gatherv(block_of(comm.rank, rows[comm.rank]), rows)
        assert np.array_equal(gathered, np.vstack([block_of(r, rows[r]) for r in ranks]))

        reduced = comm.reduce_scatterv(block_of(comm.rank, sum(rows)), rows)
        total = np.sum([block_of(r, sum(rows)) for r in ranks], axis=0)
        begin = sum(rows[: comm.rank])
        assert np.array_equal(reduced, total[begin : begin + rows[comm.rank]])

        shapes = f"gathered {gathered.shape}, reduced {reduced.shape}"
        print(f"rank {comm.rank} of {comm.size}: {shapes}, both equal to numpy")


if __name__ == "__main__":
    main()
