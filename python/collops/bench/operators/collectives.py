"""What each collective moves, its algorithms, and collops's call."""

from __future__ import annotations

from functools import partial
from typing import Any

import collops
from collops.bench.collectives import Algorithm, Collective, CollectiveVariants
from collops.bench.elements import Bits
from collops.bench.limit import Part
from collops.bench.measure import Run
from collops.core import core


class _Gathers(CollectiveVariants):
    """x is a rank's block, the result is all blocks."""

    shm = (Algorithm("direct", "every rank reads its peers' blocks"),)
    ucx = (Algorithm("direct", "a block crosses once to each other host, whose ranks share it"),)

    def x_rows(self, rank: int) -> int:
        return self.counts[rank]

    def parts(self) -> list[Part]:
        """Every rank's block, this one's first."""
        return [Part(self.starts[r], self.counts[r], ((r, 0),)) for r in self.around()]

    def busiest(self) -> int:
        """What the rank with the smallest block receives from the others."""
        return sum(self.counts) - min(self.counts)


class AllGather(_Gathers):
    """Blocks of one length."""

    name = "all_gather"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        return partial(comm.all_gather, self.element.numbers(x), self.element.numbers(result))


class AllGatherV(_Gathers):
    """Blocks of any lengths, through collops.Operation."""

    name = "all_gather_v"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """What a rank sends, then what comes from each rank, where it goes, and its length."""
        counts, starts, own, y = self.group.vectors(1, len(result))
        ins = self.element.numbers(x), own, counts, starts, y
        return self.operation(comm, collops.AllGatherVParam, ins, result)


class _Scatters(CollectiveVariants):
    """x is all slices, the result the sum of one."""

    shm = (Algorithm("direct", "every rank reads its slice of its peers' x and adds it up"),)
    ucx = (
        Algorithm(
            "planned", "a slice crosses as it is, or in a running sum if that moves fewer bytes"
        ),
    )

    def parts(self) -> list[Part]:
        """The sum of this rank's slice of every rank's x."""
        begin = self.starts[self.rank]
        return [Part(0, self.counts[self.rank], tuple((rank, begin) for rank in self.around()))]

    def busiest(self) -> int:
        """What the rank with the smallest slice gives to the others."""
        return sum(self.counts) - min(self.counts)


class ReduceScatter(_Scatters):
    """Slices of one length."""

    name = "reduce_scatter"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        numbers = self.element.numbers
        return partial(comm.reduce_scatter, numbers(x), "sum", numbers(result))


class ReduceScatterV(_Scatters):
    """Slices of any lengths, through collops.Operation."""

    name = "reduce_scatter_v"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """What goes to each rank, and where it lies, then what a rank receives, and its length."""
        ins = self.element.numbers(x), *self.group.vectors(1, len(result))
        return self.operation(comm, collops.ReduceScatterVParam, ins, result)


class _Exchanges(CollectiveVariants):
    """x is the parts for all ranks, as long on every rank; the result is all parts for this one."""

    shm = (Algorithm("direct", "every rank reads its peers' parts for it"),)
    ucx = (Algorithm("direct", "a part for a rank of another host crosses by itself"),)

    def parts(self) -> list[Part]:
        """Every rank's part for this one, its own first."""
        begin, length = self.starts[self.rank], self.counts[self.rank]
        return [Part(rank * length, length, ((rank, begin),)) for rank in self.around()]

    def busiest(self) -> int:
        """The most that a rank gives to others, or receives from them."""
        given = sum(self.counts) - min(self.counts)
        return max(given, (self.size - 1) * max(self.counts))


class AllToAll(_Exchanges):
    """Parts of one length, through collops.Operation."""

    name = "all_to_all"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        return self.operation(comm, collops.AllToAllParam, [self.element.numbers(x)], result)


class AllToAllV(_Exchanges):
    """Parts of any lengths, the same on every rank."""

    name = "all_to_all_v"

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """comm.all_to_allv(), with the lengths on both sides."""
        numbers = self.element.numbers
        taken = [self.counts[comm.rank]] * comm.size
        return partial(comm.all_to_allv, numbers(x), list(self.counts), taken, numbers(result))


# The sizes of the core's table up to which AllReduce takes one step: of 2 ranks, and of more.
TWO_RANKS, MORE_RANKS = "all_reduce_one_step_2", "all_reduce_one_step"
ONE_STEP, TWO_STEPS = (
    Algorithm(name, how, f"{TWO_RANKS}={size},{MORE_RANKS}={size}")
    for name, how, size in (
        ("1 step", "every rank reads all vectors and adds them up", "1024g"),
        ("2 steps", "a ReduceScatterV, then an AllGatherV", "0"),
    )
)


def size_for(ranks: int) -> str:
    """The name of the size that counts for a number of ranks."""
    return TWO_RANKS if ranks <= 2 else MORE_RANKS


class AllReduce(CollectiveVariants):
    """x is a vector, the result the sum of all."""

    name = "all_reduce"
    shm = (ONE_STEP, TWO_STEPS)
    ucx = (Algorithm(TWO_STEPS.name, f"{TWO_STEPS.how}, at every size"),)

    def algorithm(self) -> Algorithm:
        """On one host one step up to a size of the core's table, as shm/all_reduce.cpp has it."""
        if len(self.ways) == 1:
            return super().algorithm()
        now = {name: size for name, _, size, _ in core().tuned_sizes()}
        return ONE_STEP if self.point.size <= now[size_for(self.size)] else TWO_STEPS

    def expected(self) -> Bits | None:
        every = tuple((rank, 0) for rank in range(self.size))
        return self.made_of([Part(0, sum(self.counts), every)])

    def parts(self) -> list[Part]:
        """The sum of this rank's share, and the shares of the others from their results."""
        begin, ranks = self.starts[self.rank], self.around()
        own = Part(begin, self.counts[self.rank], tuple((rank, begin) for rank in ranks))
        shares = [
            Part(self.starts[rank], self.counts[rank], ((rank, self.starts[rank]),), True)
            for rank in ranks[1:]
        ]
        return [own, *shares]

    def busiest(self) -> int:
        """What each rank gives as its part of the sums, and receives of them."""
        return 2 * (self.size - 1) * sum(self.counts) // self.size

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """comm.all_reduce(); on a GPU the operator, which takes a stream."""
        numbers = self.element.numbers
        if self.place.backend:
            return self.operation(comm, collops.AllReduceParam, [numbers(x)], result)
        return partial(comm.all_reduce, numbers(x), "sum", numbers(result))


class Broadcast(CollectiveVariants):
    """x is the vector on rank 0, and its place on the others; it is the result, too."""

    name = "broadcast"
    shm = (Algorithm("direct", "every rank reads rank 0's vector"),)
    ucx = (Algorithm("direct", "it crosses once to each other host, whose ranks share it"),)

    def result_rows(self) -> int:
        return sum(self.counts)

    def expected(self) -> Bits:
        return self.x_of(0)

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """The vector, which rank 0 rewrites and the others do not."""
        _, x, _ = super().buffers(comm)
        if self.rank == 0:
            return x, x, x
        self.element.poison(x)
        return None, x, x

    def parts(self) -> list[Part]:
        """The whole vector, on all ranks but rank 0."""
        return [] if self.rank == 0 else [Part(0, sum(self.counts), ((0, 0),))]

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        return partial(comm.broadcast, self.element.numbers(x), 0)


class SendRecv(CollectiveVariants):
    """x is the message to the next rank, the result that from the one before."""

    name = "send_recv"
    shm = (Algorithm("direct", "a rank reads the message that the rank before writes for it"),)
    ucx = (Algorithm("direct", "a message to another host crosses by UCX, else as on shm"),)

    def parts(self) -> list[Part]:
        return [Part(0, sum(self.counts), ((self.before, 0),))]

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """Both messages in one call, as ncclGroupStart() and ncclGroupEnd() join them."""
        numbers = self.element.numbers
        sent = collops.SendTo(numbers(x), self.after)
        received = collops.RecvFrom(numbers(result), self.before)
        return partial(comm.exchange, [sent, received])


class Barrier(CollectiveVariants):
    """There is no x and no result."""

    name = "barrier"
    shm = (Algorithm("direct", "every rank signals to all, and waits for the signals of all"),)
    ucx = (
        Algorithm(
            "direct",
            "the ranks of a host signal as on shm, then each exchanges one message with a rank "
            "of each other host",
        ),
    )

    def parts(self) -> list[Part]:
        return []

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """Nothing to rewrite, and no result to compare."""
        return None, self.element.matrix(0, 1), None

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        call: Run = comm.barrier
        return call


_GATHERED, _EACH = "bytes of the gathered result", "bytes of each rank's x"
COLLECTIVES = (
    Collective(AllGather, "AllGather", _GATHERED, divided=True),
    Collective(AllGatherV, "AllGatherV", _GATHERED, skewed=True, on_gpu=True),
    Collective(AllReduce, "AllReduce", _EACH, on_gpu=True),
    Collective(AllToAll, "AllToAll", _EACH, divided=True, on_gpu=True),
    Collective(
        AllToAllV, "AllToAllV", f"{_EACH}, whose parts for the ranks --skew gives", skewed=True
    ),
    Collective(Barrier, "Barrier"),
    Collective(Broadcast, "Broadcast", "bytes of rank 0's vector"),
    Collective(ReduceScatter, "ReduceScatter", _EACH, divided=True),
    Collective(ReduceScatterV, "ReduceScatterV", _EACH, skewed=True, on_gpu=True),
    Collective(
        SendRecv, "Send and Recv", "bytes of the message that every rank sends to the next one"
    ),
)
