"""MPI's collectives through mpi4py, which only this file of the benchmark imports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi4py import MPI

from collops.bench.elements import Bits, fresh_memory
from collops.bench.groups import Group

Run = Callable[[], object]


def loaded_name() -> str:
    """Name and version of the MPI library, such as "Open MPI v5.0.11"."""
    return str(MPI.Get_library_version()).strip("\0 \n").splitlines()[0].split(",")[0].strip()


def rank_and_size() -> tuple[int, int]:
    """The rank of this process in MPI, and the number of ranks."""
    return int(MPI.COMM_WORLD.Get_rank()), int(MPI.COMM_WORLD.Get_size())


class Members:
    """The MPI communicator of a group; every rank makes one, and ranks of one color are a group."""

    def __init__(self, color: int, own: Group) -> None:
        self._own, self._handle = own, MPI.COMM_WORLD.Split(color, own.index)

    def gather(self, x: Bits, out: Bits) -> Run:
        """MPI_Allgatherv."""
        kind, k = _type(x), out.shape[1]
        given = [x, x.size, kind]
        got = [out, (self._own.counts(k), self._own.displs(k)), kind]
        return lambda: self._handle.Allgatherv(given, got)

    def reduce_scatter(self, product: Bits, out: Bits) -> Run:
        """MPI_Reduce_scatter of float32."""
        given, got = [product, product.size, MPI.FLOAT], [out, out.size, MPI.FLOAT]
        counts = self._own.counts(product.shape[1])
        return lambda: self._handle.Reduce_scatter(given, got, counts, MPI.SUM)

    def exchange(self, product: Bits) -> tuple[Run, list[Bits]]:
        """MPI_Alltoallv of the rows that others add up, and the parts of this rank's rows."""
        own, kind, n = self._own, _type(product), product.shape[1]
        block = own.own_rows * n
        got = fresh_memory(own.size * block * product.itemsize).view(product.dtype)
        parts = got.reshape(own.size, own.own_rows, n)
        sent, taken = own.counts(n), [block] * own.size
        sent[own.index] = taken[own.index] = 0
        given = [product, (sent, own.displs(n)), kind]
        into = [parts, (taken, [q * block for q in range(own.size)]), kind]
        begin = own.displs(1)[own.index]
        mine = product[begin : begin + own.own_rows]
        others = [parts[q] for q in range(own.size) if q != own.index]
        return lambda: self._handle.Alltoallv(given, into), [mine, *others]

    def gather_even(self, x: Bits, out: Bits) -> Run:
        """MPI_Allgather."""
        given, got = [x, x.size, _type(x)], [out, x.size, _type(out)]
        return lambda: self._handle.Allgather(given, got)

    def reduce_scatter_even(self, x: Bits, out: Bits) -> Run:
        """MPI_Reduce_scatter_block of float32; mpi4py takes the length of a block for both."""
        given, got = [x, out.size, MPI.FLOAT], [out, out.size, MPI.FLOAT]
        return lambda: self._handle.Reduce_scatter_block(given, got, MPI.SUM)

    def swap_even(self, x: Bits, out: Bits) -> Run:
        """MPI_Alltoall."""
        part = x.size // self._own.size
        given, got = [x, part, _type(x)], [out, part, _type(out)]
        return lambda: self._handle.Alltoall(given, got)

    def swap(self, x: Bits, out: Bits) -> Run:
        """MPI_Alltoallv of parts that are as long on every rank."""
        own, kind = self._own, _type(x)
        taken = [own.own_rows] * own.size
        given = [x, (own.counts(1), own.displs(1)), kind]
        into = [out, (taken, [q * own.own_rows for q in range(own.size)]), kind]
        return lambda: self._handle.Alltoallv(given, into)

    def all_reduce(self, x: Bits, out: Bits) -> Run:
        """MPI_Allreduce of float32."""
        given, got = [x, x.size, MPI.FLOAT], [out, out.size, MPI.FLOAT]
        return lambda: self._handle.Allreduce(given, got, MPI.SUM)

    def broadcast(self, x: Bits, root: int) -> Run:
        """MPI_Bcast."""
        buffer = [x, x.size, _type(x)]
        return lambda: self._handle.Bcast(buffer, root)

    def pass_on(self, x: Bits, out: Bits, ends: tuple[int, int]) -> Run:
        """MPI_Sendrecv to the first of two ranks and from the second."""
        given, got = [x, x.size, _type(x)], [out, out.size, _type(out)]
        after, before = ends
        return lambda: self._handle.Sendrecv(given, after, recvbuf=got, source=before)

    def barrier(self) -> Run:
        """MPI_Barrier."""
        call: Run = self._handle.Barrier
        return call


def _type(bits: Bits) -> Any:
    return MPI.FLOAT if bits.itemsize == 4 else MPI.UINT16_T
