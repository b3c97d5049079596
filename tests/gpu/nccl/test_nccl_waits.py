"""Backend nccl: calls that wait for ranks inside NCCL, on the host, and how these waits end."""

from __future__ import annotations

import ctypes
import os
import re
import time
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience
from tests.gpu.gpu_ranks import Word, numbers, start


def test_nccl_starts_no_threads_for_calls(gpu: Any) -> None:
    def work(rank: int) -> int:
        comm = start(gpu, "nccl", rank, 4)
        x = gpu.tensor(numbers(rank, 12, "float32"))
        part = comm.split(rank % 2)
        for one in (comm, part):
            one.all_reduce(x)
            one.all_gatherv(x, [12] * one.size)
            one.reduce_scatterv(x, [12 // one.size] * one.size)
        gpu.cuda.call("cuCtxSynchronize")
        return int(ctypes.CDLL("libnccl.so.2").SimNcclThreads())

    assert run_ranks(work, 4) == [0] * 4


@pytest.mark.parametrize("name", ["all_gatherv", "recv"])
def test_a_wait_for_a_rank_that_does_not_come_ends_at_the_time_out(gpu: Any, name: str) -> None:
    def work(rank: int) -> tuple[str, bool]:
        comm = start(gpu, "nccl", rank, 2)
        x = gpu.tensor(numbers(rank, 4, "float32"))
        begun = time.monotonic()
        if rank == 0:
            comm.timeout_s = 1
            with pytest.raises(collops.RankTimeoutError) as error:
                comm.all_gatherv(x, [4, 4]) if name == "all_gatherv" else comm.recv(x, 1)
            return str(error.value), time.monotonic() - begun < patience(10)
        time.sleep(patience(4))
        return "", True

    text, in_time = run_ranks(work, 2)[0]
    assert in_time and re.match(f"{name}: .*timed out.* after 1 s", text)


def test_a_rank_that_nccl_cannot_connect_ends_the_others_wait(gpu: Any) -> None:
    def work(rank: int) -> str:
        if rank == 1:
            os.environ["COLLOPS_SIM_FAIL"] = "ncclCommInitRankConfig:1:3"
        with pytest.raises(collops.Error) as error:
            start(gpu, "nccl", rank, 2)
        return str(error.value)

    for text in run_ranks(work, 2):
        assert "ncclCommInitRankConfig failed: internal error" in text


def test_no_memory_is_taken_while_a_call_waits_for_a_rank(gpu: Any) -> None:
    """Not from the driver: it might wait for that call, and so for a rank of this process."""
    word = Word()

    def work(rank: int) -> int:
        comm = start(gpu, "nccl", rank, 2)
        x = gpu.tensor(numbers(rank, 4, "float32"))
        comm.all_gatherv(x, [4, 4])
        other = start(gpu, "nccl", rank, 2, "other")
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 1:
            word.hear()
            time.sleep(0.3)
        begun = time.monotonic()
        comm.all_gatherv(x, [4, 4])
        if rank == 0:
            while gpu.cuda.waiting_kernels() == 0:
                time.sleep(0.001)
            word.say()
            collops.cuda_empty(100 << 20, np.uint8, device=0)
            assert time.monotonic() - begun > 0.2
        gpu.cuda.call("cuCtxSynchronize")
        other.close()
        return int(gpu.mistakes())

    assert run_ranks(work, 2) == [0, 0]


def test_a_group_closes_while_another_ones_call_waits(gpu: Any) -> None:
    word = Word()

    def work(rank: int) -> int:
        comm = start(gpu, "nccl", rank, 2)
        other = start(gpu, "nccl", rank, 2, "other")
        x = gpu.tensor(numbers(rank, 4, "float32"))
        comm.all_gatherv(x, [4, 4])
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 1:
            other.close()
            word.hear()
        comm.all_gatherv(x, [4, 4])
        if rank == 0:
            while gpu.cuda.waiting_kernels() == 0:
                time.sleep(0.001)
            other.close()
            word.say()
        gpu.cuda.call("cuCtxSynchronize")
        return int(gpu.mistakes())

    assert run_ranks(work, 2) == [0, 0]
