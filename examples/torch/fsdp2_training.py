"""Trains a small language model under FSDP2, whose gathers and reductions run on windows.

The model tells the next byte of a text, this program's own. fully_shard() gives each rank a part of
every weight; a layer's whole weights exist while it computes. Each rank reads other lines than its
peers. collops.torch.fsdp.use() puts the buffers that hold whole weights and packed gradients on
windows, memory that the other ranks read in place, and uses the windows again from step to step.

At the end one process trains on the lines of all ranks, and each step's loss must agree.

    torchrun --nproc-per-node 2 examples/torch/fsdp2_training.py --steps 12
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import collops.torch.fsdp

BYTES, WIDTH, LAYERS = 128, 96, 4
CONTEXT, LINES = 24, 16  # bytes before the one to be told; texts of a rank in a step
MAX_STEPS = 10_000
# Relative; sums of gradients in another order move a loss by some 1e-7 at each step.
BOUND = 1e-4


class Layer(nn.Module):
    """A residual MLP over the last bytes of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes and returns [texts, WIDTH]."""
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    """Tells the byte after CONTEXT bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = nn.Embedding(BYTES * CONTEXT, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, BYTES)

    def forward(self, texts: torch.Tensor) -> torch.Tensor:
        """Takes [texts, CONTEXT] bytes, returns [texts, BYTES] scores."""
        x = self.seen(texts + torch.arange(CONTEXT) * BYTES).mean(1) * CONTEXT**0.5
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def make_model() -> Model:
    """The same weights on every rank."""
    torch.manual_seed(2026)
    return Model()


def texts_of(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The texts of a rank in a step, [LINES, CONTEXT], and the byte after each."""
    text = torch.tensor(list(Path(__file__).read_bytes())) % BYTES
    places = torch.randint(
        len(text) - CONTEXT, (LINES,), generator=torch.Generator().manual_seed(1000 * step + rank)
    )
    windows = torch.stack([text[place : place + CONTEXT + 1] for place in places.tolist()])
    return windows[:, :-1], windows[:, -1]


def train_sharded(steps: int) -> tuple[list[float], list[int]]:
    """The mean of all ranks' losses in each step, and the windows that there are after it."""
    model = make_model()
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    collops.torch.fsdp.use(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses, windows = [], []
    for step in range(steps):
        texts, following = texts_of(dist.get_rank(), step)
        loss = nn.functional.cross_entropy(model(texts), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
        windows.append(mesh.get_group().windows.made)
    return losses, windows


def train_whole(steps: int, ranks: int) -> list[float]:
    """The same in one process, which has the texts of all ranks."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for step in range(steps):
        parts = [texts_of(rank, step) for rank in range(ranks)]
        texts, following = (torch.cat(column) for column in zip(*parts, strict=True))
        loss = nn.functional.cross_entropy(model(texts), following)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def report(losses: Sequence[float], windows: Sequence[int], expected: Sequence[float]) -> bool:
    """Prints a line per step; whether losses agree and no step but the first made windows."""
    print("step      loss  one process  windows")
    agree = True
    for step, (loss, want, made) in enumerate(zip(losses, expected, windows, strict=True)):
        agree = agree and abs(loss - want) <= BOUND * want
        print(f"{step:4}  {loss:8.5f}  {want:11.5f}  {made:7}")
    print("equal to one process" if agree else "NOT equal to one process")
    kept = windows[-1] == windows[0]
    print(f"windows were made {'in the first step alone' if kept else 'AGAIN in later steps'}")
    return agree and kept


class Parser(argparse.ArgumentParser):
    """The command line; an error in it is one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        self.add_argument("--steps", type=int, default=12, metavar="N", help="(default 12)")

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Trains, and on rank 0 compares: 0 if equal, 1 if not."""
    parser = Parser()
    steps = parser.parse_args(arguments).steps
    if not 1 <= steps <= MAX_STEPS:
        parser.error(f"argument --steps: must be from 1 to {MAX_STEPS}, got {steps}")
    if "RANK" not in os.environ:
        parser.error(f"start it with torchrun --nproc-per-node 2 {sys.argv[0]}")
    torch.set_num_threads(1)
    dist.init_process_group("collops")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    losses, windows = train_sharded(steps)
    dist.destroy_process_group()
    if rank != 0:
        return 0
    weights = sum(weight.numel() for weight in make_model().parameters())
    print(f"{weights} weights, sharded over {ranks} ranks")
    return 0 if report(losses, windows, train_whole(steps, ranks)) else 1


if __name__ == "__main__":
    sys.exit(main())
