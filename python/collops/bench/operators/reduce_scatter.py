"""ReduceScatter: slices of one length."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.collective import collective
from collops.bench.collectives.points import Kind
from collops.bench.collectives.scatter import ScatterVariants
from collops.bench.elements import Bits
from collops.bench.variant import Run


class ReduceScatterVariants(ScatterVariants):
    """comm.reduce_scatter()."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level."""
        numbers = self.element.numbers
        return partial(comm.reduce_scatter, numbers(x), "sum", numbers(result))


OPERATOR = collective(
    "reduce_scatter",
    "ReduceScatter",
    Kind(bytes_are="bytes of each rank's x", divided=True),
    ReduceScatterVariants,
)
