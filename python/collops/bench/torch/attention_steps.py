"""Data-parallel attention before a shared MLP, with an uneven batch: padded, and as it is."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from collops.bench.torch.call_steps import Step
from collops.bench.torch.request import Point
from collops.torch.group import Group
from collops.torch.serving.rows import gather_rows, scatter_rows

_WIDTH, _HIDDEN = 128, 512
_ROW_BYTES = 4 * _WIDTH
_SHARE = 4  # every rank but the first has this part of the first one's tokens


class Batch:
    """This rank's tokens after its attention, and its part of the MLP's weights.

    All are small whole numbers, so every sum is exact and both ways have the same bits.
    """

    def __init__(self, size: int, rank: int, ranks: int) -> None:
        most = max(1, size // _ROW_BYTES)
        self.sizes = [most, *[most // _SHARE] * (ranks - 1)]
        numbers = torch.Generator().manual_seed(rank)

        def whole(*shape: int) -> torch.Tensor:
            return torch.randint(-2, 3, shape, generator=numbers, dtype=torch.float32)

        self.tokens = whole(self.sizes[rank], _WIDTH)
        hidden = _HIDDEN // ranks
        self.up, self.down = whole(_WIDTH, hidden), whole(hidden, _WIDTH)

    def mlp(self, rows: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum over all hidden units."""
        return torch.relu(rows @ self.up) @ self.down


def attention_step(point: Point, group: Any, rank: int, ranks: int) -> tuple[Step, Step]:
    """One layer's MLP on the tokens of all ranks, and a function for this rank's result.

    A group without uneven calls pads in either way.
    """
    batch = Batch(point.size, rank, ranks)
    uneven = point.way == "uneven" and isinstance(group, Group)
    last = [batch.tokens]

    def run() -> None:
        last[0] = _uneven(batch, group) if uneven else _padded(batch, group, ranks)

    return run, lambda: last[0]


def _uneven(batch: Batch, group: Group) -> torch.Tensor:
    every = gather_rows(group, batch.tokens, batch.sizes)
    return scatter_rows(group, batch.mlp(every), batch.sizes)


def _padded(batch: Batch, group: Any, ranks: int) -> torch.Tensor:
    most, rows = max(batch.sizes), len(batch.tokens)
    own = torch.nn.functional.pad(batch.tokens, (0, 0, 0, most - rows))
    every = own.new_empty(ranks * most, _WIDTH)
    dist.all_gather(list(every.split(most)), own, group=group)
    dist.reduce_scatter(own, list(batch.mlp(every).split(most)), group=group)
    return own[:rows]
