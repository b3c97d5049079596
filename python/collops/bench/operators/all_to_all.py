"""AllToAll: parts of one length, through collops.Operation."""

from __future__ import annotations

from typing import Any

import collops
from collops.bench.collectives.collective import collective
from collops.bench.collectives.exchange import ExchangeVariants
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import Calls
from collops.bench.elements import Bits
from collops.bench.measure import Run


class AllToAllVariants(ExchangeVariants):
    """The operator of the ATB level, planned before."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the operator."""
        return self.operation(comm, collops.AllToAllParam, [self.element.numbers(x)], result)

    def mpi_calls(self) -> Calls:
        """MPI_Alltoall."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Alltoall", lambda x, out: [("move", members.swap_even(x, out))]


OPERATOR = collective(
    "all_to_all",
    "AllToAll",
    Kind(bytes_are="bytes of each rank's x", divided=True),
    AllToAllVariants,
    on_gpu=True,
)
