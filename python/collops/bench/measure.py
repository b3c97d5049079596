"""Variants of the measured work, timed in turn on all ranks; the memory that a call adds."""

from __future__ import annotations

import gc
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from collops.bench.elements import Bits

Times = npt.NDArray[np.float64]

# Times of calls: begin and end, by a clock that all processes share, and the parts.
BEGIN, END, PARTS = 0, 1, 2
MOST_PARTS = 4
WARM_UP = 2
# Rounds between two looks at the clock, where the time is limited; even, so that each of two
# variants goes first as often as the other.
_ROUNDS_PER_LOOK = 4
_PLACE_BARRIERS, _PLACE_LOOKS = 20, 10

Run = Callable[[], object]
# Waits for all ranks, and rewrites a variant's x.
Meet = Callable[[], None]
Rewrite = Callable[[Any], None]
# A part's name, one of the operator's `parts` (or all), and its function.
Step = tuple[str, Run]


class Rounds(NamedTuple):
    """How often variants are called in turn."""

    number: int  # of rounds that count; two before them do not
    burst: int = 1  # calls of a variant in its turn; with several, one before them does not count
    most_s: float = math.inf  # seconds after which no further round begins


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
    meet: Meet | None = None  # in place of the measurement's own
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


def interleave(
    variants: Sequence[Variant],
    rounds: Rounds,
    rewrite: Rewrite,
    meet: Meet,
    most: Callable[[float], float] = float,
) -> Times:
    """Runs calls of each variant in each round, in another order each time.

    Returns [variants, rounds * burst, 2 + parts] seconds of this rank. `most` finds the largest of
    the ranks' values, by which they agree that the time is over.
    """
    burst = rounds.burst
    times = np.zeros((len(variants), rounds.number * burst, PARTS + MOST_PARTS))
    unused = np.zeros(PARTS + MOST_PARTS)
    pinned = now_on = frozenset(os.sched_getaffinity(0))
    start = time.monotonic()
    gc.collect()
    gc.disable()
    try:
        for i, order in enumerate(orders(len(variants), rounds.number + WARM_UP), -WARM_UP):
            looks = rounds.most_s < math.inf and i > 0 and i % _ROUNDS_PER_LOOK == 0
            if looks and most(time.monotonic() - start) > rounds.most_s:
                return times[:, : i * burst]
            for number in order:
                variant = variants[number]
                if (variant.cores or pinned) != now_on:
                    now_on = variant.cores or pinned
                    os.sched_setaffinity(0, now_on)
                for call in range(-1 if burst > 1 else 0, burst):
                    if variant.x is not None:
                        rewrite(variant.x)
                    row = times[number, i * burst + call] if min(i, call) >= 0 else unused
                    if variant.calls == len(variant.steps) == 1:
                        _time_one(variant.steps[0][1], variant.meet or meet, row)
                    else:
                        (variant.meet or meet)()
                        _time(variant, row)
    finally:
        os.sched_setaffinity(0, pinned)
        gc.enable()
    return times


def orders(variants: int, rounds: int) -> list[list[int]]:
    """The order of each round: the same on every rank, and another one from round to round."""
    return [np.random.default_rng(i).permutation(variants).tolist() for i in range(rounds)]


def _time_one(step: Run, meet: Meet, row: Times) -> None:
    """One call of one part, with nothing between the barrier, the clock and the call."""
    now = time.perf_counter
    meet()
    begin = now()
    step()
    end = now()
    row[BEGIN], row[END], row[PARTS] = begin, end, end - begin


def _time(variant: Variant, row: Times) -> None:
    if variant.measure is not None:
        row[BEGIN], row[END] = 0.0, variant.measure()
        return
    now = time.perf_counter
    row[PARTS:] = 0.0
    begin = last = now()
    for _ in range(variant.calls):
        for part, (_, step) in enumerate(variant.steps, PARTS):
            step()
            end = now()
            row[part] += end - last
            last = end
    row[BEGIN], row[END] = begin, last
    row /= variant.calls


def together(times: Times, one_clock: bool = True) -> Times:
    """From times [ranks, iterations, 2 + parts]: seconds from the first begin to the last end.

    Without one clock of all ranks these are the seconds of the slowest rank's own call.
    """
    if not one_clock:
        return own_slowest(times)
    return np.asarray(times[..., END].max(axis=0) - times[..., BEGIN].min(axis=0))


def own_slowest(times: Times) -> Times:
    """From the same times: seconds of the rank whose own call took longest."""
    return np.asarray((times[..., END] - times[..., BEGIN]).max(axis=0))


def milliseconds_of(times_ms: Times) -> dict[str, float]:
    """The figures of a row, from the milliseconds of its calls."""
    percents = {"ms": 50, "ms_p10": 10, "ms_p90": 90, "ms_min": 0, "ms_p95": 95}
    found = np.percentile(times_ms, list(percents.values()))
    return {name: round(float(value), 5) for name, value in zip(percents, found, strict=True)}


def typical_parts(times: Times, one_clock: bool = True) -> Times:
    """From the same times: the parts of the median call, on the rank that ended last."""
    whole = together(times, one_clock)
    typical = int(np.argsort(whole)[(len(whole) - 1) // 2])
    ends = times[:, typical, END] - (0.0 if one_clock else times[:, typical, BEGIN])
    return np.asarray(times[ends.argmax(), typical, PARTS:])


def pin(rank: int, threads: int) -> None:
    """Pins rank r to core r % cores, and with several threads to the next cores."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[(rank * threads + i) % len(cores)] for i in range(threads)})


def place_us(meet: Meet) -> float:
    """Microseconds of a barrier, which show how near the cores are to each other.

    The median of several looks: one look may hold a moment in which a core did other work.
    """
    looks = []
    meet()
    for _ in range(_PLACE_LOOKS):
        begin = time.perf_counter()
        for _ in range(_PLACE_BARRIERS):
            meet()
        looks.append(time.perf_counter() - begin)
    return float(np.median(looks)) / _PLACE_BARRIERS * 1e6


_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def added_bytes(call: Run, meet: Meet) -> tuple[int, int] | None:
    """Runs a call of all ranks and measures the private and the shared bytes that it adds.

    Private: how far VmHWM, reset before, rises above VmRSS, without files and shared memory.
    Shared: the growth of this process's share of shared memory (Pss_Shmem); in the sum over the
    ranks a page that two of them map counts once. None if the system does not tell them.
    """
    try:
        _CLEAR.write_text(_RESET_PEAK)
        before, shared_before = _amounts(_STATUS), _amounts(_ROLLUP)["Pss_Shmem"]
    except (OSError, KeyError):
        before, shared_before = {}, 0
    meet()
    call()
    meet()
    if not before:
        return None
    after, shared_after = _amounts(_STATUS), _amounts(_ROLLUP)["Pss_Shmem"]
    grown = sum(after[name] - before[name] for name in ("RssFile", "RssShmem"))
    alone = after["VmHWM"] - before["VmRSS"] - grown
    return max(alone, 0), shared_after - shared_before


def _amounts(path: Path) -> dict[str, int]:
    """The lines of a file of /proc that are amounts of memory, in bytes."""
    amounts = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            amounts[words[0].rstrip(":")] = int(words[1]) * 1024
    return amounts
