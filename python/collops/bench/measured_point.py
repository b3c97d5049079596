"""Measures one point on one rank: makes its variants, runs them and compares their results."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from collops.bench.measure import (
    Maker,
    Variant,
    milliseconds_of,
    own_slowest,
    together,
    typical_parts,
)
from collops.bench.operator import Operator, Row
from collops.bench.peers.installed import Peers
from collops.bench.request import Point, Request
from collops.bench.variant import HOST, Place, Rounds
from collops.core import core


@dataclass
class MeasuredPoint:
    """The measurement of one point: its variants and their figures."""

    operator: Operator
    point: Point
    request: Request  # the request that contains the point
    work: Any  # a communicator of all ranks, for calls that are not measured
    meet: Callable[[], None]  # waits for all ranks, on another communicator
    peers: Peers
    place: Place = HOST

    def __post_init__(self) -> None:
        make = self.operator.variants
        self._rounds = Rounds(self.request.iterations, self.point.burst)
        self._variants = make(self.point, self.work, self.peers, self.request.seed, self.place)
        # Bytes that a variant's first call adds to this rank alone, and shared ones.
        self._memory: dict[str, tuple[float, float]] = {}

    def run(self) -> list[Row]:
        """Measures, and returns the lines that rank 0 writes: notes, and the point."""
        request, work = self.request, self.work
        own = self._variants.own_keys(self.place.own_keys(self.operator, request.own))
        makers: dict[str, Maker] = {key: partial(self._variants.own, key) for key in own}
        makers.update(self._variants.others())
        variants = [
            found
            for key, make in makers.items()
            if (found := self._first_call(key, make, key in own))
        ]
        before, flag_before = self.place.barrier_us(self.meet), self._variants.flag_us()
        flip = self._variants.element.flip
        times = self.place.times(variants, self._rounds, flip, self.meet)
        after, flag_after = self.place.barrier_us(self.meet), self._variants.flag_us()
        wrong = self._wrong(variants)
        figures = [(*self._memory[v.key], wrong[v.key]) for v in variants]
        every_time, every_found = (
            work.all_gatherv(of[None], [1] * work.size) for of in (times, np.array(figures))
        )
        self._variants.kept.close()
        point = {
            "record": "point",
            "bench": self.operator.name,
            "mpi": request.mpi,
            **self.point.describe(),
            **self._variants.facts,
            **self.place.facts(),
            "iterations": self.place.calls_in(self._rounds),
            "threads": request.threads,
            "place_us": [before, after],
            "flag_us": [flag_before, flag_after],
            "columns": [
                self._row(variant, every_time[:, i], every_found[:, i])
                for i, variant in enumerate(variants)
            ],
            "isa": core().kernels()[0],
        }
        return [*notes(self._variants.notes), point]

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
            key = self.place.reference(self.operator)
            right = next((other.result for other in variants if other.key == key), None)
        elif self.place.num_rewrites(self._rounds) % 2:
            # And x was flipped in the first and in this last call.
            element.flip(right)
        found = dict.fromkeys((variant.key for variant in variants), math.nan)
        for variant in variants:
            results = [turn.result for turn in variant.turns if turn.result is not None]
            if right is not None and results:
                wrong = any(element.num_different(result, right) for result in results)
                found[variant.key] = float(wrong)
        return found

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
