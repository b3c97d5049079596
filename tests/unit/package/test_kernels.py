"""The kernels' variables: which sets there are, and what a wrong value says."""

from __future__ import annotations

import numpy as np

import collops
from collops.core import core
from collops.testing import run_ranks


def large_sum(rank: int) -> bytes:
    comm = collops.init()
    x = comm.empty(6_000_001, np.float32)
    x[:] = np.random.default_rng(rank).standard_normal(x.size, np.float32)
    return comm.reduce_scatterv(x).tobytes() + comm.all_gatherv(x[:2_000_003]).tobytes()


def test_large_results_do_not_depend_on_threads_or_instructions() -> None:
    """Large enough for stores past the caches and for several threads."""
    _, runnable, _ = core().kernels()
    want = run_ranks(large_sum, 2, env={"COLLOPS_NUM_THREADS": "1"})
    for isa in runnable:
        env = {"COLLOPS_NUM_THREADS": "3", "COLLOPS_ISA": isa}
        assert run_ranks(large_sum, 2, env=env) == want, isa
