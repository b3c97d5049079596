"""What a host allows: the one-copy limit of a collective, and the way of a word between cores."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from collops.bench.elements import Bits

# One way takes less between two cores that share a cache (measured: 0.12 to 0.21, else 0.29 on).
NEAR_US = 0.25
_LOOKS, _TRIPS = 15, 20
_LATE_S = 1e-3
_APART = 8  # words in a line of the cache
_POLLS = 1_000_000  # some 30 ms, after which a look at the clock costs nothing
_CHUNK_BYTES = 64 << 10  # in which sums of several parts stay in a core's own cache


@dataclass(frozen=True)
class Part:
    """Elements of this rank's result, and where they come from."""

    begin: int
    length: int
    sources: tuple[tuple[int, int], ...]  # rank and first element of each; several are added up
    of_results: bool = False  # whether they lie in the ranks' results, not in their x


def shared_vectors(work: Any, elements: int, bits: np.dtype[Any]) -> list[Bits]:
    """A vector of each rank in memory that all ranks of this host map; a call of all ranks.

    The memory has no name, so that nothing is left behind if a rank ends.

    Raises:
        OSError: this rank may not open another one's memory.
    """
    descriptor = os.memfd_create("collops bench")
    try:
        os.truncate(descriptor, max(1, elements * bits.itemsize))
        own = np.array([[os.getpid(), descriptor, elements]], np.int64)
        told = work.all_gatherv(own, [1] * work.size).tolist()
        try:
            return [_mapped(f"/proc/{pid}/fd/{fd}", size, bits) for pid, fd, size in told]
        finally:
            work.barrier()  # until then nobody closes
    finally:
        os.close(descriptor)


def _mapped(path: str, elements: int, bits: np.dtype[Any]) -> Bits:
    opened = os.open(path, os.O_RDWR)
    try:
        return np.frombuffer(mmap.mmap(opened, 0), bits, elements)
    finally:
        os.close(opened)


def copies(parts: list[Part], xs: list[Bits], results: list[Bits], own: int) -> Callable[[], None]:
    """A function that makes a rank's parts by numpy's copy and sum, without waiting for anyone.

    Sums are those of the elements' bits as whole numbers. They move the same bytes, and numpy
    has vectorised code for them, which it lacks for float16 and bfloat16. `results` are those that
    other ranks read, `own` is the index of this rank's.
    """
    steps: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
    for part in parts:
        vectors = results if part.of_results else xs
        target = results[own][part.begin : part.begin + part.length]
        given = [vectors[rank][begin : begin + part.length] for rank, begin in part.sources]
        if len(given) == 1:
            steps.append((np.copyto, (target, given[0])))
        else:
            steps += _sums(target, given)

    def run() -> None:
        for call, arguments in steps:
            call(*arguments)

    return run


def _sums(target: Bits, given: list[Bits]) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
    length = target.size if len(given) == 2 else _CHUNK_BYTES // target.itemsize
    for begin in range(0, target.size, max(1, length)):
        chunk = slice(begin, begin + length)
        yield np.add, (given[0][chunk], given[1][chunk], target[chunk])
        for other in given[2:]:
            yield np.add, (target[chunk], other[chunk], target[chunk])


class Flags:
    """A word of each rank in memory that all see; every rank of one host makes one.

    With fewer cores than ranks nothing is measured.
    """

    def __init__(self, work: Any, cores: int) -> None:
        self._work, self._sent = work, 0
        self._words: list[Bits] = []
        if work.size <= cores:
            with suppress(OSError):  # a rank may not open another one's memory
                self._words = shared_vectors(work, _APART, np.dtype(np.int64))
        if not work.all_reduce(np.array([len(self._words)]), op="min")[0]:
            self._words = []

    def one_way_us(self) -> float | None:
        """The microseconds between rank 0 and the rank that is farthest from it."""
        if not self._words:
            return None
        found = [self._of_pair(other) for other in range(1, self._work.size)]
        told = self._work.all_reduce(np.array([max(found)]), op="max")
        return round(float(told[0]), 3)

    def _of_pair(self, other: int) -> float:
        """The least of several looks, as a core may have done other work; 0 on other ranks."""
        rank, looks = self._work.rank, [0.0]
        self._work.barrier()
        if rank in (0, other):
            partner = other if rank == 0 else 0
            looks = [self._look(partner) for _ in range(_LOOKS)]
        return min(looks)

    def _look(self, partner: int) -> float:
        mine, theirs = (self._words[rank].data for rank in (self._work.rank, partner))
        begins = partner > self._work.rank
        begin = time.perf_counter()
        # No function is called in here: it would take as long as the word.
        for value in range(self._sent + 1, self._sent + 1 + _TRIPS):
            if begins:
                mine[0] = value
            for _ in repeat(None, _POLLS):
                if theirs[0] == value:
                    break
            else:
                self._await(theirs, value, partner)
            if not begins:
                mine[0] = value
        end = time.perf_counter()
        self._sent += _TRIPS
        return (end - begin) / (2 * _TRIPS) * 1e6

    def _await(self, theirs: memoryview, value: int, partner: int) -> None:
        """Waits for a rank that is late; it may need the core on which this rank waits."""
        timeout_s = self._work.timeout_s
        deadline = time.monotonic() + timeout_s
        while theirs[0] != value:
            if time.monotonic() >= deadline:
                raise TimeoutError(
                    f"rank {partner} did not answer rank {self._work.rank} for {timeout_s:g} s, "
                    "while the time of a word from one core to the other was measured"
                )
            time.sleep(_LATE_S)
