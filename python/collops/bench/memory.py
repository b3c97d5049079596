"""Measures the memory that a call adds to the processes that make it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_ROLLUP = Path("/proc/self/smaps_rollup")
_CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def added_bytes(call: Callable[[], object], meet: Callable[[], None]) -> tuple[int, int] | None:
    """Runs a call of all ranks and measures the private and the shared bytes that it adds.

    Private: how far VmHWM, reset before, rises above VmRSS, without files and shared memory.
    Shared: the growth of this process's share of shared memory (Pss_Shmem); in the sum over the
    ranks a page that two of them map counts once.

    Args:
        call: the measured call; memory that it uses for the first time counts.
        meet: waits for all ranks, so that none changes shared memory while another one looks.

    Returns:
        The two numbers, or None if the system does not provide them.
    """
    try:
        _CLEAR.write_text(_RESET_PEAK)
        before, shared_before = read(_STATUS), read(_ROLLUP)["Pss_Shmem"]
    except (OSError, KeyError):
        before, shared_before = {}, 0
    meet()
    call()
    meet()
    if not before:
        return None
    after, shared_after = read(_STATUS), read(_ROLLUP)["Pss_Shmem"]
    grown = sum(after[name] - before[name] for name in ("RssFile", "RssShmem"))
    alone = after["VmHWM"] - before["VmRSS"] - grown
    return max(alone, 0), shared_after - shared_before


def read(path: Path) -> dict[str, int]:
    """The lines of a file of /proc that are amounts of memory, in bytes."""
    amounts = {}
    for line in path.read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[2] == "kB":
            amounts[words[0].rstrip(":")] = int(words[1]) * 1024
    return amounts
