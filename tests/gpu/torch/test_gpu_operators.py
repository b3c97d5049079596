"""torch.ops.collops and its gradients on CUDA tensors, against the same on CPU tensors; and torch's
own fused operators."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from device_operators import ROWS, outcomes
from gpu_groups import choose, run_gpu_group
from groups import default_group

import collops
import collops.torch as ct
from collops.testing import run_ranks
from collops.torch.async_tp.symmetric_operators import register_cuda


def _outcomes(rank: int, size: int) -> dict[str, tuple[Any, Any]]:
    return outcomes(rank, size, f"cuda:{rank}")


@functools.cache
def _outcomes_of_ranks(size: int) -> list[dict[str, tuple[Any, Any]]]:
    return run_gpu_group(_outcomes, size, size)


@pytest.mark.parametrize(("name", "size"), ROWS)
def test_an_operator(name: str, size: int) -> None:
    for rank, found in enumerate(_outcomes_of_ranks(size)):
        on_cpu, on_gpu = found[name]
        assert not isinstance(on_cpu, str), on_cpu
        assert on_gpu == on_cpu, f"rank {rank}"


@pytest.mark.parametrize("backend", ["nccl", "cuda"])
def test_a_communicator_without_a_group(backend: str) -> None:
    def work(rank: int) -> tuple[list[float], list[float]]:
        choose(rank)
        with collops.init(backend=backend) as comm:
            x = torch.full((rank + 1,), float(rank)).cuda().requires_grad_()
            every = ct.all_gatherv(x, group=comm)
            (every * (rank + 1)).sum().backward()
            assert x.grad is not None
            return every.tolist(), x.grad.tolist()

    assert run_ranks(work, 2) == [([0, 1, 1], [3]), ([0, 1, 1], [3, 3])]


def _symmetric(rank: int, device: str) -> list[Any]:
    name, symm = default_group().group_name, torch.ops.symm_mem
    shard = (torch.arange(8.0).view(2, 4) % 3 + rank).to(device)
    weight = (torch.arange(12.0).view(4, 3) % 5 - rank).to(device)
    whole, [product] = symm.fused_all_gather_matmul(shard, [weight], 0, name)
    _, [alone] = symm.fused_all_gather_matmul(shard, [weight], 0, name, return_A=False)
    found = [whole, product, alone]
    for op in ("sum", "avg"):
        found.append(symm.fused_matmul_reduce_scatter(shard, weight, op, 0, name))
        found.append(symm._low_contention_reduce_scatter(shard, op, name))
    found.append(symm._low_contention_all_gather(shard, name))
    assert all(str(x.device) == device for x in found)
    return [x.tolist() for x in found]


def test_the_symmetric_operators_of_torch() -> None:
    """A torch that was built with CUDA has kernels of its own for these, which stay behind ours."""

    def work(rank: int) -> list[Any]:
        register_cuda()
        return [_symmetric(rank, device) for device in ("cpu", f"cuda:{rank}")]

    for on_cpu, on_gpu in run_gpu_group(work, 2):
        assert on_gpu == on_cpu
