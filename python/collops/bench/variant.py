"""Variant, one implementation of the measured work, and Variants, those of one point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits
from collops.bench.hosts import Hosts
from collops.bench.peers.installed import Peers
from collops.bench.place import HOST, Place

Run = Callable[[], object]
# A part's name, one of the operator's `parts` (or all), and its function.
Step = tuple[str, Run]


@dataclass
class Variant:
    """A row of the tables: its name, its functions, and its tensors."""

    key: str
    label: str
    steps: list[Step]
    x: Bits | None = None  # rewritten before each call
    result: Bits | None = None  # compared with the reference's; None: has no such result
    scratch_bytes: int = 0  # of the caller's workspace, as get_workspace_size() returns
    operations: int = 0  # multiplications and additions, if not those of the point
    moved_bytes: int = 0  # of all blocks, if not those of the point
    calls: int = 1  # one after the other between two looks at the clock
    cores: frozenset[int] = frozenset()  # of the calling thread; empty: those of the rank
    measure: Callable[[], float] | None = None  # in place of steps: returns the seconds of a call
    facts: dict[str, Any] = field(default_factory=dict)  # what its row says besides
    held_bytes: int = 0  # of its buffers beside x and result
    again: list[Variant] = field(default_factory=list)  # on other memory, where calls take turns

    @property
    def turns(self) -> list[Variant]:
        """The variant, and what it is on other memory."""
        return [self, *self.again]

    def run(self) -> None:
        """One call."""
        if self.measure is not None:
            self.measure()
        for _, step in self.steps:
            step()


Maker = Callable[[], Variant]


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
