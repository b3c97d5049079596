"""Variants, the implementations of the measured work of one point, and the place of their data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import collops
from collops.bench.elements import Bits, Element
from collops.bench.hosts import Hosts
from collops.bench.measure import Maker, Run, Times, Variant, interleave, num_rewrites, place_us
from collops.bench.memory import added_bytes
from collops.bench.peers.installed import Peers

# Waits for all ranks, and rewrites a variant's x.
Meet = Callable[[], None]
Rewrite = Callable[[Any], None]

if TYPE_CHECKING:
    from collops.bench.operator import Operator


class Rounds(NamedTuple):
    """How often the variants of a point are called in turn, as interleave() has it."""

    number: int
    burst: int


class Place:
    """The host: numpy's arrays, and the clock that all processes share.

    Attributes:
        backend: the backend of the calls that are measured; empty: the host's usual one.
        stream: of the calls; None where there are no streams.
    """

    backend = ""
    stream: Any = None

    def element(self, dtype: str) -> Element:
        """The type of the elements, which makes matrices here."""
        return Element(dtype)

    def others(self, variants: Variants) -> Iterator[tuple[str, Maker]]:
        """The variants that a collective has here beside its own calls."""
        del variants
        yield from ()

    def own_keys(self, operator: Operator, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The variants of collops, of the wanted ones."""
        del operator
        return wanted

    def reference(self, operator: Operator) -> str:
        """The variant with whose result the others are compared."""
        return operator.reference

    def shared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for ranks of one process that ask for the same key."""
        del key
        return make()

    def repeat(self, variant: Variant, make: Maker, of: Variants) -> None:
        """Makes a variant again on other memory, where calls take turns; a call of all ranks.

        Args:
            variant: what `make` has made.
            make: the function that makes it.
            of: the variants of the point.
        """

    def added_bytes(self, call: Run, meet: Meet) -> tuple[int, int] | None:
        """Makes a call; the private and the shared bytes that it adds, where that can be told."""
        return added_bytes(call, meet)

    def barrier_us(self, meet: Meet) -> float | None:
        """Microseconds of a barrier, where they show how near the ranks are to each other."""
        return round(place_us(meet), 2)

    def checked_call(self, turn: Variant, meet: Meet) -> None:
        """Makes a call of all ranks whose result is checked, as calls are timed; ends with it."""
        meet()
        turn.run()

    def times(self, variants: list[Variant], rounds: Rounds, rewrite: Rewrite, meet: Meet) -> Times:
        """Seconds of the calls of each variant on this rank, as interleave() returns them."""
        return interleave(variants, rounds.number, rewrite, meet, rounds.burst)

    def num_rewrites(self, rounds: Rounds) -> int:
        """How often times() rewrites a variant's x."""
        return num_rewrites(*rounds)

    def calls_in(self, rounds: Rounds) -> int:
        """How many calls of a variant count."""
        return rounds.number * rounds.burst

    def facts(self) -> dict[str, Any]:
        """What every row says of the place."""
        return {}


HOST = Place()


@dataclass
class Variants(ABC):
    """Makes the variants of one point on one rank; an operator's own class has their code."""

    point: Any  # the operator's own Point
    work: Any  # a communicator of all ranks, for calls that are not measured
    peers: Peers  # the installed other libraries
    seed: int
    place: Place = HOST

    def __post_init__(self) -> None:
        self.operations = 0  # multiplications and additions of one rank's call
        self.moved_bytes = 0  # of all ranks' blocks in one call
        self.facts: dict[str, Any] = {}  # what a row says besides the point's parameters
        self.element = self.place.element(self.point.dtype)
        self.hosts = Hosts.of(self.work)
        self.notes: list[str] = []  # on missing variants
        self.kept = ExitStack()  # the communicators of the variants
        self._connected: list[str] = []
        self._shared: dict[str, Any] = {}

    @property
    def one_clock(self) -> bool:
        """Whether a time that one rank reads can be compared with another one's."""
        return self.hosts.one_clock and not self.place.backend

    def own_keys(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """The variants of collops that this point has: of the wanted ones, and its own."""
        return wanted

    @abstractmethod
    def own(self, key: str) -> Variant:
        """A variant of collops, planned but not yet run."""

    def others(self) -> Iterator[tuple[str, Maker]]:
        """The name of each variant of another library, and the function that makes it."""
        yield from ()

    def expected(self) -> Bits | None:
        """This rank's right result, if it is known without the reference variant."""
        return None

    def flag_us(self) -> float | None:
        """Microseconds of a word on its way between two cores, if that can be measured."""
        return None

    def connect(self, backend: str | None = None, tuning: str = "") -> Any:
        """A communicator for a variant.

        On the host it is a new one, so that its memory is allocated in its first call; on a GPU
        all variants of a backend share one, because each keeps memory of the GPU.

        Args:
            backend: the backend; None: the usual one.
            tuning: sizes in place of those of COLLOPS_TUNING, as init() takes them.
        """
        backend = backend or self.place.backend or None
        shared = self._shared.get(backend or "") if self.place.backend else None
        if shared is not None:
            return shared
        domain = f"bench column {len(self._connected) + 1}"
        self._connected.append(domain)
        made = collops.init(backend=backend, comm_domain=domain, tuning=tuning)
        self._shared[backend or ""] = self.kept.enter_context(made)
        return made

    def operation(self, comm: Any, make: Any, ins: Sequence[Any], result: Bits) -> Run:
        """A planned call of an operator of the ATB level."""
        param = make(rank=comm.rank, rank_size=comm.size, backend=comm.backend, hccl_comm=comm)
        run, _ = self.planned_call(collops.Operation(param), ins, result)
        return run

    def planned_call(
        self, operation: collops.Operation, ins: Sequence[Any], result: Bits
    ) -> tuple[Run, int]:
        """A call whose memory is there, and the bytes of its workspace."""
        inputs, outs, stream = list(ins), [self.element.numbers(result)], self.place.stream
        num_bytes = operation.get_workspace_size(inputs, outs)
        scratch = self.element.scratch(num_bytes)
        return lambda: operation.execute(inputs, outs, scratch, stream), num_bytes

    def most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return float(self.work.all_reduce(np.array([value]), op="max")[0])
