"""Prof and set_buffer_size, which programs for torch_atb call."""

from __future__ import annotations

import threading
import time
import warnings

import numpy as np
import pytest

import collops
from collops.atb import torch_atb
from collops.testing import run_ranks
from patience import patience


def times_of(name: str) -> list[int]:
    return collops.Prof.get_prof_stats().get_run_time_stats(name)


def test_prof_has_the_times_of_forward_in_their_order() -> None:
    def run(rank: int) -> tuple[list[int], list[int], list[int]]:
        op = collops.Operation(collops.AllGatherParam(rank=rank, rank_size=2, backend="shm"))
        x = np.arange(4, dtype=np.float32)
        before = times_of(op.name)
        for _ in range(2):
            op.forward([x])
        if rank == 0:  # the other rank waits for this one
            time.sleep(patience(0.3))
        op.forward([x])
        return before, times_of(op.name), times_of("AllReduce")

    (none, of_first, _), (_, of_second, others) = run_ranks(run, 2)
    assert none == others == []
    assert len(of_first) == len(of_second) == 3
    assert of_second[-1] >= 20_000
    assert all(isinstance(number, int) for number in of_second)


def test_prof_takes_the_names_of_atb() -> None:
    def run(rank: int) -> tuple[list[int], list[int]]:
        op = collops.Operation(collops.AllGatherParam(rank=rank, rank_size=2, backend="shm"))
        op.forward([np.zeros(4, np.float32)])
        return times_of("AllGatherOperation"), times_of("AllGather")

    for of_atb, own in run_ranks(run, 2):
        assert len(own) == 1
        assert of_atb == own


def test_prof_counts_calls_that_need_new_outputs_and_no_failed_ones() -> None:
    def run(rank: int) -> int:
        op = collops.Operation(collops.AllGatherParam(rank=rank, rank_size=2, backend="shm"))
        for size in (1, 2, 3, 3):
            op.forward([np.zeros(size, np.float32)])
        with pytest.raises(collops.Error):
            op.forward([np.zeros(1), np.zeros(1)])
        return len(times_of("AllGather"))

    assert run_ranks(run, 2) == [4, 4]


def test_prof_keeps_the_last_thousand_of_each_thread() -> None:
    def run(rank: int) -> tuple[int, list[int]]:
        op = collops.Operation(collops.AllGatherParam(rank=rank, rank_size=2, backend="shm"))
        for _ in range(1002):
            op.forward([np.zeros(1, np.float32)])
        in_thread: list[list[int]] = []
        thread = threading.Thread(target=lambda: in_thread.append(times_of(op.name)))
        thread.start()
        thread.join()
        return len(times_of(op.name)), in_thread[0]

    assert run_ranks(run, 2) == [(1000, [])] * 2


def test_set_buffer_size_is_accepted_and_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_atb, "_noted", [])
    with pytest.warns(UserWarning, match="has no effect.*HCCL_BUFFSIZE"):
        collops.set_buffer_size(300_000_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        collops.set_buffer_size(np.int64(0))
