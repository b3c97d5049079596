"""Data-parallel attention before a shared MLP: uneven batches as they are, against padded ones.

Every rank has its own requests, one may have none. Attention runs on a rank's own tokens. The MLP's
hidden units are shared out over all ranks, so the tokens of all ranks are gathered before it, and
its partial sums are reduced and scattered back. Where the collectives need equal sizes, every rank
pads its tokens to the most that a rank has, and all compute on the padding.

    tokens -> attention -> all_gatherv -> MLP, my hidden units -> reduce_scatterv -> tokens

The hidden states are rounded to whole numbers, so all sums are exact and both ways must give the
same bits.

    torchrun --nproc-per-node 2 examples/torch/dp_attention.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch.nn import functional

from collops.torch.serving import VllmCollectives

WIDTH, HEADS, HIDDEN = 128, 4, 512
ROUNDS = 7
# By torch's names from 2.13 on, or those before.
gather_single = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
scatter_single = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Communicator(VllmCollectives):
    """What an engine's communicator would inherit; here it has the two groups alone."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.cpu_group = self.device_group = group


class Layer:
    """Attention on this rank's tokens, and this rank's part of the MLP."""

    def __init__(self) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.communicator = Communicator(dist.group.WORLD)
        generator = torch.Generator().manual_seed(2026)

        def whole(*shape: int) -> torch.Tensor:
            return torch.randint(-2, 3, shape, generator=generator).float()

        mine = slice(self.rank * HIDDEN // self.ranks, (self.rank + 1) * HIDDEN // self.ranks)
        self.up = whole(WIDTH, HIDDEN)[:, mine].contiguous()
        self.down = whole(HIDDEN, WIDTH)[mine].contiguous()

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """[tokens, WIDTH] to whole numbers of that shape."""
        heads = x.view(1, len(x), HEADS, WIDTH // HEADS).transpose(1, 2)
        y = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return y.transpose(1, 2).reshape(x.shape).mul(2).round().clamp(-3, 3)

    def mlp(self, rows: torch.Tensor) -> torch.Tensor:
        """This rank's part of the sum."""
        return torch.relu(rows @ self.up) @ self.down

    def uneven(self, rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        """The MLP on the tokens that there are."""
        every = self.communicator.all_gatherv(rows, dim=0, sizes=sizes)
        return self.communicator.reduce_scatterv(self.mlp(every), dim=0, sizes=sizes)

    def padded(self, rows: torch.Tensor, sizes: list[int]) -> torch.Tensor:
        """The MLP on as many tokens of each rank as one of them has at most."""
        most = max(sizes)
        own = functional.pad(rows, (0, 0, 0, most - len(rows)))
        every = rows.new_empty(self.ranks * most, WIDTH)
        gather_single(every, own)
        scatter_single(own, self.mlp(every))
        return own[: len(rows)]


def batches(ranks: int, tokens: int) -> dict[str, list[int]]:
    """Names of batches, and the tokens of each rank."""
    return {
        "even": [tokens] * ranks,
        "half as many on rank 0": [tokens // 2, *[tokens] * (ranks - 1)],
        "all but one decode": [tokens, *[1] * (ranks - 1)],
        "all but one empty": [*[0] * (ranks - 1), tokens],
    }


def seconds(call: Callable[[], torch.Tensor]) -> float:
    """The slowest rank's time of one call, which all begin together."""
    dist.barrier()
    begin = time.perf_counter()
    call()
    taken = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def compare(layer: Layer, name: str, sizes: list[int]) -> bool:
    """Runs a batch both ways in turn, prints a line; whether all ranks got equal results."""
    generator = torch.Generator().manual_seed(100 + layer.rank)
    rows = layer.attention(torch.randn(sizes[layer.rank], WIDTH, generator=generator))
    ways = [lambda: layer.padded(rows, sizes), lambda: layer.uneven(rows, sizes)]
    differ = torch.tensor([int(not torch.equal(ways[0](), ways[1]()))])
    dist.all_reduce(differ, dist.ReduceOp.MAX)
    times = [[seconds(way) for way in ways] for _ in range(ROUNDS)]
    padded, uneven = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    if layer.rank == 0:
        verdict = "no" if differ.item() else "yes"
        factor = padded / uneven
        print(f"{name:24}{sum(sizes):7}{padded:11.2f}{uneven:11.2f}{factor:8.2f}  {verdict}")
    return not differ.item()


def run(tokens: int) -> bool:
    """Runs all batches; whether all results were equal."""
    layer = Layer()
    if layer.rank == 0:
        print(f"attention of {layer.ranks} ranks, at most {tokens} tokens each; one shared MLP")
        print(f"{'batch':24}{'tokens':>7}{'padded ms':>11}{'uneven ms':>11}{'factor':>8}  equal")
    results = [compare(layer, name, sizes) for name, sizes in batches(layer.ranks, tokens).items()]
    if layer.rank == 0:
        print("padded and uneven agree" if all(results) else "padded and uneven do NOT agree")
    return all(results)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one rank: 0 if both ways agree, 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=512, metavar="N", help="(default 512)")
    tokens = parser.parse_args(arguments).tokens
    if tokens < 1:
        parser.error(f"argument --tokens: must be 1 or more, got {tokens}")
    if "RANK" not in os.environ:
        parser.error("run it by torchrun --nproc-per-node 2; see --help")
    torch.set_num_threads(1)
    dist.init_process_group("collops")
    try:
        with torch.inference_mode():
            return 0 if run(tokens) else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
