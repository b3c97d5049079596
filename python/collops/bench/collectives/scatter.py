"""Every rank gets the sum of its slices: what ReduceScatter and ReduceScatterV move."""

from __future__ import annotations

from functools import partial
from typing import Any

from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.limit import Part
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Step


class ScatterVariants(CollectiveVariants):
    """x is all slices, the result the sum of one."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "every rank reads its slice of its peers' x and adds it up"),),
        ucx=(
            Algorithm(
                "planned", "a slice crosses as it is, or in a running sum if that moves fewer bytes"
            ),
        ),
    )

    def x_rows(self, rank: int) -> int:
        """Elements of all slices."""
        return sum(self.counts)

    def result_rows(self) -> int:
        """Elements of this rank's slice."""
        return self.counts[self.rank]

    def expected(self) -> Bits:
        """The sum of this rank's slices."""
        return self.sum_of(self.starts[self.rank], self.counts[self.rank])

    def parts(self) -> list[Part]:
        """The sum of this rank's slice of every rank's x."""
        begin = self.starts[self.rank]
        ranks = ((self.rank + i) % self.size for i in range(self.size))
        return [Part(0, self.counts[self.rank], tuple((rank, begin) for rank in ranks))]

    def busiest(self) -> int:
        """What the rank with the smallest slice gives to the others."""
        return sum(self.counts) - min(self.counts)

    def gloo_calls(self) -> Calls:
        """reduce_scatter of even slices; all_reduce; and what moves slices, which torch adds up."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        if len(set(self.counts)) == 1:
            label = "gloo reduce_scatter"
            yield "gloo_reduce_scatter", label, partial(self._native, handle)
        yield "gloo_all_reduce", "gloo all_reduce, own slice", partial(self._reduced, handle)
        for way in self.peers.gloo.WAYS:
            yield f"gloo_{way}", f"gloo {way}, torch.add", partial(self._added, way, handle)

    def _native(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.flat(x), self.element.flat(result)
        return [("move", self.peers.gloo.reduce_scatter(given, got, self.counts, handle))]

    def _reduced(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.flat(x), self.element.flat(result)
        return list(self.peers.gloo.all_reduce(given, got, self.group, handle))

    def _added(self, way: str, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.tensor(x), self.element.tensor(result)
        move, (first, *others) = self.peers.gloo.scatter(way, given, self.group, handle)
        return [("move", move), ("reduce", self.peers.torch.add(first, others, got))]

    def mpi_calls(self) -> Calls:
        """MPI_Reduce_scatter, which adds float32 only."""
        members = self.peers.mpi.Members(0, self.group)
        if self.point.dtype == "f32":
            label = "MPI Reduce_scatter"
            yield "mpi", label, lambda x, out: [("move", members.reduce_scatter(x, out))]
