"""A child of fork() and its parent's communicator and memory of comm.empty."""

from __future__ import annotations

import gc
import os
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

import collops
from collops.testing import run_ranks


def _in_child(body: Callable[[], None]) -> None:
    """Runs `body` in a child and waits for it; fails if it did."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except collops.ArgumentError as error:
        assert "belongs to the parent process; make a new one after fork()" in str(error)
    else:
        raise AssertionError("the call was not refused")


def _fork_beside_windows(rank: int) -> list[float]:
    with collops.init() as comm:
        x = comm.empty(50_000, np.float32)
        x[:] = rank
        assert comm.all_gatherv(x, (x.size,) * 2)[-1] == 1

        def child() -> None:
            nonlocal x
            _refused(comm.barrier)
            _refused(lambda: comm.empty(1, np.float32))
            _refused(lambda: comm.start("barrier"))
            with collops.init(0, 1, comm_domain=f"of the child {rank}") as own:
                assert own.all_gatherv(x).tolist() == x.tolist()
                assert own.empty(3, np.int32).size == 3
            copy = x.copy()
            copy[:] = 7  # the child's alone
            x[0] = 100 + rank  # the rule: seen by the parent and its peers
            del x
            gc.collect()

        _in_child(child)
        gathered = comm.all_gatherv(x, (x.size,) * 2)
        return [float(gathered[i]) for i in (0, 1, x.size, x.size + 1)]


def test_windows_are_the_same_memory_in_a_child() -> None:
    assert run_ranks(_fork_beside_windows, 2) == [[100.0, 0.0, 101.0, 1.0]] * 2
