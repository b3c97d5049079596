"""Calls of torch.distributed on collops and on gloo, measured in turn on the same ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collops.bench.measure import BEGIN, END, Rounds, Variant, interleave
from collops.bench.operator import Request, Row
from collops.bench.operators.torch_calls import BACKENDS, TRAINING, TorchPoint
from collops.bench.torch.ranks import Ranks
from collops.torch.collective_calls import all_gather_single, reduce_scatter_single

Step = Callable[[], Any]
_ROUND_BYTES, _MOST_CALLS = 4 << 20, 50
_LARGE, _LARGE_ROUNDS = 4 << 20, 3
_TRAINING_CALLS = 2
_CLOSE = 1e-6


def measure_points(request: Request, store: str) -> Iterator[Row]:
    """Measures every point of the request; the lines of rank 0."""
    ranks = Ranks(store, request.threads)
    for point in request.points:
        record = measure(ranks, point, request.iterations)
        yield from [record] if ranks.rank == 0 else ()
    dist.barrier()
    dist.destroy_process_group()


def has_mpi() -> bool:
    """Whether torch is built with MPI."""
    return bool(dist.is_mpi_available())


def measure(ranks: Ranks, point: TorchPoint, iterations: int) -> Row:
    """The seconds of the slowest rank in each round, by backend, and how many results are wrong."""
    trains = point.call in TRAINING
    steps, results = {}, {}
    for backend in BACKENDS:
        step, result = _step(point, ranks, ranks.groups[backend])
        ranks.meet(backend)
        step()
        value = result()
        results[backend] = None if value is None else value.clone()
        steps[backend] = step
    if trains:
        steps["alone"], _ = _step(point, ranks, ranks.alone)
    calls = _TRAINING_CALLS if trains else _calls(point.size)
    rounds = min(iterations, _LARGE_ROUNDS) if point.size > _LARGE and not trains else iterations
    variants = [
        Variant(
            name,
            name,
            [("all", step)],
            calls=calls,
            cores=ranks.all_cores if name == "gloo" else frozenset(),
            meet=partial(ranks.meet, name),
        )
        for name, step in steps.items()
    ]
    every = interleave(variants, Rounds(rounds), lambda x: None, lambda: None)
    own = (every[..., END] - every[..., BEGIN]).tolist()
    differ = not _equal(*results.values(), exact=not trains or ranks.size == 2)
    told = torch.tensor([*itertools.chain(*own), float(differ)], dtype=torch.float64)
    dist.all_reduce(told, dist.ReduceOp.MAX)
    *seconds, differs = told.tolist()
    times = {f"{name}_s": seconds[i * rounds : (i + 1) * rounds] for i, name in enumerate(steps)}
    return {
        "record": "point",
        **point.describe(),
        "rounds": rounds,
        "calls": calls,
        **times,
        "equal": not differs,
    }


def _calls(size: int) -> int:
    return max(1, min(_MOST_CALLS, _ROUND_BYTES // max(size, 1)))


def _equal(own: Any, other: Any, *, exact: bool) -> bool:
    if own is None:
        return True
    if exact:
        return bool(torch.equal(own, other))
    # More than two ranks' gradients are added up in another order.
    return bool(torch.allclose(own, other, rtol=0, atol=_CLOSE))


def _step(point: TorchPoint, ranks: Ranks, group: Any) -> tuple[Step, Step]:
    if point.call in TRAINING:
        # FSDP2 imports much of torch, which takes seconds.
        from collops.bench.torch.training import train_step

        return train_step(point, group, ranks.rank)
    return step_of(point, group, Tensors(point.size, ranks.rank, ranks.size))


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


def step_of(point: TorchPoint, group: Any, tensors: Tensors) -> tuple[Step, Step]:
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
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {
        "all_reduce": (dist.all_reduce, (like,), like),
        "broadcast": (dist.broadcast, (like, 0), like),
        "reduce": (dist.reduce, (like, 0), like),
        "all_gather": (dist.all_gather, (everys, x), every),
        "all_gather_single": (all_gather_single, (every, x), every),
        "reduce_scatter": (dist.reduce_scatter, (part, parts), part),
        "reduce_scatter_single": (reduce_scatter_single, (part, x), part),
        "all_to_all_single": (dist.all_to_all_single, (like, x), like),
        "gather": (dist.gather, (x, roots, 0), every),
        "scatter": (dist.scatter, (part, given, 0), part),
        "barrier": (dist.barrier, (), like),
    }
    function, tensors, out = calls[name]
    call = partial(function, *tensors, group=group)
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
