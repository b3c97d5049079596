"""Steps of training a small GPT under DDP and FSDP2, whose communication a group makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from collops.bench.operators.torch_calls import GPT, SEQUENCES, TorchPoint
from collops.torch import fsdp
from collops.torch.group import Group

_WORDS, _LENGTH, _WIDTH, _BLOCKS = (GPT[name] for name in ("words", "length", "width", "blocks"))
_HEADS = 4
Step = Callable[[], Any]
_RATE = 1e-3


class Block(nn.Module):
    """Attention to what came before, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.before_attention, self.before_mlp = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.queries_keys_values = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.mix = nn.Linear(_WIDTH, _WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[sequences, length, width], before and after."""
        parts = self.queries_keys_values(self.before_attention(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (_HEADS, -1)).transpose(1, 2) for part in parts)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.mix(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.before_mlp(x))


class Gpt(nn.Module):
    """The next letter's scores; the same weights in every process."""

    def __init__(self) -> None:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            super().__init__()
            self.letters = nn.Embedding(_WORDS, _WIDTH)
            self.places = nn.Parameter(0.02 * torch.randn(_LENGTH, _WIDTH))
            self.blocks = nn.Sequential(*(Block() for _ in range(_BLOCKS)))
            self.scores = nn.Linear(_WIDTH, _WORDS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """The mean loss of all letters of text [sequences, length], each after those before."""
        x = self.blocks(self.letters(text) + self.places)
        scores = self.scores(x[:, :-1]).flatten(0, 1)
        return functional.cross_entropy(scores, text[:, 1:].flatten())


def text_of(rank: int, sequences: int) -> torch.Tensor:
    """The letters [sequences, length] that a rank trains on."""
    numbers = torch.Generator().manual_seed(rank)
    return torch.randint(_WORDS, (sequences, _LENGTH), generator=numbers)


def train_step(point: TorchPoint, group: Any, rank: int) -> tuple[Step, Step]:
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
