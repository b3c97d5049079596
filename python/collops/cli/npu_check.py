"""``collops npu-check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence


def run(arguments: Sequence[str]) -> int:
    """Checks the backend hccl on this machine, and writes a report."""
    from collops.npu_check.command import main

    return main(arguments)


def parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    from collops.npu_check.command import parser as own

    return own()
