"""ReduceScatterV: slices of any lengths, through collops.Operation."""

from __future__ import annotations

from typing import Any

import numpy as np

import collops
from collops.bench.collectives.collective import collective
from collops.bench.collectives.points import Kind
from collops.bench.collectives.scatter import ScatterVariants
from collops.bench.elements import Bits
from collops.bench.measure import Run


class ReduceScatterVVariants(ScatterVariants):
    """The operator of the ATB level, planned before."""

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """What goes to each rank, and where it lies, then what a rank receives, and its length."""
        counts, starts = np.array(self.counts, np.int64), np.array(self.starts, np.int64)
        own = counts[comm.rank : comm.rank + 1]
        ins = self.element.numbers(x), counts, starts, own, np.empty(len(result), np.float16)
        return self.operation(comm, collops.ReduceScatterVParam, ins, result)


OPERATOR = collective(
    "reduce_scatter_v",
    "ReduceScatterV",
    Kind(bytes_are="bytes of each rank's x", skewed=True),
    ReduceScatterVVariants,
    on_gpu=True,
)
