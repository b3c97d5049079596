"""Steps of training a small GPT under DDP and FSDP2, whose communication a group makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from collops.bench.torch.call_steps import Step
from collops.bench.torch.gpt import Gpt, text_of
from collops.bench.torch.request import SEQUENCES, Point
from collops.torch import fsdp
from collops.torch.group import Group

_RATE = 1e-3


def train_step(point: Point, group: Any, rank: int) -> tuple[Step, Step]:
    """One step of training, and a function for this rank's parameters.

    With a group of this rank alone it is the step without communication.
    """
    model = _distributed(point.call, Gpt(), group)
    optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
    text = text_of(rank, SEQUENCES[point.way])

    def run() -> None:
        optimizer.zero_grad()
        model(text).backward()
        optimizer.step()

    return run, lambda: torch.cat([_own(part).flatten() for part in model.parameters()])


def _distributed(call: str, model: Gpt, group: Any) -> nn.Module:
    if call == "ddp":
        return DistributedDataParallel(model, process_group=group)
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    if call == "fsdp2_windows" and isinstance(group, Group):
        fsdp.use(model)
    return model


def _own(parameter: Any) -> torch.Tensor:
    """This rank's part of a parameter."""
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    return local.detach()
