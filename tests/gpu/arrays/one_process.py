"""A process of its own for a test: one that has called cuInit cannot fork ranks any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collops.testing import run_ranks


def alone(work: Callable[[], Any]) -> Any:
    """What `work` returns in a process of its own."""
    return run_ranks(lambda _: work(), 1)[0]
