"""Chooses the size up to which one step is taken, from measured times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# A size counts for at most this ratio of the times, however far apart they are: where the two ways
# cross they differ by less, and a size that was disturbed must not outweigh its neighbours.
_MOST_RATIO = 1.1
_DIGITS = 9  # beyond which two sums are equal


@dataclass(frozen=True)
class Timed:
    """The times of both ways at one size, in microseconds."""

    size: int  # bytes of a rank's vector
    one_step_us: float
    two_steps_us: float

    @property
    def gain(self) -> float:
        """How much faster one step is, as a clipped logarithm; below 0: two steps are."""
        most = math.log(_MOST_RATIO)
        return max(-most, min(most, math.log(self.two_steps_us / self.one_step_us)))


def choose(timed: Sequence[Timed], now: int) -> int:
    """The largest size for one step, with which the measured calls gain most.

    A threshold gains what one step gains at the sizes up to it, and what two steps gain at the
    larger ones. It is 0 (never one step) or a measured size.

    Args:
        timed: the times; several of one size count alike.
        now: the present threshold. It stays if nothing measured tells it from the best one, and of
            several best ones the nearest to it is taken.

    Example:
        >>> table = [Timed(1024, 2, 3), Timed(4096, 4, 5), Timed(65536, 30, 20)]
        >>> choose(table, now=65536), choose(table, now=5000)
        (4096, 5000)
    """
    sizes = [0, *sorted({each.size for each in timed})]
    gains = [
        sum(each.gain if each.size <= size else -each.gain for each in timed) for size in sizes
    ]
    present = max(i for i, size in enumerate(sizes) if size <= now)
    best = max(range(len(sizes)), key=lambda i: (round(gains[i], _DIGITS), -abs(i - present), -i))
    return now if best == present else sizes[best]
