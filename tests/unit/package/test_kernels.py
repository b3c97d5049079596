"""The kernels' variables: which sets there are, and what a wrong value says."""

from __future__ import annotations

import numpy as np
import pytest

import collops
from collops.core import core
from collops.testing import run_ranks


def test_portable_kernels_run_everywhere_and_the_best_are_taken() -> None:
    active, runnable, _ = core().kernels()
    assert runnable[0] == "portable"
    assert active == runnable[-1]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("COLLOPS_ISA", "sse9", "sse9"),
        ("COLLOPS_NUM_THREADS", "0", "COLLOPS_NUM_THREADS must be a whole number of 1 or more"),
        ("COLLOPS_NUM_THREADS", "two", "two"),
        (
            "COLLOPS_TRACE",
            "yes",
            "COLLOPS_TRACE must be 0, 1 or 2, or the name of a file that ends in .json",
        ),
    ],
)
def test_an_invalid_variable_is_an_error_at_creation(
    name: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(collops.ArgumentError, match=message):
        collops.init(0, 1, comm_domain=f"kernels {name} {value}")


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
