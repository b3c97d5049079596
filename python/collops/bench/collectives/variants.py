"""The variants of every collective: plain memory, a window, the limit, and other libraries."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from collops.bench.collectives.algorithms import Algorithm, Algorithms, described
from collops.bench.collectives.flag import Flags
from collops.bench.collectives.limit import Part, copies, shared_vectors
from collops.bench.collectives.link import link_variants
from collops.bench.collectives.points import PLAIN, WINDOW, CollectivePoint
from collops.bench.collectives.report import LIMIT
from collops.bench.elements import Bits, Element
from collops.bench.groups import Group
from collops.bench.measure import Maker, Run, Step, Variant
from collops.bench.variant import Variants

Counts = np.ndarray[Any, np.dtype[np.int64]]
# Key and label of a variant of another library, and its function: x and result in, steps out.
Calls = Iterator[tuple[str, str, Callable[[Bits, Bits], Sequence[Step]]]]
UCX = "ucx"


class CollectiveVariants(Variants):
    """Makes the variants of one point; the class of a movement of data says what moves."""

    point: CollectivePoint
    algorithms: ClassVar[Algorithms]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rank, self.size = int(self.work.rank), int(self.work.size)
        self.counts: tuple[int, ...] = self.point.counts
        self.group = Group(tuple(range(self.size)), self.rank, self.counts)
        self.starts = self.group.displs(1)
        self.moved_bytes = self.point.size
        one_host = self.hosts.count == 1
        on_host = not self.place.backend
        self.flags = Flags(self.work, len(self.peers.cores)) if one_host and on_host else None
        self.backend = self.place.backend or ("shm" if one_host else UCX)
        # On one host backend ucx is shm's code, too.
        self.ways = self.algorithms.shm if one_host else self.algorithms.ucx
        if not on_host:
            self.ways = (Algorithm(self.backend, "what the backend has"),)
        self.facts = {
            "placement": self.hosts.text(),
            "hosts": self.hosts.count,
            "backend": self.backend,
            "one_clock": self.one_clock,
            "cores": len(self.peers.cores),
            "busiest_bytes": self.busiest() * self.element.bits.itemsize,
        }
        if self.point.algorithms:
            self.facts["algorithms"] = described(self.ways)

    def flag_us(self) -> float | None:
        """The way of a word from rank 0 to the farthest rank, where each has a core."""
        return self.flags.one_way_us() if self.flags else None

    @abstractmethod
    def x_rows(self, rank: int) -> int:
        """Elements of a rank's x."""

    @abstractmethod
    def result_rows(self) -> int:
        """Elements of this rank's result."""

    @abstractmethod
    def parts(self) -> list[Part]:
        """What the limit copies on this rank."""

    @abstractmethod
    def busiest(self) -> int:
        """Elements through the busiest rank, by which busbw counts."""

    @abstractmethod
    def call(self, comm: Any, x: Bits, result: Bits) -> Run:
        """collops's call."""

    def mpi_calls(self) -> Calls:
        """MPI's calls."""
        yield from ()

    def gloo_calls(self) -> Calls:
        """gloo's calls."""
        yield from ()

    def own_keys(self, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Plain memory alone where a window is no other memory; each algorithm, if wanted."""
        buffers = wanted if self.hosts.count == 1 else (PLAIN,)
        if not self.point.algorithms or len(self.ways) == 1:
            return buffers
        return buffers + tuple(way.key(buffer) for buffer in buffers for way in self.ways)

    def algorithm(self) -> Algorithm:
        """The algorithm that the library takes."""
        return self.ways[0]

    def own(self, key: str) -> Variant:
        """The call with x in plain memory or in a window, perhaps forced to one algorithm."""
        name, _, buffer = key.rpartition(" ")
        forced = next((way for way in self.ways if way.name == name), None)
        return self.called(key, key, self.backend, buffer == WINDOW, forced)

    def others(self) -> Iterator[tuple[str, Maker]]:
        """The name of each other variant, and the function that makes it."""
        if self.place.backend:
            yield from self.place.others(self)
            return
        if self.hosts.count == 1 and self.moved_bytes:
            yield LIMIT, self._limit
        if UCX in self.peers.wanted and self.hosts.count == 1:
            yield UCX, partial(self.called, UCX, f"{PLAIN}, backend ucx", UCX, False)
        if self.peers.mpi is not None:
            for key, label, steps in self.mpi_calls():
                yield key, partial(self._by_steps, key, label, steps, False)
        if self.peers.gloo is not None:
            for key, label, steps in self.gloo_calls():
                yield key, partial(self._by_steps, key, label, steps, True)
        if self.moved_bytes:
            yield from link_variants(self, self.moved_bytes // self.size)

    def x_of(self, rank: int) -> Bits:
        """A rank's x as it is before the first call, on the host; it is not written to."""
        key = self.point.title, self.seed, rank
        x: Bits = self.place.shared(key, partial(self._drawn, rank))
        return x

    def _drawn(self, rank: int) -> Bits:
        x, host = np.empty((self.x_rows(rank), 1), self.element.bits), Element(self.point.dtype)
        self._fill(x, rank, host)
        return x

    def sum_of(self, begin: int, length: int) -> Bits:
        """The sum of all ranks' x from `begin` on, in new memory."""
        total = np.zeros(length, np.float32)
        for rank in range(self.size):
            total += self.element.floats(self.x_of(rank).reshape(-1)[begin : begin + length])
        return self.element.bits_of(total).reshape(-1, 1)

    def buffers(self, comm: Any = None) -> tuple[Bits | None, Bits, Bits | None]:
        """What is rewritten, x, and the result; x in a window if `comm` is given."""
        rows, bits = self.x_rows(self.rank), self.element.bits
        x: Any = comm.empty((rows, 1), bits) if comm else self.element.matrix(rows, 1)
        if self.place.backend:
            x.write(self.x_of(self.rank))
        else:
            self._fill(x, self.rank, self.element)
        return x, x, self.element.poisoned(self.result_rows(), 1)

    def _fill(self, x: Bits, rank: int, element: Element) -> None:
        element.fill_whole(x, (self.seed, rank), self.size)

    def called(
        self, key: str, label: str, backend: str, window: bool, forced: Algorithm | None = None
    ) -> Variant:
        """A call of collops on a backend; `window`: x lies in one."""
        comm = self.connect(backend, forced.tuning if forced else "")
        rewritten, x, result = self.buffers(comm if window else None)
        run = self.call(comm, x, x if result is None else result)
        facts = {"algorithm": (forced or self.algorithm()).name}
        return Variant(key, label, [("move", run)], rewritten, result, facts=facts)

    def _by_steps(self, key: str, label: str, steps: Any, unpinned: bool) -> Variant:
        rewritten, x, result = self.buffers()
        made = list(steps(x, x if result is None else result))
        cores = self.peers.cores if unpinned else frozenset()
        return Variant(key, label, made, rewritten, result, cores=cores)

    def _limit(self) -> Variant:
        """The copies alone, from vectors that all ranks see."""
        bits, parts = self.element.bits, self.parts()
        xs = shared_vectors(self.work, self.x_rows(self.rank), bits)
        result = self.element.poisoned(self.result_rows(), 1)
        results = [result.reshape(-1)] * self.size
        if any(part.of_results for part in parts):
            results = shared_vectors(self.work, result.size, bits)
            result = results[self.rank].reshape(-1, 1)
        x = xs[self.rank].reshape(-1, 1)
        self._fill(x, self.rank, self.element)
        if not parts:  # what others copy from this rank is its result, too
            result = x
        run = copies(parts, xs, results, self.rank)
        # Sums of bits are not those of numbers.
        sums = any(len(part.sources) > 1 for part in parts)
        return Variant(LIMIT, LIMIT, [("move", run)], x, None if sums else result)
