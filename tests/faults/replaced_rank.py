"""A rank of three that ``collops run --restart`` starts: two are killed, and replaced in the group.

Label 0 is killed before step 2, label 2 before step 4. The others shrink and grow the group, and
every sum is right. At its end each prints its rank and the group's size.
"""

from __future__ import annotations

import os
import signal

import numpy as np

import collops

STEPS = 6


def main() -> None:
    """Runs its steps, or what is left of them."""
    label = int(os.environ["COLLOPS_RANK"])
    anew = os.environ["COLLOPS_RESTARTS"] != "0"
    comm = collops.init(join="dp") if anew else collops.init(comm_domain="dp")
    step = np.zeros(1, np.int64)
    if anew:
        comm.broadcast(step)
    while step[0] < STEPS:
        if not anew and (label, step[0]) in ((0, 2), (2, 4)):
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            total = comm.all_reduce(step * 10 + comm.rank)
        except collops.PeerLostError:
            comm = comm.shrink().grow(1)
            comm.broadcast(step)
            continue
        assert total[0] == step[0] * 30 + 3, (total, step)
        step += 1
    print(comm.rank, comm.size)


if __name__ == "__main__":
    main()
