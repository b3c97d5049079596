"""One rank that gathers again and again until it gets an error, and prints it.

Arguments: how long it sleeps before each call, in seconds; elements per rank. It prints its pid
first, and "ready" once ten calls have been made.
"""

from __future__ import annotations

import os
import sys
import time

import numpy as np

import collops


def main(pause_s: float, elements: int) -> None:
    comm = collops.init(backend="ucx")
    print("pid", os.getpid(), flush=True)
    x = np.full(elements, comm.rank, np.float32)
    for call in range(10**9):
        if call == 10:
            print("ready", flush=True)
        try:
            comm.all_gatherv(x, [elements] * comm.size)
        except collops.Error as error:
            print(f"error {time.time():.3f} {error.name} {error.message}", flush=True)
            return
        time.sleep(pause_s if call > 10 else 0.0)


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
