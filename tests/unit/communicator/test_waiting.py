"""While a rank waits: Ctrl-C works, other Python threads run, and a second call is an error."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.unit.communicator.waiting_call import later

FORK = multiprocessing.get_context("fork")


def signalled(number: signal.Signals, told: Any) -> threading.Thread:
    """Sends this process a signal once it waits in a call."""
    return later(lambda: os.kill(os.getpid(), number), told)


def atb_call(comm: collops.Communicator) -> Any:
    op = collops.Operation(collops.AllGatherVParam(hccl_comm=comm, backend="shm"))
    one = np.ones(2, np.int64)
    return op.forward([one[:1], one[:1], one, np.array([0, 1]), np.empty(2, np.float16)])


CALLS: dict[str, Callable[[collops.Communicator], Any]] = {
    "barrier": lambda comm: comm.barrier(),
    "all_gatherv": lambda comm: comm.all_gatherv(np.zeros(100_000)),
    "reduce_scatterv": lambda comm: comm.reduce_scatterv(np.zeros(4)),
    "forward": atb_call,
}


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_wait(name: str) -> None:
    told, interrupted = FORK.SimpleQueue(), FORK.SimpleQueue()

    def work(rank: int) -> str:
        comm = collops.init()
        comm.barrier()
        if rank == 1:  # stays away until rank 0 has been interrupted
            told.get()
            start = time.monotonic()
            interrupted.get()
            assert time.monotonic() - start < patience(10)
            with pytest.raises(collops.Error) as caught:
                CALLS[name](comm)
            return caught.value.message
        with pytest.raises(KeyboardInterrupt):
            thread = signalled(signal.SIGINT, told)
            CALLS[name](comm)
        interrupted.put(None)
        thread.join()
        with pytest.raises(collops.AbortedError):
            comm.barrier()
        return "interrupted"

    first, second = run_ranks(work, 2, timeout=patience(20))
    assert first == "interrupted"
    assert "interrupted" in second


def test_ctrl_c_ends_first_contact() -> None:
    def work(rank: int) -> bool:
        if rank == 1:  # does not come
            return True
        with pytest.raises(KeyboardInterrupt):
            thread = signalled(signal.SIGINT, FORK.SimpleQueue())
            collops.init(0, 2)
        thread.join()
        return True

    assert run_ranks(work, 2, timeout=patience(20)) == [True, True]


def test_a_signal_handler_of_the_user_runs_and_the_wait_goes_on() -> None:
    told, handled = FORK.SimpleQueue(), FORK.SimpleQueue()

    def work(rank: int) -> list[int]:
        comm = collops.init()
        signal.signal(signal.SIGUSR1, lambda number, frame: handled.put(number))
        if rank == 1:  # comes when the handler has run, in the middle of rank 0's wait
            told.get()
            assert handled.get() == signal.SIGUSR1
            return list(comm.all_gatherv(np.array([rank])))
        thread = signalled(signal.SIGUSR1, told)
        gathered = list(comm.all_gatherv(np.array([rank])))
        thread.join()
        return gathered

    assert run_ranks(work, 2, timeout=patience(20)) == [[0, 1]] * 2
    assert handled.empty()


def test_an_exception_of_a_signal_handler_ends_the_wait() -> None:
    told, ended = FORK.SimpleQueue(), FORK.SimpleQueue()

    def refuse(number: int, frame: Any) -> None:
        raise ZeroDivisionError("from the handler")

    def work(rank: int) -> str:
        comm = collops.init()
        if rank == 1:
            ended.get()
            return ""
        signal.signal(signal.SIGUSR1, refuse)
        with pytest.raises(ZeroDivisionError) as caught:
            thread = signalled(signal.SIGUSR1, told)
            comm.barrier()
        ended.put(None)
        thread.join()
        return str(caught.value)

    assert run_ranks(work, 2, timeout=patience(20))[0] == "from the handler"


def test_other_threads_run_while_a_rank_waits() -> None:
    told = FORK.SimpleQueue()

    def work(rank: int) -> int:
        comm = collops.init()
        steps = 0

        def count() -> None:
            nonlocal steps
            for _ in range(50):
                steps += 1
                time.sleep(0.002)

        if rank == 1:
            told.get()  # the thread has done all its steps
            comm.barrier()
            return 0
        thread = later(count, told)
        comm.barrier()
        done = steps
        thread.join()
        return done

    assert run_ranks(work, 2, timeout=patience(20))[0] == 50
