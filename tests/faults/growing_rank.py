"""A process of a group that is to have so many ranks: ``growing_rank.py SIZE [RANK MEMBERS]``.

Without a rank it joins. It grows the group to its size, shrinks it after each loss, and says so
at the beginning and whenever it is whole. COLLOPS_TEST_MEET_AT: where, if that is agreed.
"""

from __future__ import annotations

import os
import sys

import numpy as np

import collops


def main() -> None:
    """Runs until it is killed."""
    size, *place = (int(argument) for argument in sys.argv[1:])
    meet_at = os.environ.get("COLLOPS_TEST_MEET_AT", "")
    where = {"job_id": "grown", "meet_at": meet_at} if meet_at else {}
    comm = (
        collops.init(*place, comm_domain="dp", **where)
        if place
        else collops.init(join="dp", **where)
    )
    told = comm.all_gatherv(np.array([os.getpid()])).tolist() if place else None
    if told:
        print(*told, flush=True)
    while True:
        try:
            if comm.size < size:
                comm = comm.grow(size - comm.size)
            pids = comm.all_gatherv(np.array([os.getpid()])).tolist()
        except (collops.PeerLostError, collops.AbortedError):
            comm = comm.shrink()
            continue
        if comm.size == size and pids != told:
            told = pids
            print(*pids, flush=True)


if __name__ == "__main__":
    main()
