"""A process of a group that does not grow at first: ``growing_ways.py NEW TIMEOUT_S [RANK MEMBERS
[LACKS]]``.

Without a rank it joins. A member calls grow for so many new processes, without a descriptor left on
the rank LACKS, and prints the error. The group is as it was then, and grows once a line has come.
All print the pids of their group.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3]))

import collops
from tests.multihost.ranks.shrinking import check
from tests.multihost.ranks.shrinking_ways import told, use_up_descriptors


def main(new: int, timeout_s: float, *place: int) -> None:
    if not place:
        comm = collops.init(join="dp")
    else:
        rank, size, *lacks = place
        comm = collops.init(rank, size, comm_domain="dp")
        comm.barrier()
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        if rank in lacks:
            use_up_descriptors()
        print(told(lambda: comm.grow(new, timeout_s=timeout_s)), flush=True)
        check(comm, list(range(size)))
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        sys.stdin.readline()
        comm = comm.grow(new)
    check(comm, list(range(comm.size)))
    print(*comm.all_gatherv(np.array([os.getpid()])).tolist(), flush=True)
    sys.stdin.readline()  # the others have theirs


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), *map(int, sys.argv[3:]))
