"""Messages, calls that move objects, and calls that are made as one."""

from __future__ import annotations

import torch
import torch.distributed as dist

from collops.torch.collective_calls import all_gather_single, reduce_scatter_single
from tests.torch.calls.call_table import Mode, Tensors, data, poison, row, spread


def _before(rank: int, size: int) -> list[torch.Tensor]:
    """What the rank before this one sends."""
    return [data((rank - 1) % size, 5)]


@row("isend, irecv", "around a ring", _before, modes=("async",), least=2)
def _ring(mode: Mode, rank: int, size: int) -> Tensors:
    x, out = data(rank, 5), poison(5)
    sent = dist.isend(x, (rank + 1) % size)
    received = dist.irecv(out, (rank - 1) % size)
    received.wait()
    sent.wait()
    return [out]


@row("isend, irecv", "receives first, not contiguous", _before, modes=("async",), least=2)
def _receives_first(mode: Mode, rank: int, size: int) -> Tensors:
    out = spread(poison(5))
    received = dist.irecv(out, (rank - 1) % size)
    dist.isend(spread(data(rank, 5)), (rank + 1) % size).wait()
    received.wait()
    return [out]


@row("send, recv", "one pair after the other", modes=("sync",))
def _pairs(mode: Mode, rank: int, size: int) -> Tensors:
    outs = []
    for target in range(1, size):
        if rank == 0:
            dist.send(data(target, (2, 3), torch.bool), target)
        if rank == target:
            outs.append(poison((2, 3), torch.bool))
            assert dist.recv(outs[-1], 0) == 0
    return outs


@row("send, recv", "1 MiB", modes=("sync",))
def _large(mode: Mode, rank: int, size: int) -> Tensors:
    if rank == 0:
        for target in range(1, size):
            dist.send(data(target, 1 << 18), target)
        return []
    out = poison(1 << 18)
    dist.recv(out, 0)
    return [out]


@row("send, recv", "tags out of order", modes=("sync",))
def _tags(mode: Mode, rank: int, size: int) -> Tensors:
    if rank == 0:
        works = [dist.isend(data(t, 3), 1, tag=t) for t in (5, 6)] if size > 1 else []
        for work in works:
            work.wait()
        return []
    outs = [poison(3), poison(3)]
    if rank == 1:
        dist.recv(outs[0], 0, tag=6)
        dist.recv(outs[1], 0, tag=5)
    return outs


@row(
    "recv",
    "from any rank",
    lambda rank, size: [data(r, 4) for r in range(1, size)] if rank == 0 else [],
    modes=("sync",),
)
def _any_source(mode: Mode, rank: int, size: int) -> Tensors:
    if rank > 0:
        dist.send(data(rank, 4), 0)
        return []
    found = {}
    for _ in range(1, size):
        out = poison(4)
        found[dist.recv(out)] = out
    return [found[r] for r in range(1, size)]


@row("batch_isend_irecv", "to both neighbours", modes=("sync",), least=2)
def _batch(mode: Mode, rank: int, size: int) -> Tensors:
    after, before = (rank + 1) % size, (rank - 1) % size
    outs = [poison(3), poison(4)]
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, data(rank, 3), after, tag=1),
            dist.P2POp(dist.isend, data(rank + 5, 4), before, tag=2),
            dist.P2POp(dist.irecv, outs[0], before, tag=1),
            dist.P2POp(dist.irecv, outs[1], after, tag=2),
        ]
    )
    for work in works:
        work.wait()
    return outs


def _own_pair(rank: int, size: int) -> Tensors:
    return [data(rank, 3), data(rank + 5, 1 << 18)]


@row("isend, irecv", "to itself", _own_pair, modes=("async",))
def _own(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [poison(3), poison(1 << 18)]
    # Tags out of order, a receive before its send and one after it.
    works = [dist.irecv(outs[1], rank, tag=2), dist.isend(data(rank, 3), rank, tag=1)]
    works += [dist.isend(data(rank + 5, 1 << 18), rank, tag=2), dist.irecv(outs[0], rank, tag=1)]
    for work in works:
        work.wait()
    return outs


@row(
    "batch_isend_irecv",
    "with itself and the next rank",
    lambda rank, size: [*_own_pair(rank, size), data((rank - 1) % size + 7, 4)],
    modes=("sync",),
    least=2,
)
def _own_batch(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [poison(3), poison(1 << 18), poison(4)]
    sent = [(data(rank, 3), rank), (data(rank + 5, 1 << 18), rank)]
    sent.append((data(rank + 7, 4), (rank + 1) % size))
    batch = [dist.P2POp(dist.isend, x, to) for x, to in sent]
    senders = (rank, rank, (rank - 1) % size)
    batch += [dist.P2POp(dist.irecv, *pair) for pair in zip(outs, senders, strict=True)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    return outs


def _as_tensor(value: object) -> torch.Tensor:
    return torch.tensor(list(repr(value).encode()))


@row("all_gather_object", "", modes=("sync",))
def _objects(mode: Mode, rank: int, size: int) -> Tensors:
    found: list[object] = [None] * size
    dist.all_gather_object(found, {"rank": rank, "text": "x" * rank})
    return [_as_tensor(found)]


@row("gather_object", "", modes=("sync",))
def _gather_object(mode: Mode, rank: int, size: int) -> Tensors:
    found: list[object] | None = [None] * size if rank == size - 1 else None
    dist.gather_object(("y" * rank, rank), found, size - 1)
    return [_as_tensor(found)]


@row("broadcast_object_list", "", modes=("sync",))
def _broadcast_objects(mode: Mode, rank: int, size: int) -> Tensors:
    found = ["a", {1: 2.5}] if rank == 0 else [None, None]
    dist.broadcast_object_list(found, 0)
    return [_as_tensor(found)]


@row("scatter_object_list", "", modes=("sync",))
def _scatter_objects(mode: Mode, rank: int, size: int) -> Tensors:
    found: list[object] = [None]
    given = [{"for": r, "pad": "z" * r} for r in range(size)] if rank == 0 else None
    dist.scatter_object_list(found, given, 0)
    return [_as_tensor(found)]


@row("send_object_list, recv_object_list", "", modes=("sync",))
def _send_objects(mode: Mode, rank: int, size: int) -> Tensors:
    found: list[object] = [None, None]
    if rank == 0:
        for target in range(1, size):
            dist.send_object_list([target, "w" * target], target)
    else:
        dist.recv_object_list(found, 0)
    return [_as_tensor(found)]


@row(
    "_coalescing_manager",
    "without a device: reduce_scatters",
    lambda rank, size: [sum(data(r + n, (size, 4)) for r in range(size))[rank] for n in range(2)],
    modes=("sync", "async"),
)
def _coalesced_scatters(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [poison(4), poison(4)]
    with dist._coalescing_manager(async_ops=mode.name == "async") as manager:
        for n, out in enumerate(outs):
            reduce_scatter_single(out, data(rank + n, (size, 4)))
    if mode.name == "async":
        manager.wait()
    return outs


@row(
    "_coalescing_manager",
    "without a device: all_reduces",
    lambda rank, size: [sum(data(r + n, 4) for r in range(size)) for n in range(2)],
    modes=("sync", "async"),
)
def _coalesced_reductions(mode: Mode, rank: int, size: int) -> Tensors:
    xs = [data(rank, 4), data(rank + 1, 4)]
    with dist._coalescing_manager(async_ops=mode.name == "async") as manager:
        for x in xs:
            dist.all_reduce(x)
    if mode.name == "async":
        manager.wait()
    return xs


@row(
    "_coalescing_manager",
    "with a device: gathers and messages",
    lambda rank, size: [
        torch.stack([data(r, 3) for r in range(size)]),
        data((rank - 1) % size, 4),
    ],
    modes=("sync", "async"),
    least=2,
)
def _coalesced_device(mode: Mode, rank: int, size: int) -> Tensors:
    outs = [poison((size, 3)), poison(4)]
    device = torch.device("cpu")
    with dist._coalescing_manager(device=device, async_ops=mode.name == "async") as manager:
        all_gather_single(outs[0], data(rank, 3), async_op=mode.name == "async")
        dist.isend(data(rank, 4), (rank + 1) % size)
        dist.irecv(outs[1], (rank - 1) % size)
    if mode.name == "async":
        manager.wait()
    return outs
