"""Send and Recv: every rank sends to the next and receives from the one before, at once."""

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
from collops.bench.measure import Run


class SendRecvVariants(CollectiveVariants):
    """x is the message to the next rank, the result that from the one before."""

    algorithms = Algorithms(
        shm=(Algorithm("direct", "a rank reads the message that the rank before writes for it"),),
        ucx=(Algorithm("direct", "a message to another host crosses by UCX, else as on shm"),),
    )

    def __post_init__(self) -> None:
        size, rank = int(self.work.size), int(self.work.rank)
        self.after, self.before = (rank + 1) % size, (rank - 1) % size
        super().__post_init__()

    def x_rows(self, rank: int) -> int:
        """Elements of a message."""
        return sum(self.counts)

    def result_rows(self) -> int:
        """Elements of a message."""
        return sum(self.counts)

    def expected(self) -> Bits:
        """The message of the rank before."""
        return self.x_of(self.before)

    def parts(self) -> list[Part]:
        """The message of the rank before."""
        return [Part(0, sum(self.counts), ((self.before, 0),))]

    def busiest(self) -> int:
        """A message."""
        return sum(self.counts)

    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """Both messages in one call, as ncclGroupStart() and ncclGroupEnd() join them."""
        numbers = self.element.numbers
        sent = collops.SendTo(numbers(x), self.after)
        received = collops.RecvFrom(numbers(result), self.before)
        return partial(comm.exchange, [sent, received])

    def gloo_calls(self) -> Calls:
        """isend and irecv."""
        handle = self.peers.gloo.group([self.group.ranks], self.group)
        call, flat = self.peers.gloo.pass_on, self.element.flat
        ends = self.after, self.before
        yield (
            *("gloo", "gloo isend, irecv"),
            lambda x, out: [("move", call(flat(x), flat(out), ends, handle))],
        )

    def mpi_calls(self) -> Calls:
        """MPI_Sendrecv."""
        members = self.peers.mpi.Members(0, self.group)
        ends = self.after, self.before
        yield "mpi", "MPI Sendrecv", lambda x, out: [("move", members.pass_on(x, out, ends))]


OPERATOR = collective(
    "send_recv",
    "Send and Recv",
    Kind(bytes_are="bytes of the message that every rank sends to the next one"),
    SendRecvVariants,
)
