"""ReduceScatter: slices of one length."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.collective import collective
from collops.bench.collectives.points import Kind
from collops.bench.collectives.scatter import ScatterVariants
from collops.bench.collectives.variants import Calls
from collops.bench.elements import Bits
from collops.bench.measure import Run


class ReduceScatterVariants(ScatterVariants):
    """comm.reduce_scatter()."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level."""
        numbers = self.element.numbers
        return partial(comm.reduce_scatter, numbers(x), "sum", numbers(result))

    def mpi_calls(self) -> Calls:
        """MPI_Reduce_scatter_block, which adds float32 only."""
        members = self.peers.mpi.Members(0, self.group)
        if self.point.dtype == "f32":
            label, call = "MPI Reduce_scatter_block", members.reduce_scatter_even
            yield "mpi", label, lambda x, out: [("move", call(x, out))]


OPERATOR = collective(
    "reduce_scatter",
    "ReduceScatter",
    Kind(bytes_are="bytes of each rank's x", divided=True),
    ReduceScatterVariants,
)
