"""AllToAllV: parts of any lengths, the same on every rank."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.collective import collective
from collops.bench.collectives.exchange import ExchangeVariants
from collops.bench.collectives.points import Kind
from collops.bench.elements import Bits
from collops.bench.measure import Run


class AllToAllVVariants(ExchangeVariants):
    """comm.all_to_allv()."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level, with the lengths on both sides."""
        numbers = self.element.numbers
        taken = [self.counts[comm.rank]] * comm.size
        return partial(comm.all_to_allv, numbers(x), list(self.counts), taken, numbers(result))


OPERATOR = collective(
    "all_to_all_v",
    "AllToAllV",
    Kind(bytes_are="bytes of each rank's x, whose parts for the ranks --skew gives", skewed=True),
    AllToAllVVariants,
)
