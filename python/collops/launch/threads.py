"""Ranks that are threads of this process: they are started and waited for here."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Between two looks at the clock: a queue takes no more than 63 bits of nanoseconds.
_LOOK_S = 60.0


def run_on_threads(
    ranks: Sequence[int],
    work: Callable[[int], Any],
    timeout_s: float,
    grace_s: float = 0.0,
    failed: Callable[[Any], bool] = lambda report: False,
) -> tuple[dict[int, Any], dict[int, threading.Thread]]:
    """Calls ``work(rank)`` in a thread of each rank; once one has `failed`, waits `grace_s` more.

    Returns:
        What each rank returned, None where it raised; and the threads of those that still run: they
        cannot be ended, but end with the process.
    """
    done: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()

    def run(rank: int) -> None:
        report = None
        try:
            report = work(rank)
        finally:
            done.put((rank, report))

    threads = {
        rank: threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in ranks
    }
    for thread in threads.values():
        thread.start()
    reports: dict[int, Any] = {}
    deadline = time.monotonic() + timeout_s
    while threads and time.monotonic() < deadline:
        try:
            left_s = max(0.0, min(_LOOK_S, deadline - time.monotonic()))
            rank, report = done.get(timeout=left_s)
        except queue.Empty:
            continue
        reports[rank] = report
        del threads[rank]
        if failed(report):
            deadline = min(deadline, time.monotonic() + grace_s)
    return reports, threads
