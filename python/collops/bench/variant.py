"""Variant, one implementation of the measured work, and Variants, those of one point."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits, Element
from collops.bench.hosts import Hosts
from collops.bench.peers.installed import Peers

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

    def __post_init__(self) -> None:
        self.operations = 0  # multiplications and additions of one rank's call
        self.moved_bytes = 0  # of all ranks' blocks in one call
        self.facts: dict[str, Any] = {}  # what a row says besides the point's parameters
        self.element = Element(self.point.dtype)
        self.hosts = Hosts.of(self.work)
        self.notes: list[str] = []  # on missing variants
        self.kept = ExitStack()  # the communicators of the variants
        self._connected = 0

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
        """A new communicator for one variant, so that its memory is allocated in its first call.

        Args:
            backend: the backend; None: the usual one.
            tuning: sizes in place of those of COLLOPS_TUNING, as init() takes them.
        """
        self._connected += 1
        domain = f"bench column {self._connected}"
        made = collops.init(backend=backend, comm_domain=domain, tuning=tuning)
        return self.kept.enter_context(made)

    def most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return float(self.work.all_reduce(np.array([value]), op="max")[0])
