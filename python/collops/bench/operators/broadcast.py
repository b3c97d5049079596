"""Broadcast: rank 0's vector to all, in place."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.collective import collective
from collops.bench.collectives.limit import Part
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Run

_ROOT = 0


class BroadcastVariants(CollectiveVariants):
    """x is the vector on rank 0, and its place on the others; it is the result, too."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "every rank reads rank 0's vector"),),
        ucx=(Algorithm("direct", "it crosses once to each other host, whose ranks share it"),),
    )

    def x_rows(self, rank: int) -> int:
        """Elements of the vector."""
        return sum(self.counts)

    def result_rows(self) -> int:
        """Elements of the vector."""
        return sum(self.counts)

    def expected(self) -> Bits:
        """Rank 0's vector."""
        return self.x_of(_ROOT)

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """The vector, which rank 0 rewrites and the others do not."""
        _, x, _ = super().buffers(comm)
        if self.rank == _ROOT:
            return x, x, x
        self.element.poison(x)
        return None, x, x

    def parts(self) -> list[Part]:
        """The whole vector, on all ranks but rank 0."""
        return [] if self.rank == _ROOT else [Part(0, sum(self.counts), ((_ROOT, 0),))]

    def busiest(self) -> int:
        """The vector."""
        return sum(self.counts)

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level."""
        return partial(comm.broadcast, self.element.numbers(x), _ROOT)

    def gloo_calls(self) -> Calls:
        """torch.distributed's broadcast."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        call, flat = self.peers.gloo.broadcast, self.element.flat
        yield "gloo", "gloo broadcast", lambda x, _: [("move", call(flat(x), _ROOT, handle))]

    def mpi_calls(self) -> Calls:
        """MPI_Bcast."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Bcast", lambda x, _: [("move", members.broadcast(x, _ROOT))]


OPERATOR = collective(
    "broadcast", "Broadcast", Kind(bytes_are="bytes of rank 0's vector"), BroadcastVariants
)
