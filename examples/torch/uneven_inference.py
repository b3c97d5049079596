"""Data-parallel inference over a batch that does not divide by the number of ranks.

Each rank encodes its share of the requests, whose lengths differ, and all ranks collect the vectors
of all requests with one ``dist.all_gather`` into a list of tensors of different sizes. A backend
that needs equal sizes would have to pad them. At the end each rank encodes the whole batch alone
and compares.

    torchrun --nproc-per-node 2 examples/torch/uneven_inference.py --requests 37
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn

import collops.torch  # noqa: F401  registers the backend

WIDTH, HEADS, LAYERS, LONGEST = 64, 4, 2, 48
TOLERANCE = 1e-4  # a BLAS need not add in the same order for another number of rows


class Encoder:
    """A small transformer that makes one vector of a text."""

    def __init__(self) -> None:
        torch.manual_seed(2026)
        self.embedding = nn.Embedding(256, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()

    def __call__(self, tokens: torch.Tensor) -> torch.Tensor:
        """[tokens] to [WIDTH]."""
        hidden: torch.Tensor = self.layers(self.embedding(tokens)[None])
        return hidden[0].mean(0)


def make_requests(count: int) -> list[torch.Tensor]:
    """Texts of random bytes and lengths, the same on each rank."""
    generator = torch.Generator().manual_seed(7)
    lengths = torch.randint(1, LONGEST + 1, (count,), generator=generator).tolist()
    return [torch.randint(256, (length,), generator=generator) for length in lengths]


def shares(requests: int, ranks: int) -> list[int]:
    """The requests of each rank, in proportions 1 : 2 : 3 : ..., as a router may deal them."""
    total = ranks * (ranks + 1) // 2
    ends = [requests * end // total for end in accumulate(range(1, ranks + 1))]
    return [end - begin for begin, end in zip([0, *ends], ends, strict=False)]


def encode(model: Encoder, requests: Sequence[torch.Tensor]) -> torch.Tensor:
    """[requests, WIDTH]; no request gives no row."""
    rows = [torch.empty(0, WIDTH)]
    rows += [model(tokens)[None] for tokens in requests]
    return torch.cat(rows)


def run(count: int) -> bool:
    """Encodes the batch on all ranks and on one; whether they agree on every rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model, requests = Encoder(), make_requests(count)
    counts = shares(count, ranks)
    first = sum(counts[:rank])

    encode(model, requests[:2])
    dist.barrier()
    begin = time.perf_counter()
    own = encode(model, requests[first : first + counts[rank]])
    every = torch.empty(count, WIDTH)
    dist.all_gather(list(every.split(counts)), own)
    together = time.perf_counter() - begin

    begin = time.perf_counter()
    expected = encode(model, requests)
    alone = time.perf_counter() - begin
    error = (every - expected).abs().max().clone() if count else torch.zeros(())
    dist.all_reduce(error, dist.ReduceOp.MAX)
    agree = bool(error <= TOLERANCE)
    if rank == 0:
        print(f"{count} requests on {ranks} ranks: {counts} each, in one all_gather")
        print(f"together {together * 1e3:.1f} ms, one process alone {alone * 1e3:.1f} ms")
        padded = max(counts) * ranks
        print(f"with padding {padded} vectors would travel, not {count}")
        print(f"largest difference {error.item():.1e} of {TOLERANCE:.0e} allowed")
        verdict = "equal" if agree else "NOT equal"
        print(f"{verdict} to one process doing it all")
    return agree


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one rank: 0 if the results agree, 1 if not."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=37, metavar="N", help="(default 37)")
    count = parser.parse_args(arguments).requests
    if count < 0:
        parser.error(f"argument --requests: must be 0 or more, got {count}")
    if "RANK" not in os.environ:
        parser.error("run it by torchrun --nproc-per-node 2; see --help")
    torch.set_num_threads(1)
    dist.init_process_group("collops")
    try:
        with torch.inference_mode():
            return 0 if run(count) else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
