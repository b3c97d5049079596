"""Futures of calls that are under way, completed by a thread of the group."""

from __future__ import annotations

import atexit
import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any

import torch

from collops.core import leave

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Mode = Callable[[], AbstractContextManager[Any]]

_END_S = 2.0  # for the callbacks of a future whose call has ended


class Futures:
    """Completes futures when their calls have ended, in the order in which they were asked for.

    The thread exists from the first future on; collective calls end in the order of their starts,
    so that none waits here for one that comes later.
    """

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = False
        self.asked = False  # somebody has asked for a future
        self._lock = threading.Lock()

    def of(
        self, wait: Callable[[], object], take: Callable[[], Any], mode: Mode
    ) -> torch.futures.Future[Any]:
        """A future that is done when `wait` returns or raises; its value is take()'s, or it raises.

        `mode` sets torch's mode for its callbacks.
        torch's C++ takes an exception that is set for a value, but not one that a callback raises.
        """
        self.asked = True
        if self._ended or threading.current_thread() is self._thread:
            return alone(wait, take, mode)  # a callback may wait for this future in that thread
        raw: torch.futures.Future[Any] = torch.futures.Future()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=_complete, args=(self._work,), name="collops futures", daemon=True
                )
                _threads[self._thread] = self._work
                self._thread.start()
        future = raw.then(lambda _: take())
        self._work.put((wait, raw, mode))
        return future

    def end(self) -> None:
        """Ends the thread after the futures that were asked for."""
        with self._lock:
            self._ended = True
            if self._thread is not None:
                self._work.put(None)
                self._thread = None


def alone(
    wait: Callable[[], object], take: Callable[[], Any], mode: Mode
) -> torch.futures.Future[Any]:
    """As Futures.of(), in a thread of its own: a message may wait for any other call."""
    futures = Futures()
    future = futures.of(wait, take, mode)
    futures.end()
    return future


def _complete(work: queue.SimpleQueue[Any]) -> None:
    try:
        while (asked := work.get()) is not None:
            wait, raw, mode = asked
            with contextlib.suppress(BaseException):  # take() raises it
                wait()
            with mode():
                raw.set_result(None)
            del asked, wait, raw, mode  # they hold tensors
    finally:
        _threads.pop(threading.current_thread(), None)


# The threads that complete futures, and what they are asked.
_threads: dict[threading.Thread, queue.SimpleQueue[Any]] = {}


@atexit.register
def _end_threads() -> None:
    """Ends the threads: one that came back into torch's C++ afterwards would end the process."""
    alive = [(thread, work) for thread, work in list(_threads.items()) if thread.is_alive()]
    if alive:
        leave()  # so that no thread waits for a call
    for thread, work in alive:
        work.put(None)
        thread.join(_END_S)
