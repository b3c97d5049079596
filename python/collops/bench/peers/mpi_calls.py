"""MPI's collectives through mpi4py, which only this file of the benchmark imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mpi4py import MPI

if TYPE_CHECKING:
    from collections.abc import Callable

    from collops.bench.elements import Bits
    from collops.bench.groups import Group

WAYS = ("reduce_scatter", "alltoallv")


def loaded_name() -> str:
    """Name and version of the MPI library, such as "Open MPI v5.0.11"."""
    return str(MPI.Get_library_version()).strip("\0 \n").splitlines()[0].split(",")[0].strip()


def communicator(color: int, own: Group) -> Any:
    """The communicator of a group; every rank calls it."""
    return MPI.COMM_WORLD.Split(color, own.index)


def rank_and_size() -> tuple[int, int]:
    """Who this process is for MPI."""
    return int(MPI.COMM_WORLD.Get_rank()), int(MPI.COMM_WORLD.Get_size())


def gather(x: Bits, out: Bits, own: Group, handle: Any) -> Callable[[], object]:
    """MPI_Allgatherv."""
    kind, k = _type(x), out.shape[1]
    given = [x, x.size, kind]
    got = [out, (own.counts(k), own.displs(k)), kind]
    return lambda: handle.Allgatherv(given, got)


def reduce_scatter(product: Bits, out: Bits, own: Group, handle: Any) -> Callable[[], object]:
    """MPI_Reduce_scatter of float32."""
    given = [product, product.size, MPI.FLOAT]
    got = [out, out.size, MPI.FLOAT]
    counts = own.counts(product.shape[1])
    return lambda: handle.Reduce_scatter(given, got, counts, MPI.SUM)


def exchange(product: Bits, got: Bits, own: Group, handle: Any) -> Callable[[], object]:
    """MPI_Alltoallv of what the others add up; got[q] is member q's, the own part stays away."""
    kind, n = _type(product), product.shape[1]
    block = own.own_rows * n
    sent, taken = own.counts(n), [block] * own.size
    sent[own.index] = taken[own.index] = 0
    given = [product, (sent, own.displs(n)), kind]
    into = [got, (taken, [q * block for q in range(own.size)]), kind]
    return lambda: handle.Alltoallv(given, into)


def _type(bits: Bits) -> Any:
    return MPI.FLOAT if bits.itemsize == 4 else MPI.UINT16_T
