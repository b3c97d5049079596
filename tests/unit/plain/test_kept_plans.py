"""What the plain level keeps of a call for the next one: all it depends on, and not for ever."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

import collops
from collops.testing import run_ranks


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_plans_of_many_shapes_do_not_pile_up() -> None:
    def call(_: int) -> int:
        x = np.ones(4000, np.float32)
        with collops.init() as comm:
            for count in range(1, 1000):
                comm.all_reduce(x[:count])
            before = resident_bytes()
            for count in range(1000, 4000):
                comm.all_reduce(x[:count])
            return resident_bytes() - before

    # As many plans again would take 4 MiB (measured); 256 are kept.
    assert max(run_ranks(call, 2)) < 1 << 20
