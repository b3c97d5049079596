"""How long tests wait for what must come: multiples of how slow the machine is now.

A time limit that is there to end what hangs must not fail a test because others load the machine.
It is `patience(SECONDS)`, with the seconds that are ample on a quiet machine. A time that is itself
what a test promises is plain.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

# The factor, for the processes of a run; the C++ tests read it too (tests/cpp/check.h).
VARIABLE = "COLLOPS_TEST_PATIENCE"
MOST = 10.0
MOST_CORES = 8  # for starting programs takes time too
# A fixed piece of work, as a test is one: a program that is started, and computes.
WORK = "sum(i * i for i in range(1_500_000))"
QUIET_S = 0.2  # what it takes where nothing else runs


def measured() -> float:
    """How much longer than on a quiet machine the work takes now, on several cores at once."""
    begin = time.monotonic()
    command = [sys.executable, "-S", "-c", WORK]
    cores = min(len(os.sched_getaffinity(0)), MOST_CORES)
    running = [subprocess.Popen(command) for _ in range(cores)]
    for program in running:
        program.wait()
    return min(max(1.0, (time.monotonic() - begin) / QUIET_S), MOST)


def factor() -> float:
    """Measured once in a run: its processes find it in their environment."""
    if not os.environ.get(VARIABLE):
        os.environ[VARIABLE] = f"{measured():.1f}"
    return float(os.environ[VARIABLE])


def patience(seconds: float) -> float:
    """So many seconds of a quiet machine."""
    return seconds * factor()
