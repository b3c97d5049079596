"""Times variants in turn on all ranks, and combines the times of the ranks."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from collops.bench.variant import Variant

Times = npt.NDArray[np.float64]

# Times of calls: begin and end, by a clock that all processes share, and the parts.
_BEGIN, _END, _PARTS = 0, 1, 2
_MOST_PARTS = 4
_WARM_UP = 2
_PLACE_BARRIERS = 200


def interleave(
    variants: Sequence[Variant],
    iterations: int,
    rewrite: Callable[[Any], None],
    meet: Callable[[], None],
) -> Times:
    """Runs one call of each variant in each round, in another order each time.

    Args:
        variants: the variants.
        iterations: rounds that count; two rounds before them do not.
        rewrite: rewrites a variant's x.
        meet: waits for all ranks.

    Returns:
        [variants, iterations, 2 + parts] seconds of this rank.
    """
    times = np.zeros((len(variants), iterations, _PARTS + _MOST_PARTS))
    unused = np.zeros(_PARTS + _MOST_PARTS)
    pinned = os.sched_getaffinity(0)
    gc.collect()
    gc.disable()
    try:
        for i in range(-_WARM_UP, iterations):
            # The order is the same on every rank and changes from round to round.
            for number in np.random.default_rng(i + _WARM_UP).permutation(len(variants)):
                variant = variants[number]
                if variant.x is not None:
                    rewrite(variant.x)
                row = times[number, i] if i >= 0 else unused
                os.sched_setaffinity(0, variant.cores or pinned)
                meet()
                _time(variant, row)
    finally:
        os.sched_setaffinity(0, pinned)
        gc.enable()
    return times


def _time(variant: Variant, row: Times) -> None:
    if variant.measure is not None:
        row[_BEGIN], row[_END] = 0.0, variant.measure()
        return
    now = time.perf_counter
    row[_PARTS:] = 0.0
    begin = last = now()
    for _ in range(variant.calls):
        for part, (_, step) in enumerate(variant.steps, _PARTS):
            step()
            end = now()
            row[part] += end - last
            last = end
    row[_BEGIN], row[_END] = begin, last
    row /= variant.calls


def together(times: Times, one_clock: bool = True) -> Times:
    """From times [ranks, iterations, 2 + parts]: seconds from the first begin to the last end.

    Without one clock of all ranks these are the seconds of the slowest rank's own call.
    """
    if not one_clock:
        return own_slowest(times)
    return np.asarray(times[..., _END].max(axis=0) - times[..., _BEGIN].min(axis=0))


def own_slowest(times: Times) -> Times:
    """From the same times: seconds of the rank whose own call took longest."""
    return np.asarray((times[..., _END] - times[..., _BEGIN]).max(axis=0))


def typical_parts(times: Times, one_clock: bool = True) -> Times:
    """From the same times: the parts of the median call, on the rank that ended last."""
    whole = together(times, one_clock)
    typical = int(np.argsort(whole)[(len(whole) - 1) // 2])
    ends = times[:, typical, _END] - (0.0 if one_clock else times[:, typical, _BEGIN])
    return np.asarray(times[ends.argmax(), typical, _PARTS:])


def place_us(meet: Callable[[], None]) -> float:
    """Microseconds of a barrier, which show how near the cores are to each other."""
    meet()
    begin = time.perf_counter()
    for _ in range(_PLACE_BARRIERS):
        meet()
    return (time.perf_counter() - begin) / _PLACE_BARRIERS * 1e6
