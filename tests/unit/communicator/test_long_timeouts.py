"""Time-outs beyond the range of clocks, polls and locks are long and do not end at once."""

from __future__ import annotations

import time

import numpy as np
import pytest

import collops
from collops.testing import run_ranks

LONG_S = 1e10  # a 64-bit count of nanoseconds ends at 9.2e9 s
LATE_S = 0.2


def _late_gather(rank: int, timeout_s: float | None) -> list[float]:
    """A rank is late at first contact, and another one at the call."""
    time.sleep(LATE_S * rank)
    with collops.init(timeout_s=timeout_s) as comm:
        time.sleep(LATE_S * (1 - rank))
        return [float(value) for value in comm.all_gatherv(np.full(1, rank, np.float32), (1, 1))]


@pytest.mark.parametrize("threads", [False, True])
def test_a_long_timeout_of_init_waits(threads: bool) -> None:
    assert run_ranks(_late_gather, 2, LONG_S, threads=threads) == [[0.0, 1.0]] * 2


def test_a_long_timeout_of_the_environment_waits() -> None:
    env = {"COLLOPS_TIMEOUT_S": f"{LONG_S:g}"}
    assert run_ranks(_late_gather, 2, None, env=env) == [[0.0, 1.0]] * 2


def _started(rank: int) -> list[list[float]]:
    with collops.init() as comm:
        time.sleep(LATE_S * rank)
        x = np.full(1, rank, np.float32)
        gathered = comm.start("all_gatherv", x, (1, 1)).wait(LONG_S)
        time.sleep(LATE_S * (1 - rank))
        out = np.zeros(1, np.float32)
        sent = comm.start("send", x, 1 - rank)
        comm.start("recv", out, 1 - rank).wait(LONG_S)
        sent.wait(LONG_S)
        return [gathered.tolist(), out.tolist()]


def test_a_long_timeout_of_a_wait_waits() -> None:
    assert run_ranks(_started, 2) == [[[0.0, 1.0], [1.0]], [[0.0, 1.0], [0.0]]]


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("timeout", [LONG_S, 1e300])
def test_run_ranks_takes_a_long_timeout(threads: bool, timeout: float) -> None:
    assert run_ranks(pow, 2, 2, timeout=timeout, threads=threads) == [0, 1]


def _refused_wait(rank: int) -> None:
    with collops.init() as comm:
        call = comm.start("barrier")
        for wrong in (10**400, float("inf"), 0):
            with pytest.raises(collops.ArgumentError, match="timeout_s must be a number above 0"):
                call.wait(wrong)
        call.wait()


def test_a_wait_refuses_the_same() -> None:
    run_ranks(_refused_wait, 2)
