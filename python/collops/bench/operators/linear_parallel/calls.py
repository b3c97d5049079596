"""LinearParallel as single calls of collops, or of torch with MPI or gloo."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import collops
from collops.bench.elements import Bits
from collops.bench.groups import Group
from collops.bench.variant import Run, Step

if TYPE_CHECKING:
    from collops.bench.operators.linear_parallel.variants import LinearVariants

# Takes a matrix and the memory of its product with the weight; returns a call and scratch bytes.
Multiply = Callable[[Bits, Bits], tuple[Run, int]]


class Calls(NamedTuple):
    """The calls of one variant; each takes a matrix to read and a matrix to write."""

    gather: Callable[[Bits, Bits], Run]
    multiply: Multiply
    scatter: Callable[[Bits, Bits], list[Step]]


def of_plain_level(own: LinearVariants) -> Calls:
    """The calls of collops' plain level."""
    (gather, scatter), numbers = own.groups, own.element.numbers
    comm, gather_comm, scatter_comm = own.communicators()

    def gathered(x: Bits, rows: Bits) -> Run:
        given, got = numbers(x), numbers(rows)
        return lambda: gather_comm.all_gatherv(given, gather.rows, out=got)

    def scattered(product: Bits, result: Bits) -> list[Step]:
        given, got = numbers(product), numbers(result)
        return [("scatter", lambda: scatter_comm.reduce_scatterv(given, scatter.rows, out=got))]

    product = partial(own.planned, comm, collops.ParallelType.PURE_LINEAR)
    return Calls(gathered, product, scattered)


def of_operators(own: LinearVariants) -> Calls:
    """The operators of the ATB level one after the other, on the rank's stream."""
    (gather, scatter), numbers = own.groups, own.element.numbers
    comm, gather_comm, scatter_comm = own.communicators()

    def gathered(x: Bits, rows: Bits) -> Run:
        counts, starts, own_count, y = _vectors(gather, rows.shape)
        ins = [numbers(x), own_count, counts, starts, y]
        return own.operation(gather_comm, collops.AllGatherVParam, ins, rows)

    def scattered(product: Bits, result: Bits) -> list[Step]:
        counts, starts, own_count, y = _vectors(scatter, result.shape)
        ins = [numbers(product), counts, starts, own_count, y]
        return [("scatter", own.operation(scatter_comm, collops.ReduceScatterVParam, ins, result))]

    product = partial(own.planned, comm, collops.ParallelType.PURE_LINEAR)
    return Calls(gathered, product, scattered)


def _vectors(group: Group, shape: tuple[int, ...]) -> tuple[Any, Any, Any, Any]:
    """Counts and places in elements, this rank's count, and an array with the result's rows."""
    counts = np.array(group.counts(shape[1]), np.int64)
    starts = np.array(group.displs(shape[1]), np.int64)
    own_count = counts[group.index : group.index + 1]
    return counts, starts, own_count, np.empty(shape[0], np.float16)


def of_mpi(own: LinearVariants) -> Iterator[tuple[str, Calls]]:
    """The variants of MPI for this point."""
    mpi = own.peers.mpi
    if mpi is None:
        return
    (gather, scatter), tensor = own.groups, own.element.tensor
    rows, sums = mpi.Members(scatter.index, gather), mpi.Members(gather.index, scatter)

    def exchange(given: Bits) -> tuple[Run, list[Any]]:
        step, parts = sums.exchange(given)
        return step, [tensor(part) for part in parts]

    def native(given: Bits, result: Bits) -> list[Step]:
        return [("scatter", sums.reduce_scatter(given, result))]

    if scatter.size > 1 and own.point.dtype == "f32":
        yield "mpi_reduce_scatter", Calls(rows.gather, own.by_torch, native)
    key = "mpi_alltoallv" if scatter.size > 1 else "mpi"
    yield key, Calls(rows.gather, own.by_torch, partial(_summed, own, exchange))


def of_gloo(own: LinearVariants) -> Iterator[tuple[str, Calls]]:
    """The variants of gloo for this point."""
    gloo = own.peers.gloo
    if gloo is None:
        return
    (gather, scatter), tensor, across = own.groups, own.element.tensor, own.point.grid[0]
    rows = [tuple(range(first, first + across)) for first in range(0, own.point.ranks, across)]
    columns = list(zip(*rows, strict=True))
    handles = gloo.group(rows, gather), gloo.group(columns, scatter)

    def gathered(way: str, x: Bits, out: Bits) -> Any:
        return gloo.gather(way, tensor(x), tensor(out), gather, handles[0])

    def exchange(way: str, given: Bits) -> Any:
        return gloo.scatter(way, tensor(given), scatter, handles[1])

    for way in gloo.WAYS:
        summed = partial(_summed, own, partial(exchange, way))
        yield f"gloo_{way}", Calls(partial(gathered, way), own.by_torch, summed)


def _summed(
    own: LinearVariants,
    exchange: Callable[[Bits], tuple[Run, list[Any]]],
    product: Bits,
    result: Bits,
) -> list[Step]:
    """An exchange of the parts of this rank's rows, and their sum by torch."""
    step, (first, *others) = exchange(product)
    added = own.peers.torch.add(first, others, own.element.tensor(result))
    return [("scatter", step), ("reduce", added)]
