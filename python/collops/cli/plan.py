"""``collops plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Predicts a call on hosts that need not be there."""
    from collops.plan.command import main

    return main(arguments)
