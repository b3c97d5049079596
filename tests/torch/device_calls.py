"""Calls of torch.distributed that tensors on CPUs, NPUs and GPUs must give the same bits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

# rank, size, device -> tensors; numbers are small and whole, so that every sum is exact.
Call = Callable[[int, int, str], list[torch.Tensor]]
CALLS: dict[str, Call] = {}


def numbers(count: int, rank: int, device: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Numbers that tell this rank's from those of others."""
    return (torch.arange(count) + 10 * rank).to(dtype).to(device)


def call(name: str) -> Callable[[Call], Call]:
    """Adds a function to the table."""

    def add(work: Call) -> Call:
        CALLS[name] = work
        return work

    return add


def _reduced(op: Any, dtype: torch.dtype) -> Call:
    def work(rank: int, size: int, device: str) -> list[torch.Tensor]:
        x = numbers(5, rank, device, dtype)
        dist.all_reduce(x, op)
        return [x]

    return work


for _dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.int8):
    CALLS[f"all_reduce of {_dtype}"] = _reduced(dist.ReduceOp.SUM, _dtype)
for _op in ("MAX", "MIN", "PRODUCT"):
    CALLS[f"all_reduce {_op}"] = _reduced(getattr(dist.ReduceOp, _op), torch.float32)
CALLS["all_reduce AVG of integers"] = _reduced(dist.ReduceOp.AVG, torch.int32)
CALLS["all_reduce of truth values"] = _reduced(dist.ReduceOp.MAX, torch.bool)


@call("averages, into memory apart and in place")
def _averages(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x, whole = 12 * numbers(4, rank, device), 12 * numbers(size * 2, rank, device)
    own = torch.empty(2, device=device)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(own, whole, dist.ReduceOp.AVG)
    return [x, own]


@call("all_reduce of views and complex numbers")
def _views(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x = numbers(12, rank, device).view(3, 4)
    dist.all_reduce(x.t())
    dist.all_reduce(x[:, 1::2])
    y = torch.view_as_complex(numbers(6, rank, device).view(3, 2))
    dist.all_reduce(y)
    return [x, torch.view_as_real(y)]


@call("broadcast from each root")
def _broadcast(rank: int, size: int, device: str) -> list[torch.Tensor]:
    xs = [numbers(6, rank, device).view(2, 3) for _ in range(size)]
    for root, x in enumerate(xs):
        dist.broadcast(x.t() if root else x, root)
    return xs


@call("reduce to each root")
def _reduce(rank: int, size: int, device: str) -> list[torch.Tensor]:
    xs = [numbers(3, rank, device) for _ in range(size)]
    for root, x in enumerate(xs):
        dist.reduce(x, root, dist.ReduceOp.AVG if root else dist.ReduceOp.SUM)
    return xs


@call("all_gather: even, uneven, with an empty one, and in place")
def _all_gather(rank: int, size: int, device: str) -> list[torch.Tensor]:
    even = [torch.empty(2, device=device) for _ in range(size)]
    dist.all_gather(even, numbers(2, rank, device))
    uneven = [torch.empty(r, 3, device=device) for r in range(size)]
    dist.all_gather(uneven, numbers(3 * rank, rank, device).view(rank, 3))
    whole = numbers(size * (size + 1) // 2, rank, device)
    parts = list(whole.split([r + 1 for r in range(size)]))
    dist.all_gather(parts, parts[rank])
    return [*even, *uneven, whole]


@call("all_gather_into_tensor: apart, in place and of a view")
def _into_tensor(rank: int, size: int, device: str) -> list[torch.Tensor]:
    out, whole = torch.empty(size * 4, device=device), numbers(size * 4, rank, device)
    dist.all_gather_into_tensor(out, numbers(4, rank, device).view(2, 2).t())
    dist.all_gather_into_tensor(whole, whole[rank * 4 : rank * 4 + 4])
    return [out, whole]


@call("reduce_scatter: tensor, in place, list, uneven")
def _reduce_scatter(rank: int, size: int, device: str) -> list[torch.Tensor]:
    whole = numbers(size * 2, rank, device)
    mine = whole[rank * 2 : rank * 2 + 2]
    dist.reduce_scatter_tensor(mine, whole)
    own, parts = torch.empty(2, device=device), [numbers(2, rank, device) for _ in range(size)]
    dist.reduce_scatter(own, parts)
    uneven = torch.empty(rank, device=device)
    dist.reduce_scatter(uneven, [numbers(r, rank, device) for r in range(size)])
    return [mine, own, uneven]


@call("all_to_all: even, uneven rows, lists")
def _all_to_all(rank: int, size: int, device: str) -> list[torch.Tensor]:
    even = torch.empty(size * 2, device=device)
    dist.all_to_all_single(even, numbers(size * 2, rank, device))
    sends = [(rank + peer) % 3 for peer in range(size)]
    rows = torch.empty(sum(sends), 2, device=device)
    dist.all_to_all_single(rows, numbers(2 * sum(sends), rank, device).view(-1, 2), sends, sends)
    outs = [torch.empty(peer + 1, device=device) for peer in range(size)]
    dist.all_to_all(outs, [numbers(rank + 1, rank + peer, device) for peer in range(size)])
    return [even, rows, *outs]


@call("gather and scatter")
def _rooted(rank: int, size: int, device: str) -> list[torch.Tensor]:
    root = size - 1
    outs = [torch.empty(3, device=device) for _ in range(size)] if rank == root else None
    dist.gather(numbers(3, rank, device), outs, dst=root)
    own = torch.empty(3, device=device)
    parts = [numbers(3, peer, device) for peer in range(size)] if rank == root else None
    dist.scatter(own, parts, src=root)
    return [own, *(outs or [])]


@call("send and recv, one pair after the other")
def _messages(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x = numbers(6, rank, device).view(3, 2).t()
    for sender in range(size - 1):
        if rank == sender:
            dist.send(x, sender + 1)
        elif rank == sender + 1:
            dist.recv(x, sender)
    return [x]


@call("batch_isend_irecv around a ring")
def _ring(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x, left, right = numbers(4, rank, device), (rank - 1) % size, (rank + 1) % size
    if size == 1:
        return [x]
    out = torch.empty(2, 2, device=device)
    ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, out.t(), left)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return [out]


@call("futures of messages within a batch, in another mode than its end")
def _futures_of_a_batch(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x, left, right = numbers(4, rank, device), (rank - 1) % size, (rank + 1) % size
    if size == 1:
        return [x]
    where, seen = torch.device(device), []
    with torch.inference_mode():
        out = torch.full((2, 2), -1.0, device=device)

    def write(future: Any) -> Any:
        seen.append(out.cpu().tolist())
        return out.mul_(2)  # of an inference tensor: not in another mode

    with dist.distributed_c10d._coalescing_manager(device=where, async_ops=True) as manager:
        with torch.inference_mode():
            dist.isend(x, right)
            future = dist.irecv(out.t(), left).get_future().then(write)
        early = list(seen)
    manager.wait()
    future.wait()
    # On CPUs a message may end before its batch.
    return [torch.tensor([0 if device == "cpu" else len(early)]), torch.tensor(seen), out]


@call("coalesced calls")
def _coalesced(rank: int, size: int, device: str) -> list[torch.Tensor]:
    a, b = numbers(3, rank, device), numbers(4, rank, device)
    with dist.distributed_c10d._coalescing_manager():
        dist.all_reduce(a)
        dist.all_reduce(b)
    out = torch.empty(3 * size, device=device)
    where = torch.device(device)
    with dist.distributed_c10d._coalescing_manager(device=where, async_ops=True) as manager:
        dist.all_gather_into_tensor(out, a)
    manager.wait()
    return [a, b, out]


@call("functional collectives")
def _functional(rank: int, size: int, device: str) -> list[torch.Tensor]:
    group, x = dist.group.WORLD, numbers(2 * size, rank, device)
    total = functional.all_reduce(x, "sum", group)
    every = functional.all_gather_tensor(x, 0, group)
    own = functional.reduce_scatter_tensor(x, "sum", 0, group)
    return [total + 1, every + 1, own + 1]


@call("subgroups")
def _subgroups(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x, y = numbers(3, rank, device), numbers(3, rank, device)
    even = dist.new_group(list(range(0, size, 2)))
    if rank % 2 == 0:
        dist.all_reduce(x, group=even)
    dist.all_reduce(y)
    return [x, y]


@call("asynchronous calls, and their futures")
def _asynchronous(rank: int, size: int, device: str) -> list[torch.Tensor]:
    x, y, out = (numbers(3, rank, device) for _ in range(3))
    works = [dist.all_reduce(x, async_op=True), dist.broadcast(y, 0, async_op=True)]
    for work in works:
        work.wait()
    work = dist.all_reduce(out, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2).wait()
    return [x * 2, y + 1, doubled]


def compared(rank: int, size: int, device: str) -> dict[str, tuple[Any, Any]]:
    """The tensors of each call on the CPU and on a device, or the error."""
    found = {}
    for name, work in CALLS.items():
        pair = []
        for where in ("cpu", device):
            try:
                pair.append([(str(x.dtype), x.cpu().tolist()) for x in work(rank, size, where)])
            except Exception as error:
                pair.append(f"{type(error).__name__}: {error}")
        found[name] = (pair[0], pair[1])
    return found
