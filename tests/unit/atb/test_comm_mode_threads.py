"""COMM_MULTI_THREAD: ranks are Python threads of one process."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import collops
from collops.testing import RankEndedError, RankErrors, run_ranks
from patience import patience

THREADS = collops.COMM_MULTI_THREAD


def gather_op(rank: int, size: int, domain: str = "") -> collops.Operation:
    param = collops.AllGatherVParam(
        rank=rank, rank_size=size, backend="shm", comm_domain=domain, comm_mode=THREADS
    )
    return collops.Operation(param)


def gather(op: collops.Operation, rank: int, size: int) -> list[int]:
    ones = np.ones(size, np.int64)
    ins = [np.array([rank]), ones[:1], ones, np.arange(size), np.empty(size, np.float16)]
    [out] = op.forward(ins)
    return list(out)


def test_structs_of_threads_meet() -> None:
    def work(rank: int) -> tuple[int, list[int]]:
        return os.getpid(), gather(gather_op(rank, 3), rank, 3)

    results = run_ranks(work, 3, threads=True)
    assert len({pid for pid, _ in results}) == 1
    assert [out for _, out in results] == [[0, 1, 2]] * 3


def test_the_gil_is_released_while_a_rank_waits() -> None:
    """With the lock held, the thread that waits would keep the other from ever coming."""

    def work(rank: int) -> float:
        comm = collops.init()
        op = gather_op(rank, 2, "struct")
        start = time.monotonic()
        for step in range(20):
            if (step + rank) % 2:
                time.sleep(0.002)
            comm.barrier()
            gather(op, rank, 2)
            comm.all_gatherv(np.zeros(3))
            comm.reduce_scatterv(np.zeros(30_000))
        part = comm.split(0)
        assert part is not None
        part.barrier()
        return time.monotonic() - start

    assert max(run_ranks(work, 2, threads=True)) < 20


def test_windows_and_structs_of_one_domain() -> None:
    def work(rank: int) -> float:
        comm = collops.init(comm_domain="w")
        x = comm.empty(40_000, np.float32)
        x[:] = rank + 1
        counts = np.array([40_000] * 2)
        ins = [x, counts[:1], counts, counts * [0, 1], np.empty(80_000, np.float16)]
        [out] = gather_op(rank, 2, "w").forward(ins)
        return float(out[0] + 10 * out[-1])

    assert run_ranks(work, 2, threads=True) == [21.0, 21.0]


def test_a_domain_has_one_mode() -> None:
    def work(rank: int) -> list[str]:
        collops.init(comm_domain="both").barrier()
        messages = []
        for fields in ({"rank_size": 2}, {"rank_size": 3, "comm_mode": THREADS}):
            param = collops.AllGatherVParam(rank=rank, backend="shm", comm_domain="both")
            for name, value in fields.items():
                setattr(param, name, value)
            with pytest.raises(collops.Error) as caught:
                collops.Operation(param)
            messages.append(caught.value.message)
        return messages

    for mode, size in run_ranks(work, 2, threads=True):
        assert "already has a communicator of comm_mode 1" in mode
        assert "already has a communicator of 2 ranks" in size


def test_no_rank_waits_after_a_thread_has_failed() -> None:
    def work(rank: int) -> None:
        comm = collops.init()
        if rank == 2:
            raise KeyError("gone")
        comm.barrier()

    start = time.monotonic()
    with pytest.raises(RankErrors) as caught:
        run_ranks(work, 3, threads=True)
    assert time.monotonic() - start < patience(12)
    kinds = {rank: type(error) for rank, error in caught.value.errors.items()}
    assert kinds == {0: collops.PeerLostError, 1: collops.PeerLostError, 2: KeyError}
    assert "gone" in str(caught.value.errors[0])
    assert "in work" in caught.value.tracebacks[2]


def test_a_thread_that_takes_too_long_is_shown() -> None:
    def work(rank: int) -> int:
        if rank == 1:
            threading.Event().wait(600)
        return rank

    start = time.monotonic()
    with pytest.raises(RankErrors) as caught:
        run_ranks(work, 2, threads=True, timeout=patience(1.0))
    assert time.monotonic() - start < patience(12)
    assert list(caught.value.errors) == [1]
    assert type(caught.value.errors[1]) is RankEndedError
    assert "threading.Event().wait(600)" in caught.value.tracebacks[1]


def test_an_error_that_does_not_pickle_is_reported() -> None:
    class Local(Exception):
        pass

    def fail(rank: int) -> None:
        raise Local(f"from {rank}")

    with pytest.raises(RankErrors) as caught:
        run_ranks(fail, 2, threads=True)
    assert [str(error) for error in caught.value.errors.values()] == [
        "Local: from 0",
        "Local: from 1",
    ]


def test_the_process_of_a_run_may_die() -> None:
    def work(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(30)

    with pytest.raises(RankErrors, match="killed by SIGKILL"):
        run_ranks(work, 2, threads=True)


def test_init_outside_of_a_run_needs_its_place() -> None:
    with pytest.raises(collops.Error, match="no launcher sets this process's rank"):
        collops.init(comm_mode=THREADS)
    with pytest.raises(collops.Error, match=r"comm_mode must be 0 \(COMM_MULTI_PROCESS\) or 1"):
        collops.init(0, 1, comm_mode=2)
    with collops.init(0, 1, comm_mode=THREADS) as comm:
        assert comm.all_gatherv(np.arange(2)).tolist() == [0, 1]


def test_a_thread_of_a_run_may_join_other_processes() -> None:
    """comm_mode says so; the place is then the process's own."""

    def work(rank: int) -> int:
        return collops.init(0, 1, comm_mode=0, comm_domain=f"{rank}").size

    assert run_ranks(work, 2, threads=True) == [1, 1]
