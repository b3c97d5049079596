"""Backend cuda: the kernels compare the calls; what they find is the next call's error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from tests.gpu.gpu_ranks import gather, numbers, start


def gathered(gpu: Any, comm: Any, rank: int, sizes: list[int]) -> bool:
    """Whether nothing has moved."""
    out = gather(comm, gpu, rank, sizes, sizes[rank])
    return bool((gpu.array(out).view(np.uint8) == 0xA5).all())


@pytest.mark.parametrize("count", [3, 5000])
def test_ranks_that_disagree_are_named_by_the_next_call(gpu: Any, count: int) -> None:
    def work(rank: int) -> tuple[bool, str]:
        comm = start(gpu, "cuda", rank, 3)
        assert not gathered(gpu, comm, rank, [count, 2, 2])
        sizes = [count, 2, 4] if rank == 1 else [count, 2, 3]
        nothing_moved = gathered(gpu, comm, rank, sizes)
        with pytest.raises(collops.RankMismatchError) as error:
            comm.barrier()
        return nothing_moved, str(error.value)

    for nothing_moved, text in run_ranks(work, 3):
        assert nothing_moved
        assert "sizes[2] is 3 on rank 0" in text and "4 on rank 1" in text
        assert "call 2" in text


def test_another_call_is_a_disagreement(gpu: Any) -> None:
    def work(rank: int) -> str:
        comm = start(gpu, "cuda", rank, 2)
        x = gpu.tensor(numbers(rank, 6, "float32"))
        if rank == 0:
            comm.all_reduce(x, out=gpu.poisoned((6,), x))
        else:
            comm.reduce_scatterv(x, [3, 3], out=gpu.poisoned((3,), x))
        gpu.cuda.call("cuCtxSynchronize")
        with pytest.raises(collops.RankMismatchError) as error:
            comm.barrier()
        return str(error.value)

    for text in run_ranks(work, 2):
        assert "all_reduce" in text and "reduce_scatterv" in text


def test_what_ranks_send_and_expect_is_compared(gpu: Any) -> None:
    def work(rank: int) -> str:
        comm = start(gpu, "cuda", rank, 2)
        x = gpu.tensor(numbers(rank, 7, "float32"))
        receives = [3, 5] if rank == 0 else [4, 4]
        comm.all_to_allv(x, [3, 4], receives, out=gpu.poisoned((sum(receives),), x))
        gpu.cuda.call("cuCtxSynchronize")
        with pytest.raises(collops.RankMismatchError) as error:
            comm.barrier()
        return str(error.value)

    for text in run_ranks(work, 2):
        assert "on rank 1" in text and "3" in text and "5" in text


def test_too_many_ranks(gpu: Any) -> None:
    def work(_: int) -> str:
        gpu.choose(0)
        with pytest.raises(collops.UnsupportedError) as error:
            collops.init(0, 33, backend="cuda", comm_domain="many")
        return str(error.value)

    assert "at most 32 ranks, got 33" in run_ranks(work, 1)[0]
