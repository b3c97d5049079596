"""Barrier: no data."""

from __future__ import annotations

from typing import Any

from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.collective import collective
from collops.bench.collectives.limit import Part
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Run


class BarrierVariants(CollectiveVariants):
    """There is no x and no result."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "every rank signals to all, and waits for the signals of all"),),
        ucx=(
            Algorithm(
                "direct",
                "the ranks of a host signal as on shm, then each exchanges one message with a rank "
                "of each other host",
            ),
        ),
    )

    def x_rows(self, rank: int) -> int:
        """Nothing."""
        return 0

    def result_rows(self) -> int:
        """Nothing."""
        return 0

    def parts(self) -> list[Part]:
        """Nothing."""
        return []

    def busiest(self) -> int:
        """Nothing."""
        return 0

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """Nothing to rewrite, and no result to compare."""
        return None, self.element.matrix(0, 1), None

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level."""
        call: Run = comm.barrier
        return call

    def gloo_calls(self) -> Calls:
        """torch.distributed's barrier."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        yield "gloo", "gloo barrier", lambda x, _: [("move", self.peers.gloo.barrier(handle))]

    def mpi_calls(self) -> Calls:
        """MPI_Barrier."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Barrier", lambda x, _: [("move", members.barrier())]


OPERATOR = collective("barrier", "Barrier", Kind(bytes_are=""), BarrierVariants)
