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


def param(rank: int, ranks: int, **fields: Any) -> collops.AllGatherVParam:
    return collops.AllGatherVParam(rank=rank, rank_size=ranks, **fields)


def error_of(call: Any) -> collops.Error:
    with pytest.raises(collops.Error) as caught:
        call()
    return caught.value


def test_domains_live_side_by_side(npu: Any) -> None:
    def work(rank: int) -> tuple[list[int], list[int], int]:
        npu.choose(rank)
        one = collops.Operation(param(rank, 2, comm_domain="one"))
        two = collops.Operation(param(rank, 2, comm_domain="two"))
        again = collops.Operation(param(rank, 2, comm_domain="one"))
        first = npu.gather(one, rank, 2, 3)
        assert npu.gather(again, rank, 2, 3) == first
        return first, npu.gather(two, rank, 2, 5), npu.live_communicators()

    assert run_ranks(work, 2) == [(npu.gathered(2, 3), npu.gathered(2, 5), 2)] * 2


def test_shared_memory_and_hccl_have_a_domain_of_one_name_each(npu: Any) -> None:
    def work(rank: int) -> list[int]:
        npu.choose(rank)
        comm = collops.init(comm_domain="same")
        assert comm.all_gatherv(np.array([rank])).tolist() == [0, 1]
        return npu.gather(collops.Operation(param(rank, 2, comm_domain="same")), rank, 2)

    assert run_ranks(work, 2) == [npu.gathered(2)] * 2


def hccl_group(torch: ModuleType, rank: int, folder: Any) -> int:
    """The HcclComm of torch_npu's process group."""
    dist = torch.distributed
    dist.init_process_group("hccl", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    backend = dist.group.WORLD._get_backend(torch.device("npu"))
    return int(backend.get_hccl_comm(rank))


@pytest.mark.parametrize("check", ["0", "1"])
def test_a_handed_in_communicator_stays_the_callers(
    npu: Any, torch_module: ModuleType, tmp_path: Any, check: str
) -> None:
    def work(rank: int) -> tuple[list[int], int, int]:
        npu.choose(rank)
        comm = hccl_group(torch_module, rank, tmp_path)
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
        comm = hccl_group(torch_module, rank, tmp_path)
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
        comm = hccl_group(torch_module, rank, tmp_path)
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
    def work(rank: int) -> tuple[int, str, int, float]:
        npu.choose(rank)
        op = collops.Operation(param(rank, 3))
        first = npu.gather(op, rank, 3)
        pids = collops.init(comm_domain="pids").all_gatherv(np.array([os.getpid()]))
        assert first == npu.gathered(3)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        wait_for_end(int(pids[1]))
        start = time.monotonic()
        error = error_of(lambda: npu.gather(op, rank, 3))
        again = error_of(lambda: npu.gather(op, rank, 3))
        assert "this communicator has ended" in again.message
        return error.code, error.message, int(pids[1]), time.monotonic() - start

    with pytest.raises(collops.testing.RankErrors) as caught:
        run_ranks(lambda rank: report(work(rank)), 3)
    errors = caught.value.errors
    for rank in (0, 2):
        code, message, pid, seconds = eval(str(errors[rank]))
        assert code == 101
        # Seen by this rank itself, or by the other one before.
        assert message.startswith("AllGatherV: ")
        assert f": rank 1 (pid {pid}) exited without reporting an error" in message
        assert seconds < patience(3)


def wait_for_end(pid: int) -> None:
    """Until all threads of the process have ended."""
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(pid)], [], [])


def report(result: Any) -> None:
    """Raises a result: run_ranks returns none when a rank has died."""
    raise RuntimeError(repr(result))


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
