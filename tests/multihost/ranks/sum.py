"""One rank that adds up the ranks' numbers, and prints the sum. Argument: the backend, if any."""

from __future__ import annotations

import sys

import numpy as np

import collops


def main(backend: str | None) -> None:
    with collops.init(backend=backend) as comm:
        mine = np.full(comm.size, comm.rank + 1, np.int64)
        [total] = comm.reduce_scatterv(mine)
        # One write, so that lines of two ranks do not mix.
        sys.stdout.write(f"rank {comm.rank} of {comm.size}: sum {total}\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
