"""The main functions of run_ranks' processes: each runs one rank, or all ranks as threads."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

from collops.errors import status_of
from collops.launch import mail
from collops.launch.init import thread_rank
from collops.launch.own_job import enter, place_names
from collops.launch.threads import run_on_threads
from collops.testing.errors import RankEndedError, results_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import FrameType

    from collops.testing.errors import Report


class Ended(BaseException):
    """Raised in the rank's main thread when run_ranks asks the process to end."""


def run_child(
    end: Connection,
    environment: dict[str, str],
    fn: Callable[..., Any],
    rank: int,
    args: tuple[Any, ...],
) -> None:
    """Calls ``fn(rank, *args)`` and posts (result, None, "") or (None, exception, traceback)."""
    enter(environment)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.register_at_fork(after_in_child=_drop_handler)
    # A forked rank has none of the threads that OpenMP made in its parent, but may wait for them.
    set_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    if set_threads is not None:
        set_threads(1)
    try:
        report = _packed(fn(rank, *args))
    except BaseException as error:
        _leave(error)
        report = mail.packed((None, _portable(error), traceback.format_exc()))
    mail.write(end.fileno(), report)
    end.close()


def _end(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second SIGTERM changes nothing
    raise Ended


def _drop_handler() -> None:
    """A process that a rank forks, as of a pool, ends by SIGTERM, as it would elsewhere."""
    if signal.getsignal(signal.SIGTERM) is _end:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _leave(error: BaseException) -> None:
    # At once, so that ranks that wait for this one need not wait for its process to end.
    if "collops._core" in sys.modules:
        from collops.core import leave

        leave(error)


def _packed(result: Any) -> bytes:
    try:
        return mail.packed((result, None, ""))
    except Exception as problem:
        error = TypeError(f"the result of a rank cannot be pickled: {problem}")
        return mail.packed((None, error, ""))


def _portable(error: BaseException) -> BaseException:
    """The exception, or one with the same text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # some exceptions pickle but do not unpickle
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def run_threads(
    process: int,
    fn: Callable[..., Any],
    n: int,
    args: tuple[Any, ...],
    timeout: float,
    grace_s: float,
) -> list[Any]:
    """The main function if ranks are threads: calls ``fn(rank, *args)`` in a thread per rank.

    Raises:
        RankErrors: a rank raised, or took too long; its thread ends with the process.
    """
    for name in place_names(0, 1, 0, 1):
        os.environ.pop(name, None)  # they describe the process, not its threads

    def work(rank: int) -> Report:
        thread_rank.rank, thread_rank.size = rank, n
        try:
            result = fn(rank, *args)
        except BaseException as error:
            # At once, so that ranks that wait for this one need not wait for the process to end.
            _close_all(status_of(error)[1])
            return None, _portable(error), traceback.format_exc()
        _close_all(f"rank {rank} has returned")
        return result, None, ""

    reports, running = run_on_threads(
        range(n), work, timeout, grace_s, failed=lambda report: report[1] is not None
    )
    for rank, thread in running.items():
        error = RankEndedError(f"rank {rank} was still running after its time-out")
        reports[rank] = None, error, _stack(thread)
    return results_of(reports)


def _close_all(reason: str) -> None:
    for communicator in thread_rank.communicators:
        communicator._core.close(reason)


def _stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else ""
