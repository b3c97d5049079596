"""``collops npu-check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Checks the backend hccl on this machine, and writes a report."""
    from collops.npu_check.command import main

    return main(arguments)
