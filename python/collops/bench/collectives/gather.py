"""Every rank gets the blocks of all: what AllGather and AllGatherV move."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.limit import Part
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Step


class GatherVariants(CollectiveVariants):
    """x is a rank's block, the result is all blocks."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "every rank reads its peers' blocks"),),
        ucx=(Algorithm("direct", "a block crosses once to each other host, whose ranks share it"),),
    )

    def x_rows(self, rank: int) -> int:
        """Elements of a rank's block."""
        return self.counts[rank]

    def result_rows(self) -> int:
        """Elements of all blocks."""
        return sum(self.counts)

    def expected(self) -> Bits:
        """All blocks, in rank order."""
        return np.concatenate([self.x_of(rank) for rank in range(self.size)])

    def parts(self) -> list[Part]:
        """Every rank's block, this one's first."""
        ranks = [(self.rank + i) % self.size for i in range(self.size)]
        return [Part(self.starts[rank], self.counts[rank], ((rank, 0),)) for rank in ranks]

    def busiest(self) -> int:
        """What the rank with the smallest block receives from the others."""
        return sum(self.counts) - min(self.counts)

    def gloo_calls(self) -> Calls:
        """all_gather of blocks that are padded to one length, and what moves blocks as they are."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        padded = ", padded" if len(set(self.counts)) > 1 else ""
        yield "gloo_all_gather", f"gloo all_gather{padded}", partial(self._padded, handle)
        for way in self.peers.gloo.WAYS:
            yield f"gloo_{way}", f"gloo {way}", partial(self._moved, way, handle)

    def _padded(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.flat(x), self.element.flat(result)
        return list(self.peers.gloo.all_gather(given, got, self.counts, handle))

    def _moved(self, way: str, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.tensor(x), self.element.tensor(result)
        return [("move", self.peers.gloo.gather(way, given, got, self.group, handle))]

    def mpi_calls(self) -> Calls:
        """MPI_Allgatherv."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Allgatherv", lambda x, result: [("move", members.gather(x, result))]
