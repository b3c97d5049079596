"""How calls end that were started: Ctrl-C, time-outs, a lost rank, close(), exit, fork()."""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.unit.communicator.waiting_call import later

EXIT = """
import sys, threading, time
import numpy as np, collops
comm = collops.init(rank=int(sys.argv[1]), rank_size=2)
calls = [comm.start("recv", np.empty(3), 1 - comm.rank)]
if comm.rank == 0:
    for _ in range(3):
        calls.append(comm.start("all_gatherv", np.ones(1)))
        calls.append(comm.start("all_reduce", np.ones(1)))
    sys.exit(0)
try:
    comm.recv(np.empty(1), 0, tag=5)
except (collops.PeerLostError, collops.AbortedError) as error:  # a call ran, or none
    print(error.message)
"""


def num_threads() -> int:
    return len(os.listdir("/proc/self/task"))


def why_it_ended(comm: collops.Communicator) -> str:
    """Waits for a message that rank 0 never sends."""
    with pytest.raises(collops.AbortedError) as caught:
        comm.recv(np.empty(1), 0, tag=1)
    return caught.value.message


def test_the_thread_is_there_from_the_first_start_to_the_close() -> None:
    def work(rank: int) -> list[int]:
        comm = collops.init()
        comm.barrier()
        counts = [num_threads()]
        comm.start("all_gatherv", np.ones(1)).wait()
        comm.start("all_reduce", np.ones(1)).wait()
        counts.append(num_threads())
        comm.close()
        # The system lists a thread a little longer than it can be joined.
        end = time.monotonic() + patience(10)
        while num_threads() > counts[0] and time.monotonic() < end:
            time.sleep(0.001)
        counts.append(num_threads())
        return [count - counts[0] for count in counts]

    assert run_ranks(work, 2) == [[0, 1, 0]] * 2


@pytest.mark.parametrize("call", ["barrier", "recv", "all_gatherv"])
def test_ctrl_c_ends_a_wait(call: str) -> None:
    arguments = {"barrier": (), "recv": (np.empty(2), 1), "all_gatherv": (np.ones(2),)}

    def work(rank: int) -> str:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            return why_it_ended(comm)
        started = comm.start(call, *arguments[call])
        with pytest.raises(KeyboardInterrupt):
            thread = later(lambda: os.kill(os.getpid(), signal.SIGINT), queue.SimpleQueue())
            started.wait()
        thread.join()
        with pytest.raises(collops.AbortedError, match="interrupted"):
            started.wait()
        return "interrupted"

    first, second = run_ranks(work, 2, timeout=patience(20))
    assert first == "interrupted"
    assert "rank 0 was interrupted" in second


@pytest.mark.parametrize("name", ["recv", "barrier"])
def test_a_signal_handler_may_close_while_its_thread_waits(name: str) -> None:
    def work(rank: int, start: bool) -> bool:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            with pytest.raises(collops.Error, match="called close"):
                comm.recv(np.empty(1), 0, tag=1)
            return True
        signal.signal(signal.SIGALRM, lambda *_: comm.close())
        arguments = (np.empty(1), 1) if name == "recv" else ()
        thread = later(lambda: os.kill(os.getpid(), signal.SIGALRM), queue.SimpleQueue())
        with pytest.raises(collops.AbortedError, match="called close"):
            if start:
                comm.start(name, *arguments).wait()
            else:
                getattr(comm, name)(*arguments)
        thread.join()
        return True

    for start in (False, True):
        assert run_ranks(work, 2, start, timeout=patience(20)) == [True] * 2


def test_ctrl_c_interrupts_the_current_call() -> None:
    def work(rank: int) -> str:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            return why_it_ended(comm)
        split = comm.start("split", 0)  # runs in the turn of the barrier, or in its own thread
        with pytest.raises(KeyboardInterrupt):
            thread = later(lambda: os.kill(os.getpid(), signal.SIGINT), queue.SimpleQueue())
            comm.barrier()
        thread.join()
        with pytest.raises((collops.AbortedError, KeyboardInterrupt)):
            split.wait()
        return "interrupted"

    first, second = run_ranks(work, 2, timeout=patience(20))
    assert first == "interrupted"
    assert "rank 0 was interrupted" in second


def test_failed_communicators_leave_nothing_behind() -> None:
    def work(rank: int) -> list[tuple[int, int]]:
        counts = []
        for number in range(6):
            comm = collops.init(comm_domain=str(number))
            with contextlib.suppress(collops.AbortedError):  # by the other rank, already
                comm.start("gatherv", np.ones(1))
                comm.start("split", "bad")
            comm.abort("done with it")
            del comm
            gc.collect()
            counts.append((num_threads(), len(os.listdir("/proc/self/fd"))))
        return counts

    for counts in run_ranks(work, 2):
        # Of all but the last one or two, which may still be there.
        assert max(threads for threads, _ in counts) <= counts[0][0] + 2, counts
        assert max(files for _, files in counts) <= 2 * counts[0][1], counts


def test_a_wait_with_a_time_out_of_its_own() -> None:
    def work(rank: int) -> str:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            with pytest.raises(collops.RankTimeoutError):
                comm.recv(np.empty(1), 0, tag=1)
            return ""
        started = comm.start("all_gatherv", np.ones(2))
        begin = time.monotonic()
        with pytest.raises(collops.RankTimeoutError) as caught:
            started.wait(timeout_s=0.3)
        assert time.monotonic() - begin < patience(10)
        assert isinstance(caught.value, TimeoutError)
        return caught.value.message

    message = run_ranks(work, 2)[0]
    assert "after 0.3 s" in message
    assert "rank 1" in message


def test_close_ends_running_calls() -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            with pytest.raises(collops.Error, match="called close"):
                comm.recv(np.empty(1), 0)
            return True
        calls = [comm.start("recv", np.empty(1), 1), comm.start("all_gatherv", np.ones(1))]
        calls += [comm.start("barrier") for _ in range(3)]
        comm.close()
        for call in calls:
            assert call.done()
            with pytest.raises(collops.AbortedError, match="called close"):
                call.wait()
        return True

    assert run_ranks(work, 2) == [True] * 2


def test_the_end_of_the_interpreter_ends_started_calls() -> None:
    job = {**os.environ, "COLLOPS_JOB_ID": f"started at exit {os.getpid()}"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", EXIT, str(rank)],
            env=job,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    begin = time.monotonic()
    outputs = [rank.communicate(timeout=patience(30)) for rank in ranks]
    assert time.monotonic() - begin < patience(20)
    assert [rank.returncode for rank in ranks] == [0, 0], outputs
    assert outputs[0] == ("", "")
    assert "rank 0" in outputs[1][0]


def test_a_lost_rank_ends_started_calls() -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            comm.send(np.ones(1), 0)
            os.kill(os.getpid(), signal.SIGKILL)
        calls = [comm.start("barrier"), comm.start("all_gatherv", np.ones(1))]
        comm.recv(np.empty(1), 1)
        for call in calls:
            with pytest.raises(collops.PeerLostError, match="rank 1"):
                call.wait()
        return True

    with pytest.raises(Exception) as caught:
        run_ranks(work, 2)
    assert "rank 1" in str(caught.value)
    assert "rank 0" not in str(caught.value).split("---")[1]


def test_a_child_of_fork_has_no_started_calls() -> None:
    def work(rank: int) -> bool:
        comm = collops.init()
        started = comm.start("all_gatherv", np.full(1, rank))
        child = os.fork()
        if child == 0:
            ok = False
            try:
                started.wait()
            except collops.ArgumentError as error:
                ok = "parent process" in error.message
            os._exit(0 if ok and not started.done() else 1)
        _, status = os.waitpid(child, 0)
        assert started.wait().tolist() == [0, 1]
        return os.waitstatus_to_exitcode(status) == 0

    assert run_ranks(work, 2) == [True] * 2
