"""While a rank waits: Ctrl-C works, other Python threads run, and a second call is an error."""

from __future__ import annotations

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


def interrupt_soon(delay_s: float = 0.2) -> threading.Timer:
    timer = threading.Timer(delay_s, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


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
    def work(rank: int) -> str:
        comm = collops.init()
        comm.barrier()
        if rank == 1:  # stays away until rank 0 has been interrupted
            try:
                time.sleep(0.6)
                CALLS[name](comm)
            except collops.Error as error:
                return error.message
            return "no error"
        interrupt_soon()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            CALLS[name](comm)
        assert time.monotonic() - start < 2
        with pytest.raises(collops.AbortedError):
            comm.barrier()
        return "interrupted"

    first, second = run_ranks(work, 2)
    assert first == "interrupted"
    assert "interrupted" in second


def test_ctrl_c_ends_first_contact() -> None:
    def work(rank: int) -> bool:
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            collops.init(0, 2)
        return True

    assert run_ranks(work, 1) == [True]


def test_a_signal_handler_of_the_user_runs_and_the_wait_goes_on() -> None:
    def work(rank: int) -> tuple[int, list[int]]:
        comm = collops.init()
        seen: list[int] = []
        signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
        if rank == 1:
            time.sleep(0.5)
        else:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        gathered = comm.all_gatherv(np.array([rank])).tolist()
        return len(seen), gathered

    assert run_ranks(work, 2) == [(1, [0, 1]), (0, [0, 1])]


def test_an_exception_of_a_signal_handler_ends_the_wait() -> None:
    def refuse(number: int, frame: Any) -> None:
        raise ZeroDivisionError("from the handler")

    def work(rank: int) -> str:
        comm = collops.init()
        if rank == 1:
            time.sleep(0.5)
            return ""
        signal.signal(signal.SIGUSR1, refuse)
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        with pytest.raises(ZeroDivisionError) as caught:
            comm.barrier()
        return str(caught.value)

    assert run_ranks(work, 2)[0] == "from the handler"


def test_other_threads_run_while_a_rank_waits() -> None:
    def work(rank: int) -> int:
        comm = collops.init()
        steps = 0
        done = threading.Event()

        def count() -> None:
            nonlocal steps
            while not done.is_set():
                steps += 1
                time.sleep(0.005)

        thread = threading.Thread(target=count)
        if rank == 0:
            thread.start()
        else:
            time.sleep(0.5)
        comm.barrier()
        done.set()
        if rank == 0:
            thread.join()
        return steps

    assert run_ranks(work, 2)[0] > 20


def test_a_second_thread_in_a_call_gets_an_error() -> None:
    def work(rank: int) -> list[str]:
        comm = collops.init()
        op = collops.Operation(collops.AllGatherVParam(rank=rank, rank_size=2, backend="shm"))
        one = np.ones(2, np.int64)
        ins = [one[:1], one[:1], one, np.array([0, 1]), np.empty(2, np.float16)]
        op.get_workspace_size(ins, [np.empty(2, np.int64)])
        messages: list[str] = []

        def intrude() -> None:
            time.sleep(0.2)
            for call in (comm.barrier, lambda: op.infer_shape(ins)):
                try:
                    call()
                except collops.Error as error:
                    messages.append(error.message)

        if rank == 1:
            time.sleep(0.6)
            op.execute(ins, [np.empty(2, np.int64)])
            return []
        thread = threading.Thread(target=intrude)
        thread.start()
        op.execute(ins, [np.empty(2, np.int64)])
        thread.join()
        return messages

    messages = run_ranks(work, 2)[0]
    assert len(messages) == 2
    assert all("another thread" in message for message in messages)


def test_abort_from_another_thread_ends_the_waits_of_all() -> None:
    def work(rank: int) -> tuple[int, str]:
        comm = collops.init()
        if rank == 2:
            threading.Timer(0.2, comm.abort, ("enough",)).start()
            time.sleep(0.5)
        start = time.monotonic()
        with pytest.raises(collops.AbortedError) as caught:
            comm.barrier()
        assert time.monotonic() - start < 5
        return caught.value.code, caught.value.message

    for code, message in run_ranks(work, 3):
        assert code == 104
        assert "enough" in message
