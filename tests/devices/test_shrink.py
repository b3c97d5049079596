"""shrink and grow on every kind of simulated device: what the ranks have then, what is given back,
and what is refused."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from multiprocessing import Barrier, Event
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.conformance.devices import BACKENDS_HERE, HERE

LIMIT_S = patience(60)
BACKENDS = pytest.mark.parametrize("backend", BACKENDS_HERE)
MODES = pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])


def only_on(kind: str) -> Any:
    """Of a test that the other kind of device does not collect (conftest.py)."""

    def note(test: Any) -> Any:
        test.only_on = kind
        return test

    return note


# HCCL has no call that ends one on a stream.
ON_GPUS, ON_NPUS = only_on("gpu"), only_on("npu")


def begin(device: Any, rank: int, backend: str) -> collops.Communicator:
    """A rank's communicator, on the device of its number."""
    device.choose(rank)
    comm = collops.init(backend=backend, comm_domain="dp", timeout_s=LIMIT_S)
    comm.barrier()
    return comm


def numbers(own: int) -> Any:
    """What a rank adds: other numbers than its peers, in every place."""
    return np.arange(1000, dtype=np.int32) + 7 * own


def total(device: Any, comm: collops.Communicator, own: int) -> Any:
    """The output of a sum."""
    x = device.tensor(numbers(own))
    out = device.poisoned((1000,), x)
    comm.all_reduce(x, out=out)
    return out


class Sum:
    """The same as a struct's operation, whose tensors stay where they are."""

    def __init__(self, device: Any, comm: collops.Communicator, own: int) -> None:
        field = {"rank": comm.rank, "rank_size": comm.size, "backend": comm.backend}
        self.op = collops.Operation(collops.AllReduceParam(**field, hccl_comm=comm))
        self.x = device.tensor(numbers(own))
        self.out = device.poisoned((1000,), self.x)
        size = self.op.get_workspace_size([self.x], [self.out])
        self.workspace = device.poisoned((size,), device.tensor(np.zeros(1, np.uint8)))

    def execute(self, stream: Any) -> None:
        self.op.execute([self.x], [self.out], self.workspace, stream=stream)


def check(device: Any, comm: collops.Communicator) -> list[int]:
    """Adds and gathers on the device, and returns who is there."""
    old = comm.old_ranks or tuple(range(comm.size))
    own, sizes = old[comm.rank], [rank + 1 for rank in old]
    x = device.tensor(np.full(own + 1, own, np.int32))
    gathered = device.poisoned((sum(sizes),), x)
    comm.all_gatherv(x, sizes, out=gathered)
    found = [device.array(out) for out in (gathered, *(total(device, comm, own) for _ in range(2)))]
    comm.check()  # of a call that failed nothing is known
    np.testing.assert_array_equal(found[0], np.repeat(old, sizes))
    for sums in found[1:]:
        np.testing.assert_array_equal(sums, sum(numbers(rank) for rank in old))
    return list(old)


def die() -> None:
    """Ends this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def held(device: Any) -> int:
    """How many communicators of HCCL this process has, which keep sockets here until it ends; or
    how many descriptors: memory of simulated GPUs has some, too."""
    return device.live_communicators() if HERE == "npu" else len(os.listdir("/proc/self/fd"))


def survive(ranks: int, killed: list[int], work: Any) -> None:
    """Runs work(rank); all of `killed`, and no other ranks, end by a signal."""
    with pytest.raises(RankErrors) as errors:
        run_ranks(work, ranks, timeout=LIMIT_S)
    assert sorted(errors.value.errors) == killed, errors.value


@BACKENDS
@pytest.mark.parametrize(("ranks", "killed"), [(2, [1]), (4, [0, 2])])
def test_ranks_killed_between_calls(
    device: Any, backend: str, ranks: int, killed: list[int]
) -> None:
    left = [rank for rank in range(ranks) if rank not in killed]

    def work(rank: int) -> None:
        comm = begin(device, rank, backend)
        device.array(total(device, comm, rank))  # the others' parts have come
        if rank in killed:
            die()
        with pytest.raises(collops.PeerLostError):
            comm.barrier()
        device.choose(ranks)  # the device that the rank had counts
        comm = comm.shrink()
        device.choose(rank)
        assert check(device, comm) == left

    survive(ranks, killed, work)


@BACKENDS
@MODES
def test_a_rank_that_leaves(device: Any, backend: str, threads: bool) -> None:
    def work(rank: int) -> Any:
        comm = begin(device, rank, backend)
        device.array(total(device, comm, rank))
        if rank == 1:
            comm.close()
            return None
        comm = comm.shrink()
        found = check(device, comm)
        comm.barrier()
        return found

    assert run_ranks(work, 3, timeout=LIMIT_S, threads=threads) == [[0, 2], None, [0, 2]]


@ON_GPUS
@BACKENDS
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "when its call has ended"])
def test_a_rank_killed_while_the_others_are_in_a_call(
    device: Any, backend: str, waits: bool
) -> None:
    """Their calls wait on streams for it, and end before there is a new group."""

    def work(rank: int) -> None:
        comm, stream = begin(device, rank, backend), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        comm.barrier()
        if rank == 1:
            time.sleep(0.3)
            die()
        begun = time.monotonic()
        with contextlib.suppress(collops.PeerLostError):  # at once, if it is dead already
            call.execute(stream)
        if waits:
            stream.synchronize()  # the watcher aborts
            with pytest.raises(collops.PeerLostError):
                comm.barrier()
        while time.monotonic() - begun < 0.4:
            time.sleep(0.01)
        old, comm = comm, comm.shrink()
        assert check(device, comm) == [0, 2]
        assert stream.synchronize() is None
        with pytest.raises(collops.Error, match="has ended"):
            old.barrier()
        assert time.monotonic() - begun < LIMIT_S / 2

    survive(3, [1], work)


@ON_GPUS
@BACKENDS
@pytest.mark.parametrize("after_s", [0.002, 0.02, 0.05])
def test_a_rank_killed_in_shrink_or_soon_after(device: Any, backend: str, after_s: float) -> None:
    """While the new group meets, or connects on the device, or in its calls."""

    def work(rank: int) -> None:
        comm = begin(device, rank, backend)
        device.array(total(device, comm, rank))
        if rank == 0:
            die()
        with pytest.raises(collops.PeerLostError):
            comm.barrier()
        if rank == 2:
            threading.Timer(after_s, die).start()
        names, found = list(range(4)), False
        while not found or len(names) != 2:
            comm = comm.shrink()
            names = [names[old] for old in comm.old_ranks]
            found = False
            with contextlib.suppress(collops.PeerLostError, collops.AbortedError):
                check(device, comm)
                comm.barrier()
                found = True
        assert names == [1, 3]

    survive(4, [0, 2], work)


@BACKENDS
@MODES
def test_ranks_of_a_healthy_group_are_excluded(device: Any, backend: str, threads: bool) -> None:
    def work(rank: int) -> Any:
        comm, stream = begin(device, rank, backend), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        if rank == 2:
            while True:  # until it hears of it
                try:
                    comm.barrier()
                except collops.Error as error:
                    heard = error.name
                    break
            with pytest.raises(collops.AbortedError):
                comm.shrink()
            return heard
        comm = comm.shrink(exclude=[2])
        np.testing.assert_array_equal(device.array_on(stream, call.out), 3 * numbers(1))
        return check(device, comm)

    assert run_ranks(work, 3, timeout=LIMIT_S, threads=threads) == [[0, 1], [0, 1], "ERROR_ABORTED"]


@ON_GPUS
@BACKENDS
@MODES
def test_an_excluded_rank_has_not_made_a_call(device: Any, backend: str, threads: bool) -> None:
    """Which the others have on their streams."""

    def work(rank: int) -> Any:
        comm, stream = begin(device, rank, backend), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        begun = time.monotonic()
        if rank == 2:
            with pytest.raises(collops.AbortedError):
                while True:
                    comm.check()
                    time.sleep(0.01)
            return None
        call.execute(stream)
        comm = comm.shrink(exclude=[2])
        assert time.monotonic() - begun < LIMIT_S / 2
        stream.synchronize()
        return check(device, comm)

    assert run_ranks(work, 3, timeout=LIMIT_S, threads=threads) == [[0, 1], [0, 1], None]


@BACKENDS
@MODES
def test_nothing_is_left_of_the_groups_before(device: Any, backend: str, threads: bool) -> None:
    def work(rank: int) -> None:
        comm = begin(device, rank, backend)
        x = device.tensor(numbers(rank))
        out = device.poisoned((1000,), x)
        for turn in range(25):  # regions of backend cuda that were not given back take another slab
            comm = comm.shrink()
            comm.all_reduce(x, out=out)
            assert np.array_equal(device.array(out), 3 * numbers(1))
            comm.barrier()
            if turn == 2:
                time.sleep(patience(0.2))  # what is aborted ends by itself
                before = held(device)
        limit = time.monotonic() + patience(5)
        while held(device) > before:
            assert time.monotonic() < limit, f"{held(device)} > {before}"
            time.sleep(0.01)
        comm.barrier()

    run_ranks(work, 3, timeout=LIMIT_S, threads=threads)


@ON_GPUS
@BACKENDS
def test_a_new_process_takes_the_place_of_a_lost_one(device: Any, backend: str) -> None:
    def work(process: int) -> None:
        device.choose(process)
        if process == 3:
            comm = collops.init(backend=backend, join="dp", timeout_s=LIMIT_S)
            assert check(device, comm) == [0, 1, 2]
            return
        comm = collops.init(process, 3, backend=backend, comm_domain="dp", timeout_s=LIMIT_S)
        device.array(total(device, comm, process))
        if process == 1:
            die()
        with pytest.raises(collops.PeerLostError):
            comm.barrier()
        comm = comm.shrink().grow(1)
        assert (comm.rank, check(device, comm)) == (process // 2, [0, 1, 2])

    survive(4, [1], work)


@ON_NPUS
def test_no_new_process_joins_on_npus(device: Any) -> None:
    def work(rank: int) -> Any:
        comm = begin(device, rank, "hccl")
        with pytest.raises(collops.UnsupportedError, match="grow: backend hccl cannot make"):
            comm.grow(1)
        return check(device, comm)

    assert run_ranks(work, 2, timeout=LIMIT_S) == [[0, 1]] * 2


@BACKENDS
def test_a_stream_that_does_not_end_is_an_error(device: Any, backend: str) -> None:
    def work(rank: int) -> Any:
        comm, stream = begin(device, rank, backend), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        comm.barrier()
        if rank != 0:
            comm = comm.shrink(timeout_s=patience(2))
            return check(device, comm)
        with device.held(stream):
            call.execute(stream)
            with pytest.raises(collops.RankTimeoutError) as error:
                comm.shrink(timeout_s=0.5)
        return error.value.message.partition(" within")[0]

    said, *others = run_ranks(work, 3, timeout=LIMIT_S)
    assert said == "shrink: AllReduce (call 4) did not end on its stream"
    assert others == [[1, 2], [1, 2]]


@ON_NPUS
def test_a_call_that_failed_on_an_npu_is_an_error(device: Any) -> None:
    has_begun = Event()

    def work(rank: int) -> None:
        comm, stream = begin(device, rank, "hccl"), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        if rank == 1:
            assert has_begun.wait(LIMIT_S)
            die()
        call.execute(stream)
        has_begun.set()
        with pytest.raises(RuntimeError):
            stream.synchronize()
        words = r"shrink: an earlier call failed, AllReduce .*HCCL_E_REMOTE.*; nothing ends it: end"
        with pytest.raises(collops.Error, match=words):
            comm.shrink()

    survive(2, [1], work)


@ON_GPUS
@BACKENDS
def test_a_graph_of_the_old_group_waits_for_nobody(device: Any, backend: str) -> None:
    def work(rank: int) -> Any:
        comm, stream = begin(device, rank, backend), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        with device.captured(stream) as graph:
            call.execute(stream)
        comm.barrier()
        if rank == 1:
            graph.destroy()
            comm.close()
            return None
        comm = comm.shrink()
        graph.replay(stream)
        stream.synchronize()
        graph.destroy()
        return check(device, comm)

    assert run_ranks(work, 3, timeout=LIMIT_S) == [[0, 2], None, [0, 2]]


@ON_GPUS
@BACKENDS
def test_an_old_graph_writes_to_no_memory_of_a_new_group(device: Any, backend: str) -> None:
    """Rank 1, and then rank 2, replays one where its call has begun and that of others has not."""
    meet = Barrier(3)

    def work(rank: int) -> Any:
        comm, stream, old = begin(device, rank, backend), device.stream(), device.stream()
        call = Sum(device, comm, rank)
        call.execute(stream)
        stream.synchronize()
        if rank > 0:
            with device.captured(old) as graph:
                call.execute(old)
        comm.barrier()
        for _ in range(2):  # memory goes from a group to the next but one
            comm = comm.shrink()
            assert check(device, comm) == [0, 1, 2]
            comm.barrier()
        for first in (1, 2):  # in two steps in turn, as what they write is for every other one
            call = Sum(device, comm, rank)
            meet.wait(LIMIT_S)
            if rank == first:
                call.execute(stream)
                time.sleep(0.1)  # it waits for the others now
                graph.replay(old)
                old.synchronize()
            meet.wait(LIMIT_S)
            if rank != first:
                call.execute(stream)
            np.testing.assert_array_equal(device.array_on(stream, call.out), 3 * numbers(1))
        if rank > 0:
            graph.destroy()
        return check(device, comm)

    assert run_ranks(work, 3, timeout=LIMIT_S) == [[0, 1, 2]] * 3
