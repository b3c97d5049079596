"""AllReduce: every rank gets the sum of all vectors."""

from __future__ import annotations

from functools import partial
from typing import Any

import collops
from collops.bench.collectives.algorithms import Algorithm, Algorithms
from collops.bench.collectives.collective import collective
from collops.bench.collectives.limit import Part
from collops.bench.collectives.points import Kind
from collops.bench.collectives.variants import Calls, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.measure import Run, Step
from collops.core import core

# The sizes of the core's table up to which AllReduce takes one step: of 2 ranks, and of more.
TWO_RANKS, MORE_RANKS = "all_reduce_one_step_2", "all_reduce_one_step"


def _always(size: str) -> str:
    return f"{TWO_RANKS}={size},{MORE_RANKS}={size}"


ONE_STEP = Algorithm("1 step", "every rank reads all vectors and adds them up", _always("1024g"))
TWO_STEPS = Algorithm("2 steps", "a ReduceScatterV, then an AllGatherV", _always("0"))


def size_of(ranks: int) -> str:
    """The name of the size that counts for a number of ranks."""
    return TWO_RANKS if ranks <= 2 else MORE_RANKS


class AllReduceVariants(CollectiveVariants):
    """x is a vector, the result the sum of all."""

    algorithms = Algorithms(
        shm=(ONE_STEP, TWO_STEPS),
        ucx=(Algorithm(TWO_STEPS.name, f"{TWO_STEPS.how}, at every size"),),
    )

    def algorithm(self) -> Algorithm:
        """On one host one step up to a size of the core's table, as shm/all_reduce.cpp has it."""
        if len(self.ways) == 1:
            return super().algorithm()
        now = {name: size for name, _, size, _ in core().tuned_sizes()}
        return ONE_STEP if self.point.size <= now[size_of(self.size)] else TWO_STEPS

    def x_rows(self, rank: int) -> int:
        """Elements of the vector."""
        return sum(self.counts)

    def result_rows(self) -> int:
        """Elements of the sum."""
        return sum(self.counts)

    def expected(self) -> Bits:
        """The sum."""
        return self.sum_of(0, sum(self.counts))

    def parts(self) -> list[Part]:
        """The sum of this rank's share, and the shares of the others from their results."""
        ranks = [(self.rank + i) % self.size for i in range(self.size)]
        begin, length = self.starts[self.rank], self.counts[self.rank]
        shares = [
            Part(self.starts[rank], self.counts[rank], ((rank, self.starts[rank]),), True)
            for rank in ranks[1:]
        ]
        return [Part(begin, length, tuple((rank, begin) for rank in ranks)), *shares]

    def busiest(self) -> int:
        """What each rank gives as its part of the sums, and receives of them."""
        return 2 * (self.size - 1) * sum(self.counts) // self.size

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """The call of the plain level; on a GPU the operator, which takes a stream."""
        numbers = self.element.numbers
        if self.place.backend:
            return self.operation(comm, collops.AllReduceParam, [numbers(x)], result)
        return partial(comm.all_reduce, numbers(x), "sum", numbers(result))

    def gloo_calls(self) -> Calls:
        """all_reduce, in place on a copy of x."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        yield "gloo", "gloo all_reduce of a copy", partial(self._copied, handle)

    def _copied(self, handle: Any, x: Bits, result: Bits) -> list[Step]:
        given, got = self.element.flat(x), self.element.flat(result)
        return [("copy", partial(got.copy_, given)), ("move", self.peers.gloo.add_up(got, handle))]

    def mpi_calls(self) -> Calls:
        """MPI_Allreduce, which adds float32 only."""
        members = self.peers.mpi.Members(0, self.group)
        if self.point.dtype == "f32":
            yield "mpi", "MPI Allreduce", lambda x, out: [("move", members.all_reduce(x, out))]


OPERATOR = collective(
    "all_reduce",
    "AllReduce",
    Kind(bytes_are="bytes of each rank's x"),
    AllReduceVariants,
    on_gpu=True,
)
