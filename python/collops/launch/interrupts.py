"""What signals do while processes are started, so that no process and no exit code is lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defers Ctrl-C to the end of the block, in the main thread; others never get one."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is None:  # None: a handler of C code
        yield
        return
    noted: list[tuple[Any, ...]] = []
    handler = signal.signal(signal.SIGINT, lambda *args: noted.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted and callable(handler):
            handler(*noted[0])


@contextlib.contextmanager
def exit_codes_known() -> Iterator[None]:
    """Lets this process learn how its children end, if it ignores SIGCHLD; in the main thread."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
