"""AllGatherV: blocks of any lengths, through collops.Operation."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.bench.collectives.collective import collective
from collops.bench.collectives.gather import GatherVariants
from collops.bench.collectives.points import Kind
from collops.bench.elements import Bits
from collops.bench.measure import Run


class AllGatherVVariants(GatherVariants):
    """The operator of the ATB level, planned before."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """What a rank sends, then what comes from each rank, where it goes, and its length."""
        counts, starts = np.array(self.counts, np.int64), np.array(self.starts, np.int64)
        own = counts[comm.rank : comm.rank + 1]
        ins = self.element.numbers(x), own, counts, starts, np.empty(len(result), np.float16)
        return self.operation(comm, collops.AllGatherVParam, ins, result)


OPERATOR = collective(
    "all_gather_v",
    "AllGatherV",
    Kind(bytes_are="bytes of the gathered result", skewed=True),
    AllGatherVVariants,
    on_gpu=True,
)
