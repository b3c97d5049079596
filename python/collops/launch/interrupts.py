"""Keeps Ctrl-C out of the moments at which it would lose track of a process."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Ctrl-C during the block takes effect at its end; only the main thread ever sees one."""
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is None:  # None: C code's handler, left alone
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
