"""shrink: who is left, what the new communicator is, and who gets which error."""

from __future__ import annotations

import re
import threading
import time
from contextlib import suppress
from multiprocessing import Event
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience

MODES = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])


def told(run: Any) -> str:
    """The error of a call: its name and its message without pids."""
    try:
        run()
    except collops.Error as error:
        return f"{error.name} {error.message}"
    return ""


def check(comm: collops.Communicator) -> list[int]:
    """Gathers the old ranks, from a window too, and adds numbers that differ per rank and place."""
    own = comm.old_ranks[comm.rank]
    window = comm.empty(1000, np.int64)
    window[:] = np.arange(1000) + 7 * own
    want = sum(np.arange(1000) + 7 * old for old in comm.old_ranks)
    assert np.array_equal(comm.all_reduce(window), want)
    assert comm.all_gatherv(window[: own + 1]).size == sum(old + 1 for old in comm.old_ranks)
    part = comm.split(comm.rank % 2)
    assert part is not None and part.size == len(comm.old_ranks[comm.rank % 2 :: 2])
    numbers: list[int] = comm.all_gatherv(np.array([own])).tolist()
    return numbers


@MODES
@pytest.mark.parametrize(("size", "gone"), [(2, [0]), (3, [1]), (4, [0, 3]), (7, [2, 4, 6])])
def test_those_that_are_left_go_on(threads: bool, size: int, gone: list[int]) -> None:
    def work(rank: int) -> Any:
        comm = collops.init(comm_domain="dp")
        if rank in gone:
            comm.close()
            return None
        with pytest.raises(collops.PeerLostError):
            comm.barrier()
        shrunk = comm.shrink()
        assert (shrunk.size, shrunk.old_ranks[shrunk.rank]) == (size - len(gone), rank)
        assert comm.old_ranks == ()
        # The domain is the new one's from now on.
        again = collops.init(shrunk.rank, shrunk.size, comm_domain="dp")
        assert again.handle == shrunk.handle
        return check(shrunk)

    left = [rank for rank in range(size) if rank not in gone]
    results = run_ranks(work, size, threads=threads)
    assert results == [left if rank in left else None for rank in range(size)]


@MODES
def test_a_struct_uses_the_domain_with_its_new_size(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init(comm_domain="dp")
        if rank == 0:
            comm.close()
            return None
        comm = comm.shrink()
        param = collops.AllGatherVParam(
            rank=comm.rank, rank_size=2, backend="shm", comm_domain="dp", comm_mode=int(threads)
        )
        one = np.array([1])
        x = np.full((1, 3), rank, np.float32)
        ins = [x, one * 3, np.array([3, 3]), np.array([0, 3]), np.empty(2, np.float16)]
        [out] = collops.Operation(param).forward(ins)
        return out[:, 0].tolist()

    assert run_ranks(work, 3, threads=threads) == [None, [1, 2], [1, 2]]


def test_structs_with_the_new_size_meet_anew_without_shrink() -> None:
    """As long as all that are left know who is: of the old domain, with the new rank and size."""

    def gather(rank: int, size: int, own: int) -> Any:
        param = collops.AllGatherVParam(rank=rank, rank_size=size, backend="shm", comm_domain="tp")
        counts, x = np.full(size, 2), np.array([[own, 10 * own]], np.float32)
        ins = [x, counts[:1], counts, 2 * np.arange(size), np.empty(size, np.float16)]
        return collops.Operation(param).forward(ins)[0].tolist()

    def work(rank: int) -> Any:
        first = gather(rank, 3, rank)
        if rank == 0:
            collops.init(0, 3, comm_domain="tp").close()
            return first
        with pytest.raises(collops.PeerLostError):
            gather(rank, 3, rank)
        return gather(rank - 1, 2, rank)

    left = [[1, 10], [2, 20]]
    assert run_ranks(work, 3) == [[[0, 0], *left], left, left]


@MODES
def test_ranks_of_a_healthy_group_are_excluded(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        comm.barrier()
        if rank in (1, 3):
            heard = told(lambda: [comm.barrier() for _ in range(10**9)])
            return heard.partition(" ")[0], told(comm.shrink).partition(" ")[0]
        return check(comm.shrink(exclude=[3, 1]))

    aborted = ("ERROR_ABORTED", "ERROR_ABORTED")
    # Threads that are left out may still be in the call before.
    for _ in range(20 if threads else 1):
        assert run_ranks(work, 4, threads=threads) == [[0, 2], aborted, [0, 2], aborted]


@MODES
def test_a_call_that_is_complete_here_completes_elsewhere(threads: bool) -> None:
    def work(rank: int) -> Any:
        for _ in range(20):
            comm = collops.init(comm_domain="healthy")
            x = comm.empty(100_000, np.float32)
            x[:] = rank
            total = comm.all_reduce(x)
            assert total[-1] == 3
            comm = comm.shrink()
            assert comm.size == 3
            comm.close()
        return True

    assert run_ranks(work, 3, threads=threads) == [True] * 3


@MODES
def test_it_completes_there_also_beside_calls_that_were_started(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        for _ in range(50):
            assert comm.all_reduce(np.ones(2))[0] == 3
            with suppress(collops.AbortedError):  # rank 1 may be faster
                for _ in range(0 if rank == 1 else 3):
                    comm.start("all_reduce", np.ones(2))
            comm = comm.shrink()
        return comm.size

    assert run_ranks(work, 3, threads=threads) == [3] * 3


@MODES
def test_ranks_that_exclude_others(threads: bool) -> None:
    """Those that stay are told, and come again with one list; a late one may meet them then."""

    def work(rank: int) -> Any:
        comm = collops.init()
        try:
            comm = comm.shrink([[3], [3], None, None][rank])
            heard = ""
        except collops.Error as error:
            heard = f"{error.name} {error.message}"
            comm = comm.shrink([3]) if rank < 3 else comm
        return heard, check(comm) if rank < 3 else []

    *left, (last, _) = run_ranks(work, 4, threads=threads)
    assert left[2][0]
    for heard, members in left:
        assert members == [0, 1, 2]
        assert not heard or re.match(r"ERROR_RANK_MISMATCH shrink: exclude is \[3?\] on", heard)
        assert not heard or ("[3] on rank " in heard and "[] on rank 2 (pid " in heard)
    assert last.startswith(("ERROR_RANK_MISMATCH", "ERROR_ABORTED"))


@MODES
def test_started_calls_end_before_it_returns(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        comm.barrier()
        if rank == 2:
            time.sleep(patience(1))
            comm.close()
            return None
        started = [comm.start("all_reduce", np.ones(4)) for _ in range(3)]
        message = comm.start("recv", np.empty(4), from_=1 - rank)
        time.sleep(patience(0.3))  # they wait in them on both ranks
        comm = comm.shrink()
        for call in (*started, message):
            assert call.done()
            with pytest.raises((collops.PeerLostError, collops.AbortedError)):
                call.wait()
        return check(comm)

    assert run_ranks(work, 3, threads=threads) == [[0, 1], [0, 1], None]


@MODES
def test_a_rank_in_no_call_comes_later(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        comm.barrier()
        if rank == 2:
            comm.close()
            return None
        time.sleep(0.5 * rank)
        return check(comm.shrink())

    assert run_ranks(work, 3, threads=threads) == [[0, 1], [0, 1], None]


@MODES
def test_a_rank_that_does_not_come_is_left_out(threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = collops.init()
        comm.barrier()
        if rank != 1:
            return check(comm.shrink(timeout_s=patience(1)))
        time.sleep(patience(4))
        assert told(comm.barrier)
        return told(comm.shrink)

    late = (
        "ERROR_TIMEOUT shrink: the other ranks go on without rank 1, which had not called it when"
    )
    zero, one, two = run_ranks(work, 3, threads=threads)
    assert (zero, two) == ([0, 2], [0, 2])
    # Where ranks are threads the others have ended its communicator.
    assert one.startswith(late) or threads


def test_again_and_again_and_of_a_part() -> None:
    def work(rank: int) -> Any:
        comm = collops.init().split(0, key=-rank)  # old ranks 3, 2, 1, 0
        assert comm is not None
        found = []
        for leaving in (3, 1, 0):
            if rank == leaving:
                comm.close()
                return found
            comm = comm.shrink()
            found.append(check(comm))
        return found

    assert run_ranks(work, 4) == [
        [[1, 2, 3], [0, 2]],
        [[1, 2, 3]],
        [[1, 2, 3], [0, 2], [0]],
        [],
    ]


def test_a_second_thread() -> None:
    refused = Event()

    def work(rank: int) -> Any:
        comm = collops.init()
        comm.barrier()
        if rank == 1:
            assert refused.wait(patience(30))
            return check(comm.shrink())
        found: list[Any] = []
        first = threading.Thread(target=lambda: found.append(check(comm.shrink())))
        first.start()
        time.sleep(patience(0.5))
        found.append(told(comm.shrink))
        refused.set()
        first.join()
        return found

    [heard, left], other = run_ranks(work, 2)
    assert "another thread is in a call of rank 0" in heard
    assert (left, other) == ([0, 1], [0, 1])


def test_ucx_on_one_host() -> None:
    def work(rank: int) -> Any:
        comm = collops.init(backend="ucx")
        comm.barrier()
        if rank == 0:
            comm.close()
            return None
        comm = comm.shrink()
        assert comm.backend == "ucx"
        return check(comm)

    assert run_ranks(work, 3) == [None, [1, 2], [1, 2]]
