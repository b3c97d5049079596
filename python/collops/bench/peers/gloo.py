"""torch beside collops: its matmul, and the collectives of torch.distributed on gloo."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collops.bench.shares import Group

Step = tuple[str, Callable[[], object]]
# Key, label, and what makes the steps of an x and a result.
Ways = Iterator[tuple[str, str, Callable[[Any, Any], list[Step]]]]


def torch_tensor(bits: Any, name: str) -> Any:
    """A tensor of the element type `name` in the memory of an array of integers."""
    return torch.from_numpy(bits).view(getattr(torch, name))


def set_threads(threads: int) -> None:
    """Sets the number of threads of a product."""
    torch.set_num_threads(threads)


def matmul(x: Any, weight: Any, out: Any) -> Callable[[], object]:
    """``out = x @ weight.T``, as a layer of torch.nn stores its weight."""
    turned = weight.t()
    return lambda: torch.mm(x, turned, out=out)


def add(first: Any, others: Sequence[Any], out: Any) -> Callable[[], object]:
    """``out = first + others[0] + ...``, one vectorised pass for each."""

    def run() -> None:
        total = first
        for other in others:
            total = torch.add(total, other, out=out)

    return run


class Gloo:
    """Uneven collectives on torch.distributed's gloo, in two variants."""

    WAYS = ("isend_irecv", "all_to_all")

    def __init__(self, store: str, rank: int, size: int) -> None:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=size)
        self._cores = os.sched_getaffinity(0)
        self._groups: dict[tuple[int, ...], Any] = {}

    def group(self, ranks: Sequence[tuple[int, ...]], own: Group) -> Any:
        """The process group of `own`; every rank creates all groups in the same order."""
        pinned = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)  # for the threads that a group starts
        for members in ranks:
            if members not in self._groups:
                self._groups[members] = dist.new_group(list(members))
        os.sched_setaffinity(0, pinned)
        return self._groups[own.ranks]

    def close(self) -> None:
        """Leaves the process group."""
        dist.destroy_process_group()

    def gather(self, way: str, x: Any, out: Any, own: Group, handle: Any) -> Callable[[], object]:
        """Gathers every member's rows of x on all members."""
        k = x.shape[1]
        parts = torch.split(out, list(own.rows))
        if way == "isend_irecv":
            return partial(_exchange, own, handle, [x] * own.size, parts, x)
        copies = x.new_empty((own.size, *x.shape))
        given = [x.numel()] * own.size

        def run() -> None:
            copies.copy_(x)
            dist.all_to_all_single(
                out.view(-1), copies.view(-1), own.counts(k), given, group=handle
            )

        return run

    def scatter(self, way: str, product: Any, own: Group, handle: Any) -> tuple[Any, list[Any]]:
        """A call that receives the others' parts of this rank's rows, and the parts."""
        n = product.shape[1]
        parts = torch.split(product, list(own.rows))
        got = product.new_empty((own.size, own.own_rows, n))
        if way == "isend_irecv":
            others = [got[q] for q in range(own.size) if q != own.index]
            return partial(_exchange, own, handle, parts, got, None), [parts[own.index], *others]
        taken = [own.own_rows * n] * own.size
        flat = got.view(-1), product.view(-1), taken, own.counts(n)
        return partial(dist.all_to_all_single, *flat, group=handle), list(got)

    def collective(self, own: Any) -> Ways:
        """The ways to make a collective: key, label, and the steps of an x and a result."""
        handle = self.group([own.group.ranks], own.group)
        if own.name.startswith("all_gather"):
            yield from self._gathers(own, handle)
        elif own.name.startswith("reduce_scatter"):
            yield from self._scatters(own, handle)
        else:
            name = own.name.removesuffix("_v")  # the parts are as long on every rank

            def steps(x: Any, out: Any) -> list[Step]:
                return _steps(name, own, handle, own.element.flat(x), own.element.flat(out))

            yield "gloo", _LABELS[name], steps

    def _gathers(self, own: Any, handle: Any) -> Ways:
        """all_gather of blocks that are padded to one length, and what moves blocks as they are."""
        padded = ", padded" if len(set(own.counts)) > 1 else ""
        flat, tensor = own.element.flat, own.element.tensor
        key, label = "gloo_all_gather", f"gloo all_gather{padded}"
        yield key, label, lambda x, out: _padded(flat(x), flat(out), own.counts, handle)

        def moved(way: str, x: Any, out: Any) -> list[Step]:
            return [("move", self.gather(way, tensor(x), tensor(out), own.group, handle))]

        for way in self.WAYS:
            yield f"gloo_{way}", f"gloo {way}", partial(moved, way)

    def _scatters(self, own: Any, handle: Any) -> Ways:
        """reduce_scatter of even slices; all_reduce; and what moves slices, which torch adds up."""
        counts, flat, tensor = list(own.counts), own.element.flat, own.element.tensor

        def native(x: Any, out: Any) -> list[Step]:
            parts = list(torch.split(flat(x), counts))
            return [("move", partial(dist.reduce_scatter, flat(out), parts, group=handle))]

        def reduced(x: Any, out: Any) -> list[Step]:
            total = torch.empty_like(flat(x))
            slice_ = torch.split(total, counts)[own.rank]
            return [
                ("copy", partial(total.copy_, flat(x))),
                ("move", partial(dist.all_reduce, total, group=handle)),
                ("reduce", partial(flat(out).copy_, slice_)),
            ]

        def added(way: str, x: Any, out: Any) -> list[Step]:
            move, (first, *others) = self.scatter(way, tensor(x), own.group, handle)
            return [("move", move), ("reduce", add(first, others, tensor(out)))]

        if len(set(counts)) == 1:  # and where torch has it for gloo
            yield "gloo_reduce_scatter", "gloo reduce_scatter", native
        yield "gloo_all_reduce", "gloo all_reduce, own slice", reduced
        for way in self.WAYS:
            yield f"gloo_{way}", f"gloo {way}, torch.add", partial(added, way)


_LABELS = {
    "all_reduce": "gloo all_reduce of a copy",
    "all_to_all": "gloo all_to_all_single",
    "barrier": "gloo barrier",
    "broadcast": "gloo broadcast",
    "send_recv": "gloo isend, irecv",
}


def _steps(name: str, own: Any, handle: Any, x: Any, out: Any) -> list[Step]:
    """The steps of a call that torch has in one way."""
    if name == "all_reduce":
        move = partial(dist.all_reduce, out, group=handle)
        return [("copy", partial(out.copy_, x)), ("move", move)]
    taken = [own.group.own_rows] * own.size
    calls: dict[str, Callable[[], object]] = {
        "all_to_all": partial(
            dist.all_to_all_single, out, x, taken, list(own.counts), group=handle
        ),
        "barrier": partial(dist.barrier, group=handle),
        "broadcast": partial(dist.broadcast, x, 0, group=handle),
        "send_recv": partial(_pass_on, own, handle, x, out),
    }
    return [("move", calls[name])]


def _pass_on(own: Any, handle: Any, x: Any, out: Any) -> None:
    """Sends x to the next rank, and receives from the one before."""
    waits = [
        dist.irecv(out, own.before, group=handle),
        dist.isend(x, own.after, group=handle),
    ]
    for wait in waits:
        wait.wait()


def _padded(x: Any, out: Any, counts: Sequence[int], handle: Any) -> list[Step]:
    """all_gather, which needs blocks of one length: others are padded, and copied out."""
    parts = list(torch.split(out, list(counts)))
    if len(set(counts)) == 1:
        return [("move", partial(dist.all_gather, parts, x, group=handle))]
    padded = x.new_zeros(max(counts))
    got = [torch.empty_like(padded) for _ in counts]
    copies = [(part, full[: part.numel()]) for part, full in zip(parts, got, strict=True)]

    def copy() -> None:
        for part, block in copies:
            part.copy_(block)

    return [
        ("pad", partial(padded[: x.numel()].copy_, x)),
        ("move", partial(dist.all_gather, got, padded, group=handle)),
        ("copy", copy),
    ]


def _exchange(own: Group, handle: Any, given: Any, got: Any, kept: Any) -> None:
    """Sends given[q] to member q, receives got[q] from it, and copies `kept` to its own place."""
    others = [(q, rank) for q, rank in enumerate(own.ranks) if q != own.index]
    waits = [dist.irecv(got[q], rank, group=handle) for q, rank in others]
    waits += [dist.isend(given[q], rank, group=handle) for q, rank in others]
    if kept is not None:
        got[own.index].copy_(kept)
    for wait in waits:
        wait.wait()
