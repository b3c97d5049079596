"""All ranks meet, then all but the first, numbered from the last one, and then a subgroup of those.

Each prints the sum of both groups.
"""

from __future__ import annotations

import sys

import numpy as np

import collops


def main() -> None:
    with collops.init() as world:
        # Rank 0 holds the job's port, and has no part in this group.
        if world.rank > 0:
            size = world.size - 1
            rank = size - world.rank
            part = collops.init(rank, size, backend="ucx", comm_domain="part")
            [total] = part.reduce_scatterv(np.full(size, 10 ** (world.rank - 1), np.int64))
            everyone = part.split(0)
            again = everyone.all_reduce(np.array([total]))[0] // size
            sys.stdout.write(f"rank {world.rank} is {rank} of {size}: sum {again}\n")
        world.barrier()


if __name__ == "__main__":
    main()
