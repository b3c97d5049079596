"""torch's own fused operators on CUDA tensors, against the same on CPU tensors."""

from __future__ import annotations

from typing import Any

import torch

from collops.torch.async_tp.symmetric_operators import register_cuda
from tests.devices.torch.device_groups import run_device_group
from tests.torch.groups import default_group


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

    for on_cpu, on_gpu in run_device_group(work, 2):
        assert on_gpu == on_cpu
