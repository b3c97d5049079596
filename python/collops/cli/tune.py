"""``collops tune``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Measures on this host, and prints the sizes."""
    from collops.tune.command import main

    return main(arguments)
