"""What reaches the other ranks whole, and what they do not keep."""

from __future__ import annotations

import os

import numpy as np
import pytest

import collops
from collops.errors import Error
from collops.testing import run_ranks


def test_a_long_reason_reaches_the_other_ranks_whole() -> None:
    reason = f"{'a long path/' * 60} is missing: install it"

    def call(rank: int) -> str:
        with collops.init() as comm:
            if rank == 0:
                comm.barrier()
                comm.abort(reason)
                return reason
            with pytest.raises(Error) as error:  # in the first one or the second
                comm.barrier()
                comm.barrier()
        return str(error.value)

    assert all(reason in text for text in run_ranks(call, 2))


def test_windows_of_peers_take_no_descriptors() -> None:
    def call(rank: int) -> int:
        with collops.init() as comm:
            comm.barrier()
            before = len(os.listdir("/proc/self/fd"))
            windows = [comm.empty((256, 64), np.float32) for _ in range(20)]
            for window in windows:  # the peer reads it in place
                window[:] = rank
                comm.all_gather(window)
            return len(os.listdir("/proc/self/fd")) - before

    # One for each window of its own.
    assert run_ranks(call, 2) == [20, 20]
