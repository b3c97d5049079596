"""FSDP2 trains on CUDA tensors with the numbers of CPU tensors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import collops
import collops.torch.fsdp
from tests.devices.torch.device_groups import run_device_group


def _sharded(rank: int, kind: str) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    model = model.to(torch.device(kind, rank if kind == "cuda" else 0))
    mesh = dist.init_device_mesh(kind, (2,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    return model


def _losses(rank: int, kind: str) -> list[float]:
    model, found = _sharded(rank, kind), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        x = (torch.arange(8.0).view(2, 4) / 8 + rank + step).to(kind)
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def test_fsdp2_trains_as_on_the_cpu() -> None:
    def work(rank: int) -> list[list[float]]:
        return [_losses(rank, kind) for kind in ("cpu", "cuda")]

    for on_cpu, on_gpu in run_device_group(work, 2):
        assert len(set(on_cpu)) == 3
        assert on_gpu == on_cpu


def test_windows_are_for_parameters_on_cpus() -> None:
    def work(rank: int) -> str:
        with pytest.raises(collops.Error) as caught:
            collops.torch.fsdp.use(_sharded(rank, "cuda"))
        return caught.value.message

    for rank, message in enumerate(run_device_group(work, 2)):
        assert message.endswith(f"is on cuda:{rank}: windows are memory of CPUs, leave use() out")
