"""MPI's calls through mpi4py, which only this file of the benchmark imports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mpi4py import MPI

from collops.bench.elements import Bits, fresh_memory
from collops.bench.shares import Group

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
        return partial(self._handle.Allgather, _of(x), _of(out, x.size))

    def reduce_scatter_even(self, x: Bits, out: Bits) -> Run:
        """MPI_Reduce_scatter_block; mpi4py takes the length of a block for both."""
        given = _of(x, out.size), _of(out), MPI.SUM
        return partial(self._handle.Reduce_scatter_block, *given)

    def swap_even(self, x: Bits, out: Bits) -> Run:
        """MPI_Alltoall."""
        part = x.size // self._own.size
        return partial(self._handle.Alltoall, _of(x, part), _of(out, part))

    def swap(self, x: Bits, out: Bits) -> Run:
        """MPI_Alltoallv of parts that are as long on every rank."""
        own, kind = self._own, _type(x)
        taken = [own.own_rows] * own.size
        given = [x, (own.counts(1), own.displs(1)), kind]
        into = [out, (taken, [q * own.own_rows for q in range(own.size)]), kind]
        return lambda: self._handle.Alltoallv(given, into)

    def all_reduce(self, x: Bits, out: Bits) -> Run:
        """MPI_Allreduce."""
        return partial(self._handle.Allreduce, _of(x), _of(out), MPI.SUM)

    def broadcast(self, x: Bits, _: Bits) -> Run:
        """MPI_Bcast from rank 0."""
        return partial(self._handle.Bcast, _of(x), 0)

    def pass_on(self, x: Bits, out: Bits) -> Run:
        """MPI_Sendrecv to the next rank and from the one before."""
        rank, size = self._own.index, self._own.size
        after, before = (rank + 1) % size, (rank - 1) % size
        given = {"recvbuf": _of(out), "source": before}
        return partial(self._handle.Sendrecv, _of(x), after, **given)

    def barrier(self, _: Bits, __: Bits) -> Run:
        """MPI_Barrier."""
        call: Run = self._handle.Barrier
        return call


# Of each collective the name of MPI's function, the method, and whether it adds, which MPI does
# with float32 only.
_COLLECTIVES = {
    "all_gather": ("Allgather", Members.gather_even, False),
    "all_gather_v": ("Allgatherv", Members.gather, False),
    "all_reduce": ("Allreduce", Members.all_reduce, True),
    "all_to_all": ("Alltoall", Members.swap_even, False),
    "all_to_all_v": ("Alltoallv", Members.swap, False),
    "barrier": ("Barrier", Members.barrier, False),
    "broadcast": ("Bcast", Members.broadcast, False),
    "reduce_scatter": ("Reduce_scatter_block", Members.reduce_scatter_even, True),
    "reduce_scatter_v": ("Reduce_scatter", Members.reduce_scatter, True),
    "send_recv": ("Sendrecv", Members.pass_on, False),
}


def collective(own: Any) -> Iterator[tuple[str, str, Any]]:
    """MPI's call of a collective: key, label, and the steps of an x and a result."""
    name, call, adds = _COLLECTIVES[own.name]
    members = Members(0, own.group)
    if not adds or own.point.dtype == "f32":
        yield "mpi", f"MPI {name}", lambda x, out: [("move", call(members, x, out))]


def _of(bits: Bits, count: int | None = None) -> list[Any]:
    return [bits, bits.size if count is None else count, _type(bits)]


def _type(bits: Bits) -> Any:
    return MPI.FLOAT if bits.itemsize == 4 else MPI.UINT16_T
