"""How near the cores of two ranks are: the time of a word on its way from one to the other."""

from __future__ import annotations

import time
from contextlib import suppress
from itertools import repeat
from typing import Any

import numpy as np

from collops.bench.collectives.limit import shared_vectors
from collops.bench.elements import Bits

# One way takes less between two cores that share a cache (measured: 0.12 to 0.21, else 0.29 on).
NEAR_US = 0.25
_LOOKS, _TRIPS = 15, 20
_LATE_S = 1e-3
_APART = 8  # words in a line of the cache
_POLLS = 1_000_000  # some 30 ms, after which a look at the clock costs nothing


class Flags:
    """A word of each rank in memory that all see; every rank of one host makes one.

    Args:
        work: a communicator of all ranks.
        cores: how many the ranks may run on; if fewer than the ranks, nothing is measured.
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
