"""Every rank has a part for each rank: what AllToAll and AllToAllV move."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.limit import Part
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Step


class ExchangeVariants(CollectiveVariants):
    """x is the parts for all ranks, as long on every rank; the result is all parts for this one."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "every rank reads its peers' parts for it"),),
        ucx=(Algorithm("direct", "a part for a rank of another host crosses by itself"),),
    )

    def x_rows(self, rank: int) -> int:
        """Elements of the parts for all ranks."""
        return sum(self.counts)

    def result_rows(self) -> int:
        """Elements of the parts for this rank."""
        return self.size * self.counts[self.rank]

    def expected(self) -> Bits:
        """The parts for this rank, in rank order."""
        begin, length = self.starts[self.rank], self.counts[self.rank]
        return np.concatenate(
            [self.x_of(rank)[begin : begin + length] for rank in self.group.ranks]
        )

    def parts(self) -> list[Part]:
        """Every rank's part for this one, its own first."""
        begin, length = self.starts[self.rank], self.counts[self.rank]
        ranks = ((self.rank + i) % self.size for i in range(self.size))
        return [Part(rank * length, length, ((rank, begin),)) for rank in ranks]

    def busiest(self) -> int:
        """The most that a rank gives to others, or receives from them."""
        total = sum(self.counts)
        return max(total - min(self.counts), (self.size - 1) * max(self.counts))

    def gloo_calls(self) -> Calls:
        """all_to_all_single."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        yield "gloo", "gloo all_to_all_single", partial(self._single, handle)

    def _single(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.flat(x), self.element.flat(result)
        return [("move", self.peers.gloo.swap(given, got, self.group, handle))]

    def mpi_calls(self) -> Calls:
        """MPI_Alltoallv."""
        members = self.peers.mpi.Members(0, self.group)
        yield "mpi", "MPI Alltoallv", lambda x, out: [("move", members.swap(x, out))]
