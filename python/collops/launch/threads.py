"""Ranks that are threads of one process, as COMM_MULTI_THREAD has them."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from collops.errors import status_of
from collops.launch.child import portable
from collops.launch.init import thread_rank
from collops.launch.processes import GRACE_S
from collops.testing.errors import RankEndedError, RankErrors

if TYPE_CHECKING:
    from collections.abc import Callable

    # A rank, its result, or its error and where that was raised.
    Report = tuple[int, Any, "BaseException | None", str]

# Between two looks at the clock: a queue takes no more than 63 bits of nanoseconds.
_LOOK_S = 60.0


def run_threads(
    process: int, fn: Callable[..., Any], n: int, args: tuple[Any, ...], timeout: float
) -> list[Any]:
    """What the one process of such a run does: calls ``fn(rank, *args)`` in `n` threads.

    Raises:
        RankErrors: a rank raised, or took too long. It cannot be ended: the process must.
    """
    for name in ("COLLOPS_RANK", "COLLOPS_RANK_SIZE"):
        os.environ.pop(name, None)  # they speak of the process
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    threads = [
        threading.Thread(
            target=_run, args=(reports, fn, rank, n, args), name=f"rank {rank}", daemon=True
        )
        for rank in range(n)
    ]
    for thread in threads:
        thread.start()
    results, errors, where = _collect(reports, n, timeout)
    for rank, thread in enumerate(threads):
        if rank not in results and rank not in errors:
            errors[rank] = RankEndedError(f"rank {rank} was still running when its time was up")
            where[rank] = _stack(thread)
    if errors:
        raise RankErrors(dict(sorted(errors.items())), where)
    return [results[rank] for rank in range(n)]


def _run(
    reports: queue.SimpleQueue[Report],
    fn: Callable[..., Any],
    rank: int,
    size: int,
    args: tuple[Any, ...],
) -> None:
    thread_rank.rank, thread_rank.size = rank, size
    try:
        result = fn(rank, *args)
    except BaseException as error:
        # At once, so that ranks that wait for this one need not wait for the process to end.
        _leave(status_of(error)[1])
        reports.put((rank, None, portable(error), traceback.format_exc()))
    else:
        _leave(f"rank {rank} has returned")
        reports.put((rank, result, None, ""))


def _leave(reason: str) -> None:
    for communicator in thread_rank.communicators:
        communicator._core.close(reason)


def _collect(
    reports: queue.SimpleQueue[Report], n: int, timeout: float
) -> tuple[dict[int, Any], dict[int, BaseException], dict[int, str]]:
    results: dict[int, Any] = {}
    errors: dict[int, BaseException] = {}
    where: dict[int, str] = {}
    deadline = time.monotonic() + timeout
    while len(results) + len(errors) < n:
        try:
            left = max(0.0, min(_LOOK_S, deadline - time.monotonic()))
            rank, result, error, text = reports.get(timeout=left)
        except queue.Empty:
            if time.monotonic() < deadline:
                continue
            break
        if error is None:
            results[rank] = result
            continue
        errors[rank], where[rank] = error, text
        deadline = min(deadline, time.monotonic() + GRACE_S)
    return results, errors, where


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
