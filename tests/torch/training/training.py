"""Tiny models that ranks train, and their losses on collops compared with those on gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch._dynamo  # fully_shard() would import it in each rank, which takes seconds
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule

from tests.torch.groups import run_group

STEPS = 4
WIDTH = 8
Variant = Callable[[], "list[float]"]


class Unused(nn.Module):
    """A layer, and one that the forward pass leaves out on odd ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(WIDTH, WIDTH)
        self.left_out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.used(x)
        return y + self.left_out(x) if dist.get_rank() % 2 == 0 else y


def make_model() -> nn.Sequential:
    """The same weights on every rank; a row count that no number of ranks divides."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(WIDTH, 2 * WIDTH + 1), nn.Tanh(), nn.Linear(2 * WIDTH + 1, WIDTH), nn.Tanh()
    )


def batches(count: int = STEPS, *, rank: int | None = None) -> Iterator[torch.Tensor]:
    """The rows of one rank, by default this one, which differ per step."""
    rank = dist.get_rank() if rank is None else rank
    for step in range(count):
        generator = torch.Generator().manual_seed(1000 * rank + step)
        yield torch.randn(5, WIDTH, generator=generator)


def loss_of(model: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """How far the model is from swapping the halves of each row."""
    return (model(x).float() - x.roll(WIDTH // 2, 1)).square().mean()


def train(model: nn.Module, optimizer: Any = None, count: int = STEPS) -> list[float]:
    """This rank's loss at each step."""
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for x in batches(count):
        loss = loss_of(model, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def each_module(model: nn.Module, change: Callable[[Any], object]) -> Any:
    """The model, after a change of each module in it under fully_shard()."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            change(part)
    return model


def losses_of(
    variants: Mapping[str, Variant], size: int, backend: str
) -> list[dict[str, list[float]]]:
    """The losses of each variant on each rank of one group."""

    def work(rank: int) -> dict[str, list[float]]:
        return {name: variant() for name, variant in variants.items()}

    return run_group(work, size, backend=backend)


class Compared:
    """The losses of some variants on both backends; ranks are run when they are asked for."""

    def __init__(self, variants: Mapping[str, Variant], size: int) -> None:
        self._variants = variants
        self._size = size
        self._losses: dict[str, list[dict[str, list[float]]]] = {}
        self._error: Exception | None = None

    def check(self, name: str) -> None:
        """Equal bit for bit on 2 ranks; on more, where sums have another order, nearly."""
        ours, theirs = self.of("collops", name), self.of("gloo", name)
        assert all(len(losses) >= 3 for losses in ours)
        assert ours[0] != ours[1], "each rank has rows of its own"
        assert all(losses[0] != losses[-1] for losses in ours), "nothing was learnt"
        if self._size == 2:
            assert ours == theirs
        difference = torch.tensor(ours) - torch.tensor(theirs)
        assert difference.abs().max() <= 1e-6

    def of(self, backend: str, name: str) -> list[list[float]]:
        """The losses of one variant, by rank."""
        if self._error is not None:  # of the first test that asked
            raise self._error
        if backend not in self._losses:
            try:
                self._losses[backend] = losses_of(self._variants, self._size, backend)
            except Exception as error:
                self._error = error
                raise
        return [losses[name] for losses in self._losses[backend]]
