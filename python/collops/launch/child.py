"""What a process of run_ranks does."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import FrameType


class Ended(BaseException):
    """Raised in the rank's main thread when run_ranks asks the process to end."""


def run_child(
    connection: Connection,
    environment: dict[str, str],
    fn: Callable[..., Any],
    rank: int,
    args: tuple[Any, ...],
) -> None:
    """Calls ``fn(rank, *args)`` and sends (result, None, "") or (None, exception, traceback)."""
    os.environ.update(environment)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        report = _report(fn(rank, *args), None, "")
    except BaseException as error:
        _leave(error)
        report = _report(None, error, traceback.format_exc())
    connection.send_bytes(report)
    connection.close()


def _end(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # once is enough
    raise Ended


def _leave(error: BaseException) -> None:
    # At once, so that ranks that wait for this one need not wait for its process to end.
    if "collops._core" in sys.modules:
        from collops.core import leave

        leave(error)


def _report(result: Any, error: BaseException | None, where: str) -> bytes:
    if error is None:
        try:
            return pickle.dumps((result, None, ""))
        except Exception as problem:
            error = TypeError(f"the result of a rank must pickle: {problem}")
    return pickle.dumps((None, portable(error), where))


def portable(error: BaseException) -> BaseException:
    """The exception, or one that says the same where it cannot pass to another process."""
    try:
        pickle.loads(pickle.dumps(error))  # it may pickle and still not be made again
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
