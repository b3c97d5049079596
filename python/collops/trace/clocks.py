"""How much the monotonic clocks of several hosts differ.

Ranks of one host share a clock. Across hosts, the real time of each host gives the difference, as
exactly as the hosts keep it. Calls over several hosts give more: no rank leaves such a call before
every rank has entered it, which bounds the difference from both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from collops.trace.calls import group_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collops.trace.calls import GroupCall
    from collops.trace.rank_file import RankFile

# Backends whose calls return on a CPU after all ranks have entered them, on several hosts.
_ACROSS_HOSTS = ("ucx",)


@dataclass(frozen=True)
class HostClock:
    """How times of one host are converted to the clock of the first.

    Attributes:
        host: the host's name.
        boot: names its clock.
        shift_us: the offset that is added to its times.
        within_us: largest error of the shift; None: as exact as the hosts' real time.
    """

    host: str
    boot: str
    shift_us: float
    within_us: float | None

    def describe(self) -> str:
        """The line that a merge prints of this host."""
        if self.within_us is None:
            return f"{self.host}: joined by real time, as exact as the hosts keep it"
        return f"{self.host}: joined by its calls, within {self.within_us:.1f} us"


def host_clocks(files: Sequence[RankFile]) -> dict[str, HostClock]:
    """The clock of every host by its `boot`; the first file's host has the reference."""
    first = files[0].boot
    real_us = {
        boot: median(
            (real - monotonic) / 1e3
            for file in files
            if file.boot == boot
            for monotonic, real in file.clocks
        )
        for boot in {file.boot for file in files}
    }
    calls = group_calls(event for file in files for event in file.events)
    hosts = {file.rank: file.boot for file in files}
    clocks = {}
    for file in files:
        if file.boot == first:
            clocks[first] = HostClock(files[0].host, first, 0.0, 0.0)
        elif file.boot not in clocks:
            by_time = real_us[file.boot] - real_us[first]
            low, high = _bounds(calls, hosts, first, file.boot)
            clocks[file.boot] = _joined(file, by_time, low, high)
    return clocks


def _joined(file: RankFile, by_time: float, low: float, high: float) -> HostClock:
    if low == -float("inf") or high == float("inf"):
        return HostClock(file.host, file.boot, by_time, None)
    within = abs(high - low) / 2
    # Clocks that drift apart in a long run may cross the bounds: the middle is closest then.
    shift = min(max(by_time, low), high) if low <= high else (low + high) / 2
    return HostClock(file.host, file.boot, shift, within)


def _bounds(
    calls: Sequence[GroupCall], hosts: dict[int, str], first: str, other: str
) -> tuple[float, float]:
    """The least and the most that can be added to the times of `other`."""
    low, high = -float("inf"), float("inf")
    for call in calls:
        if call.backend not in _ACROSS_HOSTS:
            continue
        here, there = (
            [rank for rank in call.left if hosts.get(rank) == boot] for boot in (first, other)
        )
        if not here or not there:
            continue
        entered_here = max(call.entered[rank] for rank in here)
        entered_there = max(call.entered[rank] for rank in there)
        low = max(low, entered_here - min(call.left[rank] for rank in there))
        high = min(high, min(call.left[rank] for rank in here) - entered_there)
    return low, high
