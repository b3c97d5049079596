"""torch.ops.collops and its gradients on NPU tensors, against the same on CPU tensors."""

from __future__ import annotations

import functools
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_operators import ROWS, outcomes
from groups import default_group
from npu_groups import run_npu_group

import collops
import collops.torch as ct
from collops.testing import run_ranks


@functools.cache
def outcomes_of_ranks(size: int) -> list[dict[str, tuple[Any, Any]]]:
    def work(rank: int) -> dict[str, tuple[Any, Any]]:
        return outcomes(rank, size, f"npu:{rank}")

    return run_npu_group(work, size)


@pytest.mark.parametrize(("name", "size"), ROWS)
def test_an_operator(name: str, size: int) -> None:
    for rank, found in enumerate(outcomes_of_ranks(size)):
        on_cpu, on_npu = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        assert on_npu == on_cpu, f"rank {rank}"


def test_a_communicator_of_the_backend_hccl() -> None:
    """Without a group of torch.distributed."""

    def work(rank: int) -> tuple[list[float], list[float]]:
        torch.npu.set_device(rank)
        with collops.init(backend="hccl") as comm:
            x = torch.full((rank + 1,), float(rank)).npu().requires_grad_()
            every = ct.all_gatherv(x, group=comm)
            (every * (rank + 1)).sum().backward()
            assert x.grad is not None
            return every.tolist(), x.grad.tolist()

    assert run_ranks(work, 2) == [([0, 1, 1], [3]), ([0, 1, 1], [3, 3])]


def test_an_operator_comes_after_the_calls_of_its_group(npu: Any) -> None:
    """HCCL's simulation keeps its own calls in order; so other work is looked at."""

    def work(rank: int) -> tuple[bool, list[float]]:
        group, x, y = default_group(), torch.ones(2).npu(), torch.ones(2).npu()
        dist.all_reduce(x, async_op=True).wait()
        stream = group._device_calls([x]).streams.own
        torch.npu.synchronize()
        with npu.held(stream):
            call = dist.all_reduce(x, async_op=True)
            group.communicator_for(x.device)
            y.add_(1)
            time.sleep(0.1)
            ended = bool(torch.npu.current_stream().query())
        call.wait()
        return ended, [*x.tolist(), *ct.all_reduce(y).tolist()]

    assert run_npu_group(work, 2) == [(False, [4.0, 4.0, 4.0, 4.0])] * 2
