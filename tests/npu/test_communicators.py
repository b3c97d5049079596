"""Communicators of the hccl backend: made by first contact or handed in, lost, late and let go."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import threading
import time
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.devices.on_npu import POISON
from tests.npu.npu_ranks import error_of, hccl_group


def param(rank: int, ranks: int, **fields: Any) -> collops.AllGatherVParam:
    return collops.AllGatherVParam(rank=rank, rank_size=ranks, **fields)


def test_shared_memory_and_hccl_have_a_domain_of_one_name_each(npu: Any) -> None:
    def work(rank: int) -> list[int]:
        npu.choose(rank)
        comm = collops.init(comm_domain="same")
        assert comm.all_gatherv(np.array([rank])).tolist() == [0, 1]
        return npu.gather(collops.Operation(param(rank, 2, comm_domain="same")), rank, 2)

    assert run_ranks(work, 2) == [npu.gathered(2)] * 2


@pytest.mark.parametrize("check", ["0", "1"])
def test_a_handed_in_communicator_stays_the_callers(
    npu: Any, torch_module: ModuleType, tmp_path: Any, check: str
) -> None:
    def work(rank: int) -> tuple[list[int], int, int]:
        npu.choose(rank)
        comm = hccl_group(torch_module, rank, 2, tmp_path)
        op = collops.Operation(collops.AllGatherVParam(hccl_comm=comm))
        other = collops.Operation(param(rank, 2, hccl_comm=comm))
        result = npu.gather(op, rank, 2, 7)
        assert npu.gather(other, rank, 2, 7) == result
        before = npu.live_communicators()
        del op, other
        collops.core.core().close_all("test")
        return result, before, npu.live_communicators()

    results = run_ranks(work, 2, env={"COLLOPS_CHECK": check})
    assert results == [(npu.gathered(2, 7), 1, 1)] * 2


def test_rank_and_rank_size_may_be_left_to_a_handed_in_communicator(
    npu: Any, torch_module: ModuleType, tmp_path: Any
) -> None:
    def work(rank: int) -> list[float]:
        npu.choose(rank)
        comm = hccl_group(torch_module, rank, 2, tmp_path)
        op = collops.Operation(collops.ReduceScatterVParam(hccl_comm=comm))
        collops.Operation(collops.AllReduceParam(hccl_comm=comm))
        collops.Operation(collops.LinearParallelParam(hccl_comm=comm))
        x = npu.tensor(np.full((3, 1), rank + 1, np.float32))
        counts = np.array([2, 1])
        y = np.empty(int(counts[rank]), np.float16)
        [out] = op.forward([x, counts, np.array([0, 2]), counts[rank : rank + 1], y])
        return [float(value) for value in npu.array(out).reshape(-1)]

    assert run_ranks(work, 2) == [[3.0, 3.0], [3.0]]


def test_a_handed_in_communicator_is_not_contradicted(
    npu: Any, torch_module: ModuleType, tmp_path: Any
) -> None:
    def work(rank: int) -> list[tuple[int, str]]:
        npu.choose(rank)
        comm = hccl_group(torch_module, rank, 2, tmp_path)
        wrong = [
            collops.AllGatherVParam(rank=1 - rank, hccl_comm=comm),
            collops.AllGatherVParam(rank_size=3, hccl_comm=comm),
        ]
        errors = [error_of(lambda one=one: collops.Operation(one)) for one in wrong]
        return [(error.code, error.message) for error in errors]

    for rank, errors in enumerate(run_ranks(work, 2)):
        assert [code for code, _ in errors] == [1, 1]
        assert f"rank is {1 - rank} but hcclComm is rank {rank}" in errors[0][1]
        assert "rankSize is 3 but hcclComm has 2 ranks" in errors[1][1]


@pytest.mark.parametrize("backend", ["shm", "hccl"])
def test_a_closed_communicators_handle_is_no_hcclcomm(npu: Any, backend: str) -> None:
    def work(rank: int) -> list[str]:
        npu.choose(rank)
        comm = collops.init(backend=backend, comm_domain="gone")
        handle = comm.handle
        comm.close()
        del comm
        collops.init(comm_domain="next")  # the registry lets go of the closed one
        wrong = collops.AllGatherVParam(hccl_comm=handle)
        return [error_of(lambda: collops.Operation(wrong)).message for _ in range(2)]

    for messages in run_ranks(work, 2):
        for message in messages:
            assert "is not an open communicator of this process" in message


def test_a_dead_rank_is_reported_at_the_next_call(npu: Any) -> None:
    def work(rank: int) -> None:
        npu.choose(rank)
        op = collops.Operation(param(rank, 3))
        pids = collops.init(comm_domain="pids").all_gatherv(np.array([os.getpid()]))
        assert npu.gather(op, rank, 3) == npu.gathered(3)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):  # until all its threads have ended
            select.select([os.pidfd_open(int(pids[1]))], [], [])
        start = time.monotonic()
        error = error_of(lambda: npu.gather(op, rank, 3))
        again = error_of(lambda: npu.gather(op, rank, 3))
        assert time.monotonic() - start < patience(3)
        # Seen by this rank itself, or by the other one before.
        lost = f": rank 1 (pid {pids[1]}) exited without reporting an error"
        assert error.code == 101 and error.message.startswith("AllGatherV: "), error.message
        assert lost in error.message, error.message
        assert "this communicator has ended" in again.message

    with pytest.raises(collops.testing.RankErrors) as caught:
        run_ranks(work, 3)
    assert list(caught.value.errors) == [1], caught.value


def test_ranks_that_are_threads_of_one_process(npu: Any) -> None:
    def work(rank: int) -> list[int]:
        npu.choose(rank)
        op = collops.Operation(param(rank, 3, comm_mode=collops.COMM_MULTI_THREAD))
        return npu.gather(op, rank, 3, 4)

    assert run_ranks(work, 3, threads=True) == [npu.gathered(3, 4)] * 3


class HcclComms:
    """Makes HcclComms of ranks that are threads of one process."""

    def __init__(self, npu: Any, ranks: int) -> None:
        self.hccl, self.ranks = npu.open_library("libhccl.so"), ranks
        self.root = ctypes.create_string_buffer(4108)
        self.is_told = threading.Event()

    def make(self, rank: int) -> int:
        """The rank's, once all have come."""
        if rank == 0:
            assert self.hccl.HcclGetRootInfo(self.root) == 0
            self.is_told.set()
        assert self.is_told.wait(patience(10))
        comm = ctypes.c_void_p()
        args = (self.ranks, self.root, rank, ctypes.byref(comm))
        assert self.hccl.HcclCommInitRootInfo(*args) == 0
        return int(comm.value or 0)


@pytest.mark.parametrize("check", ["0", "1"])
def test_threads_may_hand_in_communicators(
    npu: Any, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    monkeypatch.setenv("COLLOPS_CHECK", check)
    comms = HcclComms(npu, 2)

    def work(rank: int) -> list[int]:
        npu.choose(rank)
        comm = comms.make(rank)
        param = collops.AllGatherVParam(hccl_comm=comm, comm_mode=collops.COMM_MULTI_THREAD)
        op = collops.Operation(param)
        return npu.gather(op, rank, 2, 4) + npu.gather(op, rank, 2, 6)

    want = npu.gathered(2, 4) + npu.gathered(2, 6)
    assert run_ranks(work, 2, threads=True) == [want] * 2


def test_a_rank_that_left_after_an_empty_call_is_not_missed_in_it(npu: Any) -> None:
    def work(rank: int) -> list[int]:
        npu.choose(rank)
        comm = collops.init(backend="hccl", timeout_s=patience(10))
        comm.all_reduce(npu.tensor(np.ones(1, np.float32)))
        if rank == 1:
            time.sleep(0.5)
        out = comm.all_gather(npu.tensor(np.empty((0, 4), np.float32)))
        comm.close()
        return list(out.shape)

    assert run_ranks(work, 2) == [[0, 4]] * 2


def test_who_compares_and_who_does_not_is_found_at_first_contact(npu: Any) -> None:
    def work(rank: int) -> tuple[int, str]:
        os.environ["COLLOPS_CHECK"] = str(rank)
        npu.choose(rank)
        op = collops.Operation(param(rank, 2))
        error = error_of(lambda: npu.gather(op, rank, 2))
        return error.code, error.message

    for code, message in run_ranks(work, 2):
        assert code == 102
        assert "COLLOPS_CHECK is 0 on rank 0" in message
        assert "and 1 on rank 1" in message


def test_nothing_moves_where_ranks_disagree(npu: Any) -> None:
    def work(rank: int) -> bool:
        npu.choose(rank)
        comm, sizes = collops.init(backend="hccl"), [2 - rank, 3]
        x = npu.tensor(np.ones(sizes[rank], np.float32))
        out = npu.poisoned((sum(sizes),), x)
        error = error_of(lambda: comm.all_gatherv(x, sizes, out=out))
        assert error.code == 102
        return bool((npu.array(out).view(np.uint8) == POISON).all())

    assert run_ranks(work, 2, env={"COLLOPS_CHECK": "1"}) == [True, True]
