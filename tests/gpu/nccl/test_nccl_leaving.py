"""Backend nccl: messages with a rank that leaves, and those that do not need one."""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import RankErrors, run_ranks
from patience import patience
from tests.gpu.gpu_ranks import Word, gather, numbers, start
from tests.programs import FORK


def test_messages_of_two_ranks_do_not_need_a_third(gpu: Any) -> None:
    def work(rank: int) -> Any:
        comm = start(gpu, "nccl", rank, 3)
        comm.barrier()
        x = gpu.tensor(numbers(rank, 5, "float32"))
        if rank == 2:
            return None
        time.sleep(0.5)
        if rank == 0:
            comm.send(x, 1)
            return gpu.array(x)
        out = gpu.poisoned((5,), x)
        comm.recv(out, 0)
        return gpu.array(out)

    sent, received, _ = run_ranks(work, 3)
    np.testing.assert_array_equal(received, sent)


def test_a_message_with_a_rank_that_has_left_fails_at_once(gpu: Any) -> None:
    word = Word()

    def work(rank: int) -> float:
        comm = start(gpu, "nccl", rank, 2)
        comm.barrier()
        if rank == 1:
            comm.close()
            word.say()
            return 0
        word.hear()
        begin = time.monotonic()
        with pytest.raises(collops.PeerLostError, match="rank 1 .*has left"):
            comm.recv(gpu.poisoned((5,), gpu.tensor(np.ones(1, np.float32))), 1)
        return time.monotonic() - begin

    assert run_ranks(work, 2)[0] < 40


def test_a_message_that_waits_for_a_rank_ends_when_that_rank_leaves(gpu: Any) -> None:
    def work(rank: int) -> float:
        comm = start(gpu, "nccl", rank, 2)
        comm.barrier()
        begin = time.monotonic()
        if rank == 1:
            time.sleep(0.5)
            return 0
        with pytest.raises(collops.PeerLostError, match="rank 1 .*has left"):
            comm.recv(gpu.poisoned((5,), gpu.tensor(np.ones(1, np.float32))), 1)
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            comm.barrier()
        return time.monotonic() - begin

    assert run_ranks(work, 2)[0] < 40


def test_a_rank_that_was_killed_is_not_waited_for_in_close(gpu: Any) -> None:
    """Though no call has failed: ncclCommDestroy would wait for it."""
    killed, meet = FORK.Value("i", 0), FORK.Barrier(3)

    def work(rank: int) -> None:
        comm = start(gpu, "nccl", rank, 3)
        gpu.array(gather(comm, gpu, rank))
        if rank == 1:
            killed.value = os.getpid()
        meet.wait(patience(60))
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        end = os.pidfd_open(killed.value)
        assert select.select([end], [], [], patience(60))[0]
        comm.close()

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 3, timeout=patience(60))
    assert list(errors.value.errors) == [1], errors.value
