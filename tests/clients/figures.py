"""What calls take with collops and on gloo: a test notes it, `make test-clients` prints it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable


def best_us(call: Callable[[], object], repeats: int = 50) -> float:
    """The microseconds of a call: of some rounds the best, as other programs run beside it."""
    rounds = []
    for _ in range(11):
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        rounds.append((time.perf_counter() - begin) / repeats * 1e6)
    return min(rounds)


def note(program: str, what: str, collops_us: float, gloo_us: float) -> None:
    """Adds a row of the table in docs/clients.md."""
    with open(os.environ["COLLOPS_TEST_CLIENTS"], "a") as file:
        file.write(f"| {program} | {what} | {collops_us:.0f} us | {gloo_us:.0f} us |\n")
