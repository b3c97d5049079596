"""The variants of a point on one rank: where their data lies, how they are made and measured."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import collops
from collops.bench.elements import Bits, Element
from collops.bench.hosts import Hosts
from collops.bench.measure import (
    Maker,
    Meet,
    Rewrite,
    Rounds,
    Run,
    Times,
    Variant,
    added_bytes,
    interleave,
    milliseconds_of,
    own_slowest,
    place_us,
    together,
    typical_parts,
)
from collops.bench.operator import Operator, Request, Row
from collops.bench.peers import Peers
from collops.core import core


class Place:
    """The host: numpy's arrays, and the clock that all processes share."""

    backend = ""  # of the calls that are measured; empty: the host's usual one
    stream: Any = None  # of the calls, where there are streams

    def element(self, dtype: str) -> Element:
        """The type of the elements, which makes matrices here."""
        return Element(dtype)

    def others(self, variants: Any) -> Iterator[tuple[str, Maker]]:
        """The variants that a collective has here in place of those of the host."""
        yield from ()

    def shared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What `make` returns, made once for ranks of one process that ask for the same key."""
        return make()

    def repeat(self, variant: Variant, make: Maker, of: Variants) -> None:
        """Makes a variant again on other memory, where calls take turns; a call of all ranks."""

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

    def times(
        self,
        variants: list[Variant],
        rounds: Rounds,
        rewrite: Rewrite,
        meet: Meet,
        most: Callable[[float], float],
    ) -> Times:
        """Seconds of the calls of each variant on this rank, as interleave() returns them."""
        return interleave(variants, rounds, rewrite, meet, most)

    def facts(self) -> Row:
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
        self.facts: Row = {}  # what a row says besides the point's parameters
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


@dataclass
class MeasuredPoint:
    """The measurement of one point: its variants and their figures."""

    operator: Operator
    point: Any
    request: Request  # the request that contains the point
    work: Any  # a communicator of all ranks, for calls that are not measured
    meet: Meet  # waits for all ranks, on another communicator
    peers: Peers
    place: Place = HOST

    def __post_init__(self) -> None:
        request = self.request
        self._rounds = Rounds(request.iterations, self.point.burst, request.most_s)
        self._variants: Variants = self.operator.variants(
            self.point, self.work, self.peers, request.seed, self.place
        )
        self._flips = 0
        # Bytes that a variant's first call adds to this rank alone, and shared ones.
        self._memory: dict[str, tuple[float, float]] = {}

    def run(self) -> list[Row]:
        """Measures, and returns the lines that rank 0 writes: notes, and the point."""
        request, work, made = self.request, self.work, self._variants
        own = made.own_keys(self.operator.on_gpu if self.place.backend else request.own)
        makers: dict[str, Maker] = {key: partial(made.own, key) for key in own}
        makers.update(() if request.alone else made.others())
        variants = [
            found
            for key, make in makers.items()
            if (found := self._first_call(key, make, key in own))
        ]
        before, flag_before = self._distances()
        times = self.place.times(variants, self._rounds, self._flip, self.meet, made.most)
        after, flag_after = self._distances()
        wrong = self._wrong(variants)
        figures = [(*self._memory[v.key], wrong[v.key]) for v in variants]
        every_time, every_found = (
            work.all_gatherv(of[None], [1] * work.size) for of in (times, np.array(figures))
        )
        made.kept.close()
        point = {
            "record": "point",
            "bench": self.operator.name,
            "mpi": request.mpi,
            **self.point.describe(),
            **made.facts,
            **self.place.facts(),
            "iterations": times.shape[1],
            "threads": request.threads,
            "place_us": [before, after],
            "flag_us": [flag_before, flag_after],
            "columns": [
                self._row(variant, every_time[:, i], every_found[:, i])
                for i, variant in enumerate(variants)
            ],
            "isa": core().kernels()[0],
        }
        return [*notes(made.notes), point]

    def _distances(self) -> tuple[float | None, float | None]:
        """Microseconds of a barrier and of a word, where times are compared with other runs."""
        if self.request.alone:
            return None, None
        return self.place.barrier_us(self.meet), self._variants.flag_us()

    def _flip(self, x: Any) -> None:
        self._flips += 1
        self._variants.element.flip(x)

    def _first_call(self, key: str, make: Maker, own: bool) -> Variant | None:
        """Makes the variant and runs its first call, whose memory is measured; `own`: collops'."""
        problem = ""
        variant = None
        try:
            variant = make()
            if variant.x is not None:
                self._variants.element.flip(variant.x)
            added = self.place.added_bytes(variant.run, self.meet)
            self._memory[key] = added or (math.nan, math.nan)
        except Exception as error:  # a library that cannot run the variant is a result, too
            problem = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
            if own:
                raise
        if self._variants.most(float(bool(problem))):
            text = problem or "failed on another rank"
            self._variants.notes.append(f"{self.point.title}: no column {key}: {text}")
            return None
        if variant is not None:
            self.place.repeat(variant, make, self._variants)
        return variant

    def _wrong(self, variants: list[Variant]) -> dict[str, float]:
        """By key: 1 if the result is wrong on this rank, else 0; NaN if it has none.

        Every variant is called once more for this, with its result poisoned before.
        """
        element = self._variants.element
        for variant in variants:
            for turn in variant.turns if variant.result is not None else ():
                if turn.x is not None:
                    element.flip(turn.x)
                if turn.result is not turn.x and turn.result is not None:
                    element.poison(turn.result)
                self.place.checked_call(turn, self.meet)
        right = self._variants.expected()
        if right is None:
            gpu = self.operator.on_gpu if self.place.backend else ()
            key = gpu[0] if gpu else self.operator.reference
            right = next((other.result for other in variants if other.key == key), None)
        elif self._is_flipped(variants):
            element.flip(right)
        found = dict.fromkeys((variant.key for variant in variants), math.nan)
        for variant in variants:
            results = [turn.result for turn in variant.turns if turn.result is not None]
            if right is not None and results:
                wrong = any(element.num_different(result, right) for result in results)
                found[variant.key] = float(wrong)
        return found

    def _is_flipped(self, variants: list[Variant]) -> bool:
        """Whether each x is -x now: it was flipped in the first and the last call, too."""
        written = sum(variant.x is not None for variant in variants)
        # A rank that writes nothing may still have a result, as in a broadcast.
        return self._variants.most(self._flips / max(written, 1)) % 2 == 1

    def _row(self, variant: Variant, times: Any, found: Any) -> Row:
        """One variant's figures; `times` are [ranks, iterations, 2 + parts], `found` [ranks, 3]."""
        one_clock = self._variants.one_clock
        whole = together(times, one_clock) * 1e3
        median = float(np.median(whole))
        parts = typical_parts(times, one_clock) * 1e3
        operations = variant.operations or self._variants.operations
        # Per rank: the largest private memory, and the mean of the shared memory.
        alone, shared = found[:, 0].max() / 2**20, max(found[:, 1].mean(), 0.0) / 2**20
        wrong = found[:, 2].sum()
        return {
            "column": variant.key,
            "label": variant.label,
            **variant.facts,
            **milliseconds_of(whole),
            "ms_own": _rounded(np.median(own_slowest(times)) * 1e3, 5),
            "parts_ms": {name: _rounded(parts[i], 5) for i, (name, _) in enumerate(variant.steps)},
            "gflops": round(operations / median * 1e-6, 2),
            "moved_bytes": variant.moved_bytes or self._variants.moved_bytes,
            "wrong_ranks": None if math.isnan(wrong) else int(wrong),
            "scratch_mib": round(variant.scratch_bytes / 2**20, 2),
            "memory_mib": _rounded(alone + shared, 2),
            "memory_shared_mib": _rounded(shared, 2),
        }


def _rounded(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(float(value), digits)


def notes(texts: list[str]) -> list[Row]:
    """The lines of JSON for notes that are printed above the tables."""
    return [{"record": "note", "text": text} for text in texts]
