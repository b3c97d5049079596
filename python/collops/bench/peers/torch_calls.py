"""torch, which only this file of the benchmark imports: matmul, and collectives over gloo."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collops.bench.groups import Group


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
    """Uneven collectives on torch.distributed's gloo, in two variants.

    Args:
        store: URL at which the ranks meet, such as file:// and a file that does not exist yet.
        rank: this rank.
        size: number of ranks.
    """

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

    def all_gather(
        self, x: Any, out: Any, counts: Sequence[int], handle: Any
    ) -> list[tuple[str, Callable[[], object]]]:
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

    def reduce_scatter(
        self, x: Any, out: Any, counts: Sequence[int], handle: Any
    ) -> Callable[[], object]:
        """reduce_scatter, which needs slices of one length, and a torch that has it for gloo."""
        return partial(dist.reduce_scatter, out, list(torch.split(x, list(counts))), group=handle)

    def all_reduce(
        self, x: Any, out: Any, own: Group, handle: Any
    ) -> list[tuple[str, Callable[[], object]]]:
        """all_reduce of a copy of x, and this rank's slice of it."""
        total = torch.empty_like(x)
        begin = own.displs(1)[own.index]
        slice_ = total[begin : begin + own.own_rows]
        return [
            ("copy", partial(total.copy_, x)),
            ("move", partial(dist.all_reduce, total, group=handle)),
            ("reduce", partial(out.copy_, slice_)),
        ]

    def swap(self, x: Any, out: Any, own: Group, handle: Any) -> Callable[[], object]:
        """all_to_all_single of parts that are as long on every rank."""
        taken = [own.own_rows] * own.size
        return partial(dist.all_to_all_single, out, x, taken, own.counts(1), group=handle)

    def add_up(self, x: Any, handle: Any) -> Callable[[], object]:
        """all_reduce, in place."""
        return partial(dist.all_reduce, x, group=handle)

    def broadcast(self, x: Any, root: int, handle: Any) -> Callable[[], object]:
        """broadcast, in place."""
        return partial(dist.broadcast, x, root, group=handle)

    def pass_on(self, x: Any, out: Any, ends: tuple[int, int], handle: Any) -> Callable[[], object]:
        """isend to the first of two ranks, and irecv from the second."""
        after, before = ends

        def run() -> None:
            waits = [dist.irecv(out, before, group=handle), dist.isend(x, after, group=handle)]
            for wait in waits:
                wait.wait()

        return run

    def barrier(self, handle: Any) -> Callable[[], object]:
        """barrier."""
        return partial(dist.barrier, group=handle)


def _exchange(own: Group, handle: Any, given: Any, got: Any, kept: Any) -> None:
    """Sends given[q] to member q, receives got[q] from it, and copies `kept` to its own place."""
    others = [(q, rank) for q, rank in enumerate(own.ranks) if q != own.index]
    waits = [dist.irecv(got[q], rank, group=handle) for q, rank in others]
    waits += [dist.isend(given[q], rank, group=handle) for q, rank in others]
    if kept is not None:
        got[own.index].copy_(kept)
    for wait in waits:
        wait.wait()
