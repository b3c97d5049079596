"""The calls of torch.distributed that are measured, on any group, and their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from collops.bench.torch.request import Point
from collops.torch.collective_calls import all_gather_single, reduce_scatter_single

Step = Callable[[], Any]


class Tensors:
    """The tensors of one point on one rank; whole numbers, so that every sum is exact."""

    def __init__(self, size: int, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        elements = -(-size // (4 * ranks)) * ranks
        numbers = torch.arange(elements, dtype=torch.float32)
        self.x = numbers.remainder_(64).add_(rank)
        self.every = torch.full((elements * ranks,), -1.0)
        self.part = torch.full((elements // ranks,), -1.0)
        self.like = torch.full((elements,), -1.0)

    def rows(self, x: torch.Tensor) -> list[torch.Tensor]:
        """A part of a tensor for each rank."""
        return list(x.chunk(self.ranks)) if x.numel() else [x] * self.ranks

    def of_root(self, x: torch.Tensor) -> list[torch.Tensor] | None:
        """On rank 0 a part of a tensor for each rank; None elsewhere."""
        return self.rows(x) if self.rank == 0 else None


def step_of(point: Point, group: Any, tensors: Tensors) -> tuple[Step, Step]:
    """One call of a point, complete when it returns; and a function for this rank's result."""
    if point.way == "functional":
        return _functional(point.call, group.group_name, tensors)
    call, out = _plain(point.call, group, tensors)
    if point.way == "async":
        return lambda: call(async_op=True).wait(), out
    return call, out


def _plain(name: str, group: Any, t: Tensors) -> tuple[Callable[..., Any], Step]:
    x, every, part, like = t.x, t.every, t.part, t.like
    everys, parts = t.rows(every), t.rows(x)
    roots, given = t.of_root(every), t.of_root(x)
    calls: dict[str, tuple[Callable[..., Any], Any]] = {
        "all_reduce": (lambda **how: dist.all_reduce(like, group=group, **how), like),
        "broadcast": (lambda **how: dist.broadcast(like, 0, group=group, **how), like),
        "reduce": (lambda **how: dist.reduce(like, 0, group=group, **how), like),
        "all_gather": (lambda **how: dist.all_gather(everys, x, group=group, **how), every),
        "all_gather_single": (lambda **how: all_gather_single(every, x, group=group, **how), every),
        "reduce_scatter": (
            lambda **how: dist.reduce_scatter(part, parts, group=group, **how),
            part,
        ),
        "reduce_scatter_single": (
            lambda **how: reduce_scatter_single(part, x, group=group, **how),
            part,
        ),
        "all_to_all_single": (
            lambda **how: dist.all_to_all_single(like, x, group=group, **how),
            like,
        ),
        "gather": (lambda **how: dist.gather(x, roots, 0, group=group, **how), every),
        "scatter": (lambda **how: dist.scatter(part, given, 0, group=group, **how), part),
        "barrier": (lambda **how: dist.barrier(group=group, **how), like),
    }
    call, out = calls[name]
    # A tensor that is input and output begins with this rank's values.
    if name in ("all_reduce", "broadcast", "reduce"):
        like.copy_(x)
    if name == "reduce" and t.rank != 0:
        return call, lambda: None  # what it leaves elsewhere is the backend's own
    return call, lambda: out


def _functional(name: str, group: str, t: Tensors) -> tuple[Step, Step]:
    ops = torch.ops._c10d_functional
    even = [t.x.numel() // t.ranks] * t.ranks
    calls: dict[str, Step] = {
        "all_reduce": lambda: ops.all_reduce(t.x, "sum", group),
        "broadcast": lambda: ops.broadcast(t.x, 0, group),
        "all_gather_single": lambda: ops.all_gather_into_tensor(t.x, t.ranks, group),
        "reduce_scatter_single": lambda: ops.reduce_scatter_tensor(t.x, "sum", t.ranks, group),
        "all_to_all_single": lambda: ops.all_to_all_single(t.x, even, even, group),
    }
    call, last = calls[name], [t.like]

    def run() -> None:
        last[0] = ops.wait_tensor(call())

    return run, lambda: last[0]
