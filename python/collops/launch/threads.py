"""Starts ranks that are threads of this process, and waits for them."""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The longest wait of one Queue.get(), whose time-out is at most 63 bits of nanoseconds.
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
        The result of each rank, None if it raised; and the threads that still run: they cannot be
        ended, but end with the process.
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
