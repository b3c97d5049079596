"""One way to do the same work, and the ways of one point on one rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits, Element
from collops.bench.peers.installed import Peers

Run = Callable[[], object]
# A part's name, one of the operator's `parts` (or all), and what it runs.
Step = tuple[str, Run]


@dataclass
class Variant:
    """A row of the tables: how it is called, what it runs, and where its tensors are."""

    key: str
    label: str
    steps: list[Step]
    x: Bits | None = None  # rewritten before each call
    result: Bits | None = None  # compared with the reference's, if it is the same thing
    scratch_bytes: int = 0  # that the caller hands in, as get_workspace_size() says
    operations: int = 0  # multiplications and additions, if not those of its point

    def run(self) -> None:
        """One call."""
        for _, step in self.steps:
            step()


Maker = Callable[[], Variant]


@dataclass
class Variants(ABC):
    """Makes the variants of one point on one rank; an operator's own class says what they run."""

    point: Any  # the operator's own Point
    work: Any  # a communicator of all ranks, for what is not measured
    peers: Peers  # the other libraries that there are
    seed: int

    def __post_init__(self) -> None:
        self.operations = 0  # multiplications and additions of one rank's call
        self.element = Element(self.point.dtype)
        self.notes: list[str] = []  # on what cannot be had here
        self.kept = ExitStack()  # communicators of the variants, while these may be called
        self._connected = 0

    @abstractmethod
    def own(self, key: str) -> Variant:
        """A variant of collops, planned and not yet run."""

    def others(self) -> Iterator[tuple[str, Maker]]:
        """The name of each variant of another library, and what makes it."""
        yield from ()

    def connect(self) -> Any:
        """A communicator of one variant alone, so that its memory is not there before its call."""
        self._connected += 1
        return self.kept.enter_context(collops.init(comm_domain=f"bench column {self._connected}"))

    def most(self, value: float) -> float:
        """The largest of the ranks' values."""
        return float(self.work.all_reduce(np.array([value]), op="max")[0])
