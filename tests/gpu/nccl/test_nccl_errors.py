"""Backend nccl: lost and late ranks end calls on streams; refusals; ranks that disagree."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from nccl_ranks import Word, numbers

import collops
from collops.testing import RankErrors, run_ranks


def gather(comm: Any, gpu: Any, rank: int) -> Any:
    x = gpu.tensor(numbers(rank, 3, "float32"))
    out = gpu.poisoned((6,), x)
    comm.all_gatherv(x, [3, 3], out=out)
    return out


def test_a_call_whose_peer_never_makes_it_ends_at_the_time_out(gpu: Any) -> None:
    word = Word()

    def work(rank: int) -> str:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend="nccl", comm_domain="late", timeout_s=60)
        gather(comm, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 1:
            word.hear()
            return ""
        comm.timeout_s = 5
        gather(comm, gpu, rank)
        gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts; the simulation waits for 60 s
        with pytest.raises(collops.Error) as error:
            comm.barrier()
        word.say()
        return error.value.name

    assert run_ranks(work, 2)[0] == "ERROR_TIMEOUT"


def test_a_rank_that_dies_ends_the_calls_of_the_others(gpu: Any) -> None:
    """They wait on their streams, where NCCL alone would leave them for ever."""

    def work(rank: int) -> None:
        gpu.choose(rank)
        comm = collops.init(rank, 3, backend="nccl", comm_domain="dead", timeout_s=60)
        x = gpu.tensor(numbers(rank, 2, "float32"))
        out = gpu.poisoned((6,), x)
        comm.all_gatherv(x, [2, 2, 2], out=out)
        gpu.cuda.call("cuCtxSynchronize")
        if rank == 2:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        with pytest.raises(collops.PeerLostError, match="rank 2"):
            comm.all_gatherv(x, [2, 2, 2], out=out)
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts; the simulation waits for 60 s
            comm.barrier()

    with pytest.raises(RankErrors) as errors:
        run_ranks(work, 3)
    assert list(errors.value.errors) == [2]


def test_ranks_that_disagree_are_named_with_check(gpu: Any) -> None:
    def work(rank: int) -> str:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend="nccl", comm_domain="check")
        x = gpu.tensor(numbers(rank, 3, "float32"))
        sizes = [3, 3] if rank else [3, 4]
        with pytest.raises(collops.RankMismatchError) as error:
            comm.all_gatherv(x, sizes, out=gpu.poisoned((sum(sizes),), x))
        return str(error.value)

    for text in run_ranks(work, 2, env={"COLLOPS_CHECK": "1"}):
        assert "sizes[1]" in text and "4" in text and "3" in text


def test_without_check_a_refusal_ends_the_group(gpu: Any) -> None:
    def work(rank: int) -> str:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend="nccl", comm_domain="refusal", timeout_s=60)
        comm.barrier()
        x = gpu.tensor(numbers(rank, 3, "float32"))
        if rank == 1:
            with pytest.raises(collops.ArgumentError):
                comm.all_gatherv(x, [3, 4], out=gpu.poisoned((7,), x))
            return ""
        with pytest.raises(collops.Error) as error:  # by this call, if it comes after the refusal
            comm.all_gatherv(x, [3, 3], out=gpu.poisoned((6,), x))
            gpu.cuda.call("cuCtxSynchronize")  # the watcher aborts
            comm.barrier()
        return str(error.value)

    assert "sizes[1] is 4" in run_ranks(work, 2)[0]


def test_a_tensor_of_another_gpu_names_both(gpu: Any) -> None:
    def work(rank: int) -> str:
        gpu.choose(rank)
        comm = collops.init(rank, 2, backend="nccl", comm_domain="other")
        comm.barrier()
        gpu.choose(3)
        x = gpu.tensor(np.ones(3, np.float32))
        gpu.choose(rank)
        with pytest.raises(collops.Error) as error:
            comm.all_gatherv(x, [3, 3], out=gpu.poisoned((6,), x))
        return str(error.value)

    for rank, text in enumerate(run_ranks(work, 2)):
        assert "cuda:3" in text and f"cuda:{rank}" in text
