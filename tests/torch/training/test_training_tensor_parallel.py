"""Tensor and sequence parallel layers train on collops as on gloo, alone and under FSDP2."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import (  # noqa: E402
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

import collops.torch.fsdp  # noqa: E402
from tests.torch.training.training import WIDTH, Compared, batches, loss_of  # noqa: E402

ROWS = 8


class Block(nn.Module):
    """A norm and an MLP, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> Any:
        return self.down(torch.tanh(self.up(self.norm(x))))


def mesh_of(*sizes: int) -> Any:
    return dist.init_device_mesh("cpu", sizes, mesh_dim_names=("data", "tensor")[-len(sizes) :])


def same_rows(model: nn.Module, first: int = 0) -> list[float]:
    """The losses on rows that all ranks of a tensor-parallel group have.

    At the end stands the sum of this rank's part of the weights, which no other rank has.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    losses = []
    for x in batches(rank=first):
        loss = loss_of(model, torch.cat([x, x[: ROWS - len(x)]]))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    parts = [weight.to_local() for weight in model.parameters() if hasattr(weight, "to_local")]
    return [*losses, sum(part.detach().double().abs().sum().item() for part in parts)]


def tensor_parallel() -> list[float]:
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    return same_rows(parallelize_module(Block(), mesh_of(dist.get_world_size()), plan))


SEQUENCE = {
    "block": PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Shard(0),), use_local_output=True
    ),
    "block.norm": SequenceParallel(sequence_dim=0),
    "block.up": ColwiseParallel(input_layouts=Shard(0)),
    "block.down": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
}


def sequence_parallel() -> list[float]:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.block(x).full_tensor()

    model = Whole()
    parallelize_module(model, mesh_of(dist.get_world_size()), SEQUENCE)
    return same_rows(model)


def parallel_loss() -> list[float]:
    """Classes are shared out to ranks, and so is the loss over them."""
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(WIDTH, 12))
    plan = {"0": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    parallelize_module(model, mesh_of(dist.get_world_size()), plan)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for x in batches(rank=0):
        with loss_parallel():
            loss = nn.functional.cross_entropy(model(x), torch.arange(len(x)))
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.full_tensor().item() if hasattr(loss, "full_tensor") else loss.item())
    return [*losses, model[0].weight.to_local().detach().double().abs().sum().item()]


def with_fsdp2() -> list[float]:
    mesh = mesh_of(2, 2)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    model = parallelize_module(Block(), mesh["tensor"], plan)
    fully_shard(model, mesh=mesh["data"])
    if dist.get_backend() == "collops":
        collops.torch.fsdp.use(model)
    return same_rows(model, first=dist.get_rank() // 2)


ON_TWO = {
    "tensor": tensor_parallel,
    "sequence": sequence_parallel,
    "loss": parallel_loss,
}
ON_FOUR = {**ON_TWO, "with_fsdp2": with_fsdp2}
TWO, FOUR = Compared(ON_TWO, 2), Compared(ON_FOUR, 4)


@pytest.mark.parametrize("name", ON_TWO)
def test_two_ranks(name: str) -> None:
    TWO.check(name)


@pytest.mark.parametrize("name", ON_FOUR)
def test_four_ranks(name: str) -> None:
    FOUR.check(name)
