"""One rank that exchanges messages with the next and the previous one until it gets an error.

Arguments: how long it sleeps before each call, in seconds; elements of a message; "all", or "part"
for a subgroup of all ranks, numbered backwards. It prints its pid first, and "ready" once ten calls
have been made.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import collops


def main(pause_s: float, elements: int, group: str) -> None:
    comm = collops.init(backend="ucx")
    if group == "part":
        part = comm.split(0, -comm.rank)
        assert part is not None
        comm = part
    print("pid", os.getpid(), flush=True)
    x, out = np.full(elements, comm.rank, np.float32), np.empty(elements, np.float32)
    following, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for call in range(10**9):
        if call == 10:
            print("ready", flush=True)
        try:
            comm.exchange([collops.SendTo(x, following), collops.RecvFrom(out, before)])
        except collops.Error as error:
            print(f"error {time.time():.3f} {error.name} {error.message}", flush=True)
            return
        assert (out == before).all()
        time.sleep(pause_s if call > 10 else 0.0)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
