"""AllGather: blocks of one length."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.collective import collective
from collops.bench.collectives.gather import GatherVariants
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import Calls
from collops.bench.elements import Bits
from collops.bench.measure import Run


class AllGatherVariants(GatherVariants):
    """comm.all_gather()."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level."""
        numbers = self.element.numbers
        return partial(comm.all_gather, numbers(x), numbers(result))

    def mpi_calls(self) -> Calls:
        """MPI_Allgather."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Allgather", lambda x, out: [("move", members.gather_even(x, out))]


OPERATOR = collective(
    "all_gather",
    "AllGather",
    Kind(bytes_are="bytes of the gathered result", divided=True),
    AllGatherVariants,
)
