"""Actions that run while a call of the main thread waits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def until_asleep(looks: int = 5) -> None:
    """Returns once the main thread was found asleep that often in a row, 10 ms apart."""
    asleep = 0
    while asleep < looks:
        time.sleep(0.01)
        state = Path(f"/proc/self/task/{os.getpid()}/stat").read_text().rpartition(")")[2]
        asleep = asleep + 1 if state.split()[0] == "S" else 0


def later(action: Callable[[], object], told: Any) -> threading.Thread:
    """Runs `action` once the main thread waits in a call, and then tells the other rank."""

    def run() -> None:
        until_asleep()
        try:
            action()
        finally:
            told.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    return thread
