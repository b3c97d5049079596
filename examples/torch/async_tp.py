"""A tensor-parallel MLP with sequence parallelism, whose collectives torch.compile fuses.

The rows of x are shared out over the ranks, and so are the hidden units. The first layer gathers
all rows and multiplies by its own columns of the weight; the second multiplies and leaves each rank
its rows of the sum. DTensor's ColwiseParallel and RowwiseParallel say so; eager PyTorch runs each
collective call and each product alone. After collops.torch.enable_async_tp(), torch.compile makes
one operator of a gather and its product, and one of a product and its scatter, forward and
backward.

    torchrun --nproc-per-node 2 examples/torch/async_tp.py --rows 512
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import collops.torch

WIDTH, HIDDEN = 256, 1024
STEPS, WARM_UP = 10, 2
MAX_ROWS = 100_000
BOUND = 1e-5  # of the greatest element; another order of sums moves the last bits

Step = Callable[[], list[torch.Tensor]]


class Layers(nn.Module):
    """relu(x @ up) @ down."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes and returns [rows, WIDTH]."""
        result: torch.Tensor = self.down(torch.relu(self.up(x)))
        return result


def make_model() -> nn.Module:
    """The MLP with its hidden units shared out; x and y have their rows shared out."""
    torch.manual_seed(2026)
    plan = {
        "up": ColwiseParallel(input_layouts=Shard(0)),
        "down": RowwiseParallel(output_layouts=Shard(0)),
    }
    return parallelize_module(Layers(), init_device_mesh("cpu", (dist.get_world_size(),)), plan)


def step_of(model: Callable[[torch.Tensor], torch.Tensor], rows: int, weights: Any) -> Step:
    """One forward and backward pass: output and gradients of this rank."""
    x = torch.randn(rows, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    x.requires_grad_()

    def step() -> list[torch.Tensor]:
        for tensor in (x, *weights):
            tensor.grad = None
        y = model(x)
        y.square().sum().backward()
        assert x.grad is not None
        # A copy waits for the reduce_scatter that makes the gradient.
        return [y.detach(), x.grad.clone(), *(weight.grad.to_local() for weight in weights)]

    return step


def median_ms(step: Step) -> float:
    """Of several steps, each begun by all ranks together."""
    times = []
    for number in range(WARM_UP + STEPS):
        dist.barrier()
        begin = time.perf_counter()
        step()
        if number >= WARM_UP:
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def difference(got: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The greatest error, as a part of the greatest element, over all ranks."""
    worst = max(
        float((a - b).abs().max() / b.abs().max()) for a, b in zip(got, expected, strict=True)
    )
    whole = torch.tensor([worst])
    dist.all_reduce(whole, dist.ReduceOp.MAX)
    return float(whole.item())


def compare(rows: int) -> bool:
    """Runs the three ways and prints a line for each; returns whether they agree."""
    model = make_model()
    weights = list(model.parameters())
    eager = step_of(model, rows, weights)
    expected = [tensor.clone() for tensor in eager()]
    say(f"an MLP {WIDTH} -> {HIDDEN} -> {WIDTH}, {dist.get_world_size()} ranks of {rows} rows")
    say("way       ms a step  all_gather + mm  mm + reduce_scatter  error")
    say(f"eager     {median_ms(eager):9.2f}  {0:15}  {0:19}")
    agree = True
    for way in ("compiled", "async TP"):
        if way == "async TP":
            collops.torch.enable_async_tp()
        torch.compiler.reset()
        step = step_of(torch.compile(model), rows, weights)
        error = difference(step(), expected)
        fused = collops.torch.fused_patterns(reset=True)
        agree = agree and error <= BOUND and fused == ((2, 2) if way == "async TP" else (0, 0))
        say(f"{way}  {median_ms(step):9.2f}  {fused[0]:15}  {fused[1]:19}  {error:.1e}")
    say("equal to eager" if agree else "NOT equal to eager, or not fused")
    return agree


def say(line: str) -> None:
    """Prints a line once."""
    if dist.get_rank() == 0:
        print(line, flush=True)


class Parser(argparse.ArgumentParser):
    """Reports a wrong argument on one line."""

    def __init__(self) -> None:
        super().__init__(description=(__doc__ or "").split("\n\n")[0], allow_abbrev=False)
        self.add_argument(
            "--rows", type=int, default=256, metavar="N", help="rows of each rank (default 256)"
        )

    def error(self, message: str) -> NoReturn:
        """Ends the program with status 2."""
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the MLP on this rank of torchrun: 0 if the three ways agree, 1 if not."""
    parser = Parser()
    rows = parser.parse_args(arguments).rows
    if not 1 <= rows <= MAX_ROWS:
        parser.error(f"--rows: must be from 1 to {MAX_ROWS}, got {rows}")
    if "RANK" not in os.environ:
        parser.error("run it by torchrun --nproc-per-node 2")
    # Its headers take longer to prepare than these few functions take to compile.
    torch._inductor.config.cpp_cache_precompile_headers = False
    # A graph of the cache is fused, but not counted.
    torch._inductor.config.fx_graph_cache = False
    torch._functorch.config.enable_autograd_cache = False
    dist.init_process_group("collops")
    try:
        return 0 if compare(rows) else 1
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
