"""Every call of torch.distributed on NPU tensors gives the bits that it gives on CPU tensors."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_calls import CALLS, compared
from groups import default_group
from npu_groups import BOTH, run_npu_group


def outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    return compared(rank, size, f"npu:{rank}")


@functools.cache
def outcomes_of_ranks(size: int) -> list[dict[str, tuple[Any, Any]]]:
    return run_npu_group(outcomes, size, size)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CALLS)
def test_a_call(name: str, size: int) -> None:
    for rank, found in enumerate(outcomes_of_ranks(size)):
        on_cpu, on_npu = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        assert on_npu == on_cpu, f"rank {rank}"


@pytest.mark.parametrize("backend", ["collops", BOTH, "cpu:collops,npu:collops"])
def test_names_of_the_backend(backend: str) -> None:
    def work(rank: int) -> tuple[list[float], list[float], str]:
        group, x, y = default_group(), torch.ones(2).npu(), torch.ones(2)
        dist.all_reduce(x)
        dist.all_reduce(y)
        return x.tolist(), y.tolist(), group.communicator_for(x.device).backend

    assert run_npu_group(work, 2, backend=backend) == [([2, 2], [2, 2], "hccl")] * 2


def test_tensors_may_be_named() -> None:
    def work(rank: int) -> tuple[list[float], list[float]]:
        group, x = default_group(), torch.full((2,), float(rank)).npu()
        out, own = torch.empty(4, device="npu"), torch.empty(2, device="npu")
        group.all_gather_single(output=out, input=x).wait()
        if rank == 0:
            group.send(tensors=[x + 7], dstRank=1, tag=0).wait()
        else:
            group.recv(tensors=[own], srcRank=0, tag=0).wait()
        return out.tolist(), own.tolist() if rank else []

    assert run_npu_group(work, 2) == [([0, 0, 1, 1], []), ([0, 0, 1, 1], [7, 7])]


def test_objects_and_barriers() -> None:
    def work(rank: int) -> list[Any]:
        every: list[Any] = [None] * 2
        dist.all_gather_object(every, {"rank": rank})
        x = torch.ones(1).npu()
        dist.all_reduce(x)
        dist.barrier()
        return [*every, x.item()]

    assert run_npu_group(work, 2) == [[{"rank": 0}, {"rank": 1}, 2.0]] * 2


def test_the_last_calls_are_listed() -> None:
    def work(rank: int) -> list[str]:
        import collops.torch

        dist.all_reduce(torch.ones(4, 3).npu())
        dist.all_reduce(torch.ones(2))
        return collops.torch.last_calls()

    want = ["1 all_reduce [4, 3] float32", "2 all_reduce [2] float32"]
    assert run_npu_group(work, 2) == [want] * 2
